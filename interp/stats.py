"""How sure a number is: intervals, tests, corrections and controls, each exact where it can be.

The unit of resampling is always the first axis, and it should be a sequence or a document, never a token: tokens of
one text are not independent. Paired comparisons go in as differences. Everything is computed in float64 on the CPU
from a seed, so a result can be repeated to the last digit. What is not finite is refused, never averaged.

Sources: Efron and Tibshirani 1993 (percentile and BCa bootstrap), Phipson and Smyth 2010 (a drawn permutation p is
never zero), Owen 2007 (two things drawn at once), Holm 1979, Benjamini and Hochberg 1995; Student's interval where the
units are few seeds. Layer-matched head sets are in `interp.controls`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from model.errors import InputError

_FEW = 50
"""With fewer units than this the percentile interval is corrected (BCa)."""

EXACT_FLIPS = 12
"""With no more values than this every sign pattern is tried; else some are drawn."""

_BLOCK = 4_000_000
"""Largest number of weights held at once while resampling."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean with its confidence interval."""

    mean: float
    low: float
    high: float
    n: int
    """How many units there were."""
    level: float
    """Nominal coverage, 0.95 by default."""
    method: str
    """"percentile", "bca" or "two-way percentile" bootstrap, or "Student's t over seeds"."""

    def excludes(self, value: int | float = 0) -> bool:
        """Whether `value` lies outside the interval; an end that is not a number excludes nothing."""
        return value < self.low or value > self.high

    def above(self, value: int | float) -> bool | None:
        """Whether the whole interval lies above `value`: False where none of it does, None where it cannot be told."""
        if self.low > value:
            return True
        return False if self.high <= value else None

    def within(self, bound: int | float) -> bool:
        """Whether the whole interval lies between -bound and bound, neither included: evidence that little is there.

        An interval that merely holds zero is no such evidence.
        """
        return -bound < self.low and self.high < bound

    def __format__(self, spec: str) -> str:
        """`f"{interval:.2f}"` is '0.91 [0.88, 0.93]'."""
        spec = spec or ".3g"
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Means with their bootstrap confidence intervals, one for each cell of a shape."""

    mean: Float[Tensor, "*shape"]
    low: Float[Tensor, "*shape"]
    high: Float[Tensor, "*shape"]
    n: int
    level: float
    method: str

    def __getitem__(self, index: int | tuple[int, ...]) -> Interval:
        """The interval of one cell."""
        mean, low, high = (float(part[index]) for part in (self.mean, self.low, self.high))
        return Interval(mean=mean, low=low, high=high, n=self.n, level=self.level, method=self.method)


def bootstrap_mean(
    values: Float[Tensor, " n"], n_resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> Interval:
    """The mean of `values` with its interval: percentile, or BCa below 50 values."""
    if values.ndim != 1:
        raise InputError(f"bootstrap_mean takes values [n], not {list(values.shape)}; bootstrap_means takes [n, ...].")
    return bootstrap_means(values.unsqueeze(1), n_resamples, seed, level)[0]


def bootstrap_means(
    values: Float[Tensor, " n *shape"], n_resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> Intervals:
    """The mean over the first axis with an interval for every cell; all cells share the resamples, so they stay paired.

    Raises `InputError` for fewer than two values, for values that are not finite, and for a level outside (0, 1).
    """
    cells = _checked(values, level).flatten(1)
    n = len(cells)
    centred = cells - cells.mean(0)  # shifting first keeps tiny effects on large means exact
    resampled = _resampled_means(centred, n_resamples, seed).sort(0).values
    low, high = (end + cells.mean(0) for end in _ends(centred, resampled, level))
    mean, low, high = (part.reshape(values.shape[1:]) for part in (cells.mean(0), low, high))
    return Intervals(mean=mean, low=low, high=high, n=n, level=level, method=_method(n))


def bootstrap_ratios(
    part: Float[Tensor, " n *shape"],
    whole: Float[Tensor, " n *shape"],
    n_resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Intervals:
    """The mean of `part` over the mean of `whole` with its interval, both drawn together: percentile, BCa below 50.

    A ratio of means, not a mean of ratios: single units whose whole is nearly nothing cannot run away with it. NaN
    where the whole is zero, and without ends (infinite) where a resampled whole is zero, or resampled wholes have
    either sign: then it says nothing.
    """
    cells, wholes = _checked(part, level).flatten(1), _checked(whole, level).flatten(1)
    n = len(cells)
    resampled = _resampled_means(torch.cat([cells, wholes], dim=1), n_resamples, seed)
    above, below = resampled.split(cells.shape[1], dim=1)
    vague = ~((below > 0).all(0) | (below < 0).all(0))
    scale = wholes.mean(0)
    mean = cells.mean(0) / scale.where(scale != 0, torch.nan)
    moved = (above / below - mean).where(~vague & ~mean.isnan(), 0.0)
    influence = ((cells - mean * wholes) / scale).where(~mean.isnan(), 0.0)
    low, high = (mean + end for end in _ends(influence, moved.sort(0).values, level))
    low, high = low.where(~vague | mean.isnan(), -torch.inf), high.where(~vague | mean.isnan(), torch.inf)
    mean, low, high = (each.reshape(part.shape[1:]) for each in (mean, low, high))
    return Intervals(mean=mean, low=low, high=high, n=n, level=level, method=_method(n))


def bootstrap_crossed(
    values: Float[Tensor, "row n"], n_resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> Interval:
    """The mean over rows and units where both were drawn, and every row went over the same units.

    Rows and units are each resampled by themselves and their deviations added, after the two-way bootstrap of Owen
    2007, and widened by sqrt(m / (m - 1)), by which resampling m of something understates its spread. What belongs to
    single cells is counted in both, so the interval is rather too wide than too narrow.
    """
    cells = _checked(values, level)
    n, mean = len(_checked(values.T, level)), cells.mean()
    moved = torch.zeros(n_resamples, dtype=torch.float64)
    for which, deviations in enumerate(((cells - mean).mean(1), (cells - mean).mean(0))):
        m = len(deviations)
        moved += math.sqrt(m / (m - 1)) * _resampled_means(deviations[:, None], n_resamples, seed + which)[:, 0]
    tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = (mean + moved).quantile(tail).tolist()
    return Interval(mean=float(mean), low=low, high=high, n=n, level=level, method="two-way percentile")


def resampled_means(values: Float[Tensor, " n *shape"], n_resamples: int, seed: int) -> Float[Tensor, " draw *shape"]:
    """Means over the first axis of samples drawn with replacement; all cells share the draws, so they stay paired.

    For what is not a mean, but is read off means, such as the step at which one passes a level.
    """
    cells = _checked(values).flatten(1)
    return _resampled_means(cells, n_resamples, seed).reshape(n_resamples, *values.shape[1:])


def sign_flip_p(deltas: Float[Tensor, " n"], seed: int = 0, n_flips: int = 9999) -> float:
    """Two-sided p that paired differences are symmetric about zero; exact up to 12 values, else drawn, never zero."""
    return float(sign_flip_ps(deltas.unsqueeze(1), seed, n_flips)[0])


def sign_flip_ps(deltas: Float[Tensor, " n *shape"], seed: int = 0, n_flips: int = 9999) -> Float[Tensor, "*shape"]:
    """`sign_flip_p` for every cell: the share of sign patterns whose |mean| is at least the one observed."""
    cells = _checked(deltas).flatten(1)
    n, exact = len(cells), len(cells) <= EXACT_FLIPS
    observed = cells.mean(0).abs() * (1 - 1e-12)  # the same sum in another order is still a tie
    hits = torch.zeros(cells.shape[1], dtype=torch.int64)
    total = 0
    for signs in _all_signs(n) if exact else _drawn_signs(n, n_flips, seed):
        hits += ((signs @ cells / n).abs() >= observed).sum(0)
        total += len(signs)
    p = hits.double() / total if exact else (1 + hits.double()) / (1 + total)
    return p.reshape(deltas.shape[1:])


def smallest_sign_flip_p(n: int, n_flips: int = 9999) -> float:
    """The smallest p that `sign_flip_p` can give for `n` values, however large their mean.

    >>> smallest_sign_flip_p(8), smallest_sign_flip_p(64)
    (0.0078125, 0.0001)
    """
    return min(1.0, 2 / 2**n) if n <= EXACT_FLIPS else 1 / (1 + n_flips)


def surely(n: int, alpha: float) -> float:
    """Standard deviations beyond which the largest of `n` normal scores lies with a chance of at most `alpha`.

    >>> round(surely(16, 0.05), 2)
    2.73
    """
    return NormalDist().inv_cdf(1 - alpha / n)


def holm(p: Float[Tensor, "*family"] | Sequence[float]) -> Float[Tensor, "*family"]:
    """Holm's step-down adjusted p-values: the chance of any false claim in the family stays below the level.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    return _adjusted(p, lambda ordered, m: (ordered * torch.arange(m, 0, -1)).cummax(0).values)


