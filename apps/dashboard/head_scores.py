"""The head grids of attention-patterns: one kind of score, on one kind of sequence, beside step 0."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch

from analyses import attention_patterns
from analyses.attention_patterns import Result
from analyses.attention_readings import SHARES, Kind
from analyses.views import Scale, head_grid_payload
from analyses.views.payload import Payload

SHOWN = (Kind.INDUCTION, Kind.PREVIOUS, Kind.DUPLICATE, Kind.CURRENT, Kind.FIRST, Kind.ENTROPY, Kind.DISTANCE)
"""Kinds that every reading has, the most looked-for first."""

MEANINGS = {
    Kind.INDUCTION: "share of attention on the token after an earlier copy",
    Kind.PREVIOUS: "share of attention on the token before",
    Kind.DUPLICATE: "share of attention on an earlier copy of the token",
    Kind.CURRENT: "share of attention on the token itself",
    Kind.FIRST: "share of attention on position 0",
    Kind.ENTROPY: "entropy of attention, 1 is even",
    Kind.DISTANCE: "mean distance attended to, in tokens",
}


def readings(result: Result) -> dict[str, int]:
    """Titles of the readings, and where each stands in the result."""
    return {reading.title: index for index, reading in enumerate(result.readings)}


def grid(result: Result, index: int, kind: Kind, *, chosen: str | None, ablated: Sequence[str]) -> Payload:
    """One score of every head on one reading; heads that count as found are underlined on the reading that decides."""
    reading = result.readings[index]
    intervals = reading[kind].intervals
    first = None if result.at_step_zero is None else result.at_step_zero[index]
    decides = kind in SHARES and reading is result.headline
    return head_grid_payload(
        intervals.mean,
        f"{MEANINGS[kind]} (chance {reading[kind].chance:.2f})",
        scale=Scale(high=1.0) if kind is not Kind.DISTANCE else None,
        interval=(intervals.low, intervals.high),
        before=None if first is None or kind not in first else first[kind].intervals.mean,
        sure=attention_patterns.found(result, kind) if decides else None,
        chosen=chosen,
        ablated=ablated,
    )


def ranking(result: Result, index: int, kind: Kind) -> pd.DataFrame:
    """The heads by their score on one reading, best first, with interval, chance and step 0."""
    reading = result.readings[index]
    rows = attention_patterns.table(result)
    own = (rows["stimulus"] == reading.stimulus.value) & (rows["kind"] == kind.value)
    own &= (rows["period"] == reading.period) | (reading.period is None)
    columns = ["rank", "head", "mean", "low", "high", "chance", "step_0", "n"]
    return pd.DataFrame(rows.loc[own, columns]).sort_values(by="rank")


def strongest(result: Result, kind: Kind) -> tuple[int, int]:
    """The head with the largest score on the reading that decides."""
    mean = result.headline[kind].intervals.mean
    layer, head = divmod(int(torch.nan_to_num(mean).argmax()), mean.shape[1])
    return layer, head
