"""Straight lines through many points of few units: slope and fit, resampled by the unit and not by the point.

The points of one sequence are not independent, so a line's interval comes from drawing sequences again. A line needs
of each sequence only its sums (n, x, y, xx, xy, yy); a resample adds up those of the sequences drawn, and every
resample's line is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.stats import Intervals, sign_flip_ps
from model.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Least-squares lines with an intercept, one for each cell of a shape; percentile intervals over units."""

    slope: Intervals
    """NaN where x does not vary, without ends (infinite) where it does not in some resample."""

    intercept: Intervals
    """In units of y."""

    r_squared: Intervals
    """Share of the variance of y along the line; NaN where x or y does not vary."""


def fit_lines(
    x: Float[Tensor, "unit *cell point"],
    y: Float[Tensor, "as_many *as_cells as_points"],
    chosen: Bool[Tensor, "unit *cell point"] | None = None,
    *,
    seed: int = 0,
    n_resamples: int = 2000,
    level: float = 0.95,
) -> Lines:
    """The line of y on x over all chosen points of all units.

    >>> points = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    >>> float(fit_lines(points, 2 * points + 1).slope.mean)
    2.0

    Raises InputError for fewer than two units, unequal shapes and values that are not finite.
    """
    if x.shape != y.shape or len(x) < 2:
        raise InputError(
            f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; give pairs of points [unit, ..., point] of two "
            "units or more."
        )
    first, second = x.double().cpu(), y.double().cpu()
    if not (first.isfinite().all() and second.isfinite().all()):
        raise InputError("Some points are not finite (NaN or infinite); leave them out with `chosen`.")
    weight = torch.ones_like(first) if chosen is None else chosen.double().cpu()
    n = weight.sum((0, -1), keepdim=True)
    middle = [(each * weight).sum((0, -1), keepdim=True) / n for each in (first, second)]
    first, second = first - middle[0], second - middle[1]  # shifting first keeps small spreads on large means exact
    powers = (torch.ones_like(first), first, second, first * first, first * second, second * second)
    sums = torch.stack([(weight * each).sum(-1) for each in powers], dim=1).flatten(1)
    drawn = torch.randint(len(x), (n_resamples, len(x)), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(n_resamples, len(x), dtype=torch.float64)
    counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
    whole, resampled = sums.sum(0)[None], counts @ sums
    cells = x.shape[1:-1]

    def interval(row: int) -> Intervals:
        at, ends = (_lines(each.unflatten(1, (6, -1)), middle)[row] for each in (whole, resampled))
        shape = (*cells,)
        known = ends.isfinite().all(0)
        tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        low, high = ends.nan_to_num().quantile(tail, dim=0)
        low, high = low.where(known, -math.inf), high.where(known, math.inf)
        return Intervals(
            mean=at[0].reshape(shape), low=low.reshape(shape), high=high.reshape(shape), n=len(x), level=level,
            method="percentile",
        )  # fmt: skip

    return Lines(slope=interval(0), intercept=interval(1), r_squared=interval(2))


def flat_ps(
    x: Float[Tensor, "unit *cell point"],
    y: Float[Tensor, "as_many *as_cells as_points"],
    chosen: Bool[Tensor, "unit *cell point"] | None = None,
    *,
    seed: int = 0,
) -> Float[Tensor, "*cell"]:
    """Two-sided sign-flip p that y neither rises nor falls with x, over all chosen points of all units.

    Without a slope, what each unit adds to the covariance about the common means is as often above as below zero. For
    a slope of 1 test y - x. 1 where x does not vary.
    """
    weight = torch.ones_like(x, dtype=torch.float64) if chosen is None else chosen.double()
    n = weight.sum((0, -1), keepdim=True)
    first, second = (each.double() - (each * weight).sum((0, -1), keepdim=True) / n for each in (x, y))
    return sign_flip_ps((weight * first * second).sum(-1), seed=seed)


def _lines(sums: Float[Tensor, "resample sum cell"], middle: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Slope, intercept and R^2 from sums of powers about `middle`."""
    n, sx, sy, sxx, sxy, syy = sums.unbind(1)
    vx, vy, cov = sxx - sx * sx / n, syy - sy * sy / n, sxy - sx * sy / n
    vx, vy = (each.where(each > 1e-30 * n, math.nan) for each in (vx, vy))
    slope = cov / vx
    x0, y0 = (each.reshape(1, -1) for each in middle)
    intercept = y0 + sy / n - slope * (x0 + sx / n)
    return slope, intercept, cov * cov / (vx * vy)
