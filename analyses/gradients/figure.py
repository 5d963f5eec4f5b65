"""The picture of gradient flow (for `analyses.gradient_flow`): depth laws, layer by step maps, the checkpoint.

Every seed of a drawn placement is a thin line, their geometric mean a thick one in the placement's colour and dashes.
The maps of a run and its twin share one logarithmic colour scale per quantity, so that equal colours are equal norms
in both.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

from analyses.figures import CATEGORIES, QUIET, caption, categorical, sequential
from analyses.gradients.checkpoint import CheckpointGradients
from analyses.gradients.initialization import Initialization, Profile
from analyses.gradients.result import Result
from analyses.gradients.runs import TrainingMap
from analyses.gradients.tables import (
    GRADIENT,
    MEAN_SQUARE,
    checkpoint_rows,
    depth_rows,
    layer_rows,
    map_rows,
    stream_rows,
)
from model.config import Norm

Rows = list[dict[str, Any]]

HALF = 252
"""Width of one of two plots side by side."""
PLACEMENTS: dict[str, tuple[str, list[float]]] = {
    Norm.PRE.value: (CATEGORIES[0], [1, 0]),
    Norm.POST.value: (CATEGORIES[1], [8, 3]),
    Norm.SANDWICH.value: (CATEGORIES[2], [14, 3]),
    Norm.REORDERED.value: (CATEGORIES[3], [4, 4]),
    Norm.DEEPNORM.value: (CATEGORIES[4], [10, 3, 2, 3]),
    Norm.SCALED.value: (CATEGORIES[5], [2, 3]),
    Norm.NONE.value: (CATEGORIES[7], [6, 3, 2, 3, 2, 3]),
}
"""A placement's colour and dashes are its own, whichever others are drawn, so that none is told by its colour alone."""
COLOUR_RANGE = 1e4
"""Largest ratio that colours tell apart in a map; what is smaller still is drawn as the smallest."""
MOST_ROWS = 28
"""Rows at most in a map of matrices; beyond, W_Q and W_out stand for all."""


def drawn(result: Result) -> alt.VConcatChart:
    """The parts there is something to draw of, one below the other."""
    parts: list[Any] = []
    if result.initialization is not None:
        parts += [_depth_laws(result.initialization), _over_layers(result.initialization)]
    if logged := result.maps:
        said = result.pair.spoken() if result.pair is not None else f"{logged[0].run}, without a twin"
        parts += [_stream_maps(logged, said), _matrix_maps(logged)]
    if result.checkpoint is not None:
        parts.append(_checkpoint(result.checkpoint))
    if not parts:
        parts.append(alt.Chart(_data([{"text": "nothing was looked at"}])).mark_text().encode(text="text:N"))
    return alt.vconcat(*parts, spacing=30).resolve_scale(color="independent")


def _depth_laws(initialization: Initialization) -> alt.HConcatChart:
    """One token's gradient at the last W_out against depth, and the stream's mean square in the deepest models."""
    deepest = _deepest(initialization)
    over_depth, stream = depth_rows(initialization), _stream(deepest)
    ticks = sorted({profile.depth for profile in initialization.profiles})
    scale = alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    x = alt.X("n_layers:Q", title="layers (log)", scale=scale, axis=alt.Axis(values=ticks))
    token_y = _log_y(over_depth, GRADIENT, "|dL/dW_out|, one token, last layer (log)")
    square_y = _linear_y(stream, MEAN_SQUARE, "mean square of the stream")
    plots = [
        _seed_lines(over_depth, "n_layers", x, GRADIENT, token_y),
        _seed_lines(stream, "layer", _over_layer(ticks[-1]), MEAN_SQUARE, square_y),
    ]
    tokens = f"{initialization.n_tokens} random"
    below = caption(n=deepest[0].n_seeds, unit="seeds", tokens=tokens) + " · thin: a seed, thick: geometric mean"
    title = alt.TitleParams("At initialization (drawn models): what depth does", subtitle=below)
    return alt.hconcat(*plots, spacing=30).properties(title=title)


def _over_layers(initialization: Initialization) -> alt.HConcatChart:
    """The gradient over the layers of the deepest models: W_out, and the stream."""
    deepest = _deepest(initialization)
    depth = deepest[0].depth
    w_out = [row for profile in deepest for row in layer_rows(profile) if row["matrix"] == "W_out"]
    plots = [
        _seed_lines(rows, "layer", _over_layer(depth), GRADIENT, _log_y(rows, GRADIENT, title))
        for rows, title in ((w_out, "|dL/dW_out|, batch (log)"), (_stream(deepest), "|dL/dx|, batch (log)"))
    ]
    return alt.hconcat(*plots, spacing=30).properties(title=f"At initialization: from layer to layer ({depth} layers)")


