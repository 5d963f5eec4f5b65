"""Panels with one row for each head: what was measured of it by every source, on one line, with intervals and nulls.

A head's row reads from left to right as its verdict does: attention, copying by weights, what ablating it alone costs,
and where its attention goes on the corpus. Beside them, which later head reads which earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from analyses.attention.evidence import Evidence, Source
from analyses.attention.harms import COPY, TEXT
from analyses.attention.items import attention_item
from analyses.attention.readings import Kind
from analyses.attention.result import Result, claimed_heads
from analyses.attention.verdicts import Standing, Verdict, verdicts
from analyses.attention.weights import INPUTS
from analyses.attention.words import WORDS
from analyses.figures import CATEGORIES, FAINT, QUIET, sequential
from interp.composition import Pair
from interp.places import Head

MOST_ROWS = 20
"""Heads shown one by one, at most: those with a claim, then those that cost copying most."""
MOST_PAIRS = 12

_ROW = 16
_NONE = "no kind"
_COLOURS = {
    Kind.INDUCTION.value: CATEGORIES[4],
    Kind.PREVIOUS.value: CATEGORIES[0],
    Kind.POSITIONAL.value: CATEGORIES[2],
    Kind.CURRENT.value: CATEGORIES[1],
    Kind.DUPLICATE.value: CATEGORIES[3],
    Kind.LATER.value: CATEGORIES[5],
    Kind.FIRST.value: CATEGORIES[6],
    _NONE: "#9aa0a8",
}


def shown_heads(result: Result) -> list[Head]:
    """The heads that get a row: those with a claim, strongest first, then the others by what they cost copying."""
    claimed = claimed_heads(result)
    costs = {place: cost.mean for place in result.harms.heads if (cost := result.harms.harm(COPY, place)) is not None}
    others = sorted((place for place in costs if place not in claimed), key=lambda place: -costs[place])
    return [*claimed, *others][:MOST_ROWS]


Rows = list[dict[str, Any]]


def head_rows(result: Result) -> Rows:
    """One row for each shown head and panel: value, interval, null and step 0."""
    every = {(each.layer, each.head): each for each in verdicts(result)}
    return [row for place in shown_heads(result) for row in _rows(result, every[place])]


def _rows(result: Result, verdict: Verdict) -> Iterator[dict[str, Any]]:
    place = (verdict.layer, verdict.head)
    items = {
        "attention": verdict.item(Source.ATTENTION) or attention_item(result, Kind.INDUCTION, place),
        "copying": verdict.item(Source.COPYING),
        COPY: verdict.item(Source.ABLATION, COPY),
        TEXT: verdict.item(Source.ABLATION, TEXT),
    }
    kind = verdict.kinds[0].value if verdict.kinds else _NONE
    for panel, item in items.items():
        if item is not None and item.value is not None:
            yield {
                "panel": panel, "name": verdict.label, "title": _row_title(verdict), "kind": kind,
                "standing": verdict.standing.value, **_numbers(item),
            }  # fmt: skip


def _row_title(verdict: Verdict) -> str:
    """The head and its name; behind a comma what keeps it from having one; with a question mark what is open."""
    if verdict.possible:
        return f"{verdict.label}  {_short_name(verdict.possible[0])}?"
    if not verdict.kinds:
        return verdict.label
    name = _short_name(verdict.kinds[0])
    match verdict.standing:
        case Standing.SUPPORTED:
            said = name
        case Standing.RESTS:
            said = "rests"
        case _:
            said = f"{name}, {_SHORT[verdict.standing]}"
    return f"{verdict.label}  {said}"


def _short_name(kind: Kind) -> str:
    return WORDS[kind].name.removesuffix(" head").removesuffix("-token")


_SHORT = {Standing.DISPUTED: "disputed", Standing.ATTENTION: "no cause"}


def _numbers(item: Evidence) -> dict[str, float | None]:
    return {
        "value": item.value,
        "low": item.value if item.low is None else item.low,
        "high": item.value if item.high is None else item.high,
        "null": item.null,
        "step_0": item.step_0,
    }


def head_panels(result: Result) -> Any:
    """A row for each head, a column for each source."""
    rows = head_rows(result)
    order = list(dict.fromkeys(row["title"] for row in rows))
    by_panel = {panel: [row for row in rows if row["panel"] == panel] for panel in _PANELS}
    parts = [_panel(result, own, order, panel) for panel, own in by_panel.items() if own]
    if result.behaviour is not None:
        parts.append(_distances(result, order))
    n = len(result.heads)
    which = "every head" if len(order) == n else f"{len(order)} of {n} heads, those with a claim first"
    subtitle = [
        f"{which}; lines: {result.config.level:.0%} intervals; grey: chance, or 2 sd of random heads; open: step 0;",
        "harms are logarithmic beyond a few hundredths; the colour, and what attention is shown, is the kind it was",
        "found for; grey: none, with its attention as an induction head" + _not_shown(result),
    ]
    return (
        alt.hconcat(*parts, spacing=14)
        .resolve_scale(color="independent")
        .properties(title=alt.TitleParams("Each head by every source", subtitle=subtitle, fontSize=12))
    )


def _not_shown(result: Result) -> str:
    """The panels that a model's settings leave out."""
    settings = ", ".join(dict.fromkeys(each.setting for each in result.weights.missing.values()))
    return f"; weights are not all read ({settings})" if settings else ""


