"""One set of places under several interventions: does the effect depend on what is put there?

Every intervention assumes something (`interp.intervention_kinds`): zeros overstate what a component does where the rest
of the model has never met them, a mean keeps what is always there, a donor says something wrong. So an effect that only
one of them shows is that one's. All run on the same sequences in one sweep, so that differences are paired; and beside
them the first once more with later patterns held, which leaves what the places write and not where they make others
look (Olsson et al. 2022).

What it does not show: which of them is right. That they agree is evidence; that they differ is a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from interp.ablation import Ablation, Frozen, ablation_of
from interp.effect_parts import OutcomeEffect
from interp.harm import Counted
from interp.intervention_kinds import parse_intervention
from interp.outcome_effects import effects_on
from interp.places import Intervention, Places
from interp.replacements import Which
from interp.trials import Bench, trials_for
from model.errors import InputError

if TYPE_CHECKING:
    from model.lab import Lab

BESIDE = (Intervention.ZERO, Intervention.MEAN, Intervention.RESAMPLE)
"""Interventions that are tried unless others are named."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """The same places, each time filled with something else."""

    checkpoint: str
    metric: str
    ablations: tuple[Ablation, ...]
    effects: tuple[OutcomeEffect, ...]
    """On the metric, one for each ablation, on the same sequences."""
    notes: tuple[str, ...]
    """Of what could not be tried, why."""
    seed: int


def side_by_side(
    lab: Lab,
    places: Places,
    *,
    metric: str = "copy_loss",
    interventions: Sequence[Intervention | str] = BESIDE,
    gate: float | None = None,
    positions: Which = None,
    n_sequences: int = 64,
    seed: int = 0,
    period: int | None = None,
    counted: Counted | None = None,
) -> SideBySide:
    """Ablate `places` under each intervention in turn, whatever they state themselves.

    `gate` and `positions` as for `interp.effects.ablate`.

    Raises:
        InputError: none of them can be tried on the sequences that measure `metric`.
    """
    whole = ablation_of(places, lab.config, gate=gate, positions=positions)
    resolved = whole.places
    kinds = [parse_intervention(each) for each in interventions]
    made = [
        replace(whole, places=tuple(replace(place, intervention=kind, amount=None) for place in resolved))
        for kind in kinds
    ]
    if made and made[0].first_layer < lab.config.n_layers - 1:
        held = next((each for each in made if Intervention.MEAN in each.interventions), made[0])
        made.append(replace(held, frozen=Frozen.PATTERNS))
        last = ()
    else:
        last = ("Later patterns are not held: nothing attends after what is ablated.",)
    trials = trials_for(lab, metric=metric, n_sequences=n_sequences, seed=seed, period=period)
    (trial,) = (each for each in trials if any(outcome.name == metric for outcome in each.outcomes))
    trial = trial.with_references()
    refusals = [trial.why_not(each) for each in made]
    tried = [each for each, refusal in zip(made, refusals, strict=True) if refusal is None]
    if not tried:
        raise InputError(f"{metric} cannot be measured with {resolved[0]} ablated. {' '.join(filter(None, refusals))}")
    bench = Bench.of(lab, (trial,), tried, seed=seed)
    outcome = next(each for each in trial.outcomes if each.name == metric)
    harms = bench.harms(trial, tried, counted, outcomes=[outcome])
    one = replace(trial, outcomes=(outcome,))
    return SideBySide(
        checkpoint=bench.checkpoint,
        metric=metric,
        ablations=tuple(tried),
        effects=tuple(effects_on(one, harms, column, seed=seed)[0] for column in range(len(tried))),
        notes=(*filter(None, refusals), *last),
        seed=seed,
    )
