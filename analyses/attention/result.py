"""What a study of attention patterns asks and answers, and the rule by which a head counts as found.

Decided at the period at which the run is judged, a head is *found* for a kind of attention if its score is at least
`threshold`, and its interval lies at least `margin` above chance and above the same head's score at step 0: what even
attention or untrained weights would do nearly as well is no finding. Induction and duplicate heads, which a learned
distance can imitate, also need a period unseen in training, `times_chance` times chance, and less than half of the
score in the control, where a learned distance keeps it.

A head that is not found is *possible* where its intervals cannot rule it out; a kind without found heads is denied only
where no head is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.attention.behaviour import Behaviour
from analyses.attention.harms import HeadHarms
from analyses.attention.readings import BY_CONTENT, Kind, Reading
from analyses.attention.stimuli import Stimulus, decisive
from analyses.attention.weights import Weights
from analyses.attention.words import WORDS
from analyses.config_rules import SEED, at_least, between, require, within
from interp.places import Head, every_head
from interp.scores import can_reach
from model.settings import as_enum


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    n_sequences: int = 64
    """Sequences of repeated random tokens for each period."""
    n_text: int = 64
    """Held-out rows of text, at most."""
    periods: tuple[int, ...] = ()
    """Tokens per copy; empty means: the one that decides, the longest that training did not show, and one it did."""
    threshold: float = 0.4
    """Smallest score of a head that counts as found."""
    margin: float = 0.2
    """How far the interval of a found head lies above chance and above the head's score at step 0, at least."""
    times_chance: float = 10.0
    """Smallest multiple of chance for duplicate and induction heads."""
    n_resamples: int = 2000
    """Bootstrap resamples."""
    level: float = 0.95
    """Nominal coverage of the intervals."""
    seed: int = 0
    """Draws tokens, orders, windows and resamples."""
    n_tokens: int = 32_768
    """Corpus tokens on which every head is watched, at least; the whole corpus where it holds fewer."""
    max_ablated: int = 32
    """Heads ablated one by one, at most; a larger model's are those with a claim to test, strongest first."""
    floor: float = 0.05
    """Harm in nats below which an ablation shows nothing: the whole interval has to lie beyond."""
    alpha: float = 0.05
    """Level of the claims about ablated heads, after Holm's correction."""

    def __post_init__(self) -> None:
        require(self, n_sequences=at_least(2), n_text=at_least(2), n_resamples=at_least(100), periods=at_least(2))
        require(self, threshold=within(0, 1), margin=within(0, 1), times_chance=at_least(0), level=between(0, 1))
        require(self, seed=SEED, n_tokens=at_least(1), max_ablated=at_least(1))
        require(self, floor=at_least(0), alpha=between(0, 1))


