"""How many heads can go, and does a gradient know which: importance beside what taking heads out truly costs.

A gate on every head gives its importance I_h from one backward pass (Michel et al. 2019). Beside it stands what the
head costs when it is replaced by zero, by its mean, by what other sequences held, and by the constant that hurts least
(Li and Janson 2024), each head alone. Then heads are zeroed together, the least important first, a tenth at a time, and
the curve is held against random orders, the inverse one, the order by true harm, and at a fifth against layer-matched
sets.

Heads are ordered and constants fitted on reference sequences; everything is measured on others. Harm is ablated minus
clean loss in nats, paired by sequence. What it does not show: what a model would do that was trained on without the
heads, nor that a head that can go does nothing (another may have stood in for it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from analyses.checkpoints import first_checkpoint, first_checkpoint_file, held_out_file
from analyses.importance.figure import draw
from analyses.importance.findings import sentences
from analyses.importance.measuring import Asked, Told
from analyses.importance.result import INTERVENTIONS, ORDERS, Config, Judged, Result
from analyses.registry import Finding, Progress
from interp.places import head
from interp.pruning import costlier_share
from interp.trials import Trial, copy_task, text_trial
from model.lab import Lab

__all__ = [
    "INTERVENTIONS", "ORDERS", "QUESTION", "Config", "Judged", "Result", "figure", "findings", "inputs", "more_tables",
    "run", "table",
]  # fmt: skip

QUESTION = "How many heads can go, and does a gradient know which?"


@torch.no_grad()
def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Judge every head on copying and on held-out text, at an opened checkpoint, with the run's step 0 beside."""
    most = max(config.n_sequences, config.n_reference)
    task = copy_task(subject, n_sequences=most, seed=config.seed, period=config.period)
    trials = [_cut(each, config) for each in (task.trial, text_trial(subject, n_sequences=most, seed=config.seed))]
    first, told = first_checkpoint(subject), _told(progress)
    judged = [Asked(trial=trial, config=config, told=told).judged(subject, first) for trial in trials]
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        tokens_seen=subject.tokens_seen,
        period=task.period,
        judged=tuple(judged),
    )


def table(result: Result) -> pd.DataFrame:
    """One row for each head and outcome: importance, and harm alone under every intervention."""
    return pd.DataFrame([row for judged in result.judged for row in _head_rows(result, judged)])


def more_tables(result: Result) -> dict[str, pd.DataFrame]:
    """What each order costs at each point, and how alike measures order the heads."""
    curves = [row for judged in result.judged for row in _curve_rows(judged)]
    return {"curves": pd.DataFrame(curves), "agreement": pd.DataFrame(list(_agreement_rows(result)))}


def figure(result: Result) -> Any:
    """Importance against true harm, harms by intervention, and pruning curves over the band of random orders."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What the gradient knows, how many heads can go, and how much of a harm is spoofing; denials included."""
    return sentences(result)


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside the checkpoint: step 0 and the held-out rows."""
    return [first_checkpoint_file(subject), held_out_file(subject)]


def _cut(trial: Trial, config: Config) -> Trial:
    """The trial with as many sequences to measure and as many others as were asked for."""
    return replace(trial.rows(0, config.n_sequences), reference=trial.reference[: config.n_reference])


def _told(progress: Progress | None) -> Told:
    if progress is None:
        return lambda _: None
    return lambda what: lambda done, total: progress(done, total, what)


def _head_rows(result: Result, judged: Judged) -> Iterator[dict[str, Any]]:
    start = judged.at_step_zero
    for layer, index in result.heads:
        size = judged.importance[layer, index]
        row: dict[str, Any] = {
            "head": head(layer, index).label, "outcome": judged.outcome, "importance": size.mean, "low": size.low,
            "high": size.high, "n": size.n,
        }  # fmt: skip
        for number, how in enumerate(INTERVENTIONS):
            harm = judged.harm[number, layer, index]
            row |= {f"{how}": harm.mean, f"{how}_low": harm.low, f"{how}_high": harm.high}
        row["slope_left"] = float(judged.slope_left[layer, index])
        row["importance_step_0"] = None if start is None else float(start.importance[layer, index])
        row["zero_step_0"] = None if start is None else float(start.zero[layer, index])
        yield row


def _curve_rows(judged: Judged) -> Iterator[dict[str, Any]]:
    band = judged.random.quantile(0.5, dim=0)
    for curve in judged.curves:
        for point, n_removed in enumerate(judged.n_removed):
            harm = curve.harm[point]
            yield {
                "outcome": judged.outcome, "order": curve.order, "removed": n_removed, "harm": harm.mean,
                "low": harm.low, "high": harm.high, "n": harm.n, "random_median": float(band[point]),
                "share_cheaper": costlier_share(judged.random[:, point], harm.mean),
            }  # fmt: skip


def _agreement_rows(result: Result) -> Iterator[dict[str, Any]]:
    for judged in result.judged:
        for each in judged.ranked:
            yield {
                "outcome": judged.outcome, "what": f"rank correlation of {each.one} with {each.other}",
                "value": each.spearman.mean, "low": each.spearman.low, "high": each.spearman.high,
                "heads": judged.n_heads,
            }  # fmt: skip
        for each in judged.ratios:
            yield {
                "outcome": judged.outcome, "what": f"median of optimal over {each.of} harm", "value": each.median.mean,
                "low": each.median.low, "high": each.median.high, "heads": each.n_heads,
            }  # fmt: skip
        areas = {curve.order: curve.area for curve in judged.curves}
        for order, area in areas.items():
            yield {
                "outcome": judged.outcome, "what": f"area under the curve, {order}", "value": area.mean,
                "low": area.low, "high": area.high, "heads": judged.n_heads,
            }  # fmt: skip
        yield {
            "outcome": judged.outcome, "what": f"area under the curve, {len(judged.random_areas)} random orders",
            "value": float(judged.random_areas.mean()), "low": float(judged.random_areas.min()),
            "high": float(judged.random_areas.max()), "heads": judged.n_heads,
        }  # fmt: skip


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("head-importance"))
