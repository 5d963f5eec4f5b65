"""What the other parts of a model make good when a head or an FFN goes.

Every head and every FFN is ablated alone. What it adds to the right token's logit by itself (its direct effect, with
the final norm's scale held) is then gone; the logit falls by more or by less. The difference is *self-repair* (Rushing
and Nanda 2024), and it is taken apart exactly into what later heads write now, what later FFNs write, and what the
final norm's scale does. Numbers are in logits of the right next token, less the vocabulary's mean: over what a repeat
determines, and over the held-out tokens on which the component itself adds most. Beside them stand the slope and the
fit of total on direct effects over tokens (McGrath et al. 2023).

Then heads are ablated by two: those that cost copying most, chosen on sequences of their own. Where two stand in for
each other they cost more together than one by one; whether the induction heads as a set do, is their super-additivity.

What it does not show: that repair was learned as such. Parts that mostly say the same, and a norm, give it as well. A
stream that is no sum (post, deepnorm) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from analyses.checkpoints import first_checkpoint, first_checkpoint_file, held_out_file
from analyses.registry import Finding, Progress
from analyses.repair.figure import draw
from analyses.repair.findings import sentences
from analyses.repair.result import COPIED, TOP, Config, Measured, Repairs, Result, SetRepair
from interp.ablation import Ablation, ablation_of
from interp.direct_effects import components_of
from interp.harm import Counted, measure_harms
from interp.head_roles import find_head_roles
from interp.interactions import Interactions, interactions
from interp.line_fits import flat_ps
from interp.outcomes import copy_outcome, copy_targets
from interp.places import Head, every_head, head
from interp.repaired import PARTS, Component, Part, SelfRepair, summarise, top_targets
from interp.self_repair import measure_self_repair
from interp.stats import Interval, bootstrap_ratios, holm, sign_flip_ps
from interp.trials import Bench, CopyTask, Trial, copy_task, text_trial
from model.config import GPTConfig
from model.lab import Lab

__all__ = [
    "QUESTION", "Config", "Measured", "Repairs", "Result", "SetRepair", "figure", "findings", "inputs", "more_tables",
    "run", "table",
]  # fmt: skip

QUESTION = "What do the other parts make good when a head goes?"


@torch.no_grad()
def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Take every head's and FFN's ablation apart, and ablate heads by two, at this checkpoint and at step 0."""
    subject.config.require_additive_stream("self-repair")
    task = copy_task(subject, n_sequences=config.n_sequences, seed=config.seed, period=config.period)
    trials = (task.trial, text_trial(subject, n_sequences=config.n_sequences, seed=config.seed))
    roles = find_head_roles(subject.gpt, task.discovery, period=task.period, rule=config.rule, seed=config.seed)
    bench, first = _bench(subject, trials, config), first_checkpoint(subject)
    paired = _costliest(bench, task, config)

    def measured(lab: Lab, with_bench: Bench) -> Measured:
        return _measured(lab, with_bench, task, paired, roles.induction_heads, config, progress)

    found = measured(subject, bench)
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        tokens_seen=subject.tokens_seen,
        period=task.period,
        discovery=roles,
        repairs=found.repairs,
        pairs=found.pairs,
        induction=found.induction,
        at_step_zero=None if first is None else measured(first, _bench(first, trials, config)),
    )


def table(result: Result) -> pd.DataFrame:
    """One row for each choice of tokens and each head and FFN."""
    return pd.DataFrame([row for each in result.repairs for row in _repair_rows(result, each)])


def more_tables(result: Result) -> Mapping[str, pd.DataFrame]:
    """The pairs of heads."""
    return {"pairs": pd.DataFrame(list(_pair_rows(result.pairs)))} if result.pairs is not None else {}