def _deepest(initialization: Initialization) -> list[Profile]:
    depth = max(profile.depth for profile in initialization.profiles)
    return [profile for profile in initialization.profiles if profile.depth == depth]


def _stream(profiles: Sequence[Profile]) -> Rows:
    return [row for profile in profiles for row in stream_rows(profile)]


def _over_layer(depth: int) -> alt.X:
    return alt.X("layer:Q", title="layer", scale=alt.Scale(domain=[0, depth], nice=False))


def _seed_lines(rows: Rows, key: str, x: alt.X, column: str, y: alt.Y) -> alt.LayerChart:
    """Thin lines for seeds, thick ones for placements; what runs off the scale of the models with norms is told."""
    legend = alt.Legend(symbolOpacity=1, symbolStrokeWidth=2.2, symbolSize=500)  # the legend speaks of the thick lines
    names = placements(rows)
    colours, dashes = (alt.Scale(domain=names, range=[PLACEMENTS[name][at] for name in names]) for at in (0, 1))
    colour = alt.Color("norm:N", title="norms", scale=colours, legend=legend)
    dash = alt.StrokeDash("norm:N", title="norms", scale=dashes, legend=legend)
    thin = alt.Chart(_data(rows)).mark_line(strokeWidth=0.7, opacity=0.35, clip=True)
    thin = thin.encode(x=x, y=y, color=colour, detail="seed:N")
    means = means_over_seeds(rows, key, column)
    thick = alt.Chart(_data(means)).mark_line(strokeWidth=2.2, clip=True)
    shown = ["norm:N", alt.Tooltip(f"{key}:Q"), alt.Tooltip(f"{column}:Q", format=".3g")]
    thick = thick.encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=shown)
    axis: Any = y.to_dict()
    told = alt.Chart(_data([{"said": off_the_frame(means, column, *map(float, axis["scale"]["domain"]))}]))
    told = told.mark_text(align="right", fontSize=10, color=QUIET)
    told = told.encode(x=alt.value("width"), y=alt.value(-7), text="said:N")
    return alt.LayerChart(layer=[thin, thick, told], width=HALF, height=210)


def _log_y(rows: Rows, column: str, title: str) -> alt.Y:
    """A logarithmic axis over what models with norms reach."""
    low, high = _range([row for row in rows if row.get("norm") != Norm.NONE.value] or rows, column)
    axis = alt.Axis(format="~g", values=log_ticks(low, high))
    return alt.Y(f"{column}:Q", title=title, scale=alt.Scale(type="log", domain=[low, high], nice=False), axis=axis)


def _linear_y(rows: Rows, column: str, title: str) -> alt.Y:
    high = _range([row for row in rows if row["norm"] != Norm.NONE.value] or rows, column)[1]
    return alt.Y(f"{column}:Q", title=title, scale=alt.Scale(domain=[0, high], nice=False), axis=alt.Axis(tickCount=5))


def means_over_seeds(rows: Rows, key: str, column: str) -> Rows:
    """The geometric mean over seeds, per placement and `key`."""
    logs: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        logs.setdefault((row["norm"], row[key]), []).append(math.log(row[column]))
    return [{"norm": norm, key: at, column: math.exp(sum(ln) / len(ln))} for (norm, at), ln in logs.items()]


def placements(rows: Rows) -> list[str]:
    """The placements that are drawn, in the order of the legend."""
    return [name for name in PLACEMENTS if any(row["norm"] == name for row in rows)]


def off_the_frame(rows: Rows, column: str, low: float, high: float) -> str:
    """Which placements leave an axis from `low` to `high`, and how far they go; "" where none does.

    >>> rows = [{"norm": "pre", "x": 0.5}, {"norm": "none", "x": 2.0}, {"norm": "none", "x": 3e5}]
    >>> off_the_frame(rows, "x", 0.1, 1.0)
    'above the frame: none, up to 3e+05'
    """
    said = []
    for name in placements(rows):
        values = [row[column] for row in rows if row["norm"] == name]
        if max(values) > high:
            said.append(f"above the frame: {name}, up to {max(values):.2g}")
        if min(values) < low:
            said.append(f"below the frame: {name}, down to {min(values):.2g}")
    return "; ".join(said)


