"""How every layer's prediction comes about, one share at a time, by the study ffn-composition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from analyses.composition.result import Result
from analyses.views.by_layer import Point, Series
from interp.ffn_composed import Case, Counted
from interp.stats import Intervals
from model.errors import UnknownNameError, closest

CASES = {
    Case.RESIDUAL: "the stream's",
    Case.FFN: "the FFN's",
    Case.AGREEMENT: "both say it",
    Case.COMPOSITION: "neither's: composed",
    Case.IMPOSSIBLE: "overturned by the bias",
}
"""Whose token a layer's output token is."""


@dataclass(frozen=True, kw_only=True)
class Measure:
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


def points(result: Result, measure: str) -> list[Point]:
    """A measure's values at the checkpoint, at step 0 where that was read, and by chance.

    Raises:
        UnknownNameError: if there is no such measure; the names are those of `MEASURES`.
    """
    asked = next((each for each in MEASURES if each.name == measure), None)
    if asked is None:
        known = [each.name for each in MEASURES]
        raise UnknownNameError(
            f'there is no measure "{measure}" of a layer; there are {", ".join(known)}.{closest(measure, known)}'
        )
    return list(_every_point(result, asked))


def _every_point(result: Result, asked: Measure) -> Iterator[Point]:
    yield from _points(getattr(result.now, asked.name), Series.NOW, asked.row)
    if result.at_step_zero is not None:
        yield from _points(getattr(result.at_step_zero, asked.name), Series.START, asked.row)
    if asked.chance is not None:
        yield from _points(getattr(result.now, asked.chance), Series.CHANCE, asked.row)


MEASURES = (
    Measure(
        name="active",
        title="memories that are active",
        said="Share of a layer's memories that are active at a prefix",
    ),
    Measure(
        name="zero_agreement",
        title="no active one has FFN's token",
        said="Share of prefixes on which no active memory has the FFN's own token",
        row=list(Counted).index(Counted.ACTIVE),
        chance="zero_agreement_dealt",
    ),
    Measure(
        name="residual_agreement",
        title="decided before the FFN",
        said="Share of prefixes on which the stream before the FFN has the model's token",
    ),
    Measure(
        name="breakdown",
        title="composed: neither's token",
        said="Share of prefixes on which the token that comes out is neither the stream's nor the FFN's",
        row=Case.COMPOSITION,
        chance="breakdown_dealt",
    ),
)


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


def part_rows(result: Result) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame(parts(result), columns=["layer", "token", "share"])


def case_rows(result: Result, layer: int) -> pd.DataFrame:
    """Whose token the layer's output token is: shares with intervals, beside two controls and step 0."""
    now, start = result.now, result.at_step_zero
    rows = []
    for case in cases_of(result):
        cell = now.breakdown[case, layer]
        row = {f"layer {layer}'s token is": CASES[case], "share": cell.mean, "low": cell.low, "high": cell.high}
        row |= {"permuted": now.breakdown_dealt[case, layer].mean, "other": now.breakdown_other[case, layer].mean}
        rows.append(row if start is None else row | {"step 0": start.breakdown[case, layer].mean})
    return pd.DataFrame(rows)
