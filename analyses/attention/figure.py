"""The picture of a checkpoint's heads: what each attends to, where, and how surely.

Above, one small matrix (layers x heads) for each kind of score and each reading, all on one colour scale, so that a
head's behaviour on an unseen period, in the control, on text and at step 0 can be compared by eye; found heads are
outlined. In the middle a line for each head with what every source says of it. Below, the strongest induction head's
pattern on one sequence, and which head reads which.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from analyses.attention.panels import composition_panel, head_panels
from analyses.attention.readings import Kind, Reading
from analyses.attention.result import Result, found, reading_for
from analyses.attention.words import MEASURED, WORDS, measured_words
from analyses.figures import CATEGORIES, INK, SEQUENTIAL, caption, index_axis, sequential
from interp.places import head
from interp.stats import Interval

_ROWS = {
    Kind.PREVIOUS: "previous token",
    Kind.DUPLICATE: "duplicate",
    Kind.INDUCTION: "induction",
    Kind.CURRENT: "current token",
    Kind.POSITIONAL: "one distance",
    Kind.FIRST: "position 0",
    Kind.ENTROPY: "focus",
}
"""What each row of matrices is called; focus is 1 minus the entropy over its largest value."""

_WIDTH = 540
_READABLE = 14
"""Smallest cell, in pixels, that holds a number."""


def draw(result: Result) -> Any:
    """The whole figure."""
    read = composition_panel(result)
    below = alt.hconcat(_pattern(result), *([] if read is None else [read]), spacing=48)
    return (
        alt.vconcat(_matrices(result), head_panels(result), below.resolve_scale(color="independent"), spacing=28)
        .resolve_scale(color="independent")
        .properties(title=alt.TitleParams(_title(result), subtitle=_subtitle(result)))
    )


def matrix_rows(result: Result) -> list[dict[str, Any]]:
    """One row per cell of the matrices: reading, kind, head, value, interval, chance, and whether the head is found."""
    columns = [(reading.title, reading) for reading in _columns(result)]
    rows = [
        row
        for title, reading in columns
        for kind in _ROWS
        for row in (_cells(result, reading, kind, title) if kind in reading else _no_cells(result, kind, title))
    ]
    if (headline := result.headline_at_step_zero) is not None:
        title = f"period {headline.period}, step 0"
        for kind in _ROWS:
            reading = _decided_at_step_zero(result, kind)
            rows += _cells(result, reading, kind, title) if kind in reading else _no_cells(result, kind, title)
    return rows


def _decided_at_step_zero(result: Result, kind: Kind) -> Reading:
    """The step 0 of the reading in which a kind is decided: fixed distances have theirs in the control."""
    decided = result.first(reading_for(result, kind))
    if decided is None:
        raise ValueError("this result has no step 0")
    return decided


def _columns(result: Result) -> list[Reading]:
    """The repeats that decide, their control, then the other periods and text."""
    others = [reading for reading in result.repeats if reading is not result.headline]
    return [result.headline, result.control, *others, *([result.text] if result.text is not None else [])]


def _cells(result: Result, reading: Reading, kind: Kind, title: str) -> list[dict[str, Any]]:
    measure, focus = reading[kind], kind is Kind.ENTROPY
    outlined = found(result, kind) if kind in WORDS and reading is reading_for(result, kind) else None
    n_layers, n_heads = measure.intervals.mean.shape
    return [
        {
            "reading": title, "kind": _ROWS[kind], "layer": layer, "head": index, "name": head(layer, index).label,
            "value": 1 - cell.mean if focus else cell.mean, "interval": f"{_complement(cell) if focus else cell:.3f}",
            "chance": 1 - measure.chance if focus else measure.chance,
            "measured": measured_words(kind, reading.stimulus) if kind in MEASURED else _ROWS[kind],
            "found": bool(outlined is not None and outlined[layer, index]),
        }
        for layer in range(n_layers)
        for index in range(n_heads)
        for cell in [measure.intervals[layer, index]]
    ]  # fmt: skip


def _no_cells(result: Result, kind: Kind, title: str) -> list[dict[str, Any]]:
    """An empty matrix where a kind was not measured: facets are laid out by what they hold."""
    return [
        {
            "reading": title, "kind": _ROWS[kind], "layer": layer, "head": index, "name": head(layer, index).label,
            "value": None, "interval": "not measured", "chance": None, "measured": "", "found": False,
        }
        for layer, index in result.heads
    ]  # fmt: skip


def _complement(cell: Interval) -> Interval:
    """One minus the mean, with its interval."""
    return replace(cell, mean=1 - cell.mean, low=1 - cell.high, high=1 - cell.low)


def _matrices(result: Result) -> Any:
    rows = matrix_rows(result)
    titles = list(dict.fromkeys(row["reading"] for row in rows))
    n_layers, n_heads = result.headline[Kind.INDUCTION].intervals.mean.shape
    cell = _cell_side(len(titles), n_heads)
    base = alt.Chart().encode(
        x=alt.X("head:O", title=None, axis=index_axis("H", n_heads, cell, labelPadding=3)),
        y=alt.Y(
            "layer:O",
            title=None,
            sort="descending",
            axis=index_axis("L", n_layers, cell + 6, labelPadding=3, labelOverlap=False),
        ),
        tooltip=[
            alt.Tooltip("name:N", title="head"),
            alt.Tooltip("kind:N"),
            alt.Tooltip("reading:N", title="shown"),
            alt.Tooltip("measured:N"),
            alt.Tooltip("interval:N", title=f"mean, {result.config.level:.0%} interval"),
            alt.Tooltip("chance:Q", format=".3f"),
        ],
    )
    colour = alt.Color(
        "value:Q",
        scale=sequential(0.0, 1.0),
        legend=alt.Legend(title="share", format=".0%", values=[0, 0.5, 1], gradientLength=90),
    )
    layers = [base.mark_rect(stroke="white", strokeWidth=0.5, aria=False).encode(color=colour)]
    layers.append(_outline(base))
    if cell >= _READABLE:
        layers.append(_numbers(base))
    return (
        alt.layer(*layers, data=alt.InlineData(values=rows))  # no limit on rows
        .properties(width=cell * n_heads, height=cell * n_layers)
        .facet(
            row=alt.Row("kind:N", title=None, sort=list(_ROWS.values()), header=_header(angle=0, align="left")),
            column=alt.Column("reading:N", title=None, sort=titles, header=_header()),
            spacing={"row": 6, "column": 12},
        )
    )


def _cell_side(n_columns: int, n_heads: int) -> int:
    """The side of a cell in pixels, with which all columns fit beside one another."""
    return int(min(24, max(3, (_WIDTH - 14 * n_columns) / (n_columns * n_heads))))


def _outline(base: alt.Chart) -> alt.Chart:
    """A ring round the heads that count as found."""
    return base.mark_rect(fill=None, stroke=CATEGORIES[4], strokeWidth=1.8, aria=False).transform_filter("datum.found")


def _numbers(base: alt.Chart) -> alt.Chart:
    """Per cent in each cell that is not nearly white."""
    light = alt.condition("datum.value > 0.55", alt.value("white"), alt.value(INK))
    shown = base.mark_text(fontSize=9).encode(text="percent:Q", color=light)
    return shown.transform_calculate(percent="round(100 * datum.value)").transform_filter("datum.percent >= 10")


def _header(**settings: Any) -> alt.Header:
    given: dict[str, Any] = {"labelAngle": settings.pop("angle")} if "angle" in settings else {}
    given |= {"labelAlign": settings["align"]} if "align" in settings else {}
    lines = "split(datum.value, ', ')"
    return alt.Header(
        labelExpr=lines, labelFontSize=11, labelFontWeight="normal", labelColor=INK, labelPadding=6, **given
    )


def _pattern(result: Result) -> Any:
    """One head on one sequence; keys that the query cannot see are blank, shares below 1% are the palest colour."""
    example = result.example
    n, side = len(example.tokens), max(180, min(260, 4 * len(example.tokens)))
    starts = [n % example.period + copy * example.period for copy in range(n // example.period)]
    axis = alt.Axis(values=starts, labelAngle=0, domain=False, grid=False, labelExpr="'position ' + datum.value")
    scale = alt.Scale(domain=[-0.5, n - 0.5], nice=False)
    key = alt.X("left:Q", title="key", axis=axis, scale=scale)
    query = alt.Y("top:Q", title="query", axis=axis, scale=alt.Scale(domain=[-0.5, n - 0.5], nice=False, reverse=True))
    visible = alt.Chart(_boxes([(i, 0, i) for i in range(n)])).mark_rect(color=SEQUENTIAL[0], aria=False)
    seen = alt.Chart(_attended(result)).mark_rect(aria=False)
    return alt.layer(
        visible.encode(x=key, x2="right:Q", y=query, y2="bottom:Q"),
        seen.encode(
            x=key,
            x2="right:Q",
            y=query,
            y2="bottom:Q",
            color=alt.Color("attention:Q", scale=sequential(0.0, 1.0), legend=None),
            tooltip=["from:N", "to:N", alt.Tooltip("attention:Q", format=".3f")],
        ),
    ).properties(
        width=side,
        height=side,
        title=alt.TitleParams(
            f"{head(example.layer, example.head).label}, highest induction score: its pattern",
            subtitle=f"one sequence; copies of {example.period} random tokens begin at the ticks",
            fontSize=12,
        ),
    )


def _attended(result: Result) -> pd.DataFrame:
    """The cells of the example that hold at least 1%, with what they join."""
    example = result.example
    query, key = (example.pattern >= 0.01).nonzero(as_tuple=True)
    places = list(zip(query.tolist(), key.tolist(), strict=True))
    return _boxes([(i, j, j) for i, j in places]).assign(
        attention=example.pattern[query, key].tolist(),
        **{
            "from": [f"{i} {example.tokens[i]}" for i, _ in places],
            "to": [f"{j} {example.tokens[j]}" for _, j in places],
        },
    )


def _boxes(cells: list[tuple[int, int, int]]) -> pd.DataFrame:
    """(query, first key, last key) as the edges of rectangles."""
    edges = [(first - 0.5, last + 0.5, query - 0.5, query + 0.5) for query, first, last in cells]
    return pd.DataFrame(edges, columns=["left", "right", "top", "bottom"])


def _title(result: Result) -> str:
    return f"What the heads of {result.run} attend to, read and write at step {result.step:,}"


def _subtitle(result: Result) -> list[str]:
    shown = caption(
        n=result.headline.n_sequences,
        seed=result.config.seed,
        tokens_seen=f"{result.tokens_seen:,}",
        interval=f"{result.config.level:.0%} bootstrap over sequences",
    )
    decides = f"Period {result.headline.period} decides; outlined heads were found for that kind"
    n_columns = len(_columns(result)) + (result.at_step_zero is not None)
    readable = _cell_side(n_columns, result.headline[Kind.INDUCTION].intervals.mean.shape[1]) >= _READABLE
    numbers = "Numbers are per cent of attention. " if readable else ""
    out_of_place = "Where re-ordered, duplicate and induction are attention at the old distance, where the copy was."
    return [shown, f"{numbers}{decides}; focus is 1 - entropy / ln(keys).", out_of_place]
