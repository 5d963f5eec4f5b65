"""When something rose in training: the step at which a curve over checkpoints is half way up, and how sure that is.

A curve is a mean over sequences at each checkpoint. It is half way where it passes the middle between its first and
its last checkpoint, by straight lines; where it passes more than once, the step is the middle between the first and the
last time. The interval resamples sequences and reads the step off again, first and last value included. It is one of
the step *by straight lines*, and often far narrower than the gap between two checkpoints, of which it knows nothing. So
what is told first is the bracket: the checkpoints about the interval and about every time the curve passes. An order of
two crossings is told only where a checkpoint lies between them.

The last checkpoint is the reference and not the largest value: the largest of many noisy means lies above the truth,
which makes every crossing late and its interval miss (of 95% intervals over 20 to 100 checkpoints, 47% to 81% held).
Likewise the first of several passes would be early, and the last one late.

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
    last: Float[Tensor, "*shape"]
    """The mean at the last checkpoint."""
    at: Float[Tensor, "*shape"]
    """The step of the crossing of the mean curve; NaN where its last value is not above its first."""
    first: Float[Tensor, "*shape"]
    """The first time that the mean curve passes."""
    final: Float[Tensor, "*shape"]
    """The last time; the same as the first of a curve that passes once."""
    drawn: Float[Tensor, " draw *shape"]
    """The crossing in each resample."""
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
        first, final = float(self.first[index]), float(self.final[index])
        start, last = float(self.start[index]), float(self.last[index])
        return Crossing(
            at=Interval(mean=at, low=low, high=high, n=self.n, level=self.level, method="percentile"),
            after=max((step for step in self.steps[:-1] if step <= min(low, first)), default=self.steps[0]),
            by=min((step for step in self.steps[1:] if step >= max(high, final)), default=self.steps[-1]),
            start=start,
            half=(start + last) / 2,
            last=last,
        )


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Where one curve is half way up."""

    at: Interval
    """The step, by straight lines between checkpoints, with its interval over sequences."""
    after: int
    """The last checkpoint before the interval, and before the first time that the curve passes."""
    by: int
    """The first checkpoint behind the interval, and behind the last time that the curve passes."""
    start: float
    """The curve at the first checkpoint."""
    half: float
    """Half way from there to the last checkpoint."""
    last: float
    """The curve at the last checkpoint."""


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
    curve = means.mean(0)
    first, final = (each[0] for each in _passes(steps, curve[None]))
    drawn = torch.stack(_passes(steps, resampled_means(means, n_resamples, seed))).mean(0)
    return Crossings(
        steps=tuple(steps), start=curve[0], last=curve[-1], at=(first + final) / 2, first=first, final=final,
        drawn=drawn, n=len(values), level=level,
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
    places = torch.tensor(first.steps, dtype=torch.float64)
    of_first, of_second = (
        torch.searchsorted(places, each.drawn[(slice(None), *at)].contiguous())
        for each, at in ((first, i), (second, j))
    )
    between = of_second - of_first
    same_side = max(float((between > 0)[known].double().mean()), float((between < 0)[known].double().mean()))
    apart = Interval(mean=mean, low=low, high=high, n=first.n, level=first.level, method="percentile")
    return Order(apart=apart, resolved=same_side >= first.level)


def _passes(
    steps: Sequence[int], curves: Float[Tensor, "draw step *shape"]
) -> tuple[Float[Tensor, " draw *shape"], Float[Tensor, " draw *shape"]]:
    """The first and the last time that each curve passes half of its rise; NaN where it does not rise."""
    start, last = curves[:, 0], curves[:, -1]
    half = (start + last) / 2
    above = curves >= half[:, None]
    rises = last > start
    first = above.double().argmax(1)  # the first checkpoint that is above
    final = len(steps) - (~above).flip(1).double().argmax(1)  # the one behind the last checkpoint that is below
    reached = (_between(steps, curves, half, by.clamp(1, len(steps) - 1)) for by in (first, final))
    earliest, latest = (torch.where(rises, at, torch.full_like(at, torch.nan)) for at in reached)
    return earliest, latest


def _between(steps: Sequence[int], curves: Tensor, half: Tensor, by: Int[Tensor, " draw *shape"]) -> Tensor:
    """Where the straight line to the checkpoint `by` from the one before it is at `half`."""
    places = torch.tensor(steps, dtype=torch.float64)
    before, after = (curves.gather(1, at[:, None])[:, 0] for at in (by - 1, by))
    gap = after - before
    share = (half - before) / torch.where(gap == 0, torch.ones_like(gap), gap)
    return places[by - 1] + share.clamp(0, 1) * (places[by] - places[by - 1])


def _ends(drawn: Float[Tensor, " draw"], level: float) -> tuple[float, float]:
    tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = drawn.quantile(tail).tolist()
    return low, high
