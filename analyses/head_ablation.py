"""Which heads a model leans on, for copying and for text: every head alone, and the heads that should matter together.

Every head is replaced by zero and by its mean, one at a time. Then the induction heads, and the top previous-token
head, are replaced together; they are found by a stated rule on sequences of their own, so that no head is judged on
what singled it out. A set's harm stands beside that of layer-matched random sets, its harm on text with nothing to
copy, and its harm at step 0. Repeated tokens have the period at which the run is judged, one that training did not show
where there is any.

Harm is ablated minus clean loss in nats, paired by sequence; its share is of what the model gains over token
frequencies. Sources: Olsson et al. 2022 (ablating induction heads); Michel et al. 2019 (one head at a time); Shi et al.
2024 (matched random controls). What it does not show: that a head acts alone (others may stand in for it), nor what an
ablated model would do if it were trained again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from analyses.ablation.figure import draw
from analyses.ablation.findings import sentences
from analyses.ablation.result import INTERVENTIONS, SHOWN, Alone, Config, Result, SetAblation, SingleHeads
from analyses.checkpoints import first_checkpoint, first_checkpoint_file, held_out_file
from analyses.registry import Finding, Progress
from interp.effects import OutcomeEffect, effect_of
from interp.harm import Counted, Harms
from interp.head_roles import HeadRoles, find_head_roles
from interp.outcome_effects import effects_on, shares_of
from interp.outcomes import Outcome
from interp.places import Head, Intervention, Place, every_head, head
from interp.stats import Interval, bootstrap_mean, bootstrap_means, holm, sign_flip_ps
from interp.trials import Bench, Trial, copy_task, text_trial
from model.lab import Lab

__all__ = [
    "INTERVENTIONS", "QUESTION", "Config", "Result", "SetAblation", "SingleHeads", "figure", "findings", "inputs",
    "run", "table",
]  # fmt: skip

QUESTION = "Which heads does the model lean on to copy, and are the induction heads among them?"


@torch.no_grad()
def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Ablate every head alone and the found heads together, on an opened checkpoint and on the run's step 0."""
    task = copy_task(subject, n_sequences=config.n_sequences, seed=config.seed, period=config.period)
    trials = (task.trial, text_trial(subject, n_sequences=config.n_sequences, seed=config.seed))
    discovery, confirmation = (
        find_head_roles(subject.gpt, tokens, period=task.period, rule=config.rule, seed=config.seed)
        for tokens in (task.discovery, task.trial.measured)
    )
    bench, first = Bench.of(subject, trials, _heads(subject)), first_checkpoint(subject)
    before = None if first is None else Bench.of(first, trials, _heads(first))
    alone = _alone(subject, bench, config, progress)
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        tokens_seen=subject.tokens_seen,
        period=task.period,
        copying=alone.copying,
        singles=alone.singles,
        discovery=discovery,
        confirmation=confirmation,
        sets=tuple(_sets(bench, before, discovery, config, progress)),
        at_step_zero=None if first is None or before is None else _alone(first, before, config, progress),
    )


def table(result: Result) -> pd.DataFrame:
    """One row for each head alone, then for each set, by outcome and intervention."""
    return pd.DataFrame([*_single_rows(result), *_set_rows(result)])


