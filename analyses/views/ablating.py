"""Figures of an ablation's further questions: where its set lies among matched ones, and harms with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from analyses.ablation.tables import OWN, control_rows
from analyses.figures import CATEGORIES, INK, QUIET, themed
from analyses.views.payload import visible
from interp.effects import AblationEffect

WIDTH = 560
ROW = 26
AXIS = 46
"""Pixels that the axis takes out of a figure's height where it is drawn to fit its place."""


def control_figure(effect: AblationEffect) -> Any:
    """Grey dots are matched sets, each at its mean harm; the mark is the ablated set with its interval."""
    rows, unit = control_rows(effect), effect.effect.unit
    harms = [float(each) for each in rows["harm"]]
    low, high = min(harms), max(harms)
    width = max(high - low, 1e-9) / _BINS
    bins = ((rows["harm"] - low) / width).round().astype(int)
    rows = rows.assign(height=rows.groupby(bins).cumcount() + 1)
    others, own = rows.loc[rows["set"] != OWN], rows.loc[rows["set"] == OWN].assign(height=0)
    own = own.assign(low=effect.harm.low, high=effect.harm.high)
    x = alt.X("harm:Q", title=f"harm ({unit}), mean over sequences", axis=alt.Axis(tickCount=6))
    y = alt.Y("height:Q", axis=None, scale=alt.Scale(domainMin=-1))
    layers = [
        alt.Chart(pd.DataFrame({"harm": [0.0]})).mark_rule(color=QUIET, strokeDash=[4, 3]).encode(x=x),
        alt.Chart(others)
        .mark_circle(size=34, color=QUIET, opacity=0.7)
        .encode(x=x, y=y, tooltip=["set", "harm", "shared"]),
        alt.Chart(own).mark_rule(strokeWidth=2, color=CATEGORIES[0]).encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        alt.Chart(own)
        .mark_point(filled=True, size=90, color=CATEGORIES[0], shape="diamond")
        .encode(x=x, y=y, tooltip=["set", "harm", "low", "high"]),
    ]
    tallest = max(int(each) for each in rows["height"])
    return themed(alt.layer(*layers).properties(width=WIDTH, height=max(110, min(220, 9 * tallest + 40))))


def whisker_figure(
    rows: pd.DataFrame, name: str, value: str, title: str, *, tooltip: Sequence[str] = (), width: int = WIDTH
) -> Any:
    """One line for each row, in their order: a dot at `value`, its interval from `low` to `high`; the rule is nothing.

    Args:
        rows: with `low` and `high` columns.
        name: the column that names a line.
        value: the column of the dot.
        title: of the axis, with the unit.
        tooltip: further columns to be read.
        width: of the plot, in pixels.
    """
    ends = {
        end: [each if math.isfinite(each) else dot for each, dot in zip(rows[end], rows[value], strict=True)]
        for end in ("low", "high")
    }
    rows = rows.assign(**ends)  # where an interval has no ends, there is a dot alone
    y = alt.Y(f"{name}:N", sort=rows[name].tolist(), title=None, axis=alt.Axis(labelLimit=260))
    x = alt.X(f"{value}:Q", title=title, axis=alt.Axis(tickCount=6))
    shown = alt.Chart(rows).encode(y=y, tooltip=[name, value, "low", "high", *tooltip])
    layers = [
        alt.Chart(pd.DataFrame({value: [0.0]})).mark_rule(color=QUIET, strokeDash=[4, 3]).encode(x=x),
        shown.mark_rule(strokeWidth=2, color=CATEGORIES[0]).encode(x=alt.X("low:Q"), x2="high:Q"),
        shown.mark_point(filled=True, size=70, color=CATEGORIES[0]).encode(x=x),
    ]
    return themed(alt.layer(*layers).properties(width=width, height=ROW * max(1, len(rows)) + AXIS))


def dose_figure(rows: pd.DataFrame, unit: str) -> Any:
    """The harm as less and less stays, with its band; the dashed line is what straight proportion would give."""
    x = alt.X("stays:Q", title="share that stays", scale=alt.Scale(reverse=True), axis=alt.Axis(tickCount=5))
    y = alt.Y("harm:Q", title=f"harm ({unit})", axis=alt.Axis(tickCount=5))
    base = alt.Chart(rows).encode(x=x, tooltip=["stays", "harm", "low", "high", "off the line"])
    line = rows.loc[rows["stays"].isin([0.0, 1.0])]
    layers = [
        alt.Chart(line).mark_line(color=QUIET, strokeDash=[4, 3], strokeWidth=1.5).encode(x=x, y=y),
        base.mark_area(opacity=0.18, color=CATEGORIES[0]).encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(color=CATEGORIES[0]).encode(y=y),
        base.mark_point(filled=True, size=60, color=CATEGORIES[0]).encode(y=y),
    ]
    return themed(alt.layer(*layers).properties(width=WIDTH, height=200))


def next_token_figure(rows: pd.DataFrame) -> dict[str, Any]:
    """Three bars for each token: its chance intact, ablated, and the change; equal lengths are equal amounts in all.

    The token that follows in the text is marked. Written in Vega-Lite: it is drawn anew for every token that is
    clicked.
    """
    marks = ["  ← next" if each else "" for each in rows["is next"]]
    labels = _told_apart([f"{visible(str(t))}{mark}" for t, mark in zip(rows["token"], marks, strict=True)])
    columns = {name: [float(each) for each in rows[name]] for name in ("intact", "ablated", "change")}
    values = [
        {"label": label, **{name: numbers[row] for name, numbers in columns.items()}}
        for row, label in enumerate(labels)
    ]
    reach = max(1e-6, *(abs(number) for numbers in columns.values() for number in numbers))
    colours: dict[str, Any] = {
        "intact": {"value": CATEGORIES[0]},
        "ablated": {"value": CATEGORIES[1]},
        "change": {"condition": {"test": "datum.change < 0", "value": CATEGORIES[0]}, "value": CATEGORIES[1]},
    }
    parts = []
    for name, colour in colours.items():
        low, first = -reach if name == "change" else 0.0, name == "intact"
        axis = {"labels": first, "ticks": False, "domain": False, "labelLimit": 90, "labelColor": INK, "grid": False}
        parts.append(
            {
                "mark": {"type": "bar", "height": 11},
                "width": BAR * (1 + (low < 0)),
                "height": {"step": 17},
                "encoding": {
                    "y": {"field": "label", "type": "nominal", "sort": labels, "title": None, "axis": axis},
                    "x": {"field": name, "type": "quantitative", "scale": {"domain": [low, reach]}}
                    | {"axis": {"tickCount": 3, "format": "~p", "title": name}},
                    "color": colour,
                    "tooltip": [{"field": "label", "type": "nominal", "title": "token"}]
                    + [{"field": each, "type": "quantitative", "format": ".2%"} for each in columns],
                },
            }
        )
    return {"data": {"values": values}, "hconcat": parts, "spacing": 14}


def _told_apart(labels: Sequence[str]) -> list[str]:
    """The same, with a number behind a label that stands there already: two tokens may look alike."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found


BAR = 80
"""Pixels of the whole of a chance."""

_BINS = 60
"""Dots within a bin of this many across the range are stacked."""
