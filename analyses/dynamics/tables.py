"""Results of training-dynamics as rows: every score, the losses, and what formed when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from analyses.attention.kinds import SHARES, Kind
from analyses.attention.stimuli import Stimulus
from analyses.dynamics.formation import Rise, rises
from analyses.dynamics.result import Result, scores_over_training
from interp.places import head as named

_LISTED = (*SHARES, Kind.LATER, Kind.MATCH)
"""The kinds of the whole table; the result holds the others too."""


def every_score(result: Result) -> pd.DataFrame:
    """One row for each reading, kind that is a share of attention, checkpoint and head."""
    rows = [
        {"stimulus": stimulus, "kind": kind.value, **row}
        for stimulus, reading in result.readings.items()
        for kind in _LISTED
        if kind.value in reading.scores
        for row in _scores(result, kind, stimulus)
    ]
    return pd.DataFrame(rows)


def score_rows(result: Result, kind: Kind | str, reading: Stimulus | str = Stimulus.REPEATS) -> pd.DataFrame:
    """One row for each checkpoint and head: mean, interval and chance of one score on one kind of sequence."""
    return pd.DataFrame(list(_scores(result, kind, reading)))


def head_rows(result: Result, kind: Kind | str, reading: Stimulus | str, head: tuple[int, int]) -> pd.DataFrame:
    """The rows of one head in `score_rows`: one for each checkpoint."""
    every = _scores(result, kind, reading)
    return pd.DataFrame([row for row in every if (row["layer"], row["index"]) == tuple(head)])


def runs_together(results: Sequence[Result], rows_of: Callable[[Result], pd.DataFrame]) -> pd.DataFrame:
    """The rows of several runs under one another, each with its run in front."""
    each = [rows_of(result) for result in results]
    for result, rows in zip(results, each, strict=True):
        rows.insert(0, "run", result.run)
    return pd.concat(each, ignore_index=True)


def loss_rows(result: Result) -> pd.DataFrame:
    """One row for each loss and checkpoint, in nats."""
    rows = []
    for name, loss in result.losses.items():
        known = loss.intervals
        ends = zip(known.mean.tolist(), known.low.tolist(), known.high.tolist(), strict=True)
        for step, tokens, (mean, low, high) in zip(result.steps, result.tokens_seen, ends, strict=True):
            rows.append(
                {"loss": name, "step": step, "tokens": tokens, "mean": mean, "low": low, "high": high, "n": known.n}
            )
    return pd.DataFrame(rows)


def position_rows(result: Result) -> pd.DataFrame:
    """One row for each checkpoint and target of a row of held-out text: the loss there, in nats; empty without text.

    `target` counts the tokens that come before it: the BOS, where there is one, is the first of them.
    """
    known = result.text_by_position
    if known is None:
        return pd.DataFrame(columns=["step", "tokens", "target", "mean", "low", "high", "n"])
    mean, low, high = (each.tolist() for each in (known.mean, known.low, known.high))
    return pd.DataFrame(
        [
            {
                "step": step, "tokens": tokens, "target": target + 1, "mean": mean[at][target],
                "low": low[at][target], "high": high[at][target], "n": known.n,
            }
            for at, (step, tokens) in enumerate(zip(result.steps, result.tokens_seen, strict=True))
            for target in range(len(mean[at]))
        ]
    )  # fmt: skip


def formation_rows(result: Result) -> pd.DataFrame:
    """One row for each thing that rose: when it was half way up, with interval and bracket, and what stands against it.

    That was between the checkpoints `after` and `by`; `half_way` is the step by straight lines, `low` and `high` its
    interval over sequences. All five are empty where it did not surely rise since the first checkpoint.
    """
    return pd.DataFrame([_rise_row(rise) for rise in rises(result)])


def _scores(result: Result, kind: Kind | str, reading: Stimulus | str) -> Iterator[dict[str, Any]]:
    score = scores_over_training(result, kind, reading)
    mean, low, high = (each.tolist() for each in (score.mean, score.low, score.high))
    for at, (step, tokens) in enumerate(zip(result.steps, result.tokens_seen, strict=True)):
        for layer, index in result.heads:
            yield {
                "step": step, "tokens": tokens, "head": named(layer, index).label, "layer": layer, "index": index,
                "mean": mean[at][layer][index], "low": low[at][layer][index], "high": high[at][layer][index],
                "chance": score.chance, "n": score.intervals.n,
            }  # fmt: skip


def _rise_row(rise: Rise) -> dict[str, Any]:
    crossing = rise.crossing
    return {
        "what": rise.what,
        "head": None if rise.head is None else named(*rise.head).label,
        "half_way": None if crossing is None else crossing.at.mean,
        "low": None if crossing is None else crossing.at.low,
        "high": None if crossing is None else crossing.at.high,
        "after": None if crossing is None else crossing.after,
        "by": None if crossing is None else crossing.by,
        "first": rise.first.mean,
        "last": rise.last.mean,
        "last_low": rise.last.low,
        "last_high": rise.last.high,
        "chance": rise.chance,
        "old_distance": None if rise.control is None else rise.control.mean,
        "text": None if rise.on_text is None else rise.on_text.mean,
        "text_chance": rise.text_chance,
        "n": rise.last.n,
    }
