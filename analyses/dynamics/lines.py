"""Lines over training: losses, and one score of every head, against steps or tokens seen (for training-dynamics).

A head is one line; the strongest are coloured and named at their ends, the others grey. Bands are intervals over
sequences. Points stand where checkpoints were looked at: what lies between is a straight line, not a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from analyses.attention.kinds import BY_CONTENT, SHARES, Kind
from analyses.attention.stimuli import Stimulus
from analyses.dynamics.axis import (
    Time,
    base_of,
    last_place,
    left_axis,
    legend,
    shaded,
    x_axis,
)
from analyses.dynamics.names import Rows, apart, ends_of
from analyses.dynamics.result import Result, scores_over_training
from analyses.dynamics.tables import loss_rows, position_rows, score_rows
from analyses.figures import CATEGORIES, QUIET, WIDTH
from analyses.training_curve import COLOURS
from interp.places import Head
from interp.places import head as named
from model.settings import as_enum

OTHER = "b"
"""What stands before the names of the other run's heads."""

LOSSES = {
    "copy_loss": "second copy of random tokens",
    "first_copy_loss": "first copy of random tokens",
    "text_loss": "held-out text",
}
"""Losses that are drawn together, and what each is over."""


def losses_figure(
    result: Result, time: Time, *, other: Result | None = None, names: Sequence[str] = tuple(LOSSES), height: int = 170
) -> alt.LayerChart:
    """Losses in nats, with bands; `other` is another run's, dashed."""
    rows = _marked(_loss_rows(result, names), result.run)
    drawn = [*rows, *([] if other is None else _marked(_loss_rows(other, names), other.run))]
    kinds = list(dict.fromkeys(row["what"] for row in drawn))
    colour = alt.Color(
        "what:N",
        title=None,
        scale=alt.Scale(domain=kinds, range=[COLOURS[kind] for kind in kinds]),
        legend=legend(),
    )
    y = _Height("loss (nats)", alt.Scale(zero=True))
    return _over_time(result, other, time, drawn, y, colour, height)


def score_figure(
    result: Result, time: Time, *, name: str = "icl_score", other: Result | None = None, height: int = 110
) -> alt.LayerChart:
    """One outcome alone, in nats, with a line at 0; `other` is another run's, dashed."""
    drawn = _marked(_loss_rows(result, (name,)), result.run)
    drawn += [] if other is None else _marked(_loss_rows(other, (name,)), other.run)
    y = _Height("nats", alt.Scale(zero=True))
    colour = alt.value(CATEGORIES[0])
    zero = alt.Chart(alt.InlineData(values=[{"mean": 0}])).mark_rule(color=QUIET, strokeDash=[2, 3])
    return _over_time(result, other, time, drawn, y, colour, height, zero.encode(y=y.of("mean")))


def heads_figure(
    result: Result,
    kind: Kind | str,
    time: Time,
    *,
    reading: Stimulus | str = Stimulus.REPEATS,
    top: Sequence[Head] = (),
    other: Result | None = None,
    other_top: Sequence[Head] = (),
    height: int = 220,
) -> alt.LayerChart:
    """One score of every head: `top` in colour and named, the rest grey; of another run `other_top`, dashed."""
    kind, score = as_enum(Kind, kind, "kind"), scores_over_training(result, kind, reading)
    every = score_rows(result, kind, reading).to_dict("records")
    labels = [named(*each).label for each in top]
    drawn = _named_rows(every, labels, result.run)
    if other is not None and other_top:
        wanted = [named(*each).label for each in other_top]
        theirs = [row for row in score_rows(other, kind, reading).to_dict("records") if row["head"] in wanted]
        drawn += _named_rows(theirs, wanted, other.run)
    largest = max((row["high"] for row in every), default=1.0)
    reach = [0.0, 1.0] if kind in SHARES or largest <= 1 else [0.0, largest]
    y = _Height(_height_title(kind, reading), alt.Scale(domain=reach))
    names = list(dict.fromkeys(row["what"] for row in ends_of(drawn, time)))
    colours = [CATEGORIES[index % len(CATEGORIES)] for index in range(len(names))]
    colour = alt.Color("what:N", scale=alt.Scale(domain=names, range=colours), legend=None)
    quiet = [
        {name: row[name] for name in ("step", "tokens", "head", "mean", "low", "high", "n")}
        for row in every
        if row["head"] not in labels
    ]
    grey = base_of(quiet).mark_line(color=QUIET, opacity=0.4, strokeWidth=1)
    ends = [
        {**row, "said": row["what"] if row["run"] == result.run else f"{OTHER} {row['what']}"}
        for row in apart(ends_of(drawn, time), reach)
    ]
    words = (
        base_of(ends)
        .mark_text(align="left", dx=6, fontSize=11, fontWeight=600)
        .encode(x=x_axis(result, other, time), y=y.of("at"), text="said:N", color=colour)
    )
    even = [{"mean": score.chance, "said": "chance", time.along.value: last_place(result, other, time)}]
    chance = base_of(even).mark_rule(color=QUIET, strokeDash=[4, 4]).encode(y=y.of("mean"))
    said = (
        base_of(even)
        .mark_text(align="right", baseline="bottom", dy=-2, dx=-4, fontSize=10, color=QUIET)
        .encode(x=x_axis(result, other, time), y=y.of("mean"), text="said:N")
    )
    behind = [
        grey.encode(x=x_axis(result, other, time), y=y.of("mean"), detail="head:N", tooltip=_tips("head")),
        chance,
        said,
    ]
    return _over_time(result, other, time, drawn, y, colour, height, *behind, above=[words])


