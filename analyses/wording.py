"""Shares, differences of shares and layers in words, the same in every study's findings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from analyses.verdicts import listed
from interp.stats import Interval
from interp.wording import NO_ENDS, has_ends


def percent(share: Tensor | float) -> str:
    """As in "12.5%"; zero has no sign, and what is not a number nothing to say.

    >>> percent(0.125), percent(-1e-9), percent(math.nan)
    ('12.5%', '0.0%', 'none')
    """
    value = float(share)
    return "none" if math.isnan(value) else f"{round(100 * value, 1) + 0.0:.1f}%"  # + 0.0 makes minus zero zero


def share_of(interval: Interval | None) -> str:
    """A share with the ends of its interval.

    >>> share_of(Interval(mean=0.5, low=0.4, high=0.625, n=9, level=0.95, method=""))
    '50.0% [40.0%, 62.5%]'
    >>> share_of(Interval(mean=0.5, low=-float("inf"), high=float("inf"), n=9, level=0.95, method=""))
    '50.0% (no interval: what it is a share of may be nothing)'
    """
    if interval is None:
        return "not measured"
    if not has_ends(interval):
        return f"{percent(interval.mean)} ({NO_ENDS})"
    return f"{percent(interval.mean)} [{percent(interval.low)}, {percent(interval.high)}]"


def points(value: float) -> str:
    """A difference of shares in whole points.

    >>> points(0.01), points(0.05)
    ('1 point', '5 points')
    """
    return f"{100 * value:.0f} {'point' if round(100 * value) == 1 else 'points'}"


def named_layers(numbers: Sequence[int]) -> str:
    """Layers by number, in rising order, runs of three and more by their ends.

    >>> named_layers([4]), named_layers([0, 2]), named_layers([0, 1, 2, 3, 7, 8])
    ('layer 4', 'layers 0 and 2', 'layers 0 to 3, 7 and 8')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"{'layer' if len(numbers) == 1 else 'layers'} {listed(said)}"
