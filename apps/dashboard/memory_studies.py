"""What other studies say of a memory's layer: how it composes its prediction, and what turning values on does."""

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

COMPOSITION, PROMOTION = "ffn-composition", "memory-promotion"

MIN_WIDTH = 250

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
    alt: str
    """What it shows, for a screen reader."""
    rule: Counted | None = None
    """Which memories are asked, where that is a choice."""
    chance: str | None = None
    """Field of what it is by chance, where there is one."""


def composition(run: Run, step: int | None, layer: int) -> None:
    """How every layer's prediction comes about, and the chosen one's in numbers."""
    shelf = data.shelf(run, COMPOSITION)
    saved = components.on_shelf(COMPOSITION, run, step, shelf)
    if saved is None:
        return
    result = saved.result
    with st.grid(4, min_column_width=MIN_WIDTH, gap="small"):
        for panel in PANELS:
            figure = by_layer_figure(points(result, panel), panel.title, marked=layer)
            components.chart(figure, alt=panel.alt, key=f"composition-{panel.name}", width="stretch")
        figure = parts_figure(parts(result), [CASES[case] for case in cases_of(result)], "whose token comes out")
        components.chart(figure, alt="Whose token comes out of each layer", key="composition-parts", width="stretch")
    st.subheader(f"Layer {layer}: whose token comes out")
    components.table(cases_table(result, layer), alt=f"Whose token layer {layer}'s is", height="content")
    components.caption(
        *READ_AS, "dealt: the layer's values dealt anew to its memories", "other: its update at another prefix",
        "" if result.at_step_zero is not None else "step 0 was not read",
    )  # fmt: skip
    components.provenance(
        saved, f"n = {result.n_prefixes:,} prefixes", f"intervals over {result.n_units} {result.unit}"
    )


PANELS = (
    Panel(
        name="active",
        title="memories that are active",
        alt="Share of a layer's memories that are active at a prefix, by layer",
    ),
    Panel(
        name="zero_agreement",
        title="no active memory says what the FFN says",
        alt="Share of prefixes on which no active memory has the FFN's own token, by layer",
        rule=Counted.ACTIVE,
        chance="zero_agreement_dealt",
    ),
    Panel(
        name="residual_agreement",
        title="decided before the FFN",
        alt="Share of prefixes on which the stream before the FFN has the model's token, by layer",
    ),
)


def points(result: Result, panel: Panel) -> Iterator[Point]:
    """The panel's values at the checkpoint, at step 0 where that was read, and by chance."""
    yield from _points(getattr(result.now, panel.name), Series.NOW, panel.rule)
    if result.at_step_zero is not None:
        yield from _points(getattr(result.at_step_zero, panel.name), Series.START, panel.rule)
    if panel.chance is not None:
        yield from _points(getattr(result.now, panel.chance), Series.CHANCE, panel.rule)


def _points(values: Intervals, series: Series, rule: Counted | None) -> Iterator[Point]:
    at = slice(None) if rule is None else list(Counted).index(rule)
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
        row = {"the token is": CASES[case], "share": cell.mean, "low": cell.low, "high": cell.high}
        row |= {"dealt": now.breakdown_dealt[case, layer].mean, "other": now.breakdown_other[case, layer].mean}
        rows.append(row if start is None else row | {"step 0": start.breakdown[case, layer].mean})
    return pd.DataFrame(rows)
