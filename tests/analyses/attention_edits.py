"""A result of attention patterns with other numbers, for tests of what is said of them."""

from __future__ import annotations

from dataclasses import replace

from analyses import attention_patterns as study
from analyses.attention.readings import Kind, Reading
from interp.stats import Intervals


def with_intervals(result: study.Result, reading: Reading, kind: Kind, intervals: Intervals) -> study.Result:
    """The result with other scores of one kind on one reading."""
    edited = replace(reading, measures=reading.measures | {kind.value: replace(reading[kind], intervals=intervals)})
    return replace(result, readings=tuple(edited if each is reading else each for each in result.readings))


def with_score(
    result: study.Result, reading: Reading, kind: Kind, head: tuple[int, int], *, mean: float, low: float, high: float
) -> study.Result:
    """The result with another score of one head."""
    parts = {"mean": mean, "low": low, "high": high}
    before = reading[kind].intervals
    changed = {name: getattr(before, name).clone() for name in parts}
    for name, value in parts.items():
        changed[name][head] = value
    return with_intervals(result, reading, kind, replace(before, **changed))
