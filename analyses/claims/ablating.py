"""Claims about an ablation: what is replaced, what that changes on every sequence, and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.claims.ground import Deltas, Ground, Values
from analyses.claims.statement import ControlKind, Statement
from interp.ablation import Ablation, Frozen, ablation_of
from interp.effect_parts import Control
from interp.harm import Counted
from interp.matched_control import strata_for
from interp.matched_places import MatchedPlaces, Matching, Strata, matched_places
from interp.optimal import fit_optimal, require_whole
from interp.outcomes import COPY_OUTCOMES, NEW_TOKEN, Measure, Outcome, get_outcome
from interp.places import Intervention, Place, PlaceKind, print_places
from interp.trials import Bench, Trial

_ON_TEXT = {Measure.LOSS: "new_token_loss", Measure.ACCURACY: "text_accuracy", Measure.KL: "text_kl"}


def text_counterpart(metric: str) -> Outcome | None:
    """The outcome that reads the same on held-out text where the current token is new, so that nothing can be copied.

    None where there is none, or no other.
    """
    measure = get_outcome(metric, period=2).measure
    name = _ON_TEXT.get(measure) if metric in COPY_OUTCOMES and isinstance(measure, Measure) else None
    if name is None or name == NEW_TOKEN.name:
        return None if name is None else NEW_TOKEN
    found = get_outcome(name, period=2)
    return replace(found, weights=NEW_TOKEN.weights, meaning=f"{found.meaning} where the current token is new")


def reaches(ablation: Ablation, targets: Bool[Tensor, " target"], *, n_layers: int) -> bool:
    """Whether anything that is replaced can change the prediction of one of these targets (column t: from position t).

    What the last layer writes is read at its own position; what an earlier one writes at later positions too, by
    attention, and never at earlier ones. At position 0 the mean over a sequence's past is what stands there anyway.
    """
    for place in ablation.places:
        changed = torch.zeros_like(targets)
        changed[
            slice(None) if ablation.positions is None else [each for each in ablation.positions if each < len(targets)]
        ] = True
        if place.intervention == Intervention.MEAN_OF_PAST:
            changed[0] = False
        read = changed if place.layer == n_layers - 1 else changed.cummax(0).values
        if bool((read & targets).any()):
            return True
    return False


def _shortly(places: Sequence[Place]) -> str:
    """Places in the grammar; an intervention that all share is written once, behind the last."""
    if len({place.stated for place in places}) > 1:
        return print_places(places)
    return ",".join([*(place.label for place in places[:-1]), str(places[-1])])


@dataclass(frozen=True, kw_only=True, eq=False)
class Ablating:
    """One claim's ablation at one checkpoint."""

    stated: Statement
    ground: Ground
    ablation: Ablation
    counted: Counted | None = None
    """Told of every batch that is ablated; may raise to stop."""
    tried: Callable[[Control], None] | None = None
    """Told of matched sets, once they were measured."""

    @classmethod
    def of(cls, stated: Statement, ground: Ground, places: Sequence[Place]) -> Ablating:
        """With places that were resolved or found; refuses what the model does not have, and what cannot be fitted."""
        made = ablation_of(
            tuple(places), ground.lab.config, gate=stated.gate, positions=stated.positions, frozen=Frozen(stated.freeze)
        )
        require_whole([made])
        return cls(stated=stated, ground=ground, ablation=made)

    def __str__(self) -> str:
        places = self.ablation.places
        done = "ablated" if self.ablation.removes else "in force"
        said = f"{str(self.ablation).replace(print_places(places), _shortly(places))} {done}"
        n_heads, layers = self.ground.lab.config.n_heads, sorted({place.layer for place in places})
        heads = [place.layer for place in places if place.kind is PlaceKind.HEAD]
        full = [str(layer) for layer in layers if heads.count(layer) == n_heads]
        if not full:
            return said
        return f"{said} (every head of layer {' and '.join(full)}: no other set matches there)"

    @property
    def whole(self) -> str:
        """What its harm may be a share of."""
        return "the intact model's advantage over token frequencies"

    @property
    def stake(self) -> str:
        """What there is to lose, in words."""
        measure = self.outcome.measure
        if measure is Measure.ACCURACY:
            return "the intact model's lead over always guessing the commonest token"
        if measure is Measure.LOGIT_DIFFERENCE:
            return "the intact model's own difference"
        return f"{self.whole}{' (the loss on the same targets)' if measure is Measure.KL else ''}"

    @property
    def n_sequences(self) -> int:
        """How many sequences there are to measure on."""
        return len(self._trial.measured)

    @property
    def outcome(self) -> Outcome:
        """What is measured."""
        return self._trial.outcomes[0]

    def on(self, ground: Ground) -> Ablating:
        """The same ablation at another checkpoint."""
        return replace(self, ground=ground)

    def deltas(self, start: int, stop: int) -> Deltas:
        """What the ablation changes on the sequences start to stop - 1."""
        return self._deltas(self._bench, start, stop)

    def on_text(self) -> tuple[Outcome, Values] | None:
        """The harm of the same ablation on text, where there is nothing to copy."""
        counterpart = text_counterpart(self.stated.metric)
        if counterpart is None:
            return None
        bench = self._bench_on(self.ground.trial_of(counterpart))
        (trial,) = bench.trials
        return trial.outcomes[0], self._deltas(bench, 0, len(trial.measured)).harm

    def why_not(self) -> str | None:
        """Why it cannot be tried on these sequences, or not on text where that is the control."""
        trials = [self._trial]
        if self.stated.control == ControlKind.TEXT:
            trials += [self.ground.trial_of(each) for each in filter(None, [text_counterpart(self.stated.metric)])]
        return next(filter(None, map(self._why_not, trials)), None)

    def _why_not(self, trial: Trial) -> str | None:
        outcome, n_layers = trial.outcomes[0], self.ground.lab.config.n_layers
        if (refusal := trial.why_not(self.ablation)) is not None:
            return refusal
        if reaches(self.ablation, outcome.targets(trial.measured).any(0).cpu(), n_layers=n_layers):
            return None
        return (
            f"With {self}, {outcome.name} cannot change: nothing that is taken out there reaches a prediction that "
            f"counts on {trial.kind}. The last layer is read at its own positions, earlier ones at these and later "
            "ones, and at position 0 the mean of the past is what stands there. Choose other positions."
        )

    def matched(self, limit: int) -> MatchedPlaces:
        """Other sets of the same shape; for memories the model runs once, to tell which write about as much."""
        config, seed = self.ground.lab.config, self.stated.seed
        return matched_places(self.ablation.places, config, limit=limit, seed=seed, strata=self._strata)

    def others(self, matched: MatchedPlaces, stop: int, counted: Counted | None) -> Float[Tensor, " set"]:
        """The mean harm of every matched set on the first sequences."""
        ablations = [replace(self.ablation, places=each) for each in matched.sets]
        bench = Bench.of(self.ground.lab, (self._trial,), [self.ablation], seed=self.stated.seed)
        return bench.harms(self._trial, ablations, counted, rows=(0, stop)).harm[:, :, 0].mean(0)

    @cached_property
    def _strata(self) -> Strata | None:
        return strata_for(self.ground.lab.gpt, self._trial, self.ablation, Matching.ACTIVITY)

    @cached_property
    def _trial(self) -> Trial:
        return self.ground.trial(self.stated.metric)

    @cached_property
    def _bench(self) -> Bench:
        return self._bench_on(self._trial)  # runs the model, for means: not before the claim is checked

    def _bench_on(self, trial: Trial) -> Bench:
        """With the constants that the ablation takes, which are fitted here once, however many looks there are."""
        gpt, places = self.ground.lab.gpt, self.ablation.takes(Intervention.OPTIMAL)
        bench = Bench.of(self.ground.lab, (trial,), [self.ablation], seed=self.stated.seed)
        if not places:
            return bench
        fitted = fit_optimal(gpt, trial.reference, [places], trial.fitting, source=trial.source, counted=self.counted)
        return replace(bench, supplies=tuple(replace(each, optimal=fitted) for each in bench.supplies))

    def _deltas(self, bench: Bench, start: int, stop: int) -> Deltas:
        (trial,) = bench.trials
        (outcome,) = trial.outcomes
        beside = [_its_loss(outcome)] if outcome.measure is Measure.KL else []
        found = bench.harms(trial, [self.ablation], self.counted, rows=(start, stop), outcomes=[outcome, *beside])
        lead = _lead([outcome, *beside][-1], trial.rows(start, stop), found.clean[:, -1])
        return Deltas(
            harm=found.harm[:, 0, 0],
            clean=found.clean[:, 0],
            whole=lead if outcome.has_unigram else None,
            at_stake=lead,
        )


def _its_loss(outcome: Outcome) -> Outcome:
    """The loss on the same targets: where that is no better than chance, the intact model's opinions are none."""
    return replace(outcome, name=f"{outcome.name}_loss", measure=Measure.LOSS)


def _lead(outcome: Outcome, trial: Trial, clean: Values) -> Values:
    """By how much the intact model is better than one that knows token frequencies only, on each sequence."""
    if outcome.measure is Measure.ACCURACY:  # always the commonest token
        guess = trial.reference[:, 1:].flatten().bincount().argmax()
        return clean - outcome.of_values((trial.measured[:, 1:] == guess).double(), trial.measured)
    if outcome.measure is Measure.LOGIT_DIFFERENCE:  # the distractor is as common as the target
        return clean
    unigram = trial.unigram_of(outcome)
    assert unigram is not None, "what is left are losses"
    return unigram - clean
