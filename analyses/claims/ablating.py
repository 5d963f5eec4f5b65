"""Claims about an ablation: what is replaced, what that changes on every sequence, and what stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from analyses.claims.ground import Deltas, Ground, Values
from analyses.claims.statement import ControlKind, Statement
from interp.ablation import Ablation, Frozen, ablation_of
from interp.harm import Counted
from interp.matched_places import MatchedPlaces, matched_places
from interp.outcomes import COPY_OUTCOMES, Measure, Outcome, get_outcome
from interp.places import Place, print_places
from interp.trials import Bench, Trial

_ON_TEXT = {Measure.LOSS: "new_token_loss", Measure.ACCURACY: "text_accuracy", Measure.KL: "text_kl"}


def text_counterpart(metric: str) -> str | None:
    """The outcome that reads the same where there is nothing to copy; None where there is none, or no other."""
    measure = get_outcome(metric, period=2).measure
    return _ON_TEXT.get(measure) if metric in COPY_OUTCOMES and isinstance(measure, Measure) else None


def _shortly(places: Sequence[Place]) -> str:
    """Places in the grammar; an intervention that all share is written once, behind the last."""
    if len({place.intervention for place in places}) > 1:
        return print_places(places)
    return ",".join([*(place.label for place in places[:-1]), str(places[-1])])


@dataclass(frozen=True, kw_only=True, eq=False)
class Ablating:
    """One claim's ablation at one checkpoint."""

    stated: Statement
    ground: Ground
    ablation: Ablation

    @classmethod
    def of(cls, stated: Statement, ground: Ground, places: Sequence[Place]) -> Ablating:
        """With places that were resolved or found; refuses what the model does not have."""
        made = ablation_of(
            tuple(places), ground.lab.config, gate=stated.gate, positions=stated.positions, frozen=Frozen(stated.freeze)
        )
        return cls(stated=stated, ground=ground, ablation=made)

    def __str__(self) -> str:
        places = self.ablation.places
        return f"{str(self.ablation).replace(print_places(places), _shortly(places))} ablated"

    @property
    def whole(self) -> str:
        """What its harm may be a share of."""
        return "the intact model's advantage over token frequencies"

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
        """The harm of the same ablation where there is nothing to copy."""
        counterpart = text_counterpart(self.stated.metric)
        if counterpart is None:
            return None
        bench = self._bench_on(self.ground.trial(counterpart))
        (trial,) = bench.trials
        return trial.outcomes[0], self._deltas(bench, 0, len(trial.measured)).harm

    def why_not(self) -> str | None:
        """Why it cannot be tried on these sequences, or not on text where that is the control."""
        trials = [self._trial]
        if self.stated.control == ControlKind.TEXT:
            trials += [self.ground.trial(each) for each in filter(None, [text_counterpart(self.stated.metric)])]
        return next(filter(None, (trial.why_not(self.ablation) for trial in trials)), None)

    def matched(self, limit: int) -> MatchedPlaces:
        """Other sets of the same shape; nothing runs."""
        return matched_places(self.ablation.places, self.ground.lab.config, limit=limit, seed=self.stated.seed)

    def others(self, matched: MatchedPlaces, stop: int, counted: Counted | None) -> Float[Tensor, " set"]:
        """The mean harm of every matched set on the first sequences."""
        ablations = [replace(self.ablation, places=each) for each in matched.sets]
        return self._bench.harms(self._trial, ablations, counted, rows=(0, stop)).harm[:, :, 0].mean(0)

    @cached_property
    def _trial(self) -> Trial:
        return self.ground.trial(self.stated.metric)

    @cached_property
    def _bench(self) -> Bench:
        return self._bench_on(self._trial)  # runs the model, for means: not before the claim is checked

    def _bench_on(self, trial: Trial) -> Bench:
        return Bench.of(self.ground.lab, (trial,), [self.ablation], seed=self.stated.seed)

    def _deltas(self, bench: Bench, start: int, stop: int) -> Deltas:
        (trial,) = bench.trials
        found = bench.harms(trial, [self.ablation], rows=(start, stop))
        clean, (scale,) = found.clean[:, 0], trial.scales
        return Deltas(harm=found.harm[:, 0, 0], clean=clean, whole=None if scale is None else scale - clean)