@dataclass(frozen=True, kw_only=True)
class Example:
    """One head's pattern on one sequence."""

    layer: int
    head: int
    period: int
    tokens: tuple[str, ...]
    """The sequence, one printable string per position."""
    pattern: Float[Tensor, "query key"]
    """Rows sum to 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Attention:
    """Where the heads of one checkpoint attend."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    trained_periods: tuple[int, int] | None
    """Shortest and longest period of the repeats in training; None if there were none."""
    readings: tuple[Reading, ...]
    """Repeats of every period, shortest first; then the control; then text."""
    at_step_zero: tuple[Reading, ...] | None
    """The same readings of the run's first checkpoint; None if this is it, or there is none."""

    @property
    def repeats(self) -> tuple[Reading, ...]:
        """The repeats of every period, shortest first."""
        return tuple(reading for reading in self.readings if reading.stimulus is Stimulus.REPEATS)

    @property
    def headline(self) -> Reading:
        """The repeats that decide: those of the period that was re-ordered for the control."""
        return decisive(self.readings)

    @property
    def control(self) -> Reading:
        """The headline period with its second copy re-ordered."""
        return next(each for each in self.readings if each.stimulus is Stimulus.CONTROL)

    @property
    def text(self) -> Reading | None:
        """Held-out text; None if the run keeps fewer than two rows."""
        return next((reading for reading in self.readings if reading.stimulus is Stimulus.TEXT), None)

    def first(self, reading: Reading) -> Reading | None:
        """The same reading of the run's first checkpoint."""
        if self.at_step_zero is None:
            return None
        return next(old for new, old in zip(self.readings, self.at_step_zero, strict=True) if new is reading)

    @property
    def headline_at_step_zero(self) -> Reading | None:
        """The headline reading of the run's first checkpoint."""
        return self.first(self.headline)

    @property
    def heads(self) -> list[Head]:
        """Every head as (layer, head), layer by layer."""
        return every_head(*self.headline[Kind.INDUCTION].intervals.mean.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class Result(Attention):
    """What the heads of one checkpoint attend to, read and write, and what ablating them costs.

    Equal to itself alone: tensors tell no equality, and what is derived from a result is kept by the result.
    """

    example: Example
    """The strongest induction head at the headline period, on one sequence."""
    harms: HeadHarms
    """What ablating heads alone costs, on sequences other than those of the readings."""
    harms_at_step_zero: HeadHarms | None
    """The same heads at the run's first checkpoint; None if this is it, or there is none."""
    weights: Weights
    """What the weights say, as far as that is defined for this model."""
    weights_at_step_zero: Weights | None
    """What those of the run's first checkpoint say; None if this is it, or there is none."""
    behaviour: Behaviour | None
    """What the heads do on the run's text; None where `no_behaviour` says why."""
    no_behaviour: str | None
    """Why the text could not be read, in a sentence."""


def reading_for(result: Attention, kind: Kind | str) -> Reading:
    """Where a kind is decided: in the repeats, or in their control where repeats cannot tell it from a match.

    A fixed distance is such a kind: in plain repeats every match lies at one.
    """
    return result.headline if as_enum(Kind, kind, "kind") in result.headline else result.control


def found(result: Attention, kind: Kind | str) -> Bool[Tensor, "layer head"]:
    """Which heads count as found for `kind`, by the rule at the head of this module."""
    scores = reading_for(result, kind)[kind].intervals
    if not can_be_found(result, kind):
        return torch.zeros_like(scores.mean, dtype=torch.bool)
    passing = (
        _strong(result, kind, scores.mean) & (scores.low >= _floor(result, kind)) & may_have_the_name(result, kind)
    )
    return passing & (result.control[kind].intervals.mean < scores.mean / 2) if kind in BY_CONTENT else passing


def possible(result: Attention, kind: Kind | str) -> Bool[Tensor, "layer head"]:
    """Which heads could be found for `kind`, were their scores at the favourable ends of their intervals.

    Where `kind` cannot be decided, the heads whose score is as high as the rule asks.
    """
    scores = reading_for(result, kind)[kind].intervals
    high = _strong(result, kind, scores.high) & (scores.high >= _floor(result, kind)) & may_have_the_name(result, kind)
    if not can_be_found(result, kind):
        return high
    return high & (result.control[kind].intervals.low < scores.high / 2) if kind in BY_CONTENT else high


def may_have_the_name(result: Attention, kind: Kind | str) -> Bool[Tensor, "layer head"]:
    """For fixed distances, where they are not 0 or 1, which have names of their own; for other kinds everywhere."""
    measure = reading_for(result, kind)[kind]
    return torch.ones_like(measure.intervals.mean, dtype=torch.bool) if measure.offsets is None else measure.offsets > 1


def can_be_found(result: Attention, kind: Kind | str) -> bool:
    """Whether any head at all could be found for `kind` on this headline.

    A match cannot be told from a learned distance at a period that training showed, and on short sequences a multiple
    of chance is more attention than there is.
    """
    if as_enum(Kind, kind, "kind") not in BY_CONTENT:
        return True
    reading = result.headline
    return not reading.trained and can_reach(result.config.times_chance, reading[kind].chance)


def claimed_heads(result: Attention) -> list[Head]:
    """Heads found for a kind, those of kinds that need a match first, each kind's strongest first.

    Resting on position 0 is no claim: nothing has to be lost without a head that rests.
    """
    kinds = [kind for kind in WORDS if kind is not Kind.FIRST and kind in reading_for(result, kind)]
    return list(dict.fromkeys(place for kind in kinds for place in found_heads(result, kind)))


def found_heads(result: Attention, kind: Kind | str) -> list[Head]:
    """The found heads as (layer, head), strongest first."""
    return ranked(result, kind, found(result, kind))


def ranked(result: Attention, kind: Kind | str, among: Bool[Tensor, "layer head"]) -> list[Head]:
    """The heads of a mask as (layer, head), strongest first."""
    mean = reading_for(result, kind)[kind].intervals.mean
    heads = [(int(layer), int(index)) for layer, index in among.nonzero().tolist()]
    return sorted(heads, key=lambda head: -float(mean[head]))


def strongest(reading: Reading, kind: Kind | str) -> Head:
    """The head with the largest score."""
    mean = reading[kind].intervals.mean
    layer, index = divmod(int(mean.argmax()), mean.shape[1])
    return layer, index


def facts(result: Attention, n: int, unit: str) -> str:
    """What a sentence rests on."""
    config = result.config
    return f"n = {n} {unit}, {config.level:.0%} bootstrap, seed {config.seed}, {result.run}@{result.step}"


def _strong(result: Attention, kind: Kind | str, score: Float[Tensor, "layer head"]) -> Bool[Tensor, "layer head"]:
    least, chance = result.config.threshold, reading_for(result, kind)[kind].chance
    return score >= (max(least, result.config.times_chance * chance) if _multiple_counts(result, kind) else least)


def _multiple_counts(result: Attention, kind: Kind | str) -> bool:
    """Whether the multiple of chance is asked for, and is no more than all attention."""
    return kind in BY_CONTENT and can_reach(result.config.times_chance, result.headline[kind].chance)


def _floor(result: Attention, kind: Kind | str) -> Float[Tensor, "layer head"]:
    """What the interval of a found head lies above: chance and the head's score at step 0, with the margin on top."""
    reading = reading_for(result, kind)
    first = result.first(reading)
    chance = torch.full_like(reading[kind].intervals.mean, reading[kind].chance)
    return result.config.margin + (chance if first is None else chance.maximum(first[kind].intervals.mean))
