"""Which heads a model leans on, for copying and for text: every head alone, and the heads that should matter together.

Every head is replaced by zero and by its mean, one at a time. Then the induction heads, and the top previous-token
head, are replaced together; they are found by a stated rule on sequences of their own, so that no head is judged on
what singled it out. A set's harm stands beside that of layer-matched random sets, its harm on text with nothing to
copy, and its harm at step 0. Repeated tokens have a period that training never showed.

Harm is ablated minus clean loss in nats, paired by sequence; its share is of what the model gains over token
frequencies. Sources: Olsson et al. 2022 (ablating induction heads); Michel et al. 2019 (one head at a time); Shi et al.
2024 (matched random controls). What it does not show: that a head acts alone (others may stand in for it), nor what an
ablated model would do if it were trained again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.registry import Finding, Progress
from interp.controls import Head
from interp.effects import AblationEffect, OutcomeEffect, effect_of, effects_on
from interp.harm import Counted, Harms
from interp.head_roles import HeadRoles, RoleRule, find_head_roles
from interp.outcomes import share_of_scale
from interp.places import Intervention, Place, head
from interp.stats import Interval, Intervals, bootstrap_mean, bootstrap_means, holm, sign_flip_ps
from interp.trials import Bench, Trial, copy_task, text_trial
from model.errors import ConfigError

if TYPE_CHECKING:
    from model.lab import Lab

QUESTION = "Which heads does the model lean on to copy, and are the induction heads among them?"

INTERVENTIONS = (Intervention.MEAN, Intervention.ZERO)
"""What stands in a head's place; claims are made on the mean, zero is shown beside it."""

SHOWN = ("copy_loss", "text_loss", "new_token_loss")
"""The outcomes on which every head is tried alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    n_sequences: int = 64
    """Sequences of each kind, at most; a run may keep less held-out text."""
    period: int | None = None
    """Period of the repeated tokens; left out, one that training never showed."""
    n_controls: int = 100
    """Layer-matched sets for each set, at most; all, where so few exist."""
    rule: RoleRule = field(default_factory=RoleRule)
    """What makes an induction head or a previous-token head."""
    floor: float = 0.05
    """Harm in nats below which nothing is claimed."""
    alpha: float = 0.05
    """Level of the claims about single heads, after Holm's correction."""
    seed: int = 0
    """Draws the sequences, the resamples and the control sets."""

    def __post_init__(self) -> None:
        if self.n_sequences < 2 or self.n_controls < 1:
            raise ConfigError(
                f"n_sequences={self.n_sequences}, n_controls={self.n_controls} are too few; take at least 2 and 1."
            )


@dataclass(frozen=True, kw_only=True)
class SingleHeads:
    """Every head ablated alone, on one outcome."""

    outcome: str
    meaning: str
    clean: float
    """Mean loss of the intact model, in nats."""
    scale: float
    """Loss of a model that knows token frequencies only, in nats."""
    harm: Intervals
    """Ablated minus clean loss in nats, [intervention, layer, head], in the order of INTERVENTIONS."""
    p: Float[Tensor, "intervention layer head"]
    """Two-sided sign-flip p, Holm-corrected over the heads of each intervention."""

    def share(self, intervention: int, layer: int, index: int) -> float | None:
        """The harm as a share of what the intact model gains over token frequencies."""
        return share_of_scale(float(self.harm.mean[intervention, layer, index]), self.clean, self.scale)


@dataclass(frozen=True, kw_only=True)
class SetAblation:
    """Heads of one role ablated together."""

    role: str
    """"induction" or "previous-token"."""
    heads: tuple[str, ...]
    intervention: Intervention
    effect: AblationEffect
    """On every outcome, with layer-matched sets on copying."""
    at_step_zero: OutcomeEffect | None
    """The same heads' effect on copying at step 0; None if this is step 0, or the run kept none."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What ablating heads costs at one checkpoint."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    period: int
    """Period of the repeated tokens."""
    copying: Interval
    """First-copy minus second-copy loss of the intact model, in nats: what copying earns."""
    singles: tuple[SingleHeads, ...]
    """One for each of SHOWN."""
    discovery: HeadRoles
    """Scores on the discovery sequences, and the heads that pass the rule there."""
    confirmation: HeadRoles
    """The same on the sequences on which heads are ablated."""
    sets: tuple[SetAblation, ...]
    """For each role that some head has, one for each intervention."""

    def single(self, outcome: str) -> SingleHeads:
        """Every head alone, on the outcome called `outcome`."""
        return next(single for single in self.singles if single.outcome == outcome)

    def set_of(self, role: str, intervention: Intervention = Intervention.MEAN) -> SetAblation | None:
        """The set of one role; None if no head has it."""
        return next((each for each in self.sets if (each.role, each.intervention) == (role, intervention)), None)

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return self.discovery.induction.shape[0]

    @property
    def n_heads(self) -> int:
        """Heads of each layer."""
        return self.discovery.induction.shape[1]


@torch.no_grad()
def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Ablate every head alone and the found heads together, on an opened checkpoint."""
    task = copy_task(subject, n_sequences=config.n_sequences, seed=config.seed, period=config.period)
    trials = (task.trial, text_trial(subject, n_sequences=config.n_sequences, seed=config.seed))
    bench = Bench.of(subject, trials, _heads(subject))
    discovery, confirmation = (
        find_head_roles(subject.gpt, tokens, period=task.period, rule=config.rule, seed=config.seed)
        for tokens in (task.discovery, task.trial.measured)
    )
    ablations = [[place] for each in INTERVENTIONS for place in _heads(subject, each)]
    harms = [bench.harms(trial, ablations, _counted(progress, f"every head, {trial.kind}")) for trial in trials]
    first, second = harms[0].clean[:, 1], harms[0].clean[:, 0]
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        tokens_seen=subject.tokens_seen,
        period=task.period,
        copying=bootstrap_mean(first - second, seed=config.seed),
        singles=tuple(
            single
            for trial, found in zip(trials, harms, strict=True)
            for single in _singles(subject, trial, found, config)
        ),
        discovery=discovery,
        confirmation=confirmation,
        sets=tuple(_sets(subject, bench, discovery, config, progress)),
    )


