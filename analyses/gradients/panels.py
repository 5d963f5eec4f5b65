"""What gradient flow shows, a table for each question (for the pages, and to be typed in a notebook).

Training is read from the runs' logs, as they are now; initialization and checkpoint from a saved result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analyses import training_curve
from analyses.gradients.initialization import Initialization
from analyses.gradients.result import Result
from analyses.gradients.runs import TrainingMap, training_map
from analyses.gradients.tables import (
    GRADIENT,
    MEAN_SQUARE,
    checkpoint_rows,
    depth_rows,
    layer_rows,
    map_rows,
    short_place,
    stream_rows,
)
from interp.stats import Interval
from model.errors import InputError
from model.lab import read_metrics, read_run

RMS = "root mean square"
BOTTOM_TO_TOP = "dL/dx, bottom over top"


def logged_maps(*runs: Path | str) -> list[TrainingMap]:
    """What each of some runs logged about its gradients; one that logged none is left out."""
    found = (training_map(Path(run), read_run(Path(run))) for run in runs)
    return [each for each in found if each is not None]


def stream_map_frame(maps: Sequence[TrainingMap]) -> pd.DataFrame:
    """|dL/dx| per run, place of the stream and logged step, and until which step it is drawn."""
    return _labelled(maps, [map_rows(each, each.places, each.stream_norms) for each in maps])


def matrix_map_frame(maps: Sequence[TrainingMap], matrix: str = "") -> pd.DataFrame:
    """|dL/dW| per run, matrix and logged step; of one kind of matrix, such as W_out, where it is named."""
    rows = [map_rows(each, each.matrices, each.matrix_norms) for each in maps]
    return _labelled(
        maps, [[row for row in own if row["where"].endswith(f".{matrix}" if matrix else "")] for own in rows]
    )


def matrix_kinds(maps: Sequence[TrainingMap]) -> list[str]:
    """The kinds of matrices that the runs have, in the order of a layer."""
    return list(dict.fromkeys(name.partition(".")[2] for each in maps for name in each.matrices))


def logged_step(logged: TrainingMap, step: int) -> int:
    """The last logged step that is not after `step`, or the first one."""
    before = logged.steps[logged.steps <= step]
    return int(before[-1] if len(before) else logged.steps[0])


def stream_slice_frame(maps: Sequence[TrainingMap], step: int) -> pd.DataFrame:
    """Gradient and size of the stream by place, at the last step that each run logged up to `step`."""
    rows = []
    for each in maps:
        at = each.steps.tolist().index(logged_step(each, step))
        values = zip(each.places, each.stream_norms[at].tolist(), each.stream_rms[at].tolist(), strict=True)
        rows += [
            _label(each) | {"step": int(each.steps[at]), "where": short_place(place), GRADIENT: norm, RMS: rms}
            for place, norm, rms in values
        ]
    return pd.DataFrame(rows, columns=["run", "norm", "step", "where", GRADIENT, RMS])


def size_map_frame(maps: Sequence[TrainingMap]) -> pd.DataFrame:
    """Root mean square of the stream per run, place and logged step."""
    rows = [map_rows(each, each.places, each.stream_rms) for each in maps]
    return _labelled(maps, rows).rename(columns={GRADIENT: RMS})


def ratio_frame(maps: Sequence[TrainingMap], what: str = "") -> pd.DataFrame:
    """How gradients compare between the ends of the model, at every logged step.

    Of the stream the bottom over the top; of matrices the last layer over the first. `what` keeps one of these.
    """
    rows = []
    for each in maps:
        ratios = {BOTTOM_TO_TOP: each.stream_norms[:, 0] / each.stream_norms[:, -1]}
        for matrix in ("W_Q", "W_out"):
            names = f"L0.{matrix}", f"L{each.n_layers - 1}.{matrix}"
            if set(names) <= set(each.matrices):
                first, last = (each.matrix_norms[:, each.matrices.index(name)] for name in names)
                ratios[f"{matrix}, last over first layer"] = last / first
        rows += [
            _label(each) | {"what": kind, "step": step, "ratio": ratio}
            for kind, values in ratios.items()
            for step, ratio in zip(each.steps.tolist(), values.tolist(), strict=True)
            if 0 < ratio < math.inf and what in ("", kind)
        ]
    return pd.DataFrame(rows, columns=["run", "norm", "what", "step", "ratio"])


def loss_frame(*runs: Path | str, what: str = "") -> pd.DataFrame:
    """The losses that some runs logged, or one kind of them: run, step, tokens, what, loss in nats per token."""
    rows = [
        {"run": run.resolve().name} | dict(zip(losses.columns, row, strict=True))
        for run in map(Path, runs)
        for losses in [training_curve.table(read_metrics(run))]
        for row in losses.itertuples(index=False, name=None)
    ]
    kept = [row for row in rows if what in ("", row["what"])]
    return pd.DataFrame(kept, columns=["run", "step", "tokens", "what", "loss"])


def depth_frame(result: Result) -> pd.DataFrame:
    """At initialization: one token's gradient at the last W_out, per placement, depth and seed."""
    return pd.DataFrame(depth_rows(_drawn(result)))


