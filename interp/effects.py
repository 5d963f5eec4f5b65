"""The effect of one ablation: what it costs, how sure that is, and what other sets of the same shape cost.

A number about a set of heads means little by itself, since removing any heads costs something. So it stands beside
four others: the same ablation of sets with as many components in each layer, its effect on held-out text, its effect
where that text holds nothing to copy, and the same ablation at step 0, before anything was learned.

    effect = ablate(lab, "L1H1,L1H3:mean", metric="copy_loss")
    effect.harm            0.61 [0.55, 0.66] nats, n = 64
    effect.control.p       0.018, of at best 0.018 with 55 sets

A matched set is ablated as the set in question is: the same interventions, gate, positions and held patterns.

Where measuring stops once the harm is known (`interp.sequential`), the numbers themselves chose how many sequences
there are, and they chose by chance as well. So every outcome of those sequences has the level of the look, and matched
sets and step 0 are tried on a number of sequences that was fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from interp.ablation import Ablation, Frozen, ablation_of
from interp.effect_parts import CONTROL_LEVEL, AblationEffect, Control, OutcomeEffect
from interp.harm import Counted, Harms
from interp.matched_control import matched_control
from interp.matched_places import Matching
from interp.optimal import require_whole
from interp.outcome_effects import effects_on, share_of
from interp.outcomes import Outcome
from interp.places import Intervention, Places
from interp.replacements import Which
from interp.sequential import Decision, decide, studentized
from interp.trials import Bench, Trial, trials_for
from model.errors import InputError
from model.lab import Lab, first_checkpoint

__all__ = [
    "CONTROL_LEVEL", "AblationEffect", "Control", "OutcomeEffect", "ablate", "benches_for", "effect_of",
]  # fmt: skip


def ablate(
    lab: Lab,
    places: Places | Ablation,
    *,
    metric: str | Outcome = "copy_loss",
    on_text: bool = False,
    intervention: Intervention | str = Intervention.MEAN,
    gate: float | None = None,
    positions: Which = None,
    frozen: Frozen | None = None,
    n_sequences: int = 64,
    seed: int = 0,
    period: int | None = None,
    n_controls: int = 100,
    matching: Matching | str = Matching.ACTIVITY,
    until: float | None = None,
    control: Control | None = None,
    counted: Counted | None = None,
) -> AblationEffect:
    """Ablate `places` together and measure the effect, as `cutaway ablate` does.

    Args:
        lab: an opened checkpoint.
        places: in the grammar of `interp.places`, such as "L1H1,L1H3:mean".
        metric: the outcome that is held against matched sets, by name or one of your own; the losses are measured
            beside it.
        on_text: for an outcome of your own, whether it is measured on held-out text, or else on repeated tokens.
        intervention: for places that state none.
        gate: the share of what was there that stays (`interp.ablation.Ablation`).
        positions: the absolute positions at which they are replaced; all, if None.
        frozen: what is kept as in the intact run.
        n_sequences: at most so many sequences of each kind; there may be less held-out text.
        seed: draws the sequences, the donors, the resamples and the control sets.
        period: of the repeated tokens; by default the one that decides for the run (`interp.periods`).
        n_controls: at most so many matched sets; 0 for none.
        matching: what a matched set shares with the places beside layers, kinds and interventions; for memories by
            default that they write about as much.
        until: measure only until it is known whether the harm on the metric lies above, below or within this bound, in
            the metric's unit (`interp.sequential`). Matched sets and step 0 are then tried on 64 sequences at most.
        control: what matched sets cost, where they were measured already with the same seed; then none are tried here.
        counted: called as counted(done, total) after every pass of a part: the ablation on each kind of sequences, the
            same at step 0, the matched sets; may raise to stop the work.

    Raises:
        InputError, UnknownNameError: what cannot be asked of this model or this metric, before anything is measured.
    """
    ablation = ablation_of(places, lab.config, intervention, gate=gate, positions=positions, frozen=frozen)
    bench, before = benches_for(
        lab, ablation, metric=metric, on_text=on_text, n_sequences=n_sequences, seed=seed, period=period
    )
    return effect_of(
        bench,
        ablation,
        metric=metric,
        seed=seed,
        n_controls=n_controls,
        matching=matching,
        before=before,
        until=until,
        control=control,
        counted=counted,
    )


def benches_for(
    lab: Lab,
    ablation: Ablation,
    *,
    metric: str | Outcome,
    on_text: bool = False,
    n_sequences: int = 64,
    seed: int = 0,
    period: int | None = None,
) -> tuple[Bench, Bench | None]:
    """Where an ablation is measured: the checkpoint and, on the same sequences, the run's step 0 where it has one.

    `metric` and `on_text` as for `ablate`. However many sequences are measured, replacements are taken from at most 64.
    """
    trials = trials_for(lab, metric=metric, on_text=on_text, n_sequences=n_sequences, seed=seed, period=period)
    trials = tuple(trial.with_references() for trial in trials)
    bench, first = Bench.of(lab, trials, ablation, seed=seed), first_checkpoint(lab)
    return bench, None if first is None else Bench.of(first, trials, ablation, seed=seed)


def effect_of(
    bench: Bench,
    places: Places | Ablation,
    *,
    metric: str | Outcome,
    seed: int,
    n_controls: int,
    matching: Matching | str = Matching.ACTIVITY,
    before: Bench | None = None,
    until: float | None = None,
    control: Control | None = None,
    counted: Counted | None = None,
) -> AblationEffect:
    """The effect of one ablation on every outcome of the bench, with its control on `metric`.

    `before` is the bench of step 0, on the same trials; `matching`, `until` and `control` as for `ablate`.
    """
    ablation, metric = ablation_of(places, bench.gpt.config), metric.name if isinstance(metric, Outcome) else metric
    _require_measurable(bench, ablation, metric)
    known = None if until is None else _until(bench, ablation, metric, until, seed)
    beside = None if known is None else BESIDE
    where = bench if known is None else bench.first(known.decision.n)
    outcomes = tuple(_outcomes(where, ablation, seed, known, counted=counted))
    first = None if before is None else before.first(beside or _most(bench))
    start = () if first is None else tuple(_outcomes(first, ablation, seed, counted=counted))
    return AblationEffect(
        checkpoint=bench.checkpoint,
        ablation=ablation,
        metric=metric,
        outcomes=outcomes,
        control=control
        or matched_control(
            bench, ablation, metric, matching=matching, n=beside, seed=seed, limit=n_controls, counted=counted
        ),
        sources=tuple(source for trial in _measurable(bench, ablation) for source in _sources(trial, ablation)),
        notes=tuple(filter(None, (trial.why_not(ablation) for trial in bench.trials))),
        seed=seed,
        kinds=tuple(trial.kind for trial in _measurable(bench, ablation)),
        start=start,
        decision=None if known is None else known.decision,
    )


def _measurable(bench: Bench, ablation: Ablation) -> list[Trial]:
    """The trials on which the ablation can be tried."""
    return [trial for trial in bench.trials if trial.why_not(ablation) is None]


def _require_measurable(bench: Bench, ablation: Ablation, metric: str) -> None:
    require_whole([ablation])
    trial, _ = bench.trial_of(metric)
    why = trial.why_not(ablation)
    if why is not None:
        others = [each.name for trial in _measurable(bench, ablation) for each in trial.outcomes]
        advice = (
            f"Ask for a metric that can: {', '.join(others)}." if others else "Ask for more sequences or positions."
        )
        raise InputError(f"{metric} cannot be measured with {ablation} ablated. {why} {advice}")


def _most(bench: Bench) -> int:
    return max(len(trial.measured) for trial in bench.trials)


def _outcomes(
    bench: Bench, ablation: Ablation, seed: int, known: _Known | None = None, *, counted: Counted | None = None
) -> Iterator[OutcomeEffect]:
    for trial in _measurable(bench, ablation):
        if known is not None and trial.outcomes is known.trial.outcomes:
            yield from known.effects(seed)
        else:
            yield from effects_on(trial, bench.harms(trial, [ablation], counted), 0, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Known:
    """What was measured until the metric's harm was known."""

    trial: Trial
    row: int
    """Which of the trial's outcomes the metric is."""
    harms: Harms
    decision: Decision

    def effects(self, seed: int) -> Iterator[OutcomeEffect]:
        """The effects on the trial's outcomes, with intervals and p that allow for looking.

        Those of a fixed number of sequences would be too narrow after a stop that the numbers themselves chose. That
        holds for the metric, whose interval is the decision's, and for every outcome that goes along with it.
        """
        last = self.decision.last
        part, level = self.trial.rows(0, last.n), 1 - last.spent
        for row, each in enumerate(effects_on(part, self.harms, 0, seed=seed)):
            harm, clean = self.harms.harm[:, 0, row], self.harms.clean[:, row]
            unigram = part.unigram_of(part.outcomes[row])
            yield replace(
                each,
                harm=last.interval if row == self.row else studentized(harm, level=level, seed=seed),
                p=min(1.0, each.p * self.decision.alpha / last.spent),
                share_interval=share_of(harm, clean, unigram, seed=seed, level=level),
            )


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


def _sources(trial: Trial, ablation: Ablation) -> Sequence[str]:
    """What an ablation's replacements are taken from on one trial, in words."""
    kinds = ablation.interventions
    means = kinds & {Intervention.MEAN, Intervention.MEAN_PER_POSITION}
    found = [
        (bool(means), f"means over {trial.source}"),
        (Intervention.MEAN_OF_PAST in kinds, f"means over the past of each sequence itself ({trial.kind})"),
        (Intervention.RESAMPLE in kinds, f"donors drawn from {trial.source}"),
        (Intervention.COUNTERFACTUAL in kinds, f"the twin of each sequence: {trial.twins}"),
        (Intervention.OPTIMAL in kinds, f"constants fitted for the {trial.fitting.meaning} on {trial.source}"),
    ]
    return [words for is_used, words in found if is_used]


BESIDE = 64
"""Sequences of matched sets and of step 0, at most, where the harm itself chooses how many it takes."""
