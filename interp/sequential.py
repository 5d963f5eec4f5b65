"""Measuring no longer than it takes: stop at the first look at which the interval decides, with the error kept.

Whoever looks again and again, and stops when it suits, is wrong more often than the level says. Here the looks are
fixed beforehand (16, 32, 64, ... sequences), and the error `alpha` is spent over them in proportion to the sequences
that each look adds: at look k the interval has level 1 - alpha_k, and the alpha_k add up to `alpha`. So whatever the
looks have to do with each other (Bonferroni), the chance that any of them puts the mean on the wrong side of a bound is
at most `alpha`, as far as each interval keeps its own level. Half of the error is left for the last look.

Few values and small levels are where the usual bootstrap is too narrow. So a look takes the studentized bootstrap
(Efron and Tibshirani 1993, ch. 12.5), and decides only where the sign flips about the bound agree: p is at most
alpha_k, exact for any number of values that lie symmetrically. Lan and DeMets 1983 on spending. Cost: one measurement
of each sequence, and a resampling at each look.

What it does not do: under a mean that lies on a bound all sequences are used. And the mean at an early stop lies a
little further from the bound than the truth, since a large one stops sooner; its interval holds nevertheless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats import Interval, sign_flip_p, smallest_sign_flip_p
from model.errors import InputError

FIRST = 16
"""Sequences at the first look."""

METHOD = "studentized, one of several looks"
"""What an interval of a look says of itself."""

Measure = Callable[[int, int], Float[Tensor, " n"]]
"""measure(start, stop) -> one number for each of the sequences start to stop - 1; each is asked for once, in order."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was known after some of the sequences."""

    n: int
    """Sequences seen by then."""

    spent: float
    """The error of this look; its interval has level 1 - spent."""

    interval: Interval

    p: tuple[float, ...]
    """For each bound, the two-sided sign-flip p that the mean is the bound."""

    def above(self, place: int, bound: float) -> bool | None:
        """Whether the mean is shown to lie above bound number `place`; None where it cannot be told."""
        return self.interval.above(bound) if self.p[place] <= self.spent else None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """On which side of each bound a mean lies, and after how many sequences that was known."""

    bounds: tuple[float, ...]

    alpha: float
    """The chance of a wrong side at any look, at most."""

    most: int
    """Sequences that there would have been."""

    looks: tuple[Look, ...]
    """Up to the one that decided, or all."""

    @property
    def last(self) -> Look:
        """The look that decided, or the last there was."""
        return self.looks[-1]

    @property
    def n(self) -> int:
        """Sequences that were measured."""
        return self.last.n

    @property
    def interval(self) -> Interval:
        """The mean at the last look; the intervals of all looks hold it together with a chance of 1 - alpha."""
        return self.last.interval

    @property
    def sides(self) -> tuple[bool | None, ...]:
        """For each bound whether the mean lies above it; None where that is open."""
        return tuple(self.last.above(place, bound) for place, bound in enumerate(self.bounds))

    @property
    def is_decided(self) -> bool:
        """Whether the side of every bound is known."""
        return None not in self.sides

    @property
    def saved(self) -> float:
        """Share of the sequences that were not needed."""
        return 1 - self.n / self.most


def decide(
    measure: Measure,
    bounds: float | Sequence[float] = 0.0,
    *,
    most: int,
    first: int = FIRST,
    alpha: float = 0.05,
    seed: int = 0,
) -> Decision:
    """Measure until it is known on which side of every bound the mean lies, at most `most` sequences.

    Args:
        measure: measure(start, stop), one number for each of these sequences (a paired difference, for an effect).
        bounds: one bound, or several: (-b, b) also tells that a mean lies within b of nothing.
        most: sequences at the last look.
        first: sequences at the first look; each look has twice as many as the one before.
        alpha: the chance of a wrong side, over all looks together.
        seed: draws the resamples.

    Raises:
        InputError: no bound, looks of which one could never decide, or numbers that are not finite.
    """
    asked = (float(bounds),) if isinstance(bounds, int | float) else tuple(map(float, bounds))
    sizes = look_sizes(most, first)
    _check(asked, sizes, alpha)
    values, looks, before = torch.empty(0, dtype=torch.float64), (), 0
    for size in sizes:
        values = torch.cat([values, _measured(measure, before, size)])
        looks = (*looks, _look(values, asked, alpha * (size - before) / most, seed))
        if Decision(bounds=asked, alpha=alpha, most=most, looks=looks).is_decided:
            break
        before = size
    return Decision(bounds=asked, alpha=alpha, most=most, looks=looks)


