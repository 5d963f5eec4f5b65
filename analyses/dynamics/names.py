"""Where heads are named at the ends of their lines, so that no name covers another (for training-dynamics)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyses.dynamics.axis import Time

Rows = list[dict[str, Any]]


def ends_of(drawn: Rows, time: Time) -> Rows:
    """The last row of every line."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for row in drawn:
        key = (row["run"], row["what"])
        if key not in last or row[time.along.value] > last[key][time.along.value]:
            last[key] = row
    return list(last.values())


def apart(ends: Rows, reach: Sequence[float]) -> Rows:
    """Names moved until none covers another: those that would are spread about their middle, inside the plot."""
    least = 0.062 * (reach[1] - reach[0])
    groups: list[Rows] = []
    for row in sorted(ends, key=lambda each: each["mean"]):
        groups.append([row])
        while len(groups) > 1 and _lowest(groups[-1], least, reach) < _highest(groups[-2], least, reach) + least:
            last = groups.pop()
            groups[-1] += last
    return [
        {**row, "at": _lowest(group, least, reach) + least * index}
        for group in groups
        for index, row in enumerate(group)
    ]


def _lowest(group: Rows, least: float, reach: Sequence[float]) -> float:
    height = least * (len(group) - 1)
    middle = sum(row["mean"] for row in group) / len(group)
    return min(max(middle - height / 2, reach[0]), max(reach[1] - height, reach[0]))


def _highest(group: Rows, least: float, reach: Sequence[float]) -> float:
    return _lowest(group, least, reach) + least * (len(group) - 1)
