"""Gradient norms as rows (for `analyses.gradient_flow`): a summary for reading, long forms for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.gradients.checkpoint import CheckpointGradients, StepGradients
from analyses.gradients.initialization import SHOWN, DepthSlopes, Initialization, Profile, Scaling
from analyses.gradients.result import Result
from analyses.gradients.runs import TrainingMap

GRADIENT, MEAN_SQUARE = "norm of gradient", "mean square"
MOST_COLUMNS = 120
"""Steps at most in a map; beyond, evenly spaced ones are left out."""

SUMMARY = (
    "model", "norm", "n_layers", "step", "W_out last layer", "W_out last/first", "W_Q last/first", "dL/dx top/bottom",
    "mean square last/first", "W_out slope", "slope low", "slope high", "exponent", "exponent low", "exponent high",
    "n seeds",
)  # fmt: skip
"""Columns of the summary. Ratios are of norms; slopes are of ln(norm) per layer; what does not apply is empty."""


def summary(result: Result) -> pd.DataFrame:
    """One row per drawn placement and depth, per run's first and last logged step, and per checkpoint."""
    rows: list[dict[str, Any]] = []
    if result.initialization is not None:
        scalings = {scaling.placement: scaling for scaling in result.initialization.scalings}
        rows += [_drawn_row(profile, scalings[profile.placement]) for profile in result.initialization.profiles]
    for logged in result.maps:
        rows += [_logged_row(logged, index) for index in (0, len(logged.steps) - 1)]
    if result.checkpoint is not None:
        looked_at = {each.step: each for each in (result.checkpoint.initial, result.checkpoint.now) if each is not None}
        rows += [_checkpoint_row(result, each) for each in looked_at.values()]
    return pd.DataFrame(rows, columns=list(SUMMARY))


def layer_rows(profile: Profile) -> list[dict[str, Any]]:
    """Per seed, layer and matrix: its gradient norm."""
    norms = profile.matrix_norms.tolist()
    return [
        _labels(profile, seed) | {"layer": layer, "matrix": matrix, GRADIENT: norms[seed][layer][m]}
        for seed in range(profile.n_seeds)
        for layer in range(profile.depth)
        for m, matrix in enumerate(SHOWN)
    ]


def stream_rows(profile: Profile) -> list[dict[str, Any]]:
    """Per seed and layer boundary: gradient norm and mean square of the stream."""
    norms, squares = profile.stream_norms.tolist(), profile.mean_square.tolist()
    return [
        _labels(profile, seed) | {"layer": at, GRADIENT: norms[seed][at], MEAN_SQUARE: squares[seed][at]}
        for seed in range(profile.n_seeds)
        for at in range(profile.depth + 1)
    ]


def depth_rows(initialization: Initialization) -> list[dict[str, Any]]:
    """Per placement, depth and seed: one token's gradient norm at the last W_out."""
    return [
        _labels(profile, seed) | {GRADIENT: norm}
        for profile in initialization.profiles
        for seed, norm in enumerate(profile.token_norms.tolist())
    ]


