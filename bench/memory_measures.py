"""The numbers behind the targets on FFN memories, from what the studies ffn-memories and ffn-composition saved.

Every function takes the tensors it is about and gives a `Measurement`. Intervals are over what was drawn: memories of
one model (not independent of each other), or documents. Where a claim is about every layer, the number is that of the
layer that is furthest from the bar, with that layer's interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.stats import Interval, Intervals, bootstrap_mean

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
    """Agreement of the last third of the layers over that of the first third, of living memories."""
    third = max(1, len(agrees) // 3)
    first, last = (torch.cat(list(part)).double() for part in (agrees[:third], agrees[-third:]))
    n, layers = len(first) + len(last), tuple(float(each.double().mean()) for each in agrees)
    if not first.any():
        return Measurement(value=math.inf if last.any() else NAN, n=n, unit="memories", layers=layers)
    low, high = _ends(_resampled(last, seed=0) / _resampled(first, seed=1))
    value = float(last.mean() / first.mean())
    return Measurement(value=value, low=low, high=high, n=n, unit="memories", layers=layers)


def _resampled(values: Float[Tensor, " n"], seed: int, n_resamples: int = 2000) -> Float[Tensor, " resample"]:
    """Bootstrap means of one group; groups that are compared are drawn apart, each with as many as it has."""
    generator = torch.Generator().manual_seed(seed)
    return values[torch.randint(len(values), (n_resamples, len(values)), generator=generator)].mean(1)


def _ends(resampled: Float[Tensor, " resample"]) -> tuple[float, float]:
    """Ends of the 95% percentile interval; a ratio to nothing counts as larger than any."""
    ordered, out = resampled.nan_to_num(nan=math.inf, posinf=math.inf).sort().values, round(0.025 * len(resampled))
    return float(ordered[out]), float(ordered[-1 - out])


def third_ratio(shares: Sequence[float]) -> float:
    """The sum of the last third over that of the first; NaN where the first is nothing."""
    third = max(1, len(shares) // 3)
    first, last = sum(shares[:third]), sum(shares[-third:])
    return last / first if first > 0 else NAN


def extreme(shares: Intervals, unit: str, *, least: bool) -> Measurement:
    """The least or the largest of a number that every layer has."""
    layer = int(shares.mean.argmin() if least else shares.mean.argmax())
    return measurement(shares[layer], unit, tuple(shares.mean.tolist()))


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
    """The least over layers of the sum of shares of one whole; its interval adds the parts' ends, so is too wide."""
    total = sum(part.mean for part in parts)
    assert isinstance(total, Tensor)
    layer = int(total.argmin())
    low, high = (sum(float(getattr(part, end)[layer]) for part in parts) for end in ("low", "high"))
    value, layers = float(total[layer]), tuple(total.tolist())
    return Measurement(value=value, low=low, high=min(1.0, high), n=parts[0].n, unit=unit, layers=layers)


def share_that_falls_more(
    without_last: Float[Tensor, "layer sampled"], without_first: Float[Tensor, "layer sampled"]
) -> Measurement:
    """Share of sampled memories whose coefficient falls more without the last token than without the first."""
    measured = without_last.isfinite() & without_first.isfinite()
    more = (without_last > without_first).double()
    share = bootstrap_mean(more[measured])
    layers = tuple(float(row[there].mean()) for row, there in zip(more, measured, strict=True))
    return measurement(share, "memories", layers)


def lead_of_first_layer(fall: Float[Tensor, "layer sampled"]) -> Measurement:
    """By how much the mean fall in the first layer exceeds that of the layer that comes nearest to it, or leads it."""
    rows = [row[row.isfinite()].double() for row in fall]
    layers = tuple(float(row.mean()) for row in rows)
    rival = 1 + max(range(len(layers) - 1), key=lambda layer: layers[1 + layer])
    first, other = rows[0], rows[rival]
    low, high = _ends(_resampled(first, seed=0) - _resampled(other, seed=1))
    value, n = float(first.mean() - other.mean()), len(first) + len(other)
    return Measurement(value=value, low=low, high=high, n=n, unit="memories", layers=layers)
