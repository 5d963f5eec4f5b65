"""What formed when: crossings of scores and losses, how sudden the change was, and what came first.

Everything is read off a saved result of training-dynamics. All resamples draw the same sequences, so that differences
of crossings are paired.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.attention_kinds import BY_CONTENT, Kind
from analyses.attention_result import found, possible, ranked
from analyses.attention_stimuli import Stimulus
from analyses.training_dynamics_result import CROSSED, Result, attention_at
from interp.crossings import Crossing, Crossings, Order, half_rises, order
from interp.places import Head
from interp.stats import Interval, bootstrap_mean, resampled_means
from model.settings import as_enum

LEAST_COPYING = 0.5
"""Nats by which the second copy must come to cost less than the first for copying to count as formed."""
LEAST_ICL = 0.1
"""Nats by which the in-context-learning score must fall to count."""
SHARE, WINDOW = 0.6, 0.2
"""A change is called sudden where this share of it falls into this share of all steps, or fewer."""


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
    """When it was half way up; None where it never rose."""
    chance: float | None = None
    control: Interval | None = None
    """The same score at the last checkpoint where the second copy is re-ordered."""
    on_text: Interval | None = None
    text_chance: float | None = None


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
    return _crossings(result, score.values[:, :, layers, indices])


def loss_crossing(result: Result, name: str) -> Crossing | None:
    """When a loss was half way: copying, which rises, or another one, which falls."""
    if name not in result.losses or len(result.steps) < 2:
        return None
    sign = 1 if name == "copying" else -1
    return _crossings(result, sign * result.losses[name].values[..., None])[(0,)]


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


def gain(result: Result, name: str) -> Interval:
    """A loss at the last checkpoint minus the same at the first, paired by sequence."""
    values, config = result.losses[name].values, result.config
    return bootstrap_mean(values[-1] - values[0], config.n_resamples, config.seed, config.level)


@dataclass(frozen=True, kw_only=True)
class Change:
    """The narrowest stretch of training that holds `SHARE` of what copying came to earn."""

    start: int
    end: int
    """The checkpoints at its ends."""
    share: float
    """How much of the whole gain lies in it; `SHARE` or more."""
    width: Interval
    """Its length as a share of all steps; each resample picks its own stretch."""
    least_width: float
    """What is surely needed: the length without its first and its last gap between checkpoints."""

    @property
    def sudden(self) -> bool | None:
        """Whether it is at most `WINDOW` of all steps; None where intervals or gaps of checkpoints leave it open."""
        if self.width.high <= WINDOW:
            return True
        return False if self.width.low > WINDOW and self.least_width > WINDOW else None


def change(result: Result) -> Change | None:
    """Where copying formed; None where there was no gain, or no two checkpoints."""
    if len(result.steps) < 2:
        return None
    values, config = result.losses["copying"].values.double(), result.config
    mean = values.mean(1)[None]
    if float(mean[0, -1] - mean[0, 0]) <= 0:
        return None
    start, end, width = _narrowest(result.steps, mean)
    drawn = resampled_means(values.T, config.n_resamples, config.seed)
    _, _, widths = _narrowest(result.steps, drawn)
    tail = torch.tensor([(1 - config.level) / 2, (1 + config.level) / 2], dtype=torch.float64)
    low, high = widths.quantile(tail).tolist()
    i, j = int(start[0]), int(end[0])
    total = result.steps[-1] - result.steps[0]
    inner = max(0, result.steps[j - 1] - result.steps[i + 1]) if j - i > 1 else 0
    return Change(
        start=result.steps[i],
        end=result.steps[j],
        share=float((mean[0, j] - mean[0, i]) / (mean[0, -1] - mean[0, 0])),
        width=Interval(
            mean=float(width[0]), low=low, high=high, n=values.shape[1], level=config.level, method="percentile"
        ),
        least_width=inner / total,
    )


@dataclass(frozen=True, kw_only=True)
class FirstOfBoth:
    """The earliest previous-token head and the earliest induction head behind it, and which rose first."""

    previous: Rise
    induction: Rise
    order: Order


def previous_before_induction(result: Result) -> FirstOfBoth | None:
    """The order of the two kinds of attention that make up an induction circuit; None where one did not form.

    The induction head is the earliest of all; the previous-token head the earliest in a layer before it.
    """
    later = head_rises(result, Kind.INDUCTION, formed(result, Kind.INDUCTION))
    if not later or later[0].head is None:
        return None
    layer = later[0].head[0]
    earlier = head_rises(result, Kind.PREVIOUS, [each for each in formed(result, Kind.PREVIOUS) if each[0] < layer])
    if not earlier or earlier[0].head is None:
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
    step, layer, index = (int(each) for each in torch.unravel_index(mean.argmax(), mean.shape))
    return Largest(head=(layer, index), step=result.steps[step], score=score.intervals[step, layer, index])


def _crossings(result: Result, values: Float[Tensor, "step sequence *shape"]) -> Crossings:
    config = result.config
    return half_rises(
        result.steps, values.transpose(0, 1), n_resamples=config.n_resamples, seed=config.seed, level=config.level
    )


def _loss_rise(result: Result, name: str) -> Rise:
    known, moved = result.losses[name].intervals, gain(result, name)
    sure = moved.low >= LEAST_COPYING if name == "copying" else moved.high <= -LEAST_ICL
    crossing = loss_crossing(result, name) if sure else None
    return Rise(what=name, head=None, first=known[0], last=known[len(result.steps) - 1], crossing=crossing)


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
        crossing=None if crossings is None else crossings[(at,)],
        chance=score.chance,
        control=None if control is None else control.intervals[last, *head],
        on_text=None if on_text is None else on_text.intervals[last, *head],
        text_chance=None if on_text is None else on_text.chance,
    )


def _narrowest(steps: tuple[int, ...], curves: Float[Tensor, "draw step"]) -> tuple[Tensor, Tensor, Tensor]:
    """Of each curve the narrowest stretch with `SHARE` of its whole rise: both ends, and its share of all steps."""
    needed = SHARE * (curves[:, -1:] - curves[:, :1])
    places = torch.tensor(steps, dtype=torch.float64)
    best = torch.full((len(curves),), torch.inf, dtype=torch.float64)
    start, end = torch.zeros(len(curves), dtype=torch.long), torch.full((len(curves),), len(steps) - 1)
    for i in range(len(steps) - 1):
        enough = curves[:, i + 1 :] - curves[:, i : i + 1] >= needed
        j = i + 1 + enough.double().argmax(1)
        length = torch.where(enough.any(1), places[j] - places[i], torch.inf)
        better = length < best
        best = torch.where(better, length, best)
        start, end = torch.where(better, i, start), torch.where(better, j, end)
    whole = places[-1] - places[0]
    return start, end, torch.where(best.isfinite(), best / whole, 1.0)
