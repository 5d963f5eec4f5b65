"""The numbers behind the targets on FFN memories, from what the studies ffn-memories and ffn-composition saved.

Every function takes the tensors it is about and gives a `Measurement`. Intervals are over what was drawn: memories of
one model (not independent of each other), or documents. Where a claim is about every layer, the number is that of the
layer that is furthest from the bar. Which one that is was seen in the same data, so its own interval would be too
narrow, and shifted away from the bar: the ends are those of intervals that hold for all layers at once (the least of n
numbers lies, where each lies within its interval, between the least of their low ends and the least of their high
ends). They cover at least as often as they say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.stats import Interval, Intervals, bootstrap_mean, student_quantile

NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number with its interval."""

    value: float
    low: float = NAN
    """Ends of the 95% interval; NaN where there is none."""
    high: float = NAN
    n: int
    """How many of `unit` it is over."""
    unit: str
    p: float | None = None
    layers: tuple[float, ...] = ()
    """The same number in each layer, where it has one in each."""

    def surely(self, clears: Callable[[float], bool]) -> bool:
        """Whether both ends of the interval fall on the value's side of the bar; False without an interval."""
        ends = (self.low, self.high)
        return not any(map(math.isnan, ends)) and all(clears(end) == clears(self.value) for end in ends)


def last_over_first_third(agrees: Sequence[Bool[Tensor, " memory"]]) -> Measurement:
    """Agreement of the last third of the layers over that of the first third, of living memories; their `third_ratio`.

    Memories of a third are drawn together.
    """
    layers, counts = tuple(float(each.double().mean()) for each in agrees), [len(each) for each in agrees]
    value = third_ratio(layers, counts)
    third = max(1, len(agrees) // 3)
    first, last = (torch.cat(list(part)).double() for part in (agrees[:third], agrees[-third:]))
    low, high = NAN, NAN
    if first.any():
        low, high = _ends(_resampled(last, seed=0) / _resampled(first, seed=1))
    return Measurement(value=value, low=low, high=high, n=len(first) + len(last), unit="memories", layers=layers)


def third_ratio(shares: Sequence[float], counts: Sequence[int]) -> float:
    """The share in the last third of the layers over that in the first, each over all that is counted there.

    Infinite where there is none in the first, and NaN where there is none in either.
    """
    third = max(1, len(shares) // 3)
    first, last = (
        sum(share * n for share, n in zip(shares[part], counts[part], strict=True) if n) / sum(counts[part])
        for part in (slice(third), slice(-third, None))
    )
    return last / first if first > 0 else math.inf if last > 0 else NAN


def _resampled(values: Float[Tensor, " n"], seed: int, n_resamples: int = 2000) -> Float[Tensor, " resample"]:
    """Bootstrap means of one group; groups that are compared are drawn apart, each with as many as it has."""
    generator = torch.Generator().manual_seed(seed)
    return values[torch.randint(len(values), (n_resamples, len(values)), generator=generator)].mean(1)


def _ends(resampled: Float[Tensor, " resample"]) -> tuple[float, float]:
    """Ends of the 95% percentile interval; a ratio to nothing counts as larger than any."""
    ordered, out = resampled.nan_to_num(nan=math.inf, posinf=math.inf).sort().values, round(0.025 * len(resampled))
    return float(ordered[out]), float(ordered[-1 - out])


def extreme(shares: Intervals, unit: str, *, least: bool) -> Measurement:
    """The least or the largest of a number that every layer has, with an interval that holds for all layers at once."""
    ends = at_once(shares)
    low, mean, high = (float(each.min() if least else each.max()) for each in (ends.low, ends.mean, ends.high))
    layers = tuple(shares.mean.tolist())
    return Measurement(value=mean, low=low, high=high, n=shares.n, unit=unit, layers=layers)


def at_once(shares: Intervals) -> Intervals:
    """Intervals of shares that hold for all layers at once: Bonferroni's, by the ratio of Student's quantiles.

    Only ends are kept, and no units, so that each side is widened as much as a normal mean's would be.
    """
    freedom, tail = shares.n - 1, (1 - shares.level) / 2
    wider = student_quantile(1 - tail / len(shares.mean), freedom) / NormalDist().inv_cdf(1 - tail)
    low, high = (shares.mean + wider * (end - shares.mean) for end in (shares.low, shares.high))
    return replace(shares, low=low.clamp(0, 1), high=high.clamp(0, 1))


def measurement(interval: Interval, unit: str, layers: tuple[float, ...] = ()) -> Measurement:
    """An interval as a measurement."""
    return Measurement(
        value=interval.mean, low=interval.low, high=interval.high, n=interval.n, unit=unit, layers=layers
    )


def largest_fall(shares: Intervals, unit: str) -> Measurement:
    """By how much a number that should rise with the layer falls at most from one to the next; 0 if it never does."""
    falls = (shares.mean[:-1] - shares.mean[1:]).clamp_min(0)
    return Measurement(value=float(falls.max()), n=shares.n, unit=unit, layers=tuple(shares.mean.tolist()))


def least_sum(parts: Sequence[Intervals], unit: str) -> Measurement:
    """The least over layers of the sum of shares of one whole; intervals add the parts' ends, so are too wide."""
    ends = (sum((getattr(part, end) for part in parts[1:]), getattr(parts[0], end)) for end in ("mean", "low", "high"))
    mean, low, high = ends
    return extreme(replace(parts[0], mean=mean, low=low, high=high), unit, least=True)


def share_that_falls_more(
    without_last: Float[Tensor, "layer sampled"], without_first: Float[Tensor, "layer sampled"]
) -> Measurement:
    """Share of sampled memories whose coefficient falls more without the last token than without the first."""
    measured = without_last.isfinite() & without_first.isfinite()
    more = (without_last > without_first).double()
    share = bootstrap_mean(more[measured])
    layers = tuple(float(row[there].mean()) for row, there in zip(more, measured, strict=True))
    return measurement(share, "memories", layers)


def lead_of_first_layer(fall: Float[Tensor, "layer sampled"], n_resamples: int = 2000) -> Measurement:
    """By how much the mean fall in the first layer exceeds that of the layer that comes nearest to it, or leads it.

    The leads over all other layers have intervals that hold at once (bootstrap, by the largest deviation in its
    standard errors), as which of them is the nearest is seen in the same data.
    """
    rows = [row[row.isfinite()].double() for row in fall]
    layers = tuple(float(row.mean()) for row in rows)
    first, *others = (_resampled(row, seed, n_resamples) for seed, row in enumerate(rows))
    leads = layers[0] - torch.tensor(layers[1:], dtype=torch.float64)
    moved = first[:, None] - torch.stack(others, dim=1) - leads
    error = moved.std(0)
    furthest = (moved.abs() / error).nan_to_num(nan=0.0).amax(1)
    half = furthest.quantile(0.95) * error
    low, value, high = (float(each.min()) for each in (leads - half, leads, leads + half))
    return Measurement(value=value, low=low, high=high, n=sum(map(len, rows)), unit="memories", layers=layers)