def benjamini_hochberg(p: Float[Tensor, "*family"] | Sequence[float]) -> Float[Tensor, "*family"]:
    """Benjamini and Hochberg's step-up adjusted p-values: the expected share of false claims stays below the level.

    Valid for independent or positively dependent tests.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    return _adjusted(p, lambda ordered, m: (ordered * m / torch.arange(1, m + 1)).flip(0).cummin(0).values.flip(0))


def over_seeds(values: Float[Tensor, " seed"], level: float = 0.95) -> Interval:
    """Mean over seeds with Student's interval; without ends (infinite) where there is only one seed.

    Raises `InputError` for no value at all, and for values that are not finite.
    """
    n, finite = len(values), values.isfinite()
    if not n or not finite.all():
        raise InputError(
            f"{n - int(finite.sum())} of {n} values over seeds are not finite (NaN or infinite), so their mean says "
            "nothing; give at least one, and find out which gradient or loss was zero, NaN or too large."
        )
    mean, half = float(values.double().mean()), math.inf
    if n > 1:
        half = student_quantile(0.5 + level / 2, n - 1) * float(values.double().std()) / math.sqrt(n)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n, level=level, method="Student's t over seeds")


def ols_slope(x: Sequence[float], y: Float[Tensor, "*axes point"]) -> Float[Tensor, "*axes"]:
    """Least-squares slope of y on x, along the last axis.

    >>> ols_slope([0.0, 1.0, 2.0], torch.tensor([[1.0, 3.0, 5.0]])).tolist()
    [2.0]
    """
    centred = torch.tensor(x, dtype=torch.float64)
    centred = centred - centred.mean()
    return ((y.double() * centred).sum(-1) / centred.square().sum()).to(y.dtype)


def linear_fit(y: Float[Tensor, "seed point"]) -> tuple[Interval, float]:
    """Slope of y on 0, 1, 2, ... with its interval over seeds, and R^2 of a line through the mean over seeds."""
    mean = y.double().mean(dim=0)
    x = torch.arange(y.shape[1], dtype=torch.float64)
    line = mean.mean() + ols_slope(x.tolist(), mean) * (x - x.mean())
    spread = (mean - mean.mean()).square().sum()
    r_squared = 1.0 - float((mean - line).square().sum() / spread) if spread > 0 else math.nan
    return over_seeds(ols_slope(x.tolist(), y)), r_squared


@cache
def student_quantile(share: float, freedom: int) -> float:
    """Quantile of Student's distribution, by bisection of its closed form (Abramowitz & Stegun 26.7.3 and 26.7.4).

    >>> round(student_quantile(0.975, 4), 3)
    2.776
    """
    low, high = 0.0, 1e6
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_below(middle, freedom) < share else (low, middle)
    return high


def _student_below(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= math.cos(angle) ** 2 * k / (k + 1)
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return 0.5 + inside / 2


def _checked(values: Tensor, level: float = 0.95) -> Tensor:
    if len(values) < 2:
        raise InputError(f"{len(values)} value is too few to say how sure a mean is; give at least 2 sequences.")
    if not 0 < level < 1:
        raise InputError(f"level={level} is not a coverage; give a number between 0 and 1, for example 0.95.")
    cells = values.detach().to("cpu", torch.float64)
    if not cells.isfinite().all():
        raise InputError("Some values are not finite (NaN or infinite); find out why before averaging them.")
    return cells


def _resampled_means(values: Tensor, n_resamples: int, seed: int) -> Tensor:
    """Means of `n_resamples` samples with replacement, [resample, cell]: rows of counts times values."""
    n = len(values)
    generator = torch.Generator().manual_seed(seed)
    size = max(1, _BLOCK // n)
    blocks = []
    for start in range(0, n_resamples, size):
        rows = min(size, n_resamples - start)
        drawn = torch.randint(n, (rows, n), generator=generator)
        counts = torch.zeros(rows, n, dtype=torch.float64).scatter_add_(
            1, drawn, torch.ones(rows, n, dtype=torch.float64)
        )
        blocks.append(counts @ values / n)
    return torch.cat(blocks)


def _method(n: int) -> str:
    return "bca" if n < _FEW else "percentile"


def _ends(influence: Tensor, ordered: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Both ends [cell], of the units' influence [unit, cell] and ordered resamples [resample, cell], all about 0."""
    tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    few = _method(len(influence)) == "bca"
    low, high = _bca_levels(influence, ordered, tail) if few else tail[:, None].expand(2, ordered.shape[1])
    return _quantile(ordered, low), _quantile(ordered, high)