@dataclass(frozen=True)
class _Axis:
    """How a panel's values are laid out."""

    title: str
    width: int
    """In pixels."""
    domain: tuple[float, float] | None = None
    """None: a scale that is linear near 0 and logarithmic beyond, as few heads cost nats and many cost hundredths."""


_PANELS = {
    "attention": _Axis("attention", 96, (0.0, 1.0)),
    "copying": _Axis("OV eigenvalues", 84, (-1.0, 1.0)),
    COPY: _Axis("harm, copying (nats, log)", 116),
    TEXT: _Axis("harm, text (nats, log)", 100),
}


def _panel(result: Result, own: Rows, order: list[str], panel: str) -> Any:
    axis = _PANELS[panel]
    base = alt.Chart(pd.DataFrame(own)).encode(y=_head_axis(order, labelled=panel == "attention"))
    x = alt.X("value:Q", title=axis.title, scale=_scale(axis, own), axis=_value_axis(axis, own))
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values())),
        legend=None,
    )
    marks = [
        base.mark_tick(color="#b9bcc3", thickness=2, size=11).encode(x="null:Q"),
        base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", color=colour),
        base.mark_point(filled=True, size=44, opacity=1).encode(
            x=x,
            color=colour,
            tooltip=["name:N", "kind:N", "standing:N", *(alt.Tooltip(f"{n}:Q", format=".3f") for n in _TOLD)],
        ),
    ]
    if panel == "copying":
        marks.insert(0, _null_band(result, base))
    if panel in ("attention", "copying") and any(row["step_0"] is not None for row in own):
        marks.insert(1, base.mark_point(filled=False, size=26, color=QUIET, strokeWidth=1).encode(x="step_0:Q"))
    return alt.layer(*marks).properties(width=axis.width, height=_ROW * len(order))


_TOLD = ("value", "low", "high", "null", "step_0")


def _head_axis(order: Sequence[str], *, labelled: bool) -> alt.Y:
    wide = 8 + 5.5 * max(map(len, order))
    axis = alt.Axis(ticks=False, domain=False, grid=True, gridColor=FAINT, labelAlign="left", labelPadding=wide)
    return alt.Y("title:N", sort=list(order), title=None, axis=axis if labelled else None)


def _scale(axis: _Axis, rows: Rows) -> alt.Scale:
    if axis.domain is not None:
        return alt.Scale(domain=list(axis.domain))
    return alt.Scale(type="symlog", constant=0.02, domain=list(_harm_domain(rows)), nice=False)


def _value_axis(axis: _Axis, rows: Rows) -> alt.Axis:
    if axis.domain is not None:
        low, high = axis.domain
        return alt.Axis(values=[low, (low + high) / 2, high], format="~g")
    low, high = _harm_domain(rows)
    ticks = [sign * size for size in _TENS for sign in (1, -1) if low <= sign * size <= high]
    return alt.Axis(values=sorted([0.0, *ticks]), labelExpr="datum.value + ''", labelOverlap=False, labelFontSize=9)


_TENS = (0.1, 1.0, 10.0, 100.0)


def _harm_domain(rows: Rows) -> tuple[float, float]:
    """From a tick to a tick, 0 among them, and never without a second: what has one tick has no scale.

    >>> _harm_domain([{"low": -0.002, "high": 0.01}]), _harm_domain([{"low": -0.3, "high": 8.5}])
    ((-0.01, 0.1), (-1.0, 10.0))
    """
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    beyond = next((size for size in _TENS if high <= size), high)
    below = 0.01 if low >= -0.01 else next((size for size in _TENS if -low <= size), -low)
    return -below, beyond


