"""What an ablation is tried on: sequences to measure, and others of the same kind to take replacements from.

Three draws that share no sequence: *discovery*, on which heads are chosen; *measured*, on which they are ablated; and
*reference*, which means, donors, fitted constants and the unigram come from. So no head is judged on the sequences that
singled it out, and no replacement knows the sequence it is put in.

Repeated tokens also have a *corrupted twin* each: the same second copy behind a first copy of other tokens, so that
nothing can be copied from it. Held-out text has none, as nothing says which of its tokens to change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation import Ablation, Means, ablation_of, mean_activations
from interp.donors import LEAST_DONORS
from interp.harm import Counted, Harms, measure_harms
from interp.optimal import fit_optimal, require_whole
from interp.outcomes import (
    NEW_TOKEN,
    OUTCOMES,
    TEXT,
    TEXT_OUTCOMES,
    Outcome,
    copy_outcome,
    first_copy_outcome,
    get_outcome,
    unigram_losses,
    unigram_surprise,
)
from interp.periods import deciding_period
from interp.places import Intervention, Place, Places
from interp.stimuli import check_period, ordinary_ids, other_first_copy, repeated_tokens
from interp.supplies import Supplies
from model.errors import InputError

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT
    from model.lab import Lab

Tokens = Int[Tensor, "sequence pos"]

HELD_OUT_TEXT, HELD_OUT_REPEATS = "held-out text", "held-out repeats"


REFERENCES = 64
"""Sequences that replacements are taken from, at most: more would make a longer measurement no surer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """Sequences of one kind, in disjoint draws, with what is asked of them."""

    kind: str
    """What the sequences are, in words."""

    outcomes: tuple[Outcome, ...]
    """What is measured on them."""

    surprise: Float[Tensor, " token"]
    """What a model that knows token frequencies only loses at each token, in nats."""

    fitting: Outcome
    """The loss that optimal constants are fitted for, whatever is measured with them."""

    measured: Tokens
    reference: Int[Tensor, "reference_sequence pos"]

    corrupted: Tokens | None = None
    """The twin of each measured sequence, token for token; None where there are none."""

    twins: str = ""
    """What the twins are, in words; or why there are none."""

    def means_of(self, gpt: GPT, places: Sequence[Place]) -> Means | None:
        """What is on average where `places` are, over the reference sequences; None where no place takes such a mean.

        Places that state no intervention take one.
        """
        averaged = [place for place in places if place.intervention in _AVERAGED]
        if not averaged:
            return None
        return mean_activations(gpt, self.reference, source=self.source, places=averaged)

    def supplies_of(self, gpt: GPT, ablations: Iterable[Ablation], *, seed: int = 0) -> Supplies:
        """What `ablations` take their replacements from, and others in the same layers; constants are not fitted here.

        Means and donors are of the reference sequences, the twins those of the measured ones.
        """
        places = [place for ablation in ablations for place in ablation.places]
        return Supplies(
            source=self.source,
            means=self.means_of(gpt, places),
            donors=self.reference,
            corrupted=self.corrupted,
            seed=seed,
        )

    def why_not(self, ablation: Ablation) -> str | None:
        """Why an ablation cannot be tried on these sequences, in a sentence; None where it can."""
        if ablation.takes(Intervention.COUNTERFACTUAL) and self.corrupted is None:
            return f"There is no counterfactual on {self.kind}: {self.twins}."
        if ablation.takes(Intervention.RESAMPLE) and len(self.reference) < LEAST_DONORS:
            n = f"{LEAST_DONORS} other sequences for each, and there are {len(self.reference)} of {self.kind}"
            return f"There is no resampling on {self.kind}: it takes {n}."
        n_pos = self.measured.shape[1]
        if ablation.positions is not None and min(ablation.positions) >= n_pos:
            return f"Nothing is replaced on {self.kind}, whose {n_pos} positions end before {min(ablation.positions)}."
        return None

    def rows(self, start: int, stop: int) -> Trial:
        """The same with the measured sequences start to stop - 1 only."""
        twins = None if self.corrupted is None else self.corrupted[start:stop]
        return replace(self, measured=self.measured[start:stop], corrupted=twins)

    def with_references(self, most: int = REFERENCES) -> Trial:
        """The same with replacements from at most so many sequences, however many are measured."""
        return replace(self, reference=self.reference[:most])

    def unigram_of(self, outcome: Outcome) -> Float[Tensor, " sequence"] | None:
        """What a model that knows token frequencies only has on each measured sequence; None where that is no scale."""
        return unigram_losses(self.measured, self.surprise, outcome=outcome) if outcome.has_unigram else None

    @cached_property
    def scales(self) -> tuple[float | None, ...]:
        """For each outcome, the mean of that over the measured sequences, in nats."""
        each = map(self.unigram_of, self.outcomes)
        return tuple(None if values is None else float(values.mean()) for values in each)

    def scale_of(self, name: str) -> float:
        """What a model that knows token frequencies only has on the outcome called `name`, in nats."""
        scale = next(scale for outcome, scale in zip(self.outcomes, self.scales, strict=True) if outcome.name == name)
        if scale is None:
            raise InputError(f"{name} is no loss, so token frequencies are no scale for it.")
        return scale

    @property
    def source(self) -> str:
        """What replacements are taken from, in words."""
        return f"{len(self.reference)} other sequences of {self.kind}"


