"""How harm grows with how much of something is taken out: a dose-response curve over gates.

At gate g a place holds g times its own value and 1 - g times the replacement. Between intact (gate 1) and replaced
(gate 0) the curve tells what the two ends cannot: a straight line, where the rest of the model reads the place in
proportion; a curve that stays flat and then rises, where others make up for it or a softmax saturates; one that rises
at once, where even a little less is missed. Beside zeros the curve goes on beyond 1, to more than the model computes:
`times=2` is gate 2 (Dai et al. 2022 suppress neurons, and double them). Every gate is measured on the same sequences,
so that differences between gates are paired. Cost: one ablation for each gate.

What it does not show: that values in between are any the model meets. They lie on the line between two that may both be
ordinary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from interp.ablation import Ablation, ablation_of
from interp.harm import Counted
from interp.places import Intervention, Places
from interp.stats import Interval, Intervals, bootstrap_mean, bootstrap_means, sign_flip_ps
from interp.trials import Bench
from model.errors import InputError

GATES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Gates that are tried unless others are named: from intact to replaced. For places that are multiplied, by 2 say, the
curve is that of zeros with 2 and 1.5 as well."""


@dataclass(frozen=True, kw_only=True)
class DoseResponse:
    """What one ablation costs on one outcome, as more and more is taken out."""

    ablation: Ablation
    """Wholly replaced: gate 0. For places that are multiplied, by zeros."""

    outcome: str
    meaning: str
    unit: str
    clean: float
    """The outcome's mean for the intact model."""

    gates: tuple[float, ...]
    """The share that stays, from the largest to the smallest; above 1, what was there times that."""

    harm: Intervals
    """How much worse the outcome is at each gate, [gate], all on the same sequences."""

    p: Float[Tensor, " gate"]
    """Two-sided sign-flip p that the harm is zero; 1 at gate 1, where nothing is changed."""

    bend: tuple[Interval, ...]
    """For each gate, the harm there less that of a straight line from intact to replaced, paired by sequence.

    Below zero the first part taken out costs less than its share, above zero more. Beyond gate 1 the line goes on.
    """

    seed: int


def dose_response(
    bench: Bench,
    places: Places | Ablation,
    *,
    metric: str,
    gates: Sequence[float] | None = None,
    seed: int = 0,
    counted: Counted | None = None,
) -> DoseResponse:
    """Ablate `places` at each of `gates` on the sequences that measure `metric`; gate 0 is always among them.

    Raises:
        InputError: a gate outside 0 to 1 (with zeros, below 0) or named twice, or an ablation that these sequences
            cannot take.
    """
    ablation, usual = _from_nothing(replace(ablation_of(places, bench.gpt.config), gate=0.0))
    gates = usual if gates is None else gates
    ordered = tuple(sorted({0.0, *gates}, reverse=True))
    if len(set(gates)) != len(gates):
        raise InputError(f"the gates {', '.join(f'{gate:g}' for gate in gates)} name one twice; name each once.")
    trial, row = bench.trial_of(metric)
    why = trial.why_not(ablation)
    if why is not None:
        raise InputError(f"{metric} cannot be measured with {ablation} ablated. {why}")
    doses = [_dose(ablation, gate) for gate in ordered]
    outcome = trial.outcomes[row]
    found = bench.harms(trial, doses, counted, outcomes=[outcome])
    harm = found.harm[:, :, 0]
    line = harm[:, -1:] * (1 - harm.new_tensor(ordered))
    return DoseResponse(
        ablation=ablation,
        outcome=outcome.name,
        meaning=outcome.meaning,
        unit=outcome.unit,
        clean=float(found.clean[:, 0].mean()),
        gates=ordered,
        harm=bootstrap_means(harm, seed=seed),
        p=sign_flip_ps(harm, seed=seed),
        bend=tuple(bootstrap_mean(each, seed=seed) for each in (harm - line).T),
        seed=seed,
    )


def _from_nothing(ablation: Ablation) -> tuple[Ablation, tuple[float, ...]]:
    """The ablation at gate 0, and its usual gates: of places that are multiplied alike, from nothing to that much."""
    factors = {place.amount for place in ablation.places}
    if ablation.interventions != {Intervention.TIMES} or len(factors) > 1:
        return ablation, GATES
    (factor,) = factors
    places = tuple(replace(place, intervention=Intervention.ZERO, amount=None) for place in ablation.places)
    beyond = (factor, (1 + factor) / 2) if factor is not None and factor > 1 else ()
    return (replace(ablation, places=places), (*beyond, *GATES)) if beyond else (ablation, GATES)


def _dose(ablation: Ablation, gate: float) -> Ablation:
    """The ablation at a gate; beyond 1, places that zeros stand in hold that many times their own."""
    if gate <= 1:
        return replace(ablation, gate=gate)
    if ablation.interventions != {Intervention.ZERO}:
        raise InputError(
            f"gate={gate:g} is more than all of it, which means something beside zeros only; give 0 (all replaced) "
            "to 1 (intact)."
        )
    places = (replace(place, intervention=Intervention.TIMES, amount=gate) for place in ablation.places)
    return replace(ablation, places=tuple(places))
