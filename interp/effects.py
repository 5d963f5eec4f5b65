"""The effect of one ablation: what it costs, how sure that is, and what other sets of the same shape cost.

A number about a set of heads means little by itself, since removing any heads costs something. So it stands beside
four others: the same ablation of sets with as many components in each layer, its effect on held-out text, its effect
where that text holds nothing to copy, and the same ablation at step 0, before anything was learned.

    effect = ablate(lab, "L1H1,L1H3:mean", metric="copy_loss")
    effect.harm            0.61 [0.55, 0.66] nats, n = 64
    effect.control.p       0.018, of at best 0.018 with 55 sets

A matched set is ablated as the set in question is: the same interventions, gate, positions and held patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from interp.ablation import Ablation, Frozen, ablation_of
from interp.controls import control_p
from interp.effect_parts import CONTROL_LEVEL, AblationEffect, Control, OutcomeEffect
from interp.harm import Counted, Harms
from interp.matched_places import matched_places
from interp.places import Intervention, Places
from interp.replacements import Which
from interp.sequential import Decision, decide
from interp.stats import bootstrap_mean, sign_flip_p
from interp.trials import Bench, Trial, trials_for
from model.errors import InputError
from model.lab import Lab, first_checkpoint

__all__ = [
    "CONTROL_LEVEL", "AblationEffect", "Control", "OutcomeEffect", "ablate", "benches_for", "effect_of",
    "effects_on",
]  # fmt: skip


def ablate(
    lab: Lab,
    places: Places | Ablation,
    *,
    metric: str = "copy_loss",
    intervention: Intervention | str = Intervention.MEAN,
    gate: float | None = None,
    positions: Which = None,
    frozen: Frozen | None = None,
    n_sequences: int = 64,
    seed: int = 0,
    period: int | None = None,
    n_controls: int = 100,
    until: float | None = None,
    counted: Counted | None = None,
) -> AblationEffect:
    """Ablate `places` together and measure the effect, as `cutaway ablate` does.

    Args:
        lab: an opened checkpoint.
        places: in the grammar of `interp.places`, such as "L1H1,L1H3:mean".
        metric: the outcome that is held against matched sets; the losses are measured beside it.
        intervention: for places that state none.
        gate: the share of what was there that stays (`interp.ablation.Ablation`).
        positions: the absolute positions at which they are replaced; all, if None.
        frozen: what is kept as in the intact run.
        n_sequences: at most so many sequences of each kind; there may be less held-out text.
        seed: draws the sequences, the donors, the resamples and the control sets.
        period: of the repeated tokens; by default the one that decides for the run (`interp.periods`).
        n_controls: at most so many matched sets; 0 for none.
        until: measure only until it is known whether the harm on the metric lies above, below or within this bound, in
            the metric's unit (`interp.sequential`).
        counted: called as counted(done, total) while the matched sets are ablated.

    Raises:
        InputError, UnknownNameError: what cannot be asked of this model or this metric, before anything is measured.
    """
    ablation = ablation_of(places, lab.config, intervention, gate=gate, positions=positions, frozen=frozen)
    bench, before = benches_for(lab, ablation, metric=metric, n_sequences=n_sequences, seed=seed, period=period)
    return effect_of(
        bench,
        ablation,
        metric=metric,
        seed=seed,
        n_controls=n_controls,
        before=before,
        until=until,
        counted=counted,
    )


def benches_for(
    lab: Lab,
    ablation: Ablation,
    *,
    metric: str,
    n_sequences: int = 64,
    seed: int = 0,
    period: int | None = None,
) -> tuple[Bench, Bench | None]:
    """Where an ablation is measured: the checkpoint and, on the same sequences, the run's step 0 where it has one.

    However many sequences are measured, replacements are taken from at most 64.
    """
    trials = trials_for(lab, metric=metric, n_sequences=n_sequences, seed=seed, period=period)
    trials = tuple(replace(trial, reference=trial.reference[:_REFERENCES]) for trial in trials)
    bench, first = Bench.of(lab, trials, ablation, seed=seed), first_checkpoint(lab)
    return bench, None if first is None else Bench.of(first, trials, ablation, seed=seed)


def effect_of(
    bench: Bench,
    places: Places | Ablation,
    *,
    metric: str,
    seed: int,
    n_controls: int,
    before: Bench | None = None,
    until: float | None = None,
    counted: Counted | None = None,
) -> AblationEffect:
    """The effect of one ablation on every outcome of the bench, with its control on `metric`.

    `before` is the bench of step 0, on the same trials; `until` as for `ablate`.
    """
    ablation = ablation_of(places, bench.gpt.config)
    _require_measurable(bench, ablation, metric)
    known = None if until is None else _until(bench, ablation, metric, until, seed)
    bench = bench if known is None else bench.first(known.decision.n)
    outcomes = tuple(_outcomes(bench, ablation, seed, known))
    observed = next(outcome.harm.mean for outcome in outcomes if outcome.name == metric)
    start = () if before is None else tuple(_outcomes(before.first(_most(bench)), ablation, seed))
    return AblationEffect(
        checkpoint=bench.checkpoint,
        ablation=ablation,
        metric=metric,
        outcomes=outcomes,
        control=_control(bench, ablation, metric, observed, seed=seed, limit=n_controls, counted=counted),
        sources=tuple(source for trial in _measurable(bench, ablation) for source in _sources(trial, ablation)),
        notes=tuple(filter(None, (trial.why_not(ablation) for trial in bench.trials))),
        seed=seed,
        kinds=tuple(trial.kind for trial in _measurable(bench, ablation)),
        start=start,
        decision=None if known is None else known.decision,
    )


def effects_on(trial: Trial, harms: Harms, column: int, *, seed: int) -> tuple[OutcomeEffect, ...]:
    """The effect of ablation number `column` on every outcome of the trial."""
    harm = harms.harm[:, column]
    return tuple(
        OutcomeEffect(
            name=outcome.name,
            meaning=outcome.meaning,
            clean=float(harms.clean[:, row].mean()),
            harm=bootstrap_mean(harm[:, row], seed=seed),
            p=sign_flip_p(harm[:, row], seed=seed),
            scale=trial.scales[row],
            unit=outcome.unit,
            lower_is_better=outcome.lower_is_better,
        )
        for row, outcome in enumerate(trial.outcomes)
    )


def _measurable(bench: Bench, ablation: Ablation) -> list[Trial]:
    """The trials on which the ablation can be tried."""
    return [trial for trial in bench.trials if trial.why_not(ablation) is None]


def _require_measurable(bench: Bench, ablation: Ablation, metric: str) -> None:
    trial, _ = bench.trial_of(metric)
    why = trial.why_not(ablation)
    if why is not None:
        others = [each.name for trial in _measurable(bench, ablation) for each in trial.outcomes]
        advice = f"Ask for a metric that can: {', '.join(others)}." if others else "Ask for more sequences or positions."
        raise InputError(f"{metric} cannot be measured with {ablation} ablated. {why} {advice}")


def _most(bench: Bench) -> int:
    return max(len(trial.measured) for trial in bench.trials)


def _outcomes(bench: Bench, ablation: Ablation, seed: int, known: _Known | None = None) -> Iterator[OutcomeEffect]:
    for trial in _measurable(bench, ablation):
        if known is not None and trial.outcomes is known.trial.outcomes:
            yield from known.effects(seed)
        else:
            yield from effects_on(trial, bench.harms(trial, [ablation]), 0, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Known:
    """What was measured until the metric's harm was known."""

    trial: Trial
    row: int
    """Which of the trial's outcomes the metric is."""
    harms: Harms
    decision: Decision

    def effects(self, seed: int) -> Iterator[OutcomeEffect]:
        """The effects on the trial's outcomes; that on the metric with the interval and the p that allow for looking.

        An interval of a fixed number of sequences would be too narrow after a stop that the numbers themselves chose.
        """
        found, last = effects_on(self.trial, self.harms, 0, seed=seed), self.decision.last
        for row, each in enumerate(found):
            p = min(1.0, each.p * self.decision.alpha / last.spent)
            yield replace(each, harm=last.interval, p=p) if row == self.row else each