_AVERAGED = (None, Intervention.MEAN, Intervention.MEAN_PER_POSITION)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A model with the trials it is measured on and what replacements are taken from in each of them."""

    checkpoint: str
    """Which model, as RUN@STEP."""

    gpt: GPT
    trials: tuple[Trial, ...]
    supplies: tuple[Supplies, ...]

    @classmethod
    def of(
        cls, lab: Lab, trials: tuple[Trial, ...], ablations: Places | Ablation | Sequence[Ablation], *, seed: int = 0
    ) -> Bench:
        """The bench for `ablations`, or for others in the same layers; `seed` draws the donors of each sequence.

        Raises:
            InputError: a place that the model does not have, or an optimal constant that something else is asked of
                than it is fitted for (`interp.optimal.require_whole`).
        """
        made = _each(ablations, lab.config)
        require_whole(made)
        supplies = tuple(trial.supplies_of(lab.gpt, made, seed=seed) for trial in trials)
        return cls(checkpoint=f"{lab.name}@{lab.step}", gpt=lab.gpt, trials=trials, supplies=supplies)

    def harms(
        self,
        trial: Trial,
        ablations: Sequence[Ablation | Places],
        counted: Counted | None = None,
        *,
        outcomes: Sequence[Outcome] | None = None,
        by_token: bool = False,
        rows: tuple[int, int] | None = None,
    ) -> Harms:
        """Run the ablations on the measured sequences of one of the trials; of its outcomes, only those given.

        Of the sequences only `rows`, start and stop, where they are given. Constants that an ablation takes are fitted
        here, on the reference sequences and for the loss that the trial fits for; at any gate those of the whole dose.
        """
        made = [ablation_of(each, self.gpt.config) for each in ablations]
        supplies = self.supplies_for(trial, made, counted)
        start, stop = rows or (0, len(trial.measured))
        part = trial.rows(start, stop)
        return measure_harms(
            self.gpt,
            part.measured,
            made,
            trial.outcomes if outcomes is None else outcomes,
            supplies=replace(supplies, corrupted=part.corrupted, seed=supplies.seed + _APART * start),
            by_token=by_token,
            counted=counted,
        )

    def first(self, n: int) -> Bench:
        """The same with the first `n` measured sequences of every trial."""
        return replace(self, trials=tuple(trial.rows(0, n) for trial in self.trials))

    def trial_of(self, metric: str) -> tuple[Trial, int]:
        """The trial that measures an outcome, and which of its outcomes it is."""
        named = (
            (trial, row) for trial in self.trials for row, each in enumerate(trial.outcomes) if each.name == metric
        )
        found = next(named, None)
        if found is None:
            known = ", ".join(each.name for trial in self.trials for each in trial.outcomes)
            raise InputError(f"{metric} is not measured here; this bench has {known}.")
        return found

    def supplies_for(self, trial: Trial, ablations: Sequence[Ablation], counted: Counted | None = None) -> Supplies:
        """The trial's supplies, with constants for those ablations that take some; `counted` is told of the fit."""
        supplies = self.supplies[self.trials.index(trial)]
        asking = [each for each in ablations if each.takes(Intervention.OPTIMAL)]
        if not asking or supplies.optimal is not None:
            return supplies
        require_whole(asking)
        sets = list(dict.fromkeys(tuple(each.takes(Intervention.OPTIMAL)) for each in asking))
        fitted = fit_optimal(self.gpt, trial.reference, sets, trial.fitting, source=trial.source, counted=counted)
        return replace(supplies, optimal=fitted)


