"""Figures of one position through the lens: its likeliest tokens, the target from place to place, a logit's parts.

Written in Vega-Lite as it is, since a page draws them at every click (`analyses.views.by_layer` says why).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analyses.figures import CATEGORIES, INK, QUIET
from analyses.views.by_layer import CHANCE
from analyses.views.payload import visible

Spec = dict[str, Any]

KINDS = {
    "embedding": CATEGORIES[2],
    "head": CATEGORIES[0],
    "attention": CATEGORIES[0],
    "FFN": CATEGORIES[1],
    "bias": CATEGORIES[3],
    "other": CHANCE,
}
"""The colour of each kind of component."""

BAR, AXIS, PLOT = 16, 52, 210
"""Height of one bar, of the axis and legend around them, and of a figure whose bars stand upright."""

FEW = 40
"""Upright bars up to which each has its label."""


def top_figure(rows: pd.DataFrame, n: int = 10) -> Spec:
    """The `n` likeliest tokens of one cell as bars, and the target's in another colour, wherever it stands."""
    shown = [
        {**row, "word": f"{row['rank']}  {visible(str(row['token']))}"}
        for row in rows.to_dict("records")
        if row["rank"] <= n or row["target"]
    ]
    return {
        "height": BAR * len(shown) + AXIS,
        "data": {"values": shown},
        "encoding": {
            "y": {"field": "word", "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelFont": "monospace", "labelLimit": 130}},
            "x": {"field": "probability", "type": "quantitative", "title": "probability", "scale": {"domain": [0, 1]},
                  "axis": {"tickCount": 4}},
            "color": {"field": "target", "type": "nominal", "legend": None,
                      "scale": {"domain": [False, True], "range": [CATEGORIES[0], CATEGORIES[1]]}},
            "tooltip": _tooltip({"word": None, "probability": ".4f"}),
        },
        "mark": {"type": "bar", "height": {"band": 0.75}},
    }  # fmt: skip


def trajectory_figure(series: Mapping[str, pd.DataFrame], field: str, title: str, chosen: str | None = None) -> Spec:
    """The target from place to place, one line for each model.

    Args:
        series: `analyses.lens.rows.target_rows` by the name of the model.
        field: a column of it; ranks are drawn on a logarithmic scale with 1 on top.
        title: of the axis.
        chosen: the place that is looked at, with a rule through it.
    """
    places = list(next(iter(series.values()))["place"])
    values = [
        {"place": row["place"], "model": name, "value": row[field], "likeliest": visible(str(row["likeliest"]))}
        for name, rows in series.items()
        for row in rows.to_dict("records")
    ]
    scale, ticks = _ranks([row["value"] for row in values]) if field == "target rank" else ({"zero": False}, {})
    legend = None if len(series) == 1 else {"title": None, "orient": "top"}
    x = {"field": "place", "type": "ordinal", "sort": places, "title": None,
         "axis": {"labelAngle": -90, "labelOverlap": "greedy"}}  # fmt: skip
    line = {
        "mark": {"type": "line", "point": {"size": 26 if len(places) > FEW else 46}},
        "data": {"values": values},
        "encoding": {
            "x": x,
            "y": {"field": "value", "type": "quantitative", "title": title, "scale": scale,
                  "axis": {"tickCount": 5} | ticks},
            "color": {"field": "model", "type": "nominal", "legend": legend,
                      "scale": {"domain": list(series), "range": list(CATEGORIES[: len(series)])}},
            "tooltip": _tooltip({"place": None, "model": None, "value": ".3f", "likeliest": None}),
        },
    }  # fmt: skip
    rule = {
        "mark": {"type": "rule", "color": QUIET, "strokeDash": [3, 3]},
        "data": {"values": [{"place": chosen}]},
        "encoding": {"x": x},
    }
    return {"height": PLOT, "layer": [line] if chosen is None else [rule, line]}


def attribution_figure(
    rows: pd.DataFrame, axis: str, *, upright: bool, other: pd.DataFrame | None = None, names: Sequence[str] = ()
) -> Spec:
    """What each component adds, as bars from zero; a click on one selects it (`part`).

    Args:
        rows: `analyses.lens.rows.attribution_rows`, in the order in which they are drawn.
        axis: what the bars are in.
        upright: bars side by side, for many of them; otherwise one below the other.
        other: the same of another model, as marks beside the bars.
        names: what the two are called.
    """
    order = list(rows["component"])
    kinds = [kind for kind in KINDS if kind in set(rows["kind"])]
    labels = {"labelAngle": -90, "labelOverlap": "greedy", "labelSeparation": 2} if upright else {"labelLimit": 150}
    band = {"field": "component", "type": "nominal", "sort": order, "title": None, "axis": labels}
    size = {"field": "adds", "type": "quantitative", "title": axis, "axis": {"grid": True, "tickCount": 8}}
    x, y = (band, size) if upright else (size, band)
    bars = {
        "params": [{"name": "part", "select": {"type": "point", "fields": ["component"]}}],
        "data": {"values": [_plain(row) for row in rows.to_dict("records")]},
        "mark": {"type": "bar", "cursor": "pointer"},
        "encoding": {
            "x": x,
            "y": y,
            "color": {"field": "kind", "type": "nominal", "legend": {"title": None, "orient": "top"},
                      "scale": {"domain": kinds, "range": [KINDS[kind] for kind in kinds]}},
            "opacity": {"condition": {"param": "part", "value": 1}, "value": 0.45},
            "tooltip": _tooltip({"component": None, "adds": ".4f"}),
        },
    }  # fmt: skip
    zero = {"mark": {"type": "rule", "color": QUIET}, "data": {"values": [{"zero": 0}]},
            "encoding": {"y" if upright else "x": {"field": "zero", "type": "quantitative"}}}  # fmt: skip
    layers = [bars, zero]
    if other is not None:
        layers.append(
            {
                "data": {"values": [_plain(row) for row in other.to_dict("records") if row["component"] in order]},
                "mark": {"type": "point", "filled": False, "color": INK, "size": 34, "strokeWidth": 1.5},
                "encoding": {"x": x, "y": y, "tooltip": _tooltip({"component": None, "adds": ".4f"})},
            }
        )
    height = PLOT + AXIS if upright else BAR * len(order) + 2 * AXIS
    said = None if other is None else f"bars: {names[0]}; rings: {names[1]}"
    title: Spec = {} if said is None else {"title": {"text": said, "fontSize": 11, "fontWeight": 400}}
    return {"height": height, "layer": layers} | title


def _ranks(values: Sequence[Any]) -> tuple[Spec, Spec]:
    """A logarithmic scale with 1 on top, down to the next power of ten, and its ticks."""
    digits = max(1, len(str(int(max(values)) - 1)))
    ticks = [10**power for power in range(digits + 1)] if digits > 1 else [1, 2, 3, 5, 10]
    return {"type": "log", "domain": [10**digits, 1]}, {"values": ticks}


def _plain(row: Mapping[Any, Any]) -> Spec:
    return {"component": row["component"], "kind": row["kind"], "adds": float(row["adds"])}


def _tooltip(fields: Mapping[str, str | None]) -> list[Spec]:
    return [
        {"field": name, "type": "nominal"} if form is None else {"field": name, "type": "quantitative", "format": form}
        for name, form in fields.items()
    ]
