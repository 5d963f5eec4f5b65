"""The figures of gradient flow one by one, in Vega-Lite without a look, at the width that the page gives them.

Maps of a run and its twin are two figures on one colour scale, which `colour_domain` takes from both. A run has its
colour in every figure, and so has a placement, which is that of the study's own figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analyses.figures import CATEGORIES, QUIET, SEQUENTIAL
from analyses.gradients.figure import COLOUR_RANGE, PLACEMENTS, log_ticks, means_over_seeds, off_the_frame, placements
from model.config import Norm

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

HEIGHT = 210
ROW = 20
"""Pixels of a row of a map."""

RUNS = CATEGORIES[0], CATEGORIES[4]
"""Colours of a run and of its twin."""


def colour_domain(rows: Rows, column: str) -> tuple[float, float]:
    """One logarithmic colour scale for every map of `rows`: what is smaller by more than 1e4 is drawn as that."""
    values = [row[column] for row in rows if row[column] > 0]
    if not values:
        return 0.1, 1.0
    return max(min(values), max(values) / COLOUR_RANGE) * 0.95, max(values) * 1.05


def map_figure(rows: Rows, column: str, domain: tuple[float, float], *, step: int | None = None) -> Spec:
    """One run's rows over its steps: the input at the bottom; `step` is ruled."""
    upwards, last = list(dict.fromkeys(row["where"] for row in rows))[::-1], _last(rows)
    colour = {
        "field": column, "type": "quantitative",
        "scale": {"type": "log", "domain": list(domain), "range": list(SEQUENTIAL), "clamp": True,
                  "interpolate": "lab"},
        "legend": {"title": "norm (log)", "orient": "bottom", "format": "~g", "values": log_ticks(*domain),
                   "gradientLength": 180},
    }  # fmt: skip
    cells = {
        "data": {"values": rows},
        "mark": "rect",
        "encoding": {
            "x": _steps(last),
            "x2": {"field": "until"},
            "y": {"field": "where", "type": "nominal", "sort": upwards, "title": None},
            "color": colour,
            "tooltip": [
                {"field": "where", "type": "nominal"}, {"field": "step", "type": "quantitative"},
                {"field": column, "type": "quantitative", "format": ".3g"},
            ],
        },
    }  # fmt: skip
    return {"height": {"step": ROW if len(upwards) < 15 else 12}, "layer": [cells, *_rule(step, last)]}


def side_by_side(figures: Sequence[tuple[str, Spec]]) -> Spec:
    """Maps under their titles, beside one another: the form in which a pair of runs is kept."""
    return {"hconcat": [{"title": title, "width": 260, **figure} for title, figure in figures]}


def steps_figure(rows: Rows, column: str, title: str, *, log: bool = True, step: int | None = None) -> Spec:
    """Lines over training, one for each run."""
    last = _last(rows)
    lines = {
        "data": {"values": rows},
        "mark": {"type": "line", "clip": True},
        "encoding": {
            "x": _steps(last),
            "y": _values(rows, column, title, log=log),
            "color": _by_run(rows),
            "tooltip": [{"field": "run", "type": "nominal"}, {"field": "step", "type": "quantitative"},
                        {"field": column, "type": "quantitative", "format": ".3g"}],
        },
    }  # fmt: skip
    return {"height": HEIGHT, "layer": [lines, *_rule(step, last)]}


def places_figure(rows: Rows, column: str, title: str) -> Spec:
    """Lines over depth, one for each run: one step of each."""
    order = list(dict.fromkeys(row["where"] for row in rows))
    return {
        "height": HEIGHT,
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"size": 40}},
        "encoding": {
            "x": {"field": "where", "type": "nominal", "sort": order, "title": "place in the stream",
                  "axis": {"labelAngle": 0, "labelOverlap": "greedy", "labelSeparation": 5}},
            "y": _values(rows, column, title),
            "color": _by_run(rows),
            "tooltip": [{"field": "run", "type": "nominal"}, {"field": "where", "type": "nominal"},
                        {"field": "step", "type": "quantitative"},
                        {"field": column, "type": "quantitative", "format": ".3g"}],
        },
    }  # fmt: skip


def seeds_figure(rows: Rows, key: str, column: str, titles: tuple[str, str], *, log: bool = True) -> Spec:
    """A thin line for every seed and a thick one for their geometric mean, by placement.

    The axis is that of the models with norms; what runs off it is told above it.
    """
    bounded = [row for row in rows if row["norm"] != Norm.NONE.value]
    names = placements(rows)
    colour, dash = (
        {
            "field": "norm", "type": "nominal", "title": "norms",
            "scale": {"domain": names, "range": [PLACEMENTS[name][at] for name in names]},
            "legend": {"symbolOpacity": 1, "symbolStrokeWidth": 2.2, "symbolSize": 500},
        }
        for at in (0, 1)
    )  # fmt: skip
    x: Spec = {"field": key, "type": "quantitative", "title": titles[0]}
    if key == "n_layers":
        ticks = sorted({row[key] for row in rows})
        x |= {"scale": {"type": "log", "domain": [ticks[0], ticks[-1]], "nice": False}, "axis": {"values": ticks}}
    else:
        x |= {"scale": {"domain": [0, max(row[key] for row in rows)], "nice": False}, "axis": {"tickMinStep": 1}}
    y = _values(bounded or rows, column, titles[1], log=log)
    both, means = {"x": x, "y": y, "color": colour}, means_over_seeds(rows, key, column)
    told = off_the_frame(means, column, *map(float, y["scale"]["domain"]))
    return {
        "height": HEIGHT,
        "layer": [
            {"data": {"values": rows}, "encoding": both | {"detail": {"field": "seed"}},
             "mark": {"type": "line", "strokeWidth": 0.7, "opacity": 0.35, "clip": True}},
            {"data": {"values": means}, "mark": {"type": "line", "strokeWidth": 2.2, "clip": True},
             "encoding": both | {"strokeDash": dash,
                                 "tooltip": [{"field": "norm", "type": "nominal"},
                                             {"field": key, "type": "quantitative"},
                                             {"field": column, "type": "quantitative", "format": ".3g"}]}},
            {"data": {"values": [{"said": told}]},
             "mark": {"type": "text", "align": "right", "fontSize": 10, "color": QUIET},
             "encoding": {"x": {"value": "width"}, "y": {"value": -7}, "text": {"field": "said"}}},
        ],
    }  # fmt: skip