def _bca_levels(centred: Tensor, resampled: Tensor, tail: Tensor) -> Tensor:
    """The percentiles that correct for bias and skew (Efron and Tibshirani 1993, eq. 14.10), [2, cell]."""
    below = (resampled < 0).double().mean(0) + (resampled == 0).double().mean(0) / 2
    bias = torch.special.ndtri(below.clamp(1 / (2 * len(resampled)), 1 - 1 / (2 * len(resampled))))
    spread = centred.square().sum(0) ** 1.5
    skew = torch.where(spread > 0, centred.pow(3).sum(0) / (6 * spread), torch.zeros_like(spread))
    shifted = bias + torch.special.ndtri(tail)[:, None]
    return torch.special.ndtr(bias + shifted / (1 - skew * shifted))


def _quantile(ordered: Tensor, level: Tensor) -> Tensor:
    """Linear-interpolated quantile of each column of `ordered` [resample, cell] at its own `level` [cell]."""
    place = level * (len(ordered) - 1)
    below = place.floor().long()
    above = (below + 1).clamp(max=len(ordered) - 1)
    low, high = ordered.gather(0, below[None])[0], ordered.gather(0, above[None])[0]
    return torch.lerp(low, high, place - below)


def _all_signs(n: int) -> Iterator[Tensor]:
    yield torch.tensor(list(itertools.product((1.0, -1.0), repeat=n)), dtype=torch.float64)


def _drawn_signs(n: int, n_flips: int, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    size = max(1, _BLOCK // n)
    for start in range(0, n_flips, size):
        rows = min(size, n_flips - start)
        yield torch.randint(2, (rows, n), generator=generator).double() * 2 - 1


def _adjusted(p: Tensor | Sequence[float], adjust: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Adjust the ordered p-values of a family, cap them at 1 and put them back in place."""
    values = torch.as_tensor(p, dtype=torch.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError("A p-value lies between 0 and 1; some of these do not.")
    ordered, order = values.flatten().sort()
    adjusted = torch.empty_like(ordered)
    adjusted[order] = adjust(ordered, len(ordered)).clamp(max=1.0)
    return adjusted.reshape(values.shape)
