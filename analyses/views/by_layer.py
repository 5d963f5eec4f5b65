"""One share in every layer as a small figure: at the checkpoint, at step 0, and what chance gives.

All are drawn alike, so that several can stand beside one another at any width and be read as one: layers from left to
right, the checkpoint filled in blue, step 0 hollow in orange, chance as grey bars, 95% intervals as rules.

They are written in Vega-Lite as it is: Altair holds a chart against its schema at every step, which takes a fifth of a
second, and a page draws a dozen of these at every click. The tests hold them against the schema instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pandas as pd

from analyses.figures import CATEGORIES, FAINT

Spec = dict[str, Any]
"""A figure in Vega-Lite, without the theme (`analyses.figures.theme`)."""

HEIGHT, ROW = 150, 17
"""Of a figure, and of one entry of a legend, which must not be taller than its figure: what is beyond is cut off."""

CHANCE, PALE = "#b9bcc3", "#c9ccd3"


class Series(Enum):
    """Whose value it is."""

    NOW = "this checkpoint"
    START = "step 0"
    CHANCE = "chance"


COLOURS = {Series.NOW: CATEGORIES[0], Series.START: CATEGORIES[1], Series.CHANCE: CHANCE}

PARTS = (*CATEGORIES[:6], "#8c6bb1", PALE, FAINT, CATEGORIES[7])
"""Colours of what a layer is made of; the pale ones are for what says little."""

READ_AS = "blue: this checkpoint", "hollow orange: step 0", "grey: chance"
"""How the figures are read, for the caption below them, which says too what the intervals are over."""

FEW = 12
"""Layers up to which marks are drawn in full size."""

NOTHING = 0.01
"""Top of the axis where there is nothing but zeros."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The quantity in one layer."""

    layer: int
    series: Series
    value: float
    """NaN where it is not defined; such a point is left out."""
    low: float = math.nan
    """Lower end of its 95% interval; NaN where it has none."""
    high: float = math.nan
    """Upper end."""


def by_layer_figure(points: Iterable[Point], title: str, *, marked: int | None = None, axis: str = "layer") -> Spec:
    """The share that `title` names, in every layer.

    Args:
        points: in any order.
        title: what it is a share of.
        marked: the layer that is looked at, shaded.
        axis: what stands side by side, where it is not layers.
    """
    known = [point for point in points if math.isfinite(point.value)]
    rows = {series: [_row(point) for point in known if point.series is series] for series in reversed(Series)}
    size = 1.0 if len({point.layer for point in known}) <= FEW else 0.45
    scale: Spec = {"zero": True} if any(point.value for point in known) else {"domain": [0, NOTHING]}
    encoding = {
        "x": _x(axis),
        "y": _y("value", scale),
        "tooltip": _tooltip(axis),
    }
    shade = [] if marked is None else [_shade(marked, axis)]
    marks = (_marks(series, size, encoding) for series, there in rows.items() if there)
    return {
        "title": _title(title),
        "height": HEIGHT,
        "datasets": {series.value: there for series, there in rows.items() if there},
        "layer": [*shade, *(mark for group in marks for mark in group)] or [{"mark": "point"}],
    } | ({} if known else {"data": {"values": []}})


def point_rows(points: Iterable[Point]) -> pd.DataFrame:
    """The points of `by_layer_figure` as a table; NaN where a value is not defined, or has no interval."""
    columns = ["layer", "series", "value", "low", "high"]
    return pd.DataFrame([[each.layer, each.series.value, each.value, each.low, each.high] for each in points],
                        columns=columns)  # fmt: skip


def parts_figure(shares: Sequence[tuple[int, str, float]], names: Sequence[str], title: str) -> Spec:
    """What each layer is made of: parts that sum to one, stacked in the order of `names`.

    Args:
        shares: layer, name of the part, its share.
        names: all parts there may be, from the bottom up; each has its colour, whichever of them there are.
        title: what is taken apart.
    """
    rows = [{"layer": layer, "part": part, "share": share, "order": names.index(part)} for layer, part, share in shares]
    there = [name for name in names if any(row["part"] == name and row["share"] for row in rows)]
    return {
        "title": _title(title),
        "height": max(HEIGHT, ROW * len(there)),
        "datasets": {"parts": rows},
        "data": {"name": "parts"},
        "mark": "bar",
        "encoding": {
            "x": _x("layer"),
            "y": _y("share", {"domain": [0, 1]}),
            "color": {
                "field": "part",
                "type": "nominal",
                "scale": {"domain": list(names), "range": list(PARTS[: len(names)])},
                "legend": {"title": None, "orient": "right", "symbolType": "square", "values": there, "rowPadding": 1},
            },
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [
                {"field": "layer", "type": "ordinal"},
                {"field": "part", "type": "nominal"},
                {"field": "share", "type": "quantitative", "format": ".2%"},
            ],
        },
    }


def _row(point: Point) -> Spec:
    low, high = (point.value if math.isnan(end) else end for end in (point.low, point.high))
    return {"layer": point.layer, "series": point.series.value, "value": point.value, "low": low, "high": high}


def _marks(series: Series, size: float, encoding: Spec) -> Iterator[Spec]:
    """The interval of every point, then the point."""
    colour = COLOURS[series]
    rules: dict[Series, Spec] = {
        Series.CHANCE: {"strokeWidth": 9 * size, "opacity": 0.7},
        Series.START: {"strokeWidth": 1.5},
        Series.NOW: {"strokeWidth": 2},
    }
    points: dict[Series, Spec] = {
        Series.CHANCE: {"type": "tick", "orient": "horizontal", "thickness": 3, "size": 16 * size},
        Series.START: {"type": "point", "filled": False, "size": 46 * size, "strokeWidth": 1.8},
        Series.NOW: {"type": "point", "filled": True, "size": 52 * size},
    }
    data = {"name": series.value}
    ends = encoding | {"y": encoding["y"] | {"field": "low"}, "y2": {"field": "high"}}
    yield {"data": data, "mark": {"type": "rule", "color": colour} | rules[series], "encoding": ends}
    yield {"data": data, "mark": {"color": colour, "opacity": 1} | points[series], "encoding": encoding}


def _shade(layer: int, axis: str) -> Spec:
    mark = {"type": "bar", "color": FAINT, "opacity": 0.45}
    return {"data": {"values": [{"layer": layer}]}, "mark": mark, "encoding": {"x": _x(axis)}}


def _x(title: str) -> Spec:
    return {
        "field": "layer", "type": "ordinal", "title": title,
        "axis": {"labelAngle": 0, "labelOverlap": "greedy", "labelSeparation": 5},
    }  # fmt: skip


def _y(field: str, scale: Spec) -> Spec:
    axis = {"format": "%", "tickCount": 4}
    return {"field": field, "type": "quantitative", "title": None, "scale": scale, "axis": axis}


def _tooltip(axis: str) -> list[Spec]:
    numbers = {"type": "quantitative", "format": ".2%"}
    named = [{"field": "layer", "type": "ordinal", "title": axis}, {"field": "series", "type": "nominal"}]
    return [*named, *({"field": name} | numbers for name in ("value", "low", "high"))]


def _title(text: str) -> Spec:
    return {"text": text, "fontSize": 12, "fontWeight": 500, "offset": 8}
