"""What the studies ffn-memories and ffn-composition saved of a run, as the numbers that targets are about.

Each function takes a `Side`, the trained checkpoint's or that of step 0, and gives None where that side was not read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.composition import result as ffn_composition_result
from analyses.composition.result import Measured
from analyses.ffn import result as ffn_result
from analyses.ffn.summary import LayerSummary, Summary
from analyses.shelf import shelf_of_run
from bench.memory_measures import (
    Measurement,
    extreme,
    largest_fall,
    last_over_first_third,
    lead_of_first_layer,
    least_sum,
    measurement,
    share_that_falls_more,
    third_ratio,
)
from interp.agreement_trends import ConfidenceTrend, confidence_trend, depth_trend
from interp.ffn_composed import Case, Counted
from interp.stats import Intervals
from interp.trigger_deletions import Deletion
from model.errors import CheckpointError

STUDIES = ("ffn-memories", "ffn-composition")


@dataclass(frozen=True, kw_only=True)
class Side:
    """One checkpoint's memories and layers, in brief."""

    summary: Summary
    measured: Measured
    unit: str
    """What the intervals of `measured` are over."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is saved of a run's checkpoint."""

    run: str
    step: int
    memories: ffn_result.Result
    composition: ffn_composition_result.Result

    @property
    def trained(self) -> Side:
        """The checkpoint."""
        return Side(summary=self.memories.reading.summary, measured=self.composition.now, unit=self.composition.unit)

    @property
    def at_zero(self) -> Side | None:
        """Step 0; None where either study did not read it."""
        summary, measured = self.memories.initial, self.composition.at_step_zero
        if summary is None or measured is None:
            return None
        return Side(summary=summary, measured=measured, unit=self.composition.unit)


def found_of(run: Path) -> Found:
    """Both studies' results at the last step that both have; of several, those that read the most text."""
    shelves = [shelf_of_run(run, study) for study in STUDIES]
    steps = set.intersection(*(set(shelf.steps) for shelf in shelves))
    if not steps:
        commands = " && ".join(f"cutaway run {study} {run}" for study in STUDIES)
        raise CheckpointError(f"{run} has no saved results of {' and '.join(STUDIES)} at one step; run: {commands}")
    step = max(steps)
    memories, composition = (
        max((saved.result for saved in shelf.every(step)), key=lambda result: result.n_prefixes) for shelf in shelves
    )
    return Found(run=str(run), step=step, memories=memories, composition=composition)


def agrees(found: Found) -> list[Bool[Tensor, " memory"]]:
    """By layer: does each living memory's value promote most what followed its top trigger?"""
    promoted, followed, alive = _living(found)
    return [(own == next_)[lives] for own, next_, lives in zip(promoted, followed, alive, strict=True)]


def trend(found: Found) -> ConfidenceTrend:
    """Of agreement with confidence, over the living memories of all layers."""
    promoted, followed, alive = _living(found)
    layers = torch.arange(len(alive))[:, None].expand_as(alive)
    confidence = found.memories.reading.values.confidence
    parts = (promoted[alive], followed[alive], confidence[alive], layers[alive])
    return confidence_trend(*parts, n_permutations=999, seed=found.memories.config.seed)


