"""What formed when: crossings of scores and losses, how sudden the change was, and what came first.

Everything is read off a saved result of training-dynamics. All resamples draw the same sequences, so that differences
of crossings are paired. The reference of everything is the last checkpoint: half of a rise, a share of it, and whether
it formed at all. When something formed is told only where it surely grew since the first checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from analyses.attention.kinds import BY_CONTENT, Kind
from analyses.attention.result import found, possible, ranked
from analyses.attention.stimuli import Stimulus
from analyses.dynamics.losses import Peak, crossings_of, fell_back, formed_since_first, loss_crossing
from analyses.dynamics.result import CROSSED, Result, attention_at
from interp.crossings import Crossing, Crossings, Order, order
from interp.places import Head
from interp.stats import Interval, bootstrap_mean
from model.settings import as_enum


@dataclass(frozen=True, kw_only=True)
class Rise:
    """One thing that rose in training, or did not."""

    what: str
    """copying, icl_score, or a kind of score."""
    head: Head | None
    first: Interval
    """Its value at the first checkpoint."""
    last: Interval
    """Its value at the last one."""
    crossing: Crossing | None
    """When it was half way up; None where it did not surely grow since the first checkpoint."""
    chance: float | None = None
    control: Interval | None = None
    """The same score at the last checkpoint where the second copy is re-ordered."""
    on_text: Interval | None = None
    text_chance: float | None = None
    peak: Peak | None = None
    """What it had come to, where it surely fell back from that."""


def formed(result: Result, kind: Kind | str, index: int = -1) -> list[Head]:
    """The heads that are found for a kind at a checkpoint, by the rule of attention-patterns; the strongest first."""
    kind = as_enum(Kind, kind, "kind")
    at = attention_at(result, range(len(result.steps))[index])
    return ranked(at, kind, found(at, kind)) if kind in at.headline else []


def open_for(result: Result, kind: Kind | str) -> bool:
    """Whether at the last checkpoint a head could be found for a kind, were its scores at the ends of intervals."""
    kind = as_enum(Kind, kind, "kind")
    at = attention_at(result, len(result.steps) - 1)
    return kind in at.headline and bool(possible(at, kind).any())


def found_over_training(result: Result, kind: Kind | str) -> Bool[Tensor, "step layer head"]:
    """Which heads count as found at each checkpoint."""
    kind = as_enum(Kind, kind, "kind")
    return torch.stack([found(attention_at(result, index), kind) for index in range(len(result.steps))])


def head_crossings(result: Result, kind: Kind | str, heads: list[Head]) -> Crossings | None:
    """When the scores of some heads were half way up, in the order of `heads`; None where there is nothing to read."""
    score = result.repeats.scores.get(as_enum(Kind, kind, "kind").value)
    if score is None or score.values is None or len(result.steps) < 2 or not heads:
        return None
    layers, indices = (list(each) for each in zip(*heads, strict=True))
    return crossings_of(result, score.values[:, :, layers, indices])


def rises(result: Result) -> list[Rise]:
    """Copying and the in-context-learning score, then every head that formed, kind by kind, earliest first."""
    listed = [_loss_rise(result, name) for name in ("copying", "icl_score") if name in result.losses]
    for kind in CROSSED:
        listed += head_rises(result, kind, formed(result, kind))
    return listed


def head_rises(result: Result, kind: Kind | str, heads: list[Head]) -> list[Rise]:
    """When some heads rose, earliest first."""
    kind = as_enum(Kind, kind, "kind")
    crossings = head_crossings(result, kind, heads)
    each = [_head_rise(result, kind, head, crossings, at) for at, head in enumerate(heads)]
    return sorted(each, key=lambda rise: float("inf") if rise.crossing is None else rise.crossing.at.mean)


@dataclass(frozen=True, kw_only=True)
class FirstOfBoth:
    """The earliest previous-token head and the earliest induction head behind it, and which rose first."""

    previous: Rise
    induction: Rise
    order: Order


def previous_before_induction(result: Result) -> FirstOfBoth | None:
    """The order of the two kinds of attention that make up an induction circuit; None where one did not form.

    The induction head is the earliest of all; the previous-token head the earliest in a layer before it. None too
    where it is not known of every such head when it rose: one that did so before the first checkpoint was earlier.
    """
    later = head_rises(result, Kind.INDUCTION, formed(result, Kind.INDUCTION))
    if not later or later[0].head is None or any(rise.crossing is None for rise in later):
        return None
    layer = later[0].head[0]
    earlier = head_rises(result, Kind.PREVIOUS, [each for each in formed(result, Kind.PREVIOUS) if each[0] < layer])
    if not earlier or earlier[0].head is None or any(rise.crossing is None for rise in earlier):
        return None
    first = head_crossings(result, Kind.PREVIOUS, [earlier[0].head])
    second = head_crossings(result, Kind.INDUCTION, [later[0].head])
    apart = None if first is None or second is None else order(first, (0,), second, (0,))
    return None if apart is None else FirstOfBoth(previous=earlier[0], induction=later[0], order=apart)


@dataclass(frozen=True, kw_only=True)
class Largest:
    """The largest score of some heads at any checkpoint."""

    head: Head
    step: int
    score: Interval


def largest_of_others(result: Result, kind: Kind | str, left_out: list[Head]) -> Largest | None:
    """The largest score of a kind that any head but `left_out` had at any checkpoint; None where there is no other."""
    score = result.repeats.scores[as_enum(Kind, kind, "kind").value]
    mean = score.mean.clone()
    for layer, index in left_out:
        mean[:, layer, index] = -torch.inf
    if not bool(mean.isfinite().any()):
        return None
    step, layer, index = (int(each) for each in np.unravel_index(int(mean.argmax()), mean.shape))
    return Largest(head=(layer, index), step=result.steps[step], score=score.intervals[step, layer, index])


def _loss_rise(result: Result, name: str) -> Rise:
    known = result.losses[name].intervals
    crossing = loss_crossing(result, name) if formed_since_first(result, name) else None
    return Rise(
        what=name,
        head=None,
        first=known[0],
        last=known[len(result.steps) - 1],
        crossing=crossing,
        peak=fell_back(result, name),
    )


def _head_rise(result: Result, kind: Kind, head: Head, crossings: Crossings | None, at: int) -> Rise:
    score, last = result.repeats.scores[kind.value], len(result.steps) - 1
    control = result.readings[Stimulus.CONTROL.value].scores[kind.value] if kind in BY_CONTENT else None
    text = result.readings.get(Stimulus.TEXT.value)
    on_text = None if text is None else text.scores.get(kind.value)
    return Rise(
        what=kind.value,
        head=head,
        first=score.intervals[0, *head],
        last=score.intervals[last, *head],
        crossing=None if crossings is None or not _head_grew(result, kind, head) else crossings[(at,)],
        chance=score.chance,
        control=None if control is None else control.intervals[last, *head],
        on_text=None if on_text is None else on_text.intervals[last, *head],
        text_chance=None if on_text is None else on_text.chance,
        peak=_head_fell_back(result, kind, head),
    )


def _head_grew(result: Result, kind: Kind, head: Head) -> bool:
    """Whether a head's score surely grew by the margin of the rule since the first checkpoint."""
    return _surely_apart(result, kind, head, -1, 0)


def _head_fell_back(result: Result, kind: Kind, head: Head) -> Peak | None:
    """Where a head's score was largest, if it surely lost the margin of the rule or more by the last checkpoint."""
    score = result.repeats.scores[kind.value]
    best = int(score.mean[:, head[0], head[1]].argmax())
    if not _surely_apart(result, kind, head, best, -1):
        return None
    return Peak(step=result.steps[best], value=score.intervals[best, *head])


def _surely_apart(result: Result, kind: Kind, head: Head, more: int, less: int) -> bool:
    """Whether a score is larger by the margin of the rule at one checkpoint than at another, paired by sequence."""
    values, config = result.repeats.scores[kind.value].values, result.config
    if values is None:
        return False
    apart = (values[more] - values[less])[:, head[0], head[1]]
    return bootstrap_mean(apart, config.n_resamples, config.seed, config.level).low >= config.margin
