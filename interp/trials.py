"""What an ablation is tried on: sequences to measure, and others of the same kind to take means from.

Three draws that share no sequence: *discovery*, on which heads are chosen; *measured*, on which they are ablated; and
*reference*, which the means and the unigram come from. So no head is judged on the sequences that singled it out, and
no replacement knows the sequence it is put in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from interp.ablation import Means, mean_activations
from interp.harm import Counted, Harms, measure_harms
from interp.outcomes import NEW_TOKEN, TEXT, Outcome, copy_outcome, first_copy_outcome, unigram_loss
from interp.periods import deciding_period
from interp.places import Intervention, Place
from interp.stimuli import check_period, ordinary_ids, repeated_tokens
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.lab import Lab

Tokens = Int[Tensor, "sequence pos"]

HELD_OUT_TEXT, HELD_OUT_REPEATS = "held-out text", "held-out repeats"


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """Sequences of one kind, in disjoint draws, with what is asked of them."""

    kind: str
    """What the sequences are, in words."""

    outcomes: tuple[Outcome, ...]
    """What is measured on them."""

    scales: tuple[float, ...]
    """For each outcome, the loss of a model that knows token frequencies only, in nats."""

    measured: Tokens
    reference: Int[Tensor, "reference_sequence pos"]

    def means_of(self, gpt: GPT, places: Sequence[Place]) -> Means | None:
        """What is on average where `places` are, over the reference sequences; None where no place takes a mean."""
        averaged = [place for place in places if place.intervention is not Intervention.ZERO]
        if not averaged:
            return None
        source = f"{len(self.reference)} other sequences of {self.kind}"
        return mean_activations(gpt, self.reference, source=source, places=averaged)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A model with the trials it is measured on and the means for each of them."""

    checkpoint: str
    """Which model, as RUN@STEP."""

    gpt: GPT
    trials: tuple[Trial, ...]
    means: tuple[Means | None, ...]

    @classmethod
    def of(cls, lab: Lab, trials: tuple[Trial, ...], places: Sequence[Place]) -> Bench:
        """The bench for ablations of `places`, or of others in the same layers."""
        means = tuple(trial.means_of(lab.gpt, places) for trial in trials)
        return cls(checkpoint=f"{lab.name}@{lab.step}", gpt=lab.gpt, trials=trials, means=means)

    def harms(
        self,
        trial: Trial,
        ablations: Sequence[Sequence[Place]],
        counted: Counted | None = None,
        *,
        outcomes: Sequence[Outcome] | None = None,
    ) -> Harms:
        """Run the ablations on the measured sequences of one of the trials; of its outcomes, only those given."""
        means, asked = self.means[self.trials.index(trial)], trial.outcomes if outcomes is None else outcomes
        return measure_harms(self.gpt, trial.measured, ablations, asked, means=means, counted=counted)

    def trial_of(self, metric: str) -> tuple[Trial, int]:
        """The trial that measures an outcome, and which of its outcomes it is."""
        named = (
            (trial, row) for trial in self.trials for row, each in enumerate(trial.outcomes) if each.name == metric
        )
        return next(named)


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyTask:
    """Repeated random tokens at one period: three draws by one seed."""

    period: int
    ids: Int[Tensor, " ids"]
    """What is drawn from."""
    bos: int | None
    n_sequences: int
    seed: int

    @cached_property
    def discovery(self) -> Tokens:
        """The sequences on which heads are found."""
        return self._draw(0)

    @cached_property
    def trial(self) -> Trial:
        """The sequences on which heads are ablated. Random tokens are uniform: no unigram beats ln of their number."""
        ignorance = math.log(len(self.ids))
        return Trial(
            kind=f"random tokens repeated after {self.period}",
            outcomes=(copy_outcome(self.period), first_copy_outcome(self.period)),
            scales=(ignorance, ignorance),
            measured=self._draw(1),
            reference=self._draw(2),
        )

    def _draw(self, which: int) -> Tokens:
        seed = 3 * self.seed + which
        return repeated_tokens(self.n_sequences, self.period, self.ids, seed=seed, bos=self.bos)


def copy_task(lab: Lab, *, n_sequences: int, seed: int, period: int | None = None) -> CopyTask:
    """The copying task for this model; without a period, at the one that decides for its run."""
    bos = lab.tokenizer.bos
    period = deciding_period(lab) if period is None else period
    check_period(period, lab.config.n_ctx, bos=bos)
    return CopyTask(period=period, ids=ordinary_ids(lab.tokenizer), bos=bos, n_sequences=n_sequences, seed=seed)


def text_trial(lab: Lab, *, n_sequences: int, seed: int) -> Trial:
    """Held-out rows of the run in a random order: half for reference, half to measure, up to `n_sequences` of each.

    A run without a text source holds out repeats of random tokens; kind and outcomes then say that.
    """
    rows = lab.eval_tokens.cpu()
    if len(rows) < 4:
        raise InputError(
            f"{lab.name} has {len(rows)} held-out rows, too few to take means from some and measure on others; 4 are "
            "needed: train with a larger data.held_out or more text."
        )
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    half = len(rows) // 2
    reference, measured = rows[order[:half][:n_sequences]], rows[order[half:][:n_sequences]]
    kind = held_out_kind(lab)
    outcomes = tuple(replace(each, meaning=each.meaning.replace(HELD_OUT_TEXT, kind)) for each in (TEXT, NEW_TOKEN))
    scales = tuple(unigram_loss(measured, reference, d_vocab=lab.config.d_vocab, outcome=each) for each in outcomes)
    return Trial(kind=kind, outcomes=outcomes, scales=scales, measured=measured, reference=reference)


def held_out_kind(lab: Lab) -> str:
    """What the run's held-out rows are: text, or repeats of random tokens, which are at no offset of any corpus."""
    return HELD_OUT_TEXT if bool((lab.eval_rows.offsets >= 0).all()) else HELD_OUT_REPEATS
