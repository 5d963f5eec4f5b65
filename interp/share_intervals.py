"""Intervals of shares, and of what is bounded, that do not shrink to a point where all units happen to be alike.

A bootstrap of equal values gives an interval of no width: of 32 units without a single hit it says "surely none", where
a share of 2% leaves no trace half of the time. A claim that something is surely less than a floor needs better:

* a share: Clopper and Pearson 1934, exact. Whatever the share is, the interval misses it no more often than stated.
* a mean of what lies between two bounds, such as paired differences of 0s and 1s: units are added at both bounds, as
  many as make it Agresti and Coull's interval for shares (1998), and for paired shares that of Bonett and Price 2012.
* a difference of two independent shares or correlations: the ends' distances are squared and added (Newcombe 1998,
  method 10; Zou 2007).
* a rank correlation: Fisher's transform with the spread of Bonett and Wright 2000.
* a mean without bounds: Student's, and none of fewer than `FEWEST` units.

All take their level, so that several can hold together: `level_of_each`.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats import Interval, student_quantile
from model.errors import InputError

FEWEST = 20
"""Of fewer values without bounds Student's interval is not given: skew of theirs would not be seen."""

_HALVINGS = 60
"""Of the stretch in which an end lies: to the last digit."""


def level_of_each(n: int, level: float = 0.95) -> float:
    """The level at which each of n intervals is taken so that all hold together at `level` (Bonferroni).

    >>> level_of_each(1), round(level_of_each(10), 6)
    (0.95, 0.995)
    """
    return 1 - (1 - level) / max(1, n)


def share_interval(n_found: int, n: int, level: float = 0.95) -> Interval:
    """Clopper and Pearson's interval of the share that `n_found` of `n` units stand for.

    >>> f"{share_interval(0, 32):.3f}"  # 1 - 0.025 ** (1 / 32)
    '0.000 [0.000, 0.109]'
    """
    if not 0 <= n_found <= n or n < 1:
        raise InputError(
            f"{n_found} of {n} units is no share; give a count between 0 and the number of units, at least 1."
        )
    tail = _tail(level)
    return Interval(
        mean=n_found / n,
        low=_lower_end(n_found, n, tail),
        high=1 - _lower_end(n - n_found, n, tail),
        n=n,
        level=level,
        method="Clopper-Pearson",
    )


def bounded_interval(
    values: Float[Tensor, " n"], level: float = 0.95, *, least: float = -1.0, most: float = 1.0
) -> Interval:
    """The mean of values between two bounds, with an interval that counts on what was not seen.

    It is that of the normal distribution, after z^2 / 2 units were added at either bound: 1.9 of them at 95%. Of few
    units, and far from the middle, it covers less than stated: a mean of 0.9 of sixteen 0s and 1s 93 times in 100.

    >>> f"{bounded_interval(torch.zeros(64)):.3f}"  # 64 pairs alike: a share of changes up to 5.7% may go unseen
    '0.000 [-0.057, 0.057]'
    """
    if not len(values):
        raise InputError("No values have no mean; give at least one.")
    cells = values.double()
    if not bool(((cells >= least) & (cells <= most)).all()):
        raise InputError(f"Values are to lie between {least:g} and {most:g}; some of these do not, or are not numbers.")
    z = NormalDist().inv_cdf(1 - _tail(level))
    n = len(cells) + z * z
    mean = float(cells.sum() + z * z / 2 * (least + most)) / n
    square = float(cells.square().sum() + z * z / 2 * (least * least + most * most)) / n
    half = z * math.sqrt((square - mean * mean) / n)
    return Interval(
        mean=float(cells.mean()),
        low=max(least, mean - half),
        high=min(most, mean + half),
        n=len(cells),
        level=level,
        method="Agresti-Coull",
    )


def mean_interval(values: Float[Tensor, " n"], level: float = 0.95) -> Interval | None:
    """The mean of values without bounds with Student's interval; None of fewer than `FEWEST`."""
    if len(values) < FEWEST:
        return None
    cells, n = values.double(), len(values)
    mean, spread = float(cells.mean()), float(cells.std()) / math.sqrt(n)
    half = student_quantile(1 - _tail(level), n - 1) * spread
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n, level=level, method="Student's t")


def difference_interval(one: Interval, other: Interval) -> Interval:
    """How much larger one share or correlation is than an independent other one, from the intervals of both.

    >>> f"{difference_interval(share_interval(8, 10), share_interval(0, 10)):.2f}"
    '0.80 [0.33, 0.97]'
    """
    mean = one.mean - other.mean
    low = mean - math.hypot(one.mean - one.low, other.high - other.mean)
    high = mean + math.hypot(one.high - one.mean, other.mean - other.low)
    return Interval(mean=mean, low=low, high=high, n=min(one.n, other.n), level=one.level, method="Newcombe")


def rank_correlation_interval(rho: float, n: int, level: float = 0.95) -> Interval | None:
    """Spearman's correlation over `n` units with its interval; None where it is none, or of fewer than `FEWEST`.

    >>> f"{rank_correlation_interval(0.5, 103):.3f}"  # tanh(0.5493 -+ 1.96 * sqrt(1.125 / 100))
    '0.500 [0.329, 0.639]'
    """
    if math.isnan(rho) or n < FEWEST:
        return None
    z = NormalDist().inv_cdf(1 - _tail(level))
    middle = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, rho)))
    half = z * math.sqrt((1 + rho * rho / 2) / (n - 3))
    low, high = math.tanh(middle - half), math.tanh(middle + half)
    return Interval(mean=rho, low=low, high=high, n=n, level=level, method="Bonett-Wright")


def _tail(level: float) -> float:
    if not 0 < level < 1:
        raise InputError(f"level={level} is not a coverage; give a number between 0 and 1, for example 0.95.")
    return (1 - level) / 2


def _lower_end(n_found: int, n: int, tail: float) -> float:
    """The share at which as many as `n_found` of `n` would be found with a chance of `tail`; 0 for none."""
    low, high = 0.0, n_found / n
    counts = torch.arange(n_found, n + 1, dtype=torch.float64)
    ways = math.lgamma(n + 1) - torch.lgamma(counts + 1) - torch.lgamma(n - counts + 1)
    for _ in range(_HALVINGS if n_found else 0):
        share = (low + high) / 2
        chance = float((ways + counts * math.log(share) + (n - counts) * math.log1p(-share)).exp().sum())
        low, high = (share, high) if chance < tail else (low, share)
    return low