def _null_band(result: Result, base: alt.Chart) -> alt.Chart:
    """Two standard deviations of random heads to either side of 0."""
    copying = result.weights.copying
    spread = 0.0 if copying is None else 2 * copying.null_sd
    return base.mark_rect(color=FAINT, opacity=0.6, aria=False).encode(x=alt.datum(-spread), x2=alt.datum(spread))


def distance_rows(result: Result) -> Rows:
    """One row for each shown head and stretch of distances: the share of its attention there, and an even head's."""
    known = result.behaviour
    if known is None:
        return []
    seen = known.seen
    edges = seen.distance_edges.tolist()
    titles = {(each.layer, each.head): _row_title(each) for each in verdicts(result)}
    rows = []
    for place in shown_heads(result):
        shares = {"first": (float(seen.position_zero[place]), seen.even_position_zero)}
        for name, low, high in _bands(max(edges)):
            inside = [at for at, edge in enumerate(edges) if low <= edge < high]
            shares[name] = float(seen.distance[place][inside].sum()), float(seen.even_distance[inside].sum())
        rows += [
            {"title": titles[place], "band": band, "share": share, "even": even}
            for band, (share, even) in shares.items()
        ]
    return rows


def _bands(longest: int) -> list[tuple[str, int, int]]:
    """Stretches of distance, each about as long as all before: name, first, first beyond.

    >>> _bands(5)
    [('0', 0, 1), ('1', 1, 2), ('2', 2, 3), ('3', 3, 4), ('4-7', 4, 8)]
    """
    single = [(str(distance), distance, distance + 1) for distance in range(min(4, longest + 1))]
    starts = [start for power in range(2, 32) if (start := 2**power) <= longest]
    return [*single, *((f"{start}-{2 * start - 1}", start, 2 * start) for start in starts)]


def _distances(result: Result, order: list[str]) -> Any:
    rows = distance_rows(result)
    bands = list(dict.fromkeys(row["band"] for row in rows))
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            y=_head_axis(order, labelled=False),
            x=alt.X("band:N", sort=bands, title="tokens back", axis=alt.Axis(labelAngle=-45, labelFontSize=9)),
            color=alt.Color("share:Q", scale=sequential(0.0, 1.0), legend=None),
            tooltip=["title:N", "band:N", alt.Tooltip("share:Q", format=".2f"), alt.Tooltip("even:Q", format=".2f")],
        )
        .properties(
            width=14 * len(bands),
            height=_ROW * len(order),
            title=alt.TitleParams("attention on the corpus", fontSize=10, fontWeight="normal", offset=4),
        )
    )


def pair_rows(result: Result) -> pd.DataFrame:
    """The surest compositions of all inputs, one row each."""
    pairs: list[Pair] = []
    for name, known in result.weights.composition.items():
        pairs += [pair for pair in known.strongest(name, n=MOST_PAIRS) if pair.null_sd > 0]
    surest = sorted(pairs, key=lambda pair: -pair.z)[:MOST_PAIRS]
    return pd.DataFrame(
        [
            {
                "pair": f"{each.reader} {_INPUTS[each.kind]} {each.writer}", "input": _INPUTS[each.kind],
                "score": each.score, "null": each.null_mean, "low": each.null_mean - 2 * each.null_sd,
                "high": each.null_mean + 2 * each.null_sd, "z": each.z,
            }
            for each in surest
        ]
    )  # fmt: skip


_INPUTS = {name: f"{name.upper()} reads" for name in INPUTS}


def composition_panel(result: Result) -> Any | None:
    """The surest compositions beside their null; None where none is defined, or there is one layer only."""
    rows = pair_rows(result)
    if rows.empty:
        return None
    base = alt.Chart(rows).encode(
        y=alt.Y("pair:N", sort=rows["pair"].tolist(), title=None, axis=alt.Axis(ticks=False, domain=False))
    )
    x = alt.X("score:Q", title="composition score", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    return alt.layer(
        base.mark_bar(color=FAINT, height=8).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(filled=True, size=46, color=CATEGORIES[0], opacity=1).encode(
            x=x, tooltip=["pair:N", *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("score", "null", "z"))]
        ),
        base.mark_text(align="left", dx=8, fontSize=9, color=QUIET).encode(
            x="score:Q", text=alt.Text("z:Q", format=".0f")
        ),
    ).properties(
        width=230,
        height=_ROW * len(rows),
        title=alt.TitleParams(
            "Who reads whom, by weights",
            subtitle="bars: the same writer turned at random, 2 sd; small: z",
            fontSize=12,
        ),
    )
