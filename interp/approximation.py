"""How well one set of numbers stands in for another: an estimate of effects beside the effects themselves.

Correlations say whether the estimate orders and scales as the truth does; the sign agreement, whether it tells helping
from hurting; and the false negatives, which of the largest true effects it overlooks: the fault that matters where the
estimate is used to choose what to look at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats import Interval
from model.errors import InputError

_N_RESAMPLES = 500


@dataclass(frozen=True, kw_only=True)
class Approximation:
    """An estimate held against the truth, cell by cell."""

    n: int
    """Cells compared."""

    pearson: float
    """Linear correlation; NaN where either side does not vary."""

    spearman: float
    """Rank correlation, ties sharing their mean rank; NaN where either side does not vary."""

    same_sign: float
    """Share of the cells with a true effect whose estimate has its sign; NaN where there is none."""

    top: int
    """How many of the largest true effects were looked for."""

    missed: tuple[int, ...]
    """Cells (counted through all axes) among the `top` largest true effects in absolute size, but not among as many
    largest estimates; the largest effect first."""

    @property
    def false_negatives(self) -> float:
        """Share of the `top` largest true effects that the estimate overlooks."""
        return len(self.missed) / self.top


def approximation(estimate: Float[Tensor, "*cell"], true: Float[Tensor, "*cell"], *, top: int) -> Approximation:
    """Hold an estimate of each cell's effect against the true one.

    >>> import torch
    >>> found = approximation(torch.tensor([0.1, 2.0, 0.0]), torch.tensor([0.2, 3.0, -1.0]), top=2)
    >>> round(found.spearman, 2), found.missed
    (1.0, (2,))
    """
    one, two = estimate.flatten().double().cpu(), true.flatten().double().cpu()
    if not 1 <= top <= len(two):
        raise InputError(f"top={top} of {len(two)} effects cannot be looked for; give a number from 1 to {len(two)}.")
    if not (one.isfinite().all() and two.isfinite().all()):
        raise InputError("Some effects or estimates are not finite (NaN or infinite); leave those cells out.")
    there = two != 0
    largest = two.abs().argsort(descending=True, stable=True)[:top].tolist()
    found = set(one.abs().argsort(descending=True, stable=True)[:top].tolist())
    return Approximation(
        n=len(two),
        pearson=correlation(one, two),
        spearman=correlation(midranks(one), midranks(two)),
        same_sign=float((one[there].sign() == two[there].sign()).double().mean()) if bool(there.any()) else math.nan,
        top=top,
        missed=tuple(cell for cell in largest if cell not in found and float(two[cell]) != 0),
    )


def bootstrap_spearman(
    one: Float[Tensor, " n *cell"], two: Float[Tensor, " n *cell"], *, seed: int = 0, level: float = 0.95
) -> Interval:
    """Rank correlation of the means over `n` with a percentile interval; both sides share the resamples.

    Resampling adds noise to what is ranked, so resampled correlations may all lie nearer to zero than that of all
    sequences; the interval is widened to hold it. NaN where either mean does not vary, and without ends
    (infinite) where that of a resample does not.
    """
    first, second = (_resampled(each, seed) for each in (one, two))
    return _spearman(first, second, n=len(one), level=level)


def bootstrap_size_spearman(
    one: Float[Tensor, " n *cell"], two: Float[Tensor, " n *cell"], *, seed: int = 0, level: float = 0.95
) -> Interval:
    """The same of the means of `one` with the sizes of the means of `two`: where `one` cannot tell the sign."""
    return _spearman(_resampled(one, seed), _resampled(two, seed).abs(), n=len(one), level=level)


def _resampled(values: Float[Tensor, " n *cell"], seed: int) -> Float[Tensor, "resample cell"]:
    """The means over all of `n`, then those over resamples; the same resamples for the same seed."""
    side, n = values.flatten(1).double().cpu(), len(values)
    drawn = torch.randint(n, (_N_RESAMPLES, n), generator=torch.Generator().manual_seed(seed))
    return torch.stack([side[each].mean(0) for each in torch.cat([torch.arange(n)[None], drawn])])


def _spearman(
    one: Float[Tensor, "resample cell"], two: Float[Tensor, "resample cell"], *, n: int, level: float
) -> Interval:
    """The rank correlation of the first rows, with an interval from the others."""
    first, second = _centred_ranks(one), _centred_ranks(two)
    size = first.norm(dim=1) * second.norm(dim=1)
    rho = ((first * second).sum(1) / size).where(size > 0, torch.nan)
    mean, resampled, low, high = float(rho[0]), rho[1:], -math.inf, math.inf
    if bool(resampled.isfinite().all()):
        tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        ends = resampled.quantile(tail).tolist()
        low, high = min(ends[0], mean), max(ends[1], mean)
    return Interval(mean=mean, low=low, high=high, n=n, level=level, method="percentile")


def _centred_ranks(values: Float[Tensor, "resample cell"]) -> Float[Tensor, "resample cell"]:
    """Ranks within each row, ties sharing their mean rank, less their mean."""
    one, other = values[:, None], values[:, :, None]
    ranks = ((one < other).sum(-1) + (one <= other).sum(-1)).double() / 2
    return ranks - ranks.mean(1, keepdim=True)


def correlation(one: Float[Tensor, " n"], two: Float[Tensor, " n"]) -> float:
    """Pearson's correlation; NaN where either side does not vary.

    >>> import torch
    >>> round(correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, 2.0, 1.0])), 6)
    -1.0
    """
    first, second = one.double() - one.double().mean(), two.double() - two.double().mean()
    size = float(first.norm() * second.norm())
    return float(first @ second) / size if size > 0 else math.nan


def midranks(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The rank of each value from 0 up; equal values share the mean of theirs.

    >>> import torch
    >>> midranks(torch.tensor([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    below = (values[None] < values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    return below.double() + (equal.double() - 1) / 2