def map_rows(logged: TrainingMap, names: Sequence[str], norms: Float[Tensor, "step name"]) -> list[dict[str, Any]]:
    """Per name and logged step: the norm there, and the step until which it is drawn; norms of zero are left out."""
    stride = -(-len(logged.steps) // MOST_COLUMNS)
    starts, columns = logged.steps[::stride].tolist(), norms[::stride].tolist()
    ends = [*starts[1:], starts[-1] + (starts[-1] - starts[-2] if len(starts) > 1 else 1)]
    return [
        {"where": short_place(name), "step": start, "until": end, GRADIENT: column[i]}
        for i, name in enumerate(names)
        for column, start, end in zip(columns, starts, ends, strict=True)
        if column[i] > 0
    ]


def checkpoint_rows(looked_at: CheckpointGradients) -> list[dict[str, Any]]:
    """Per matrix, layer and step (the checkpoint's, and 0): the gradient norm on held-out text."""
    both = {each.step: each for each in (looked_at.initial, looked_at.now) if each is not None}
    return [
        {"layer": int(name[1:].partition(".")[0]), "matrix": name.partition(".")[2], "step": step, GRADIENT: norm}
        for step, each in both.items()
        for name, norm in zip(each.matrices, each.matrix_norms.tolist(), strict=True)
        if norm > 0
    ]


def short_place(name: str) -> str:
    """A row label: "L0 pre" for blocks.0.hook_resid_pre; a matrix keeps its name."""
    if not name.startswith("blocks."):
        return name
    _, layer, tap = name.split(".")
    return f"L{layer} {tap.removeprefix('hook_resid_')}"


def _labels(profile: Profile, seed: int) -> dict[str, Any]:
    return {"norm": profile.placement.value, "n_layers": profile.depth, "seed": seed}


def _drawn_row(profile: Profile, scaling: Scaling) -> dict[str, Any]:
    matrices, stream, square = (
        values.double().log().mean(dim=0).exp()  # over seeds: the geometric mean, as slopes and exponents take it
        for values in (profile.matrix_norms, profile.stream_norms, profile.mean_square)
    )
    w_out, w_query = matrices[:, SHOWN.index("W_out")], matrices[:, SHOWN.index("W_Q")]
    slope = next(each for each in scaling.slopes if each.depth == profile.depth)
    return {
        "model": "initialization",
        "norm": profile.placement.value,
        "n_layers": profile.depth,
        "step": 0,
        "W_out last layer": float(w_out[-1]),
        "W_out last/first": float(w_out[-1] / w_out[0]),
        "W_Q last/first": float(w_query[-1] / w_query[0]),
        "dL/dx top/bottom": float(stream[-1] / stream[0]),
        "mean square last/first": float(square[-1] / square[0]),
        **_slope_cells(slope),
        **_exponent_cells(scaling),
        "n seeds": profile.n_seeds,
    }


def _exponent_cells(scaling: Scaling) -> dict[str, float]:
    found = scaling.exponent
    return {} if found is None else {"exponent": found.mean, "exponent low": found.low, "exponent high": found.high}


def _slope_cells(slope: DepthSlopes) -> dict[str, float]:
    return {"W_out slope": slope.w_out.mean, "slope low": slope.w_out.low, "slope high": slope.w_out.high}


def _logged_row(logged: TrainingMap, index: int) -> dict[str, Any]:
    norms = dict(zip(logged.matrices, logged.matrix_norms[index].tolist(), strict=True))
    return {
        "model": logged.run,
        "norm": logged.norm,
        "n_layers": logged.n_layers,
        "step": int(logged.steps[index]),
        **_ratios(norms, logged.n_layers),
        "dL/dx top/bottom": float(logged.stream_norms[index, -1] / logged.stream_norms[index, 0]),
        "mean square last/first": float(logged.stream_rms[index, -1] / logged.stream_rms[index, 0]) ** 2,
    }


def _checkpoint_row(result: Result, looked_at: StepGradients) -> dict[str, Any]:
    if result.checkpoint is None:
        raise RuntimeError("rows of a checkpoint are asked for only where there is one")
    norms = dict(zip(looked_at.matrices, looked_at.matrix_norms.tolist(), strict=True))
    return {
        "model": "held-out text",
        "norm": result.checkpoint.norm,
        "n_layers": result.checkpoint.n_layers,
        "step": looked_at.step,
        **_ratios(norms, result.checkpoint.n_layers),
        "dL/dx top/bottom": float(looked_at.stream_norms[-1] / looked_at.stream_norms[0]),
        "mean square last/first": float(looked_at.mean_square[-1] / looked_at.mean_square[0]),
    }


def _ratios(norms: dict[str, float], n_layers: int) -> dict[str, float]:
    """How the last layer compares with the first; attention-only models have no W_out."""
    cells: dict[str, float] = {}
    last = n_layers - 1
    for matrix in ("W_out", "W_Q"):
        first = norms.get(f"L0.{matrix}", 0.0)
        if first > 0:
            cells[f"{matrix} last/first"] = norms[f"L{last}.{matrix}"] / first
    return cells | ({"W_out last layer": norms[f"L{last}.W_out"]} if f"L{last}.W_out" in norms else {})
