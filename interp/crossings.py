"""When something rose in training: the step at which a curve over checkpoints is half way up, and how sure that is.

A curve is a mean over sequences at each checkpoint. It starts at its first checkpoint and rises to its largest value;
where it first reaches half of that rise is its *crossing*, read off the straight line between the two checkpoints about
it. The interval comes from resampling sequences and reading the crossing off again, start and peak included. It says
how sure the reading is on these sequences, not what lies between two checkpoints: so the bracket, the two checkpoints
themselves, is kept beside it, and an order of two crossings is told only where a checkpoint lies between them.

Source: Olsson et al. 2022, Argument 1 (scores and loss change in one short stretch of training).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.stats import Interval, resampled_means
from model.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Crossings:
    """Where each of several curves over the same checkpoints is half way up."""

    steps: tuple[int, ...]
    """The checkpoints."""
    start: Float[Tensor, "*shape"]
    """The mean at the first checkpoint."""
    peak: Float[Tensor, "*shape"]
    """The largest mean at any checkpoint."""
    at: Float[Tensor, "*shape"]
    """The step of the crossing of the mean curve; NaN where it never rises."""
    by: Int[Tensor, "*shape"]
    """Which checkpoint is the first one half way up; 0 where the curve never rises."""
    drawn: Float[Tensor, " draw *shape"]
    """The crossing in each resample."""
    drawn_by: Int[Tensor, " draw *shape"]
    """The checkpoint in each resample."""
    n: int
    """Sequences."""
    level: float
    """Nominal coverage of the intervals."""

    def __getitem__(self, index: tuple[int, ...]) -> Crossing | None:
        """The crossing of one curve; None where it never rises."""
        at = float(self.at[index])
        if at != at:
            return None
        drawn = self.drawn[(slice(None), *index)]
        low, high = _ends(drawn[drawn.isfinite()], self.level)
        by = int(self.by[index])
        start, peak = float(self.start[index]), float(self.peak[index])
        return Crossing(
            at=Interval(mean=at, low=low, high=high, n=self.n, level=self.level, method="percentile"),
            after=self.steps[by - 1],
            by=self.steps[by],
            start=start,
            half=(start + peak) / 2,
            peak=peak,
        )


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Where one curve is half way up."""

    at: Interval
    """The step, by a straight line between the two checkpoints, with its interval over sequences."""
    after: int
    """The last checkpoint below."""
    by: int
    """The first checkpoint half way up."""
    start: float
    """The curve at the first checkpoint."""
    half: float
    """Half way from there to the peak."""
    peak: float
    """The largest value at any checkpoint."""


def half_rises(
    steps: Sequence[int],
    values: Float[Tensor, "sequence step *shape"],
    *,
    n_resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Crossings:
    """The crossing of every curve in `values`, whose first axes are sequences and checkpoints.

    Two calls with as many sequences, resamples and the same seed share their draws, so their crossings can be
    subtracted (`earlier`).
    """
    if len(steps) < 2 or values.shape[1] != len(steps):
        raise InputError(
            f"a rise needs two checkpoints or more, and one value for each: there are {len(steps)} steps and values "
            f"for {values.shape[1]}."
        )
    means = values.detach().cpu().double()
    at, by, start, peak = _crossing(steps, means.mean(0)[None])
    drawn, drawn_by, _, _ = _crossing(steps, resampled_means(means, n_resamples, seed))
    return Crossings(
        steps=tuple(steps), start=start[0], peak=peak[0], at=at[0], by=by[0], drawn=drawn, drawn_by=drawn_by,
        n=len(values), level=level,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Order:
    """Which of two crossings comes first."""

    apart: Interval
    """Second minus first, in steps, paired by sequence."""
    resolved: bool
    """Whether a checkpoint lies between them, on the same side in all but a share of 1 - level of the resamples."""


def order(first: Crossings, i: tuple[int, ...], second: Crossings, j: tuple[int, ...]) -> Order | None:
    """How much later curve `j` of `second` crosses than curve `i` of `first`; None where either never rises."""
    mean = float(second.at[j] - first.at[i])
    drawn = second.drawn[(slice(None), *j)] - first.drawn[(slice(None), *i)]
    known = drawn.isfinite()
    if mean != mean or not bool(known.any()):
        return None
    low, high = _ends(drawn[known], first.level)
    between = second.drawn_by[(slice(None), *j)] - first.drawn_by[(slice(None), *i)]
    same_side = max(float((between > 0)[known].double().mean()), float((between < 0)[known].double().mean()))
    apart = Interval(mean=mean, low=low, high=high, n=first.n, level=first.level, method="percentile")
    return Order(apart=apart, resolved=same_side >= first.level)


def _crossing(
    steps: Sequence[int], curves: Float[Tensor, "draw step *shape"]
) -> tuple[Float[Tensor, " draw *shape"], Int[Tensor, " draw *shape"], Tensor, Tensor]:
    """Crossing, the checkpoint by which it is, start and peak of every curve."""
    places = torch.tensor(steps, dtype=torch.float64)
    start, peak = curves[:, 0], curves.max(1).values
    half = (start + peak) / 2
    above = curves >= half[:, None]
    above[:, 0] = False  # where nothing rises, half is the start itself
    by = above.double().argmax(1)
    rises = (peak > start) & (by > 0)
    last = curves.gather(1, by[:, None])[:, 0]
    before = curves.gather(1, (by - 1).clamp(min=0)[:, None])[:, 0]
    share = (half - before) / torch.where(rises, last - before, torch.ones_like(last))
    left, right = places[(by - 1).clamp(min=0)], places[by]
    at = torch.where(rises, left + share.clamp(0, 1) * (right - left), torch.full_like(share, torch.nan))
    return at, torch.where(rises, by, torch.zeros_like(by)), start, peak


def _ends(drawn: Float[Tensor, " draw"], level: float) -> tuple[float, float]:
    tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = drawn.quantile(tail).tolist()
    return low, high