_TITLES = {Kind.ENTROPY: "entropy over its largest", Kind.DISTANCE: "tokens back, on average"}


def _height_title(kind: Kind, reading: Stimulus | str) -> str:
    """What the axis of a score says; where the copy is re-ordered, its fixed distances are no match."""
    if kind in BY_CONTENT and as_enum(Stimulus, reading, "reading") is Stimulus.CONTROL:
        return "attention at the old distance"
    return _TITLES.get(kind, "share of attention")


def position_figure(result: Result, steps: Sequence[int], *, height: int = 220) -> alt.LayerChart:
    """Loss on held-out text by how many tokens come before, at some checkpoints, with bands."""
    drawn = [
        {**row, "what": f"step {row['step']:,}"}
        for row in position_rows(result).to_dict("records")
        if row["step"] in steps
    ]
    kinds = list(dict.fromkeys(row["what"] for row in drawn))
    scale = alt.Scale(domain=kinds, range=list(CATEGORIES[: len(kinds)]))
    colour = alt.Color("what:N", title=None, scale=scale, legend=legend())
    x = alt.X("target:Q", title="tokens before the target", axis=alt.Axis(tickMinStep=1))
    y = _Height("loss (nats)", alt.Scale(zero=True))
    base = base_of(drawn)
    band = base.mark_area(opacity=0.18).encode(x=x, y=y.of("low"), y2="high:Q", color=colour)
    line = base.mark_line(strokeWidth=1.8).encode(x=x, y=y.of("mean"), color=colour, tooltip=_tips("what"))
    return alt.LayerChart(layer=[band, line], height=height, width=WIDTH)


@dataclass(frozen=True)
class _Height:
    """The vertical axis, the same for every layer of a figure."""

    title: str
    scale: alt.Scale

    def of(self, field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=self.title, axis=left_axis(), scale=self.scale)


def _over_time(
    result: Result,
    other: Result | None,
    time: Time,
    drawn: Rows,
    y: _Height,
    colour: Any,
    height: int,
    *behind: alt.Chart,
    above: Sequence[alt.Chart] = (),
) -> alt.LayerChart:
    """Bands, lines and points of `drawn`, over the stretch and the chosen checkpoint, under a click's targets."""
    x = x_axis(result, other, time)
    base = base_of(drawn)
    band = base.mark_area(opacity=0.18).encode(x=x, y=y.of("low"), y2="high:Q", color=colour, detail="run:N")
    dash = alt.StrokeDash(
        "run:N",
        title=None,
        scale=alt.Scale(domain=_runs(result, other), range=[[1, 0], [5, 3]]),
        legend=None if other is None else legend(),
    )
    line = base.mark_line(strokeWidth=1.8).encode(
        x=x, y=y.of("mean"), color=colour, strokeDash=dash, detail="run:N", tooltip=_tips("what")
    )
    points = base.mark_point(filled=True, size=22, opacity=1).encode(
        x=x, y=y.of("mean"), color=colour, tooltip=_tips("what")
    )
    layers = [*shaded(result, other, time, x), *behind, band, line, points, *above]
    return alt.LayerChart(layer=layers, height=height, width=WIDTH)


def _loss_rows(result: Result, names: Sequence[str]) -> Rows:
    known = [row for row in loss_rows(result).to_dict("records") if row["loss"] in names]
    return [{**row, "what": LOSSES.get(str(row["loss"]), str(row["loss"]))} for row in known]


def _marked(rows: Rows, run: str) -> Rows:
    return [{**row, "run": run} for row in rows]


def _named_rows(rows: Rows, labels: Sequence[str], run: str) -> Rows:
    """The rows of the heads of `labels`, in that order, of one run."""
    return [{**row, "what": label, "run": run} for label in labels for row in rows if row["head"] == label]


def _runs(result: Result, other: Result | None) -> list[str]:
    return [result.run] if other is None else [result.run, other.run]


def _tips(name: str) -> list[Any]:
    return [
        alt.Tooltip(f"{name}:N", title="line"),
        alt.Tooltip("step:Q", format=","),
        alt.Tooltip("tokens:Q", format=","),
        *(alt.Tooltip(f"{end}:Q", format=".3f") for end in ("mean", "low", "high")),
        alt.Tooltip("n:Q", title="n"),
    ]
