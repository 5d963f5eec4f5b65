"""What a run of the preset `induction` can do, what its heads attend to, and what of it depends on which head.

Periods here are none that training showed. Segments are of distinct tokens unless said otherwise, so that each token
has one earlier copy. "Copy loss" is the mean loss, in nats, over the targets that the first copy determines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.circuits import eigenvalue_copying
from interp.composition import Composition, composition
from interp.harm import measure_harms
from interp.metrics import outcome_metric
from interp.outcomes import copy_outcome
from interp.patching import redrawn_first_copy
from interp.path_patching import path_effects
from interp.path_results import PathEffects
from interp.paths import feeding_paths
from interp.patterns import ScoreFunction, pattern_scores
from interp.places import Intervention, head
from interp.recordings import record
from interp.scores import chance, induction_stripe, previous_token
from interp.stats import Interval
from interp.stimuli import ordinary_ids, reordered, repeated_tokens
from interp.trials import copy_task
from model.lab import Lab
from model.sites import Tap

UNSEEN = (21, 22, 23)
"""Periods longer than any that the preset trains on."""
DECIDING = 22
"""The one at which heads are ablated and patched, and which training follows."""
N_SEQUENCES = 64
INDUCTION = 0.5
"""A head whose stripe is at least this belongs to the set of induction heads."""
Heads = Float[Tensor, "layer head"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Copying:
    """Mean losses over the unseen periods, in nats, and the same at one period."""

    distinct: dict[int, float]
    """Period -> copy loss on segments of distinct tokens."""
    independent: dict[int, float]
    """Period -> copy loss on segments of independent tokens, some of which come twice: not all is determined."""
    control: dict[int, float]
    """Period -> loss at the same places when the second copy is re-ordered: nothing to copy."""

    @property
    def loss(self) -> float:
        """The mean over periods, distinct tokens."""
        return sum(self.distinct.values()) / len(self.distinct)


@dataclass(frozen=True, kw_only=True, eq=False)
class Attention:
    """Mean attention over sequences and unseen periods."""

    previous: Heads
    """To the token before."""
    induction: Heads
    """From the second copy to what followed the first."""
    control: Heads
    """The same distance when the second copy is re-ordered: what a head gets that only looks so far back."""
    chance: float
    """What even attention gets as induction."""

    @property
    def top_previous(self) -> tuple[int, int]:
        """The head of layer 0 that attends most to the token before."""
        return 0, int(self.previous[0].argmax())

    @property
    def induction_heads(self) -> list[tuple[int, int]]:
        """Heads of the last layer whose stripe is at least `INDUCTION`."""
        last = len(self.induction) - 1
        return [(last, index) for index in range(self.induction.shape[1]) if self.induction[last, index] >= INDUCTION]


@dataclass(frozen=True, kw_only=True, eq=False)
class Circuit:
    """What copying depends on, at one unseen period."""

    clean: float
    """Copy loss of the intact model, in nats."""
    alone: dict[str, dict[str, float]]
    """Intervention -> head -> copy loss without that head."""
    without_set: dict[str, float]
    """Intervention -> copy loss without all induction heads."""
    shares: dict[str, Interval]
    """Path from the previous-token head into the induction heads -> its share of the total effect, over sequences."""
    k_composition: dict[str, tuple[float, float]]
    """Induction head -> K-composition with the previous-token head minus its null's mean, and z, mean over offsets."""
    strongest_writer: dict[str, str]
    """Induction head -> the head of layer 0 with which it K-composes most."""
    copying: dict[str, float]
    """Induction head -> eigenvalue copying score."""