def table(result: Result) -> pd.DataFrame:
    """One row for each head alone, then for each set, by outcome and intervention."""
    return pd.DataFrame([*_single_rows(result), *_set_rows(result)])


def figure(result: Result) -> Any:
    """Every head's harm with its interval, a map of the harms, and the sets beside their controls."""
    from analyses.head_ablation_figure import draw

    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What the ablations say, denials included."""
    from analyses.head_ablation_findings import sentences

    return sentences(result)


def _heads(lab: Lab, intervention: Intervention = Intervention.MEAN) -> list[Place]:
    """Every head, layer by layer."""
    config = lab.config
    return [head(layer, index, intervention) for layer in range(config.n_layers) for index in range(config.n_heads)]


def _singles(lab: Lab, trial: Trial, harms: Harms, config: Config) -> Iterator[SingleHeads]:
    shape = (len(INTERVENTIONS), lab.config.n_layers, lab.config.n_heads)
    for row, outcome in enumerate(trial.outcomes):
        if outcome.name not in SHOWN:
            continue
        harm = harms.harm[:, :, row].unflatten(1, shape)
        p = sign_flip_ps(harm, seed=config.seed)
        yield SingleHeads(
            outcome=outcome.name,
            meaning=outcome.meaning,
            clean=float(harms.clean[:, row].mean()),
            scale=trial.scales[row],
            harm=bootstrap_means(harm, seed=config.seed),
            p=torch.stack([holm(each) for each in p]),
        )


def _sets(lab: Lab, bench: Bench, roles: HeadRoles, config: Config, progress: Progress | None) -> Iterator[SetAblation]:
    """The heads of each role together, under each intervention."""
    first = _first_checkpoint(lab)
    before = None if first is None else Bench.of(first, bench.trials, _heads(first))
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


def _first_checkpoint(lab: Lab) -> Lab | None:
    """The run at step 0, unless that is what is being studied or it was not kept."""
    from model.checkpoint import checkpoint_steps
    from model.lab import open_run

    if lab.step == 0 or 0 not in checkpoint_steps(lab.path):
        return None
    return open_run(f"{lab.path}@0", device=lab.gpt.device)


def _counted(progress: Progress | None, what: str) -> Counted | None:
    return None if progress is None else lambda done, total: progress(done, total, what)


def _single_rows(result: Result) -> Iterator[dict[str, Any]]:
    for single in result.singles:
        for number, intervention in enumerate(INTERVENTIONS):
            for layer, index in _grid(result):
                cell = single.harm[number, layer, index]
                yield {
                    "what": "head", "heads": head(layer, index).label, "intervention": intervention.value,
                    "outcome": single.outcome, "clean": single.clean, "harm": cell.mean, "low": cell.low,
                    "high": cell.high, "share": single.share(number, layer, index),
                    "p": float(single.p[number, layer, index]), "n": cell.n,
                }  # fmt: skip


def _set_rows(result: Result) -> Iterator[dict[str, Any]]:
    for each in result.sets:
        for outcome in each.effect.outcomes:
            has_control = outcome.name == each.effect.metric
            start = each.at_step_zero if has_control else None
            yield {
                "what": f"{each.role} heads", "heads": " ".join(each.heads), "intervention": each.intervention.value,
                "outcome": outcome.name, "clean": outcome.clean, "harm": outcome.harm.mean, "low": outcome.harm.low,
                "high": outcome.harm.high, "share": outcome.share, "p": outcome.p, "n": outcome.harm.n,
                "control_p": each.effect.control.p if has_control else None,
                "control_median": each.effect.control.median if has_control else None,
                "step_0": None if start is None else start.harm.mean,
            }  # fmt: skip


def _grid(result: Result) -> list[Head]:
    return [(layer, index) for layer in range(result.n_layers) for index in range(result.n_heads)]


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("head-ablation"))
