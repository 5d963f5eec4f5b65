"""The layers of a result of ffn-memories at a glance: one small figure for each quantity, and a table of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from analyses.ffn_memories import Result
from analyses.ffn_summary import LayerSummary, Summary
from analyses.ffn_tables import layer_rows
from analyses.results import SavedResult
from analyses.views.by_layer import READ_AS, Point, Series, by_layer_figure, parts_figure
from apps.dashboard import components
from apps.dashboard.memories import rows as memory_rows
from apps.dashboard.memories.rows import KINDS
from interp.agreement import Agreement
from interp.pattern_kinds import TriggerPattern
from interp.stats import Interval

MIN_WIDTH = 200
"""Pixels below which a figure moves to the next line."""

Values = Callable[[Summary, Series], Iterator[Point]]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One quantity of a layer."""

    key: str
    title: str
    """What stands on its vertical axis."""
    said: str
    """What it shows, in a sentence."""
    values: Values
    """What it is at one step, and by chance."""


def draw(saved: SavedResult, marked: int | None) -> None:
    """Every panel, how to read them, where they come from, and the same numbers as a table."""
    result = saved.result
    with st.grid(4, min_column_width=MIN_WIDTH, gap="small", vertical_alignment="bottom") as grid:
        for panel in PANELS:
            figure = by_layer_figure(points(result, panel), panel.title, marked=marked)
            components.panel(figure, panel.title, panel.said, key=f"layers-{panel.key}")
        with grid.cell(column_span=2):
            title, there = "what triggers share", {kind for _, kind, _ in kinds(result)}
            figure = parts_figure(kinds(result), [kind.value for kind in KINDS], title)
            said = ", ".join(memory_rows.kind_name(kind) for kind in KINDS if kind.value in there)
            components.panel(figure, title, said, key="layers-kinds")
        with grid.cell(column_span=2):
            title = "agreement by how sure values are"
            figure = by_layer_figure(by_confidence(result), title, axis=CONFIDENCE)
            components.panel(figure, title, CONFIDENCE_SAID, key="layers-confidence")
    components.caption(*READ_AS, without_step_zero(result))
    components.provenance(
        saved, f"n = {result.n_prefixes:,} prefixes of {result.config.split} text in {result.n_windows:,} windows"
    )
    box = st.expander("Layers as a table", key="layers-table", on_change="rerun", type="compact")
    if box.open:
        with box:
            components.table(table(result), alt="Agreement, triggers and activity by layer, beside step 0")


CONFIDENCE_SAID = (
    "Share of memories whose value's first token followed their top trigger, in tenths of memories by the probability "
    "that the value alone would give to that token"
)
CONFIDENCE = "tenth of the memories of all layers, the surest values last"


def by_confidence(result: Result) -> Iterator[Point]:
    """Agreement from the least sure values to the surest, beside step 0 and chance."""
    both = {Series.NOW: result.reading.summary} | ({} if result.initial is None else {Series.START: result.initial})
    for series, summary in both.items():
        for place, each in enumerate(summary.confidence, start=1):
            yield from _beside_chance(place, series, each.agreement)


def points(result: Result, panel: Panel) -> list[Point]:
    """The panel's values at the checkpoint, and at step 0 where that was read."""
    now = list(panel.values(result.reading.summary, Series.NOW))
    return now + ([] if result.initial is None else list(panel.values(result.initial, Series.START)))


def table(result: Result) -> pd.DataFrame:
    """The memories of each layer together, at step 0 and at the checkpoint."""
    return pd.DataFrame(layer_rows(result))


def without_step_zero(result: Result) -> str | None:
    """Why there is nothing beside the checkpoint, if there is not."""
    if result.initial is not None:
        return None
    return "this is step 0" if result.step == 0 else "step 0 of this run was not read, so nothing stands beside"


def _agreement(summary: Summary, series: Series) -> Iterator[Point]:
    for each in summary.layers:
        yield from _beside_chance(each.layer, series, each.agreement)


def _beside_chance(place: int, series: Series, found: Agreement) -> Iterator[Point]:
    yield Point(layer=place, series=series, value=found.share, low=found.low, high=found.high)
    if series is Series.NOW:
        chance = {"value": found.chance, "low": found.chance_low, "high": found.chance_high}
        yield Point(layer=place, series=Series.CHANCE, **chance)


def _concepts(summary: Summary, series: Series) -> Iterator[Point]:
    for each in summary.layers:
        yield from _interval(each.layer, series, each.concepts.share)
        if series is Series.NOW:
            yield from _interval(each.layer, Series.CHANCE, each.concepts.random)


def _last_token(summary: Summary, series: Series) -> Iterator[Point]:
    random = summary.evidence.random_level("last_token_share")
    for each in summary.layers:
        yield Point(layer=each.layer, series=series, value=each.last_token_share)
        if series is Series.NOW:
            yield Point(layer=each.layer, series=Series.CHANCE, value=float(random[each.layer].nanmean()))


def _last_beats_first(summary: Summary, series: Series) -> Iterator[Point]:
    for each in summary.layers:
        yield from _interval(each.layer, series, each.last_beats_first)
        if series is Series.NOW:
            yield Point(layer=each.layer, series=Series.CHANCE, value=0.5)


def _interval(layer: int, series: Series, found: Interval | None) -> Iterator[Point]:
    if found is not None:
        yield Point(layer=layer, series=series, value=found.mean, low=found.low, high=found.high)


def _each(value: Callable[[LayerSummary], float]) -> Values:
    def points_of(summary: Summary, series: Series) -> Iterator[Point]:
        return (Point(layer=each.layer, series=series, value=value(each)) for each in summary.layers)

    return points_of


PANELS = (
    Panel(
        key="agreement",
        title="value agrees with its trigger",
        said="Share of memories whose value's most promoted token followed their top trigger",
        values=_agreement,
    ),
    Panel(
        key="concepts",
        title="value promotes a concept",
        said="Share of values whose most promoted tokens have something in common, beside random directions",
        values=_concepts,
    ),
    Panel(
        key="last-token",
        title="triggers ending in one token",
        said="Mean share of a memory's triggers that end in the commonest last token among them",
        values=_last_token,
    ),
    Panel(
        key="last-beats-first",
        title="last token beats first",
        said="Share of sampled memories that fall further without a trigger's last token than without its first one",
        values=_last_beats_first,
    ),
    Panel(
        key="firing",
        title="prefixes a memory fires on",
        said="Median share of prefixes on which a memory fires",
        values=_each(lambda layer: layer.firing_rate),
    ),
    Panel(
        key="strong",
        title="above a tenth of its largest",
        said="Median share of prefixes on which a memory is above a tenth of its largest coefficient",
        values=_each(lambda layer: layer.strong_rate),
    ),
    Panel(
        key="dead",
        title="memories that never fire",
        said="Share of memories that are never above zero",
        values=_each(lambda layer: (layer.n_dead + layer.n_one_sided) / layer.n_memories),
    ),
    Panel(
        key="dense",
        title="memories that mostly fire",
        said="Share of memories that fire on more than half of the prefixes",
        values=_each(lambda layer: layer.n_dense / layer.n_memories),
    ),
)


def kinds(result: Result) -> list[tuple[int, str, float]]:
    """What share of each layer's memories is of which kind: layer, kind, share; only kinds that occur."""
    found = result.reading.evidence
    counts = [found.counts(layer) for layer in range(result.n_layers)]
    return [
        (layer, kind.value, of_layer[kind] / sum(of_layer.values()))
        for kind in TriggerPattern
        if any(each[kind] for each in counts)
        for layer, of_layer in enumerate(counts)
    ]
