"""The horizontal axis of figures over training, and what stands across it (for `analyses.dynamics.lines`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import altair as alt

from analyses.dynamics.result import Result
from analyses.figures import FAINT, INK, QUIET
from model.settings import as_enum

PICKED = "picked"
"""The selection in which a click on a figure leaves the step of the nearest checkpoint."""

_EXTENT = 46
"""Pixels between the left edge and the plot, the same in every figure, so that figures above one another line up."""
_NAMES = 0.09
"""Share of the width behind the last checkpoint, where heads are named."""


class Along(StrEnum):
    """What training is measured in."""

    STEP = "step"
    TOKENS = "tokens"


@dataclass(frozen=True, kw_only=True)
class Time:
    """The horizontal axis."""

    along: Along = Along.STEP
    log: bool = False
    """Logarithmic but for a linear stretch up to the first checkpoint after 0, so that 0 has a place."""
    stretch: tuple[int, int] | None = None
    """Two checkpoints between which something happened: shaded."""
    other_stretch: tuple[int, int] | None = None
    """The same of another run that is drawn: outlined, since it is not the same stretch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "along", as_enum(Along, self.along, "along"))


def x_axis(result: Result, other: Result | None, time: Time) -> alt.X:
    """Steps or tokens from 0 to the last checkpoint of either run, with room for names behind it."""
    last = last_place(result, other, time)
    first = _first_after_zero(result, time)
    title = "training step" if time.along is Along.STEP else "tokens seen"
    if time.log:
        reach = math.exp(math.log1p(last / first) * (1 + _NAMES)) * first
        ticks = [0, *(10**power for power in range(math.ceil(math.log10(first)), math.floor(math.log10(last)) + 1))]
        scale = alt.Scale(type="symlog", constant=first, domain=[0, reach], nice=False)
        return alt.X(f"{time.along.value}:Q", title=f"{title} (symlog)", scale=scale, axis=_below(last, ticks))
    scale = alt.Scale(domain=[0, last * (1 + _NAMES)], nice=False)
    return alt.X(f"{time.along.value}:Q", title=title, scale=scale, axis=_below(last))


def _below(last: int, values: Sequence[int] | None = None) -> alt.Axis:
    """Whole numbers up to the last checkpoint; behind it heads are named."""
    number = "format(datum.value, datum.value < 10000 ? ',' : '~s')"
    settings: dict[str, Any] = {"labelExpr": f"datum.value <= {last} ? {number} : ''", "grid": False}
    return alt.Axis(tickCount=9, **settings) if values is None else alt.Axis(values=list(values), **settings)


def legend() -> alt.Legend:
    """Above the figure, in full colour."""
    return alt.Legend(orient="top", symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=3, labelLimit=260)


def left_axis() -> alt.Axis:
    """An axis of the same width in every figure."""
    return alt.Axis(minExtent=_EXTENT, maxExtent=_EXTENT, tickCount=5)


def last_place(result: Result, other: Result | None, time: Time) -> int:
    """Where the last checkpoint of either run stands."""
    each = [result] if other is None else [result, other]
    return max(1, *(one.steps[-1] if time.along is Along.STEP else one.tokens_seen[-1] for one in each), 1)


def _first_after_zero(result: Result, time: Time) -> int:
    places = result.steps if time.along is Along.STEP else result.tokens_seen
    return next((place for place in places if place > 0), 1)


def _place(result: Result, time: Time, step: int) -> int:
    """A step as the axis has it; of one that was not looked at, by the tokens of the steps about it."""
    if time.along is Along.STEP:
        return step
    if step in result.steps:
        return result.tokens_seen[result.steps.index(step)]
    return round(step * result.tokens_seen[-1] / max(1, result.steps[-1]))


def shaded(result: Result, other: Result | None, time: Time, x: alt.X) -> list[alt.Chart]:
    """The stretch in which something happened, and that of another run outlined; of two runs each with its name."""
    layers = []
    if time.stretch is not None:
        stretch = base_of([_box(result, time, time.stretch)])
        layers.append(stretch.mark_rect(color=FAINT, opacity=0.7).encode(x=x, x2="end:Q"))
        if other is not None:
            layers.append(_name(stretch, x, dy=8))
    if time.other_stretch is not None and other is not None:
        stretch = base_of([_box(other, time, time.other_stretch)])
        outline = stretch.mark_rect(fillOpacity=0, stroke=QUIET, strokeDash=[5, 3], strokeWidth=1)
        layers += [outline.encode(x=x, x2="end:Q"), _name(stretch, x, dy=20)]
    return layers


def _box(result: Result, time: Time, stretch: tuple[int, int]) -> dict[str, Any]:
    first, last = (_place(result, time, step) for step in stretch)
    return {time.along.value: first, "end": last, "run": result.run}


def _name(stretch: alt.Chart, x: alt.X, *, dy: int) -> alt.Chart:
    """The run of a stretch, inside its upper left corner."""
    words = stretch.mark_text(align="left", dx=4, dy=dy, fontSize=10, color=QUIET)
    return words.encode(x=x, y=alt.value(0), text="run:N")


def base_of(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """A chart of rows that travel inside it."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def looked_at(
    spec: Mapping[str, Any], result: Result, time: Time, *, step: int | None, beside: int | None = None, nth: int = 0
) -> dict[str, Any]:
    """The specification of a figure over training with a rule at one step, and clicks that pick a checkpoint.

    Args:
        spec: the figure in Vega-Lite; it is not changed.
        result: whose checkpoints can be picked.
        time: the axis that the figure was drawn with.
        step: where the rule stands.
        beside: a second one, dashed: what is compared.
        nth: how many picks there were. It is part of what a click leaves (`PICKED`), so that picking the same
            checkpoint again is a pick again.
    """
    layers = list(spec["layer"])
    x = next(each["encoding"]["x"] for each in layers if _is_axis(each.get("encoding", {}).get("x"), time))
    for at, dashes in ((step, [1, 0]), (beside, [4, 3])):
        if at is not None:
            mark = {"type": "rule", "color": INK, "strokeWidth": 1.2, "strokeDash": dashes}
            where = [{time.along.value: _place(result, time, at)}]
            layers.append({"data": {"values": where}, "mark": mark, "encoding": {"x": x}})
    places = [
        {"step": at, "tokens": seen, "nth": nth} for at, seen in zip(result.steps, result.tokens_seen, strict=True)
    ]
    layers.append(
        {
            "data": {"values": places},
            "mark": {"type": "point", "opacity": 0, "size": 1},
            "encoding": {"x": x, "y": {"value": 0}},
            "params": [
                {
                    "name": PICKED,
                    "select": {"type": "point", "fields": ["step", "nth"], "nearest": True, "on": "click"},
                }
            ],
        }
    )
    return {**spec, "layer": layers}


def _is_axis(x: Any, time: Time) -> bool:
    return isinstance(x, dict) and x.get("field") == time.along.value
