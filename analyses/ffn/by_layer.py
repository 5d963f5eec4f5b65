"""What every layer's memories are like, one quantity at a time: at the checkpoint, at step 0, and by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

from analyses.ffn.result import Result
from analyses.ffn.summary import LayerSummary, Summary
from analyses.views.by_layer import Point, Series
from interp.agreement import Agreement
from interp.pattern_kinds import TriggerPattern
from interp.stats import Interval
from model.errors import UnknownNameError, closest

Values = Callable[[Summary, Series], Iterator[Point]]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One quantity of a layer."""

    name: str
    title: str
    """What stands on its vertical axis."""
    said: str
    """What it shows, in a sentence."""
    values: Values
    """What it is at one step, and by chance."""


def points(result: Result, measure: str) -> list[Point]:
    """A measure's values at the checkpoint, and at step 0 where that was read.

    Raises:
        UnknownNameError: if there is no such measure; the names are those of `MEASURES`.
    """
    values = next((each.values for each in MEASURES if each.name == measure), None)
    if values is None:
        known = [each.name for each in MEASURES]
        raise UnknownNameError(
            f'there is no measure "{measure}" of a layer; there are {", ".join(known)}.{closest(measure, known)}'
        )
    now = list(values(result.reading.summary, Series.NOW))
    return now + ([] if result.initial is None else list(values(result.initial, Series.START)))


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


MEASURES = (
    Measure(
        name="agreement",
        title="value agrees with its trigger",
        said="Share of memories whose value's most promoted token followed their top trigger",
        values=_agreement,
    ),
    Measure(
        name="concepts",
        title="value promotes a concept",
        said="Share of values whose most promoted tokens have something in common, beside random directions",
        values=_concepts,
    ),
    Measure(
        name="last-token",
        title="triggers ending in one token",
        said="Mean share of a memory's triggers that end in the commonest last token among them",
        values=_last_token,
    ),
    Measure(
        name="last-beats-first",
        title="last token beats first",
        said="Share of sampled memories that fall further without a trigger's last token than without its first one",
        values=_last_beats_first,
    ),
    Measure(
        name="firing",
        title="prefixes a memory fires on",
        said="Median share of prefixes on which a memory fires",
        values=_each(lambda layer: layer.firing_rate),
    ),
    Measure(
        name="strong",
        title="above a tenth of its largest",
        said="Median share of prefixes on which a memory is above a tenth of its largest coefficient",
        values=_each(lambda layer: layer.strong_rate),
    ),
    Measure(
        name="dead",
        title="memories that never fire",
        said="Share of memories that are never above zero",
        values=_each(lambda layer: (layer.n_dead + layer.n_one_sided) / layer.n_memories),
    ),
    Measure(
        name="dense",
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


def kind_rows(result: Result) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame(kinds(result), columns=["layer", "kind", "share"])