def figure(result: Result) -> Any:
    """Direct and total effects of the heads that add most, who makes good what, and the pairs."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What is made good and by whom, denials included."""
    return sentences(result)


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside the checkpoint: step 0 and the held-out rows."""
    return [first_checkpoint_file(subject), held_out_file(subject)]


def _ablations(lab: Lab, config: Config) -> list[Ablation]:
    return [ablation_of(each.label, lab.config, config.intervention) for each in _ablated(lab.config)]


def _ablated(config: GPTConfig) -> list[Component]:
    """Every head and FFN: what can be ablated alone."""
    return [each for each in components_of(config) if each.part is not Part.OUTPUT_NORMS]


def _bench(lab: Lab, trials: tuple[Trial, ...], config: Config) -> Bench:
    return Bench.of(lab, trials, _ablations(lab, config), seed=config.seed)


def _costliest(bench: Bench, task: CopyTask, config: Config) -> list[Head]:
    """The heads whose ablation costs copying most, on the discovery sequences; in order of the model."""
    heads = every_head(bench.gpt.config.n_layers, bench.gpt.config.n_heads)
    alone = [ablation_of(head(*each), bench.gpt.config, config.intervention) for each in heads]
    outcome = copy_outcome(task.period)
    harms = measure_harms(bench.gpt, task.discovery, alone, [outcome], supplies=bench.supplies[0])
    order = harms.harm[:, :, 0].mean(0).argsort(descending=True, stable=True)[: config.n_paired].tolist()
    return [heads[place] for place in sorted(order)]


def _measured(
    lab: Lab,
    bench: Bench,
    task: CopyTask,
    paired: list[Head],
    induction: tuple[Head, ...],
    config: Config,
    progress: Progress | None,
) -> Measured:
    copying, text = bench.trials
    single, n_heads = _ablations(lab, config), lab.config.n_layers * lab.config.n_heads
    together = [ablation_of([head(*each) for each in induction], lab.config, config.intervention)] if induction else []
    chosen = copy_targets(copying.measured, period=task.period)
    found = measure_self_repair(
        bench.gpt,
        copying.measured,
        [*single, *together],
        supplies=bench.supplies[0],
        chosen=chosen,
        counted=_counted(progress, f"{copying.kind} at step {lab.step}"),
    )
    on_text = measure_self_repair(
        bench.gpt,
        text.measured,
        single,
        supplies=bench.supplies[1],
        counted=_counted(progress, f"{text.kind} at step {lab.step}"),
    )
    top = top_targets(on_text, config.top_share)
    share = f"the {config.top_share:.1%} of {text.kind} tokens on which each adds most by itself".replace(".0%", "%")
    pairs = None if n_heads < 2 else _pairs(bench, copying, paired, config)
    alone = _first(found, len(single))
    return Measured(
        repairs=(
            _repairs(
                COPIED, "the tokens that a repeat determines", alone, chosen[:, None].expand_as(alone.total), config
            ),
            _repairs(TOP, share, on_text, top, config),
        ),
        pairs=pairs,
        induction=_set(bench, copying, found, induction, chosen, config) if len(induction) > 1 else None,
    )


def _first(found: SelfRepair, n: int) -> SelfRepair:
    """The first `n` ablations."""
    cut = {name: getattr(found, name)[:, :n] for name in ("clean_direct", "total", "direct", "by_part", "by_component")}
    return replace(found, ablations=found.ablations[:n], ablated=found.ablated[:n], **cut)


def _repairs(
    tokens: str, meaning: str, found: SelfRepair, chosen: Bool[Tensor, "sequence ablation target"], config: Config
) -> Repairs:
    components = tuple(each for each in found.components if each.part is not Part.OUTPUT_NORMS)
    by_norm = found.by_part[:, :, PARTS.index(Part.FINAL_NORM)]
    ps = {
        "p": sign_flip_ps((found.repaired * chosen).sum(2), seed=config.seed),
        "p_norm": sign_flip_ps((by_norm * chosen).sum(2), seed=config.seed),
        "p_slope": flat_ps(found.direct, found.repaired, chosen, seed=config.seed),
    }
    for part in (Part.HEADS, Part.FFNS):
        family = torch.tensor([each.part is part for each in components])
        for p in ps.values():
            p[family] = holm(p[family])
    return Repairs(
        tokens=tokens,
        meaning=meaning,
        n_sequences=len(found.total),
        components=components,
        numbers=summarise(found, chosen, seed=config.seed),
        **ps,
        largest_residual=float(found.residual.abs().max()),
    )


def _pairs(bench: Bench, trial: Trial, heads: list[Head], config: Config) -> Interactions:
    places = [head(*each, config.intervention) for each in heads]
    return interactions(bench, trial, places, outcome=trial.outcomes[0], seed=config.seed)


def _set(
    bench: Bench, trial: Trial, found: SelfRepair, heads: tuple[Head, ...], chosen: Tensor, config: Config
) -> SetRepair:
    """The induction heads at once against one by one; `found` ends with their ablation together."""
    costs = _pairs(bench, trial, list(heads), config)
    labels = [head(*each).label for each in heads]
    ablated = [each.label for each in _ablated(bench.gpt.config)]
    rows = [ablated.index(label) for label in labels]
    total = (found.total * chosen[:, None]).sum(2)
    in_logits = bootstrap_ratios(total[:, -1:], total[:, rows].sum(1, keepdim=True), seed=config.seed)[0]
    return SetRepair(heads=tuple(labels), in_nats=costs.super_additivity, in_logits=in_logits, together=costs.together)


def _counted(progress: Progress | None, what: str) -> Counted | None:
    return None if progress is None else lambda done, total: progress(done, total, what)


def _repair_rows(result: Result, repairs: Repairs) -> Iterator[dict[str, Any]]:
    numbers = repairs.numbers
    before = None if result.at_step_zero is None else result.at_step_zero.on(repairs.tokens)
    floor = result.config.floor
    for row, component in enumerate(repairs.components):
        columns: dict[str, Any] = {
            "tokens": repairs.tokens,
            "ablated": component.label,
            "by": result.config.intervention.value,
        }
        columns |= {"n": repairs.n_sequences, "n_tokens": numbers.n_tokens[row]}
        for name in ("total", "direct", "repaired"):
            columns |= _spread(name, getattr(numbers, name)[row])
        columns |= _spread("share", repairs.share(row, floor) or _NO_SHARE)
        for number, part in enumerate(PARTS):
            columns |= {f"by {part}": float(numbers.by_part.mean[row, number])}
        columns |= {"p": float(repairs.p[row]), "p_norm": float(repairs.p_norm[row])}
        columns |= {"slope": float(numbers.line.slope.mean[row]), "p_slope": float(repairs.p_slope[row])}
        columns |= {"r_squared": float(numbers.line.r_squared.mean[row])}
        start = None if before is None else before.share(row, floor)
        yield columns | {"share_at_step_0": None if start is None else start.mean}


_NO_SHARE = Interval(mean=math.nan, low=math.nan, high=math.nan, n=0, level=0.95, method="none")
"""Of a component that adds too little for a share to mean anything."""


def _pair_rows(pairs: Interactions) -> Iterator[dict[str, Any]]:
    for row, (one, other) in enumerate(pairs.pairs):
        yield {
            "pair": f"{pairs.places[one]} {pairs.places[other]}", "outcome": pairs.outcome,
            "alone": float(pairs.alone.mean[one]), "other_alone": float(pairs.alone.mean[other]),
            "joint": float(pairs.joint.mean[row]), **_spread("interaction", pairs.interaction[row]),
            "p": float(pairs.p[row]), "holm": float(pairs.holm[row]), "bh": float(pairs.bh[row]),
            "n": pairs.interaction.n,
        }  # fmt: skip


def _spread(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("self-repair"))