def surest(found: Found, n: int = 100) -> tuple[list[int], int]:
    """Of the living values that are surest of their top token: how many are in each layer, and how many agree at all.

    A value agrees at all where any trigger that is kept of its key is followed by its top token.
    """
    promoted, _, alive = _living(found)
    confidence = found.memories.reading.values.confidence.masked_fill(~alive, -1.0).flatten()
    chosen = confidence.argsort(descending=True, stable=True)[: min(n, int(alive.sum()))]
    next_tokens = found.memories.reading.triggers.next_token.flatten(0, 1)[chosen]
    agreeing = (next_tokens == promoted.flatten()[chosen][:, None]).any(1)
    return torch.bincount(chosen // alive.shape[1], minlength=len(alive)).tolist(), int(agreeing.sum())


def third_ratio_of(found: Found, side: Side) -> Measurement:
    """Agreement of the last third of the layers over the first; with an interval for the trained ones alone."""
    if side.summary is found.memories.reading.summary:
        return last_over_first_third(agrees(found))
    agreements = [layer.agreement for layer in side.summary.layers]
    shares, counts = tuple(each.share for each in agreements), [each.n for each in agreements]
    return Measurement(value=third_ratio(shares, counts), n=sum(counts), unit="memories", layers=shares)


def chance_ratio(found: Found) -> float:
    """The same ratio of the agreement of dealt next tokens."""
    agreements = [layer.agreement for layer in found.trained.summary.layers]
    return third_ratio([each.chance for each in agreements], [each.n for each in agreements])


def last_lift(side: Side) -> Measurement:
    """How many times the agreement of dealt next tokens the last layer reaches."""
    agreements = [layer.agreement for layer in side.summary.layers]
    last, lifts = agreements[-1], tuple(math.nan if each.lift is None else each.lift for each in agreements)
    low, high = (end / last.chance if last.chance else math.nan for end in (last.low, last.high))
    return Measurement(value=lifts[-1], low=low, high=high, n=last.n, unit="memories", p=last.p, layers=lifts)


def rank_trend(layers: Sequence[LayerSummary], *, by_chance: bool = False) -> Measurement:
    """Rank correlation with depth of the median place of the next token in the value's order of promotion."""
    ranks = [layer.chance_rank if by_chance else layer.median_rank for layer in layers]
    told = depth_trend(torch.tensor(ranks))
    return Measurement(value=told.rho, n=told.n, unit="layers", p=told.p_falls, layers=tuple(ranks))


def falls_more(side: Side) -> Measurement | None:
    """Memories that lose more without the last token than without the first."""
    last, first = _falls(side.summary, Deletion.LAST), _falls(side.summary, Deletion.FIRST)
    return None if last is None or first is None else share_that_falls_more(last, first)


def first_layer_lead(side: Side) -> Measurement | None:
    """By how much the first layer's fall without the last token exceeds any other's."""
    last = _falls(side.summary, Deletion.LAST)
    return None if last is None else lead_of_first_layer(last)


def active(side: Side, *, least: bool) -> Measurement:
    """The least or the largest share of active memories of any layer."""
    return extreme(side.measured.active, side.unit, least=least)


def zero_agreement(side: Side, which: Counted, *, dealt: bool = False) -> Measurement:
    """The least share of prefixes, of any layer, at which no memory has the layer's token."""
    rates = side.measured.zero_agreement_dealt if dealt else side.measured.zero_agreement
    return extreme(_row(rates, tuple(Counted).index(which)), side.unit, least=True)


def decided(side: Side) -> Measurement:
    """Prefixes whose final token the stream before the last FFN already has."""
    shares = side.measured.residual_agreement
    return measurement(shares[len(shares.mean) - 1], side.unit, tuple(shares.mean.tolist()))


def undone(side: Side) -> Measurement:
    """The largest fall of that share from a layer to the next."""
    return largest_fall(side.measured.residual_agreement, side.unit)


def kept(side: Side, *, dealt: bool = False) -> Measurement:
    """Prefixes at which the stream's token stays, whatever the FFN says; the least of any layer."""
    cases = side.measured.breakdown_dealt if dealt else side.measured.breakdown
    return least_sum([_row(cases, Case.RESIDUAL), _row(cases, Case.AGREEMENT)], side.unit)


def ffn_alone(side: Side, *, dealt: bool = False) -> Measurement:
    """Prefixes at which the FFN's token replaces the stream's; the most of any layer."""
    cases = side.measured.breakdown_dealt if dealt else side.measured.breakdown
    return extreme(_row(cases, Case.FFN), side.unit, least=False)


def _living(found: Found) -> tuple[Tensor, Tensor, Tensor]:
    reading = found.memories.reading
    return reading.values.promoted[:, :, 0], reading.triggers.next_token[:, :, 0], reading.activity.alive


def _falls(summary: Summary, change: Deletion) -> Float[Tensor, "layer sampled"] | None:
    deletions = summary.deletions
    return None if deletions is None else deletions.fall[:, :, tuple(Deletion).index(change)]


def _row(intervals: Intervals, row: int) -> Intervals:
    """One row of [row layer] intervals."""
    return replace(intervals, mean=intervals.mean[row], low=intervals.low[row], high=intervals.high[row])
