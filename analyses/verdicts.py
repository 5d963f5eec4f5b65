"""What an interval says about an effect, and where a number comes from: for the sentences of findings.

An interval that holds zero is no evidence that nothing is there. Beside a stated floor there are three cases, and each
has words of its own: an effect, surely less than the floor, and not to be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from interp.stats import Interval


class Verdict(Enum):
    """What an interval says beside a floor."""

    EFFECT = "effect"
    """The whole interval lies beyond the floor, on one side."""
    BELOW = "below"
    """The whole interval lies within the floor: whatever there is, it is less."""
    OPEN = "open"
    """Neither: it cannot be told apart."""


def verdict(interval: Interval | None, floor: float) -> Verdict:
    """The case of an interval; where there is none to be had, it stays open.

    >>> half = Interval(mean=0.5, low=0.4, high=0.6, n=9, level=0.95, method="")
    >>> [verdict(half, floor).value for floor in (0.3, 0.5, 0.7)]
    ['effect', 'open', 'below']
    """
    if interval is None:
        return Verdict.OPEN
    if interval.low >= floor or interval.high <= -floor:
        return Verdict.EFFECT
    return Verdict.BELOW if -floor < interval.low and interval.high < floor else Verdict.OPEN


def told(verdicts: Sequence[Verdict]) -> bool | None:
    """Of a claim about any of several: affirmed where it is so of one, denied where it is so of none, else left open.

    >>> told([Verdict.BELOW, Verdict.EFFECT]), told([Verdict.BELOW, Verdict.BELOW]), told([Verdict.BELOW, Verdict.OPEN])
    (True, False, None)
    """
    if Verdict.EFFECT in verdicts:
        return True
    return None if Verdict.OPEN in verdicts else False


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """The one case of all, else open: a claim about several needs every one of them."""
    return verdicts[0] if len(set(verdicts)) == 1 else Verdict.OPEN


def rests_on(
    run: str, *, n: int, unit: str, step: int | None = None, seed: int | None = None, intervals: str = ""
) -> str:
    """What a sentence rests on, for the brackets behind it.

    >>> rests_on("demo", step=512, n=2048, unit="prefixes", seed=0, intervals="over memories")
    'demo@512, n = 2,048 prefixes, seed 0, 95% intervals over memories'
    """
    parts = [run if step is None else f"{run}@{step}", f"n = {n:,} {unit}"]
    parts += [] if seed is None else [f"seed {seed}"]
    return ", ".join([*parts, f"95% intervals {intervals}"] if intervals else parts)


MANY = 12
"""More layers than this are not listed one by one."""


def extremes(said: Sequence[str], values: Sequence[int | float], separator: str = "; ") -> str:
    """What is said of every layer; of many, only of those with the smallest and the largest of their `values`.

    >>> extremes(["a 3", "b 5"], [3, 5])
    'a 3; b 5'
    >>> extremes([f"layer {n}" for n in range(20)], [*range(10), *range(-10, 0)])
    'layer 10 (the least of 20 layers) to layer 9 (the most)'
    """
    if len(said) <= MANY:
        return separator.join(said)
    known = {index: value for index, value in enumerate(values) if not math.isnan(value)}
    if not known:
        return f"nothing of {len(said)} layers"
    least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    if known[least] == known[most]:
        return f"{said[least]} (no more and no less in any of {len(said)} layers)"
    return f"{said[least]} (the least of {len(said)} layers) to {said[most]} (the most)"


def listed(parts: Sequence[str | int]) -> str:
    """As in "4, 8 and 16".

    >>> listed([4]), listed([4, 8, 16])
    ('4', '4, 8 and 16')
    """
    *others, last = map(str, parts)
    return f"{', '.join(others)} and {last}" if others else last
