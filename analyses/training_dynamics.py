"""When does what form in training? Scores of every head and losses at every checkpoint, on the same sequences.

The subject is a checkpoint; every checkpoint of its run up to that one is looked at (or those of `steps`). Each is
shown repeated random tokens at the period at which the run is judged, the same with the second copy re-ordered, and
held-out text, and gets the scores of attention-patterns, copy loss and text loss, and the in-context-learning score.
One result holds them all, so that every line and every frame over training is read from one file.

Source: Olsson et al. 2022, Argument 1. What it does not show: why something forms, what depends on it (head-ablation
does), or how another seed would go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.checkpoints import held_out_file
from analyses.dynamics.figure import draw
from analyses.dynamics.findings import spoken
from analyses.dynamics.measuring import (
    Answers,
    Asked,
    by_position,
    incomplete,
    losses_of,
    opened,
    reading_of,
    shown_to,
)
from analyses.dynamics.result import Config, Result
from analyses.dynamics.tables import every_score, formation_rows, loss_rows
from analyses.registry import Finding, Progress
from interp.periods import n_ordinary, trained_periods
from model.checkpoint import MANIFEST, checkpoint_path, checkpoint_steps
from model.errors import InputError, UnknownNameError
from model.lab import Lab

__all__ = ["QUESTION", "Config", "Result", "figure", "findings", "inputs", "more_tables", "run", "table"]

QUESTION = "When in training do heads and copying form, how suddenly, and in which order?"


def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Show every checkpoint up to the studied one the same sequences."""
    if subject.config.attention.value != "causal":
        raise InputError(
            f"{subject.name} attends in both directions; these scores and losses are for causal attention."
        )
    steps, left_out = _steps(subject, config), incomplete(subject)
    asked = [Asked.about(each, subject, config) for each in shown_to(subject, config)]
    answers: list[list[Answers]] = [[] for _ in asked]
    seen: list[tuple[int, int]] = []
    for checkpoint in opened(subject, steps, left_out.append):
        if progress is not None:
            progress(steps.index(checkpoint.step), len(steps), f"step {checkpoint.step}")
        for each, kept in zip(asked, answers, strict=True):
            kept.append(each.of(checkpoint.gpt))
        seen.append((checkpoint.step, checkpoint.tokens_seen))
    if progress is not None:
        progress(len(steps), len(steps), "")
    trained, train = trained_periods(subject), subject.run_config.get("config", {}).get("train", {})
    losses = {
        name: each
        for one, kept in zip(asked, answers, strict=True)
        for name, each in losses_of(one, kept, config).items()
    }
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        training_seed=train.get("seed") if isinstance(train, dict) else None,
        imported_from=subject.imported_from,
        steps=tuple(step for step, _ in seen),
        tokens_seen=tuple(tokens for _, tokens in seen),
        left_out=tuple(left_out),
        trained_periods=(trained.start, trained.stop - 1) if trained else None,
        n_distinct=n_ordinary(subject),
        readings={
            one.sequences.stimulus.value: reading_of(one, kept, config)
            for one, kept in zip(asked, answers, strict=True)
        },
        losses=losses,
        text_by_position=next(
            (by_position(kept, config) for one, kept in zip(asked, answers, strict=True) if one.by_position), None
        ),
    )


def table(result: Result) -> pd.DataFrame:
    """One row for each checkpoint, reading, kind that is a share of attention, and head."""
    return every_score(result)


def more_tables(result: Result) -> dict[str, pd.DataFrame]:
    """What formed when; and the losses."""
    return {"formation": formation_rows(result), "losses": loss_rows(result)}


def figure(result: Result) -> Any:
    """Losses over training, and under them induction and previous-token attention of every head."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What formed, when, how suddenly and in which order; denials included."""
    return spoken(result)


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside the checkpoint: the manifests of all others that are looked at, and the held-out rows."""
    others = [step for step in _steps(subject, config) if step != subject.step]
    return [*(checkpoint_path(subject.path, step) / MANIFEST for step in others), held_out_file(subject)]


def _steps(lab: Lab, config: Config) -> Sequence[int]:
    """The checkpoints to look at, the first and the lab's own among them."""
    there = [step for step in checkpoint_steps(lab.path) if step < lab.step]
    if not config.steps:
        return [*there, lab.step]
    unknown = sorted(set(config.steps) - {*there, lab.step})
    if unknown:
        raise UnknownNameError(
            f"steps={unknown[0]} is no checkpoint of {lab.name} up to step {lab.step}; there are "
            f"{', '.join(map(str, [*there, lab.step]))}."
        )
    return sorted({*there[:1], *config.steps, lab.step})


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("training-dynamics"))