def _until(bench: Bench, ablation: Ablation, metric: str, bound: float, seed: int) -> _Known:
    """Measure the metric's trial until its harm is known to lie above, below or within the bound."""
    if bound < 0:
        raise InputError(f"until={bound:g} is no bound; give the size of harm that matters, 0 or more.")
    trial, row = bench.trial_of(metric)
    found: list[Harms] = []

    def measure(start: int, stop: int) -> torch.Tensor:
        found.append(bench.harms(trial, [ablation], rows=(start, stop)))
        return found[-1].harm[:, 0, row]

    bounds = (-bound, bound) if bound else (0.0,)
    decision = decide(measure, bounds, most=len(trial.measured), seed=seed)
    whole = replace(
        found[0],
        clean=torch.cat([each.clean for each in found]),
        ablated=torch.cat([each.ablated for each in found]),
    )
    return _Known(trial=trial, row=row, harms=whole, decision=decision)


def _control(
    bench: Bench,
    ablation: Ablation,
    metric: str,
    observed: float,
    *,
    seed: int,
    limit: int,
    counted: Counted | None,
) -> Control:
    """Ablate matched sets in the same way and hold the observed harm against theirs."""
    fitted = bool(ablation.takes(Intervention.OPTIMAL))
    matched = matched_places(
        ablation.places, bench.gpt.config, limit=min(limit, _FITTED) if fitted else limit, seed=seed
    )
    harm = torch.empty(0, dtype=torch.float64)
    if matched.sets:
        trial, row = bench.trial_of(metric)
        sets = [replace(ablation, places=places) for places in matched.sets]
        harm = bench.harms(trial, sets, counted, outcomes=[trial.outcomes[row]]).harm[:, :, 0].mean(0)
    return Control(
        harm=harm,
        shared=torch.tensor(matched.shared, dtype=torch.int64),
        n_possible=matched.n_possible,
        p=control_p(observed, harm) if matched.sets else None,
        note=matched.note,
    )


def _sources(trial: Trial, ablation: Ablation) -> Sequence[str]:
    """What an ablation's replacements are taken from on one trial, in words."""
    kinds = ablation.interventions
    means = kinds & {Intervention.MEAN, Intervention.MEAN_PER_POSITION}
    found = [
        (bool(means), f"means over {trial.source}"),
        (Intervention.MEAN_OF_PAST in kinds, f"means over the past of each sequence itself ({trial.kind})"),
        (Intervention.RESAMPLE in kinds, f"donors drawn from {trial.source}"),
        (Intervention.COUNTERFACTUAL in kinds, f"the twin of each sequence: {trial.twins}"),
        (Intervention.OPTIMAL in kinds, f"constants fitted for the {trial.outcomes[0].meaning} on {trial.source}"),
    ]
    return [words for is_used, words in found if is_used]


_REFERENCES = 64
"""Sequences that replacements are taken from, at most: more would make a longer measurement no surer."""

_FITTED = 19
"""Matched sets at most where each needs constants of its own: as many as a p of 0.05 takes."""