def look_sizes(most: int, first: int = FIRST) -> tuple[int, ...]:
    """Sequences at each look: doubling from the first one to `most`.

    >>> look_sizes(100), look_sizes(12)
    ((16, 32, 64, 100), (12,))
    """
    if first < 2 or most < 2:
        raise InputError(f"first={first} and most={most} sequences make no look; give at least 2 of each.")
    sizes = [first]
    while sizes[-1] * 2 < most:
        sizes.append(sizes[-1] * 2)
    return (*(size for size in sizes if size < most), most)


def _check(bounds: Sequence[float], sizes: Sequence[int], alpha: float) -> None:
    if not bounds or not all(map(math.isfinite, bounds)):
        raise InputError(f"bounds={list(bounds)} decide nothing; give one finite number or more, such as 0.05.")
    if not 0 < alpha < 1:
        raise InputError(f"alpha={alpha} is no chance of an error; give a number between 0 and 1, such as 0.05.")
    spent, smallest = alpha * sizes[0] / sizes[-1], smallest_sign_flip_p(sizes[0], _FLIPS)
    if smallest > spent:
        raise InputError(
            f"after {sizes[0]} sequences p is {smallest:.2g} at best and this look may spend {spent:.2g}, so it could "
            "never decide; look later first, or allow a larger alpha."
        )


def _measured(measure: Measure, start: int, stop: int) -> Float[Tensor, " n"]:
    found = torch.as_tensor(measure(start, stop), dtype=torch.float64).cpu()
    if found.shape != (stop - start,):
        raise InputError(
            f"{stop - start} sequences were asked for and {tuple(found.shape)} numbers came; measure one for each."
        )
    if not bool(found.isfinite().all()):
        raise InputError("some of the numbers that came are not all finite; find out why before deciding on them.")
    return found


def _look(values: Float[Tensor, " n"], bounds: Sequence[float], spent: float, seed: int) -> Look:
    p = tuple(sign_flip_p(values - bound, seed, _FLIPS) for bound in bounds)
    return Look(n=len(values), spent=spent, interval=studentized(values, level=1 - spent, seed=seed), p=p)


def studentized(
    values: Float[Tensor, " n"], *, level: float = 0.95, seed: int = 0, n_resamples: int | None = None
) -> Interval:
    """The mean with its studentized (bootstrap-t) interval: wider where values are few or skewed than percentiles are.

    An end is infinite where so many resamples hold one value only that nothing bounds it.
    """
    if len(values) < 2 or not bool(values.isfinite().all()):
        raise InputError("a mean needs at least 2 values, all finite; find out what became of the others.")
    n, mean, n_resamples = len(values), values.double().mean(), n_resamples or _RESAMPLES
    centred, generator = values.double() - mean, torch.Generator().manual_seed(seed)
    drawn = centred[torch.randint(n, (n_resamples, n), generator=generator)]
    moved, spread = drawn.mean(1), drawn.std(1)
    least = 1e-12 * centred.abs().max()
    t = torch.where(spread > least, moved / spread, torch.where(moved.abs() > least, moved.sign() * math.inf, 0.0))
    ordered, outside = t.sort().values, math.floor((1 - level) / 2 * n_resamples)
    low, high = float(ordered[outside]), float(ordered[-1 - outside])
    scale = float(values.double().std())
    low, high = (0.0 if scale == 0 else scale * end for end in (low, high))
    return Interval(mean=float(mean), low=float(mean) - high, high=float(mean) - low, n=n, level=level, method=METHOD)


_RESAMPLES = 4000

_FLIPS = 9999
"""Sign patterns drawn at a look: the smallest p is 1 in 10,000."""
