"""Which heads feed the heads that copy, and by which way: path patching, with what weights and gradients say beside it.

The receivers are the induction heads, found by a stated rule on sequences of their own; the senders are the
previous-token head and, as its controls, the other heads of earlier layers. What a sender writes is replaced by what it
writes when the first copy is another random segment, and only one way at a time reads that: the receivers' Q, K or V
inputs, or the logits. Each effect stands beside the sender's total effect, the controls', and those at step 0.

Beside the paths stand two cheaper views: composition scores from weights alone, against a null; and attribution
patching of every head, against true patching of the same heads.

Sources: Elhage et al. 2021 (composition), Olsson et al. 2022, Wang et al. 2022 and Goldowsky-Dill et al. 2023 (path
patching), Kramar et al. 2024 (attribution patching and its QK fix). What it does not show: ways through several heads
or, with frozen FFNs, through FFNs; and what a head does for anything but copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.checkpoints import first_checkpoint, first_checkpoint_file
from analyses.circuits.figure import draw
from analyses.circuits.findings import sentences
from analyses.circuits.measuring import Question
from analyses.circuits.result import (
    COPY_LOGIT,
    COPY_LOSS,
    PATHS,
    Config,
    Corruption,
    Estimated,
    Measured,
    Paths,
    Result,
    Weights,
)
from analyses.registry import Finding, Progress
from interp.paths import Input
from model.lab import Lab

__all__ = [
    "COPY_LOGIT", "COPY_LOSS", "PATHS", "QUESTION", "Config", "Corruption", "Estimated", "Measured", "Paths", "Result",
    "Weights", "figure", "findings", "inputs", "run", "table",
]  # fmt: skip

QUESTION = "Which heads feed the heads that copy, and through which input?"


def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Patch the paths into the copying heads of an opened checkpoint, and the same ones at the run's step 0."""
    question = Question.of(subject, config)
    first = first_checkpoint(subject)
    now = question.measured(subject, progress)
    before = None if first is None else question.measured(first, progress)
    return question.answer(subject, now, before)


def table(result: Result) -> pd.DataFrame:
    """One row for each sender, path and metric; for each pair of heads and input; for each patched place, and kind."""
    rows = [*_path_rows(result), *_weight_rows(result), *_estimate_rows(result), *_agreement_rows(result)]
    return pd.DataFrame(rows)


def figure(result: Result) -> Any:
    """Composition of senders with receivers, every sender's effect by each way, and estimates beside true effects."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What feeds the copying heads, denials included."""
    return sentences(result)


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside the checkpoint: step 0."""
    return [first_checkpoint_file(subject)]


def _path_rows(result: Result) -> Iterator[dict[str, Any]]:
    for paths in result.paths:
        first = None if result.at_step_zero is None else result.at_step_zero.by(paths.metric)
        for row, sender in enumerate(result.senders):
            total, start = paths.total[row], None if first is None else first.total[row].mean
            common = {"what": "path", "metric": paths.metric, "sender": sender, "receivers": " ".join(result.receivers)}
            yield common | {
                "way": "everything", "value": total.mean, "low": total.low, "high": total.high, "n": total.n,
                "step_0": start,
            }  # fmt: skip
            for column, way in enumerate(PATHS):
                cell, share = paths.effect[row, column], paths.share[row, column]
                yield common | {
                    "way": way, "value": cell.mean, "low": cell.low, "high": cell.high, "n": cell.n,
                    "share": share.mean, "share_low": share.low, "share_high": share.high,
                    "unexplained": float(paths.unexplained[row, column]), "p": float(paths.p[row, column]),
                    "step_0": None if first is None else first.effect[row, column].mean,
                }  # fmt: skip


def _weight_rows(result: Result) -> Iterator[dict[str, Any]]:
    weights = result.weights
    first = None if result.at_step_zero is None else result.at_step_zero.weights
    if weights is None:
        return
    for number, each in enumerate(Input):
        for row, sender in enumerate(result.senders):
            for column, receiver in enumerate(result.receivers):
                place = (number, row, column)
                yield {
                    "what": "composition", "sender": sender, "receivers": receiver, "way": each.name,
                    "value": float(weights.score[place]), "z": float(weights.z[place]),
                    "rank": int(weights.rank[place]), "step_0": None if first is None else float(first.score[place]),
                }  # fmt: skip


def _estimate_rows(result: Result) -> Iterator[dict[str, Any]]:
    for each in result.estimates:
        for row, layer in enumerate(each.layers):
            for index in range(each.true.shape[1]):
                yield {
                    "what": "attribution", "metric": COPY_LOGIT, "sender": each.name(layer, index), "way": each.place,
                    "method": each.method.value, "direction": each.direction.value,
                    "value": float(each.true[row, index]), "estimate": float(each.estimate[row, index]),
                }  # fmt: skip


def _agreement_rows(result: Result) -> Iterator[dict[str, Any]]:
    """How well the estimates of each kind of place stand in for the true effects; the value is Spearman's."""
    for each in result.estimates:
        found = each.agreement
        start = result.at_step_zero
        first = None if start is None else start.estimated(each.place, each.method, each.direction).agreement
        yield {
            "what": "agreement", "metric": COPY_LOGIT, "way": each.place, "method": each.method.value,
            "direction": each.direction.value, "value": found.spearman, "low": each.spearman.low,
            "high": each.spearman.high, "pearson": found.pearson,
            "same_sign": found.same_sign, "overlooked": len(found.missed), "top": found.top, "n": found.n,
            "step_0": None if first is None else first.spearman,
        }  # fmt: skip


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("head-circuits"))
