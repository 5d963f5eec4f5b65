"""How the layer of a memory composes its prediction, by the study ffn-composition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from analyses.ffn_composition import Result
from analyses.views.by_layer import READ_AS, Point, Series, by_layer_figure, parts_figure
from apps.dashboard import components, data
from apps.dashboard.data import Run
from interp.ffn_composed import Case, Counted
from interp.stats import Intervals
from model.errors import NotAdditiveError

STUDY = "ffn-composition"

MIN_WIDTH = 200

CASES = {
    Case.RESIDUAL: "the stream's",
    Case.FFN: "the FFN's",
    Case.AGREEMENT: "both say it",
    Case.COMPOSITION: "neither's: composed",
    Case.IMPOSSIBLE: "overturned by the bias",
}
"""Whose token a layer's output token is."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One quantity of a layer."""

    name: str
    """Of the measure's field."""
    title: str
    said: str
    """What it shows, in a sentence."""
    row: int | None = None
    """Which row of the field, where it has several."""
    chance: str | None = None
    """Field of what it is by chance, where there is one."""


def draw(run: Run, step: int | None, layer: int) -> None:
    """How every layer's prediction comes about, and the chosen one's in numbers."""
    try:
        if run.model is not None:
            run.model.require_additive_stream("Taking a prediction apart into stream and FFN update")
    except NotAdditiveError as error:  # no command would make it
        components.unasked(error)
        return
    saved = components.on_shelf(STUDY, run, step, data.shelf(run, STUDY))
    if saved is None:
        return
    result = saved.result
    with st.grid(4, min_column_width=MIN_WIDTH, gap="small", vertical_alignment="bottom") as grid:
        for panel in PANELS:
            figure = by_layer_figure(points(result, panel), panel.title, marked=layer)
            components.panel(figure, panel.title, panel.said, key=f"composition-{panel.name}")
        with grid.cell(column_span=2):
            title = "whose token comes out"
            figure = parts_figure(parts(result), list(CASES.values()), title)
            said = "The token that comes out of a layer was the stream's, is the FFN update's own, both, or neither's"
            components.panel(figure, title, said, key="composition-parts")
        with grid.cell(column_span=2):
            components.table(cases_table(result, layer), alt=f"Whose token layer {layer}'s is", height="content")
    components.caption(
        *READ_AS, "dealt: the layer's values dealt anew to its memories", "other: its update at another prefix",
        None if result.at_step_zero is not None else "step 0 was not read",
    )  # fmt: skip
    units = f"intervals over {result.n_units} {result.unit}"
    components.provenance(saved, f"n = {result.n_prefixes:,} prefixes of {result.config.split} text", units)
    components.findings(data.findings(saved))
    components.whole_study(saved)


PANELS = (
    Panel(
        name="active",
        title="memories that are active",
        said="Share of a layer's memories that are active at a prefix",
    ),
    Panel(
        name="zero_agreement",
        title="no active one has FFN's token",
        said="Share of prefixes on which no active memory has the FFN's own token",
        row=list(Counted).index(Counted.ACTIVE),
        chance="zero_agreement_dealt",
    ),
    Panel(
        name="residual_agreement",
        title="decided before the FFN",
        said="Share of prefixes on which the stream before the FFN has the model's token",
    ),
    Panel(
        name="breakdown",
        title="composed: neither's token",
        said="Share of prefixes on which the token that comes out is neither the stream's nor the FFN's",
        row=Case.COMPOSITION,
        chance="breakdown_dealt",
    ),
)


def points(result: Result, panel: Panel) -> Iterator[Point]:
    """The panel's values at the checkpoint, at step 0 where that was read, and by chance."""
    yield from _points(getattr(result.now, panel.name), Series.NOW, panel.row)
    if result.at_step_zero is not None:
        yield from _points(getattr(result.at_step_zero, panel.name), Series.START, panel.row)
    if panel.chance is not None:
        yield from _points(getattr(result.now, panel.chance), Series.CHANCE, panel.row)


def _points(values: Intervals, series: Series, row: int | None) -> Iterator[Point]:
    at = slice(None) if row is None else int(row)
    ends = zip(*(part[at].tolist() for part in (values.mean, values.low, values.high)), strict=True)
    for layer, (mean, low, high) in enumerate(ends):
        yield Point(layer=layer, series=series, value=mean, low=low, high=high)


def cases_of(result: Result) -> list[Case]:
    """The cases that occur: one of them only can where the final norm has a bias."""
    return [
        case for case in CASES if case is not Case.IMPOSSIBLE or bool(result.now.breakdown.mean[Case.IMPOSSIBLE].any())
    ]


def parts(result: Result) -> list[tuple[int, str, float]]:
    """Whose token every layer's output token is: layer, case and share."""
    shares = result.now.breakdown.mean
    return [(at, CASES[case], float(shares[case, at])) for at in range(result.n_layers) for case in cases_of(result)]


def cases_table(result: Result, layer: int) -> pd.DataFrame:
    """Whose token the layer's output token is: shares with intervals, beside two controls and step 0."""
    now, start = result.now, result.at_step_zero
    rows = []
    for case in cases_of(result):
        cell = now.breakdown[case, layer]
        row = {f"layer {layer}'s token is": CASES[case], "share": cell.mean, "low": cell.low, "high": cell.high}
        row |= {"dealt": now.breakdown_dealt[case, layer].mean, "other": now.breakdown_other[case, layer].mean}
        rows.append(row if start is None else row | {"step 0": start.breakdown[case, layer].mean})
    return pd.DataFrame(rows)