def figure(result: Result) -> Any:
    """Every head's harm with its interval, a map of the harms, and the sets beside their controls."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What the ablations say, denials included."""
    return sentences(result)


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside the checkpoint: step 0 and the held-out rows."""
    return [first_checkpoint_file(subject), held_out_file(subject)]


def _heads(lab: Lab, intervention: Intervention = Intervention.MEAN) -> list[Place]:
    """Every head, layer by layer."""
    config = lab.config
    return [head(*each, intervention) for each in every_head(config.n_layers, config.n_heads)]


def _alone(lab: Lab, bench: Bench, config: Config, progress: Progress | None) -> Alone:
    """Every head ablated by itself, on every trial of a bench of which the first is the copying task."""
    ablations = [[place] for each in INTERVENTIONS for place in _heads(lab, each)]
    singles = []
    for trial in bench.trials:
        shown = [outcome for outcome in trial.outcomes if outcome.name in SHOWN]
        counted = _counted(progress, f"every head at step {lab.step}, {trial.kind}")
        singles += _singles(lab, trial, bench.harms(trial, ablations, counted, outcomes=shown), shown, config)
    second, first = bench.harms(bench.trials[0], []).clean.T
    return Alone(copying=bootstrap_mean(first - second, seed=config.seed), singles=tuple(singles))


def _singles(
    lab: Lab, trial: Trial, harms: Harms, outcomes: Sequence[Outcome], config: Config
) -> Iterator[SingleHeads]:
    shape = (len(INTERVENTIONS), lab.config.n_layers, lab.config.n_heads)
    for row, outcome in enumerate(outcomes):
        harm = harms.harm[:, :, row].unflatten(1, shape)
        p = sign_flip_ps(harm, seed=config.seed)
        yield SingleHeads(
            outcome=outcome.name,
            meaning=outcome.meaning,
            clean=float(harms.clean[:, row].mean()),
            scale=trial.scale_of(outcome.name),
            harm=bootstrap_means(harm, seed=config.seed),
            p=torch.stack([holm(each) for each in p]),
            shares=shares_of(harm, harms.clean[:, row], trial.unigram_of(outcome), seed=config.seed),
        )


def _sets(
    bench: Bench, before: Bench | None, roles: HeadRoles, config: Config, progress: Progress | None
) -> Iterator[SetAblation]:
    """The heads of each role together, under each intervention; `before` is the bench of step 0."""
    previous = () if roles.previous_head is None else (roles.previous_head,)
    for role, heads in (("induction", roles.induction_heads), ("previous-token", previous)):
        for intervention in INTERVENTIONS if heads else ():
            places = [head(*each, intervention) for each in heads]
            yield SetAblation(
                role=role,
                heads=tuple(place.label for place in places),
                intervention=intervention,
                effect=effect_of(
                    bench,
                    places,
                    metric="copy_loss",
                    seed=config.seed,
                    n_controls=config.n_controls,
                    counted=_counted(progress, f"sets matched to the {role} heads, {intervention}"),
                ),
                at_step_zero=None if before is None else _copy_effect(before, places, config),
            )


def _copy_effect(bench: Bench, places: Sequence[Place], config: Config) -> OutcomeEffect:
    trial, row = bench.trial_of("copy_loss")
    return effects_on(trial, bench.harms(trial, [places]), 0, seed=config.seed)[row]


def _counted(progress: Progress | None, what: str) -> Counted | None:
    return None if progress is None else lambda done, total: progress(done, total, what)


def _single_rows(result: Result) -> Iterator[dict[str, Any]]:
    for single in result.singles:
        first = None if result.at_step_zero is None else result.at_step_zero.single(single.outcome)
        for number, intervention in enumerate(INTERVENTIONS):
            for layer, index in _grid(result):
                cell, share = single.harm[number, layer, index], single.share(number, layer, index)
                yield {
                    "what": "head", "heads": head(layer, index).label, "intervention": intervention.value,
                    "outcome": single.outcome, "clean": single.clean, "harm": cell.mean, "low": cell.low,
                    "high": cell.high, **_share(share),
                    "p": float(single.p[number, layer, index]), "n": cell.n,
                    "step_0": None if first is None else float(first.harm.mean[number, layer, index]),
                }  # fmt: skip


def _set_rows(result: Result) -> Iterator[dict[str, Any]]:
    for each in result.sets:
        for outcome in each.effect.outcomes:
            has_control = outcome.name == each.effect.metric
            start = each.at_step_zero if has_control else None
            yield {
                "what": f"{each.role} heads", "heads": " ".join(each.heads), "intervention": each.intervention.value,
                "outcome": outcome.name, "clean": outcome.clean, "harm": outcome.harm.mean, "low": outcome.harm.low,
                "high": outcome.harm.high, **_share(outcome.share_interval),
                "p": outcome.p, "n": outcome.harm.n,
                "control_p": each.effect.control.p if has_control else None,
                "control_median": each.effect.control.median if has_control else None,
                "step_0": None if start is None else start.harm.mean,
            }  # fmt: skip


def _share(share: Interval | None) -> dict[str, float | None]:
    ends = (None, None, None) if share is None else (share.mean, share.low, share.high)
    return dict(zip(("share", "share_low", "share_high"), ends, strict=True))


def _grid(result: Result) -> list[Head]:
    return every_head(result.n_layers, result.n_heads)


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("head-ablation"))