def layers_figure(rows: Rows, column: str) -> Spec:
    """Matrices over layers: the checkpoint full, step 0 dashed."""
    rows = [row | {"when": f"step {row['step']}"} for row in rows]
    now = f"step {_last(rows)}"
    names = list(dict.fromkeys(row["matrix"] for row in rows))
    whens = list(dict.fromkeys([now, *(row["when"] for row in rows)]))
    return {
        "height": HEIGHT,
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"size": 34}},
        "encoding": {
            "x": {"field": "layer", "type": "ordinal", "title": "layer", "axis": {"labelAngle": 0}},
            "y": _values(rows, column, "|dL/dW| (log)"),
            "color": {"field": "matrix", "type": "nominal", "title": None,
                      "scale": {"domain": names, "range": list(CATEGORIES[: len(names)])}},
            "strokeDash": {"field": "when", "type": "nominal", "title": None,
                           "scale": {"domain": whens, "range": [[1, 0], [4, 3]][: len(whens)]}},
            "tooltip": [{"field": "matrix", "type": "nominal"}, {"field": "layer", "type": "ordinal"},
                        {"field": "when", "type": "nominal"},
                        {"field": column, "type": "quantitative", "format": ".3g"}],
        },
    }  # fmt: skip


def ratios_figure(rows: Rows) -> Spec:
    """Factors with their intervals on a logarithmic axis, and a rule at 1."""
    ends = [row[name] for row in rows for name in ("low", "high") if row[name] > 0]
    domain = [min([0.8, *ends]) * 0.9, max([1.25, *ends]) * 1.1]
    x = {
        "type": "quantitative", "title": "|dL/dx| at the bottom over the top (log)",
        "scale": {"type": "log", "domain": domain, "nice": False},
        "axis": {"format": "~g", "values": log_ticks(*domain)},
    }  # fmt: skip
    y = {"field": "what", "type": "nominal", "sort": None, "title": None}
    shown = [{"field": name, "type": "quantitative", "format": ".3g"} for name in ("ratio", "low", "high")]
    return {
        "height": {"step": 34},
        "data": {"values": rows},
        "layer": [
            {"data": {"values": [{"one": 1}]}, "mark": {"type": "rule", "strokeDash": [3, 3]},
             "encoding": {"x": x | {"field": "one"}}},
            {"mark": {"type": "rule", "strokeWidth": 2, "color": CATEGORIES[0]},
             "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y}},
            {"mark": {"type": "point", "filled": True, "opacity": 1, "color": CATEGORIES[0]},
             "encoding": {"x": x | {"field": "ratio"}, "y": y, "tooltip": shown}},
        ],
    }  # fmt: skip


def _steps(last: int) -> Spec:
    """Steps on an axis that is linear at first and then logarithmic, as checkpoints are spaced."""
    ticks = [step for step in (0, 4, *(4**power for power in range(2, 12))) if step <= last]
    return {
        "field": "step", "type": "quantitative", "title": "step (log)",
        "scale": {"type": "symlog", "constant": 4, "domain": [0, max(last, 1)], "nice": False, "clamp": True},
        "axis": {"values": ticks, "grid": False, "labelOverlap": "greedy", "format": ",d"},
    }  # fmt: skip


def records(frame: pd.DataFrame) -> Rows:
    """A frame as the rows that a figure takes: made once, since text columns are slow to go through."""
    return [dict(zip(map(str, frame.columns), row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def _last(rows: Rows) -> int:
    return max((row["step"] for row in rows), default=1)


def _values(rows: Rows, column: str, title: str, *, log: bool = True) -> Spec:
    kept = [row[column] for row in rows if 0 < row[column] < math.inf]
    low, high = (min(kept) * 0.95, max(kept) * 1.05) if kept else (0.1, 1.0)
    scale: Spec = {"type": "log", "domain": [low, high], "nice": False} if log else {"domain": [0, high], "nice": False}
    axis = {"format": "~g", "values": log_ticks(low, high)} if log else {"tickCount": 5}
    return {"field": column, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _by_run(rows: Rows) -> Spec:
    names = list(dict.fromkeys(row["run"] for row in rows))
    legend = {"orient": "top", "title": None} if len(names) > 1 else None
    return {
        "field": "run", "type": "nominal", "legend": legend,
        "scale": {"domain": names, "range": [RUNS[place % 2] for place in range(len(names))]},
    }  # fmt: skip


def _rule(step: int | None, last: int) -> Sequence[Spec]:
    """The selected step, where it is on the axis."""
    if step is None or not 0 <= step <= last:
        return []
    mark = {"type": "rule", "strokeDash": [3, 3], "strokeWidth": 1.2}
    return [{"data": {"values": [{"step": step}]}, "mark": mark, "encoding": {"x": _steps(last)}}]