class Measured:
    """One checkpoint, with the sequences that everything is measured on."""

    def __init__(self, lab: Lab, *, periods: Sequence[int] = UNSEEN, seed: int = 0) -> None:
        self.lab, self.periods, self.seed = lab, tuple(periods), seed
        self.ids, self.bos = ordinary_ids(lab.tokenizer), lab.tokenizer.bos

    def repeats(self, period: int) -> Int[Tensor, "sequence pos"]:
        """A segment of distinct tokens, twice."""
        return repeated_tokens(N_SEQUENCES, period, self.ids, seed=self.seed, bos=self.bos)

    @cached_property
    def copying(self) -> Copying:
        """How well second copies are predicted."""
        distinct = {period: self.copy_loss(period) for period in self.periods}
        independent = {period: self._loss(self._independent(period), period) for period in self.periods}
        control = {period: self._loss(self._control(period), period) for period in self.periods}
        return Copying(distinct=distinct, independent=independent, control=control)

    def copy_loss(self, period: int) -> float:
        """Mean loss on the second copy of distinct tokens, in nats."""
        return self._loss(self.repeats(period), period)

    @cached_property
    def attention(self) -> Attention:
        """What heads attend to, averaged over periods."""
        found = [self._attention(period) for period in self.periods]
        previous, induction, control = (torch.stack(each).mean(0) for each in zip(*found, strict=True))
        level = sum(chance(1 + period, 1 + 2 * period) for period in self.periods) / len(self.periods)
        return Attention(previous=previous, induction=induction, control=control, chance=level)

    def stripes(self, period: int) -> tuple[Heads, Heads]:
        """Mean attention to the token before, and from the second copy to what followed the first."""
        found = pattern_scores(self.lab.gpt, self.repeats(period), {"previous": _previous, "stripe": _stripe(period)})
        return found["previous"].mean(0), found["stripe"].mean(0)

    def _attention(self, period: int) -> tuple[Heads, Heads, Heads]:
        control = pattern_scores(self.lab.gpt, self._control(period), {"stripe": _stripe(period)})
        return *self.stripes(period), control["stripe"].mean(0)

    def _control(self, period: int) -> Int[Tensor, "sequence pos"]:
        return reordered(self.repeats(period), period, seed=self.seed)

    def _independent(self, period: int) -> Int[Tensor, "sequence pos"]:
        generator = torch.Generator().manual_seed(self.seed)
        segment = self.ids[torch.randint(len(self.ids), (N_SEQUENCES, period), generator=generator)]
        bos = [] if self.bos is None else [torch.full((N_SEQUENCES, 1), self.bos)]
        return torch.cat([*bos, segment, segment], dim=1)

    def _loss(self, tokens: Int[Tensor, "sequence pos"], period: int) -> float:
        return float(measure_harms(self.lab.gpt, tokens, [], [copy_outcome(period)]).clean.mean())


def _previous(pattern: Tensor, _tokens: Tensor) -> Tensor:
    return previous_token(pattern)


def _stripe(period: int) -> ScoreFunction:
    return lambda pattern, _tokens: induction_stripe(pattern, period, start=pattern.shape[-1] - period)


def circuit_of(lab: Lab, attention: Attention, *, period: int = DECIDING, seed: int = 0) -> Circuit:
    """Ablate, patch paths and read weights, for the heads that `attention` names: at least one induction head."""
    sender, receivers = attention.top_previous, attention.induction_heads
    every = [(layer, index) for layer in range(lab.config.n_layers) for index in range(lab.config.n_heads)]
    alone: dict[str, dict[str, float]] = {}
    without_set: dict[str, float] = {}
    task = copy_task(lab, n_sequences=N_SEQUENCES, seed=seed, period=period)
    clean = 0.0
    for intervention in (Intervention.ZERO, Intervention.MEAN):
        sets = [[head(*each, intervention)] for each in every]
        sets.append([head(*each, intervention) for each in receivers])
        means = task.trial.means_of(lab.gpt, [place for places in sets for place in places])
        found = measure_harms(lab.gpt, task.trial.measured, sets, [copy_outcome(period)], means=means)
        clean, losses = float(found.clean.mean()), found.ablated[:, :, 0].mean(0).tolist()
        alone[intervention.value] = {head(*each).label: loss for each, loss in zip(every, losses, strict=False)}
        without_set[intervention.value] = losses[-1]
    found = _paths(lab, sender, receivers, task.trial.measured, period, seed)
    shares = found.shares(seed=seed)
    composed = composition(lab.gpt, kinds=("k",), seed=seed)
    copying = eigenvalue_copying(lab.gpt, seed=seed).score
    return Circuit(
        clean=clean,
        alone=alone,
        without_set=without_set,
        shares={path: shares[0, index] for index, path in enumerate(found.paths)},
        k_composition={head(*each).label: _composed(composed, sender, each) for each in receivers},
        strongest_writer={
            head(*each).label: composed.strongest("k", 1, reader=head(*each).label)[0].writer for each in receivers
        },
        copying={head(*each).label: float(copying[each]) for each in receivers},
    )


def _paths(
    lab: Lab,
    sender: tuple[int, int],
    receivers: list[tuple[int, int]],
    tokens: Int[Tensor, "sequence pos"],
    period: int,
    seed: int,
) -> PathEffects:
    """The previous-token head writes what it writes when the first copy is another segment, and one input reads it."""
    other = redrawn_first_copy(tokens, period, ordinary_ids(lab.tokenizer), seed=seed)
    source = record(lab.gpt, other, [Tap.Z.at(sender[0])], source="the same, its first copy another segment")
    metric = outcome_metric(copy_outcome(period), tokens)
    return path_effects(lab.gpt, tokens, [sender], feeding_paths(receivers), metric, source=source)


def _composed(composed: Composition, sender: tuple[int, int], receiver: tuple[int, int]) -> tuple[float, float]:
    place = (*sender, *receiver)
    return float((composed.of("k") - composed.null_mean[0])[place]), float(composed.z_of("k")[place])


def ln_vocabulary(lab: Lab) -> float:
    """The loss of knowing nothing, in nats."""
    return math.log(len(ordinary_ids(lab.tokenizer)))