def _each(ablations: Places | Ablation | Sequence[Ablation], config: GPTConfig) -> list[Ablation]:
    """Ablations one by one; places that come without one are one."""
    several = [ablations] if isinstance(ablations, str | Place | Ablation) else list(ablations)
    places = [each for each in several if not isinstance(each, Ablation)]
    made = [each for each in several if isinstance(each, Ablation)]
    return [*made, *([ablation_of(places, config)] if places else [])]


_APART = 7919
"""Seeds of two parts of the same sequences lie so far apart, so that each part draws donors of its own."""


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
        """The sequences on which heads are ablated, with the losses on both copies."""
        return self.trial_with()

    def trial_with(self, *more: str | Outcome) -> Trial:
        """The same with further outcomes, by name or one's own.

        Random tokens are uniform: no unigram beats ln of their number.
        """
        ignorance, measured = math.log(len(self.ids)), self._draw(1)
        first = (copy_outcome(self.period), first_copy_outcome(self.period))
        outcomes = (*first, *_others(more, first, self.period))
        return Trial(
            kind=f"random tokens repeated after {self.period}",
            outcomes=outcomes,
            surprise=torch.full((int(self.ids.max()) + 1,), ignorance, dtype=torch.float64),
            fitting=copy_outcome(self.period),
            measured=measured,
            reference=self._draw(2),
            corrupted=other_first_copy(measured, self.period, self.ids, seed=3 * self.seed + 1),
            twins="the same second copy behind a first copy of other tokens, so that nothing can be copied",
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


def text_trial(lab: Lab, *, n_sequences: int, seed: int, more: Sequence[str | Outcome] = ()) -> Trial:
    """Held-out rows of the run in a random order: half for reference, half to measure, up to `n_sequences` of each.

    Their losses are measured, and `more` outcomes, by name or one's own. A run without a text source holds out repeats
    of random tokens; kind and outcomes then say that.
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
    asked = (TEXT, NEW_TOKEN, *_others(more, (TEXT, NEW_TOKEN)))
    outcomes = tuple(replace(each, meaning=each.meaning.replace(HELD_OUT_TEXT, kind)) for each in asked)
    return Trial(
        kind=kind,
        outcomes=outcomes,
        surprise=unigram_surprise(reference, d_vocab=lab.config.d_vocab),
        fitting=outcomes[0],
        measured=measured,
        reference=reference,
        twins=f"nothing says which tokens of {kind} to change, so it has no corrupted twins",
    )


def trials_for(
    lab: Lab,
    *,
    metric: str | Outcome,
    on_text: bool = False,
    n_sequences: int,
    seed: int,
    period: int | None = None,
) -> tuple[Trial, Trial]:
    """Copying and held-out text, with the losses of both and, where it is another, `metric`.

    An outcome of one's own is measured on held-out text if `on_text`, else on repeated tokens; a name says which.
    """
    if isinstance(metric, Outcome):
        _require_own(metric)
    else:
        get_outcome(metric, period=2)  # refuses an unknown one before any work
        on_text = metric in TEXT_OUTCOMES
    task = copy_task(lab, n_sequences=n_sequences, seed=seed, period=period)
    copying, text = ([], [metric]) if on_text else ([metric], [])
    return task.trial_with(*copying), text_trial(lab, n_sequences=n_sequences, seed=seed, more=text)


def _require_own(outcome: Outcome) -> None:
    if outcome.name in OUTCOMES:
        raise InputError(
            f'"{outcome.name}" is the name of a metric that is there already; ask for metric="{outcome.name}", or give '
            "your own outcome another name."
        )


def _others(more: Sequence[str | Outcome], known: Sequence[Outcome], period: int = 2) -> tuple[Outcome, ...]:
    """The outcomes that are not among the known ones."""
    have = {outcome.name for outcome in known}
    found = [each if isinstance(each, Outcome) else get_outcome(each, period=period) for each in more]
    return tuple(outcome for outcome in found if outcome.name not in have)


def held_out_kind(lab: Lab) -> str:
    """What the run's held-out rows are: text, or repeats of random tokens, which are at no offset of any corpus."""
    return HELD_OUT_TEXT if bool((lab.eval_rows.offsets >= 0).all()) else HELD_OUT_REPEATS