def matrix_profile_frame(result: Result, depth: int, matrix: str = "W_out") -> pd.DataFrame:
    """At initialization, in models of `depth` layers: the batch's gradient of one matrix per layer and seed."""
    rows = [row for profile in _drawn(result).profiles if profile.depth == depth for row in layer_rows(profile)]
    return pd.DataFrame([row for row in rows if row["matrix"] == matrix])


def stream_profile_frame(result: Result, depth: int) -> pd.DataFrame:
    """At initialization, in models of `depth` layers: gradient and mean square of the stream per layer and seed."""
    rows = [row for profile in _drawn(result).profiles if profile.depth == depth for row in stream_rows(profile)]
    return pd.DataFrame(rows, columns=["norm", "n_layers", "seed", "layer", GRADIENT, MEAN_SQUARE])


def scaling_frame(result: Result) -> pd.DataFrame:
    """At initialization, per placement: exponents in depth, and what the stream does, with intervals over seeds."""
    drawn = _drawn(result)
    rows = []
    for scaling in drawn.scalings:
        last = scaling.slopes[-1]
        rows.append(
            {"norm": scaling.placement.value}
            | _cells("exponent, one token", scaling.exponent)
            | _cells("exponent, batch", scaling.batch_exponent)
            | _cells(f"slope of ln W_out per layer ({last.depth} layers)", last.w_out)
            | _cells("rise of mean square per layer", scaling.growth)
            | {"R^2": scaling.linearity, "n seeds": drawn.profiles[0].n_seeds}
        )
    return pd.DataFrame(rows)


def checkpoint_frame(result: Result) -> pd.DataFrame:
    """On held-out text, at the checkpoint and at step 0: |dL/dW| per layer and matrix."""
    rows = [] if result.checkpoint is None else checkpoint_rows(result.checkpoint)
    return pd.DataFrame(rows, columns=["layer", "matrix", "step", GRADIENT])


def checkpoint_ratio_frame(result: Result) -> pd.DataFrame:
    """|dL/dx| at the bottom over the top as a factor, with its interval over groups of sequences, and its change."""
    found = result.checkpoint
    known: dict[str, Interval] = {}
    if found is not None:
        known[f"step {found.now.step}"] = found.now.ratio
        if found.initial is not None and found.change is not None:
            known |= {"step 0": found.initial.ratio, "change (paired)": found.change}
    rows = [
        {"what": what} | {name: _factor(value) for name, value in (("ratio", i.mean), ("low", i.low), ("high", i.high))}
        for what, i in known.items()
    ]
    return pd.DataFrame(rows, columns=["what", "ratio", "low", "high"])


def _factor(log: float) -> float:
    return math.exp(min(log, 700.0))


def _cells(name: str, interval: Interval | None) -> dict[str, float]:
    if interval is None:
        return {}
    return {name: interval.mean, f"{name}, low": interval.low, f"{name}, high": interval.high}


def _drawn(result: Result) -> Initialization:
    if result.initialization is None:
        raise InputError("this result has no models drawn at initialization: it was switched off when it was run")
    return result.initialization


def _label(logged: TrainingMap) -> dict[str, Any]:
    return {"run": logged.run, "norm": logged.norm}


def _labelled(maps: Sequence[TrainingMap], rows: Sequence[list[dict[str, Any]]]) -> pd.DataFrame:
    every = [_label(each) | row for each, own in zip(maps, rows, strict=True) for row in own]
    return pd.DataFrame(every, columns=["run", "norm", "where", "step", "until", GRADIENT])