def _stream_maps(logged: Sequence[TrainingMap], said: str) -> alt.HConcatChart:
    rows = [map_rows(each, each.places, each.stream_norms) for each in logged]
    title = alt.TitleParams("Over training: |dL/dx| on held-out text", subtitle=textwrap.wrap(said, 105))
    return _side_by_side(logged, rows).properties(title=title)


def _matrix_maps(logged: Sequence[TrainingMap]) -> alt.HConcatChart:
    rows = [map_rows(each, each.matrices, each.matrix_norms) for each in logged]
    if max(len(each.matrices) for each in logged) > MOST_ROWS:
        rows = [[row for row in each if row["where"].endswith(("W_Q", "W_out"))] for each in rows]
    return _side_by_side(logged, rows).properties(title="Over training: |dL/dW| on the training batch, before clipping")


def _side_by_side(logged: Sequence[TrainingMap], rows: Sequence[Rows]) -> alt.HConcatChart:
    """One heatmap per run, all on one colour scale."""
    every = [row for each in rows for row in each]
    low, high = _range(every, GRADIENT)
    shown = max(low, high / COLOUR_RANGE)
    title = ["norm", "(log)"] if shown == low else ["norm (log,", f"from {shown:.0e})"]
    legend = alt.Legend(format="~g", values=log_ticks(shown, high))
    colour = alt.Color(f"{GRADIENT}:Q", title=title, scale=sequential(shown, high, type="log"), legend=legend)
    width = HALF if len(logged) > 1 else 2 * HALF
    last = max((row["step"] for row in every), default=1)
    plots = [_one_map(own, each, colour, last, width) for own, each in zip(rows, logged, strict=True)]
    return alt.hconcat(*plots, spacing=20).resolve_scale(color="shared")


def _one_map(rows: Rows, logged: TrainingMap, colour: alt.Color, last: int, width: int) -> alt.Chart:
    """Rows from the input, at the bottom, to the output; columns are steps."""
    upwards = list(dict.fromkeys(row["where"] for row in rows))[::-1]
    scale = alt.Scale(type="symlog", constant=4, domain=[0, max(last, 1)], nice=False, clamp=True)
    ticks = [step for step in (0, 4, *(4**power for power in range(2, 10))) if step <= last]
    return (
        alt.Chart(_data(rows), title=f"{logged.run} · {logged.norm}-norm")
        .mark_rect()
        .encode(
            x=alt.X("step:Q", scale=scale, title="step (log)", axis=alt.Axis(values=ticks, grid=False)),
            x2="until:Q",
            y=alt.Y("where:N", sort=upwards, title=None),
            color=colour,
            tooltip=["where:N", "step:Q", alt.Tooltip(f"{GRADIENT}:Q", format=".3g")],
        )
        .properties(width=width, height=alt.Step(22 if len(upwards) < 14 else 13))
    )


def _checkpoint(looked_at: CheckpointGradients) -> alt.Chart:
    """Each matrix's gradient over layers, at the checkpoint and at step 0."""
    rows = [row | {"step": f"step {row['step']}"} for row in checkpoint_rows(looked_at)]
    steps = list(dict.fromkeys(row["step"] for row in rows))
    title = alt.TitleParams(
        f"At the checkpoint ({looked_at.norm}-norm), on held-out text",
        subtitle=caption(n=looked_at.n_sequences, step=looked_at.now.step),
    )
    return (
        alt.Chart(_data(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0)),
            y=_log_y(rows, GRADIENT, "|dL/dW| (log)"),
            color=alt.Color("step:N", title=None, scale=categorical(steps[::-1])),
            column=alt.Column("matrix:N", sort=list(dict.fromkeys(row["matrix"] for row in rows)), title=None),
            tooltip=["matrix:N", "layer:O", "step:N", alt.Tooltip(f"{GRADIENT}:Q", format=".3g")],
        )
        .properties(width=72, height=150, title=title)
    )


def _range(rows: Rows, column: str) -> tuple[float, float]:
    """Ends of a logarithmic scale: a little more than the range of what is positive and finite, never empty."""
    kept = [row[column] for row in rows if 0 < row[column] < math.inf]
    return (min(kept) * 0.95, max(kept) * 1.05) if kept else (0.1, 1.0)


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten inside a range; where there are few, twice and five times them too."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 100 else (1,)
    return [float(f"{factor}e{power}") for power in powers for factor in factors if low <= factor * 10.0**power <= high]


def _data(rows: Rows) -> alt.InlineData:
    return alt.InlineData(values=rows)
