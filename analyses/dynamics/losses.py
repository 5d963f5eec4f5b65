"""What losses say of when something formed: whether and when copying grew, how suddenly, and what was lost again.

The reference is the last checkpoint throughout: half of a rise, a share of it, and whether it formed at all (for
training-dynamics).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.dynamics.result import Result
from interp.crossings import Crossing, Crossings, half_rises
from interp.stats import Interval, bootstrap_mean, resampled_means

LEAST_COPYING = 0.5
"""Nats by which the second copy must come to cost less than the first for copying to count as formed."""
LEAST_ICL = 0.1
"""Nats by which the in-context-learning score must fall to count."""
LEAST = {"copying": LEAST_COPYING, "icl_score": LEAST_ICL}
"""The same by the names of the losses."""
SHARE, WINDOW = 0.6, 0.2
"""A change is called sudden where this share of it falls into this share of all steps, or fewer."""


def gain(result: Result, name: str) -> Interval:
    """A loss at the last checkpoint minus the same at the first, paired by sequence."""
    values, config = result.losses[name].values, result.config
    return bootstrap_mean(values[-1] - values[0], config.n_resamples, config.seed, config.level)


def loss_crossing(result: Result, name: str) -> Crossing | None:
    """When a loss was half way: copying, which rises, or another one, which falls."""
    if name not in result.losses or len(result.steps) < 2:
        return None
    return crossings_of(result, _sign(name) * result.losses[name].values[..., None])[(0,)]


def grew(result: Result, name: str) -> bool | None:
    """Whether a loss surely moved by `LEAST` since the first checkpoint, the way that helps; None where unsure."""
    if len(result.steps) < 2:
        return False
    moved, least = _helping(name, gain(result, name)), LEAST[name]
    return True if moved.low >= least else False if moved.high < least else None


def there_at_first(result: Result, name: str) -> bool:
    """Whether the first checkpoint has a loss of `LEAST` or more already, so that when it formed cannot be told.

    Step 0, untrained, is where a change is counted from, whatever it has, unless nothing was added to it.
    """
    known = _helping(name, result.loss_at(name, 0)).low >= LEAST[name]
    return known and not (result.starts_at_zero and grew(result, name))


def formed_since_first(result: Result, name: str) -> bool:
    """Whether a loss formed between the checkpoints: it surely grew, and was not there at the first."""
    return bool(grew(result, name)) and not there_at_first(result, name)


@dataclass(frozen=True, kw_only=True)
class Peak:
    """What a loss had come to before it fell back."""

    step: int
    value: Interval


def fell_back(result: Result, name: str) -> Peak | None:
    """Where a loss was best, if it had come to `LEAST` there and surely lost as much by the last checkpoint."""
    values, config = _sign(name) * result.losses[name].values, result.config
    best = int(values.mean(1).argmax())
    value = result.loss_at(name, best)
    won, lost = (
        bootstrap_mean(values[best] - values[than], config.n_resamples, config.seed, config.level) for than in (0, -1)
    )
    had = max(won.low, _helping(name, value).low) >= LEAST[name]
    return Peak(step=result.steps[best], value=value) if had and lost.low >= LEAST[name] else None


def crossings_of(result: Result, values: Float[Tensor, "step sequence *shape"]) -> Crossings:
    """When the means over sequences of several curves were half way up."""
    config = result.config
    return half_rises(
        result.steps, values.transpose(0, 1), n_resamples=config.n_resamples, seed=config.seed, level=config.level
    )


@dataclass(frozen=True, kw_only=True)
class Change:
    """The narrowest stretch of training that holds `SHARE` of what copying earned at the last checkpoint.

    What lies above that value at a checkpoint was lost again, and is not counted: no stretch holds more than all.
    """

    start: int
    end: int
    """The checkpoints at its ends."""
    share: float
    """How much of the whole gain lies in it; `SHARE` or more."""
    width: Interval
    """Its length as a share of all steps; each resample picks its own stretch."""
    least_width: float
    """What is surely needed: the length without its first and its last gap between checkpoints."""

    @property
    def sudden(self) -> bool | None:
        """Whether it is at most `WINDOW` of all steps; None where intervals or gaps of checkpoints leave it open."""
        if self.width.high <= WINDOW:
            return True
        return False if self.width.low > WINDOW and self.least_width > WINDOW else None


def change(result: Result) -> Change | None:
    """Where copying formed; None where it did not, or was there at the first checkpoint."""
    if not formed_since_first(result, "copying"):
        return None
    values, config = result.losses["copying"].values.double(), result.config
    mean = _up_to_last(values.mean(1)[None])
    start, end, width = _narrowest(result.steps, mean)
    drawn = _up_to_last(resampled_means(values.T, config.n_resamples, config.seed))
    _, _, widths = _narrowest(result.steps, drawn)
    tail = torch.tensor([(1 - config.level) / 2, (1 + config.level) / 2], dtype=torch.float64)
    low, high = widths.quantile(tail).tolist()
    i, j = int(start[0]), int(end[0])
    total = result.steps[-1] - result.steps[0]
    inner = max(0, result.steps[j - 1] - result.steps[i + 1]) if j - i > 1 else 0
    return Change(
        start=result.steps[i],
        end=result.steps[j],
        share=float((mean[0, j] - mean[0, i]) / (mean[0, -1] - mean[0, 0])),
        width=Interval(
            mean=float(width[0]), low=low, high=high, n=values.shape[1], level=config.level, method="percentile"
        ),
        least_width=inner / total,
    )


def _sign(name: str) -> int:
    """Copying helps as it grows; the other losses help as they fall."""
    return 1 if name == "copying" else -1


def _helping(name: str, known: Interval) -> Interval:
    """The interval turned so that more is better."""
    if _sign(name) > 0:
        return known
    return replace(known, mean=-known.mean, low=-known.high, high=-known.low)


def _up_to_last(curves: Float[Tensor, "draw step"]) -> Float[Tensor, "draw step"]:
    """Curves without what lies above their last values."""
    return torch.minimum(curves, curves[:, -1:])


def _narrowest(steps: tuple[int, ...], curves: Float[Tensor, "draw step"]) -> tuple[Tensor, Tensor, Tensor]:
    """Of each curve the narrowest stretch with `SHARE` of its whole rise: both ends, and its share of all steps."""
    needed = SHARE * (curves[:, -1:] - curves[:, :1])
    places = torch.tensor(steps, dtype=torch.float64)
    best = torch.full((len(curves),), torch.inf, dtype=torch.float64)
    start, end = torch.zeros(len(curves), dtype=torch.long), torch.full((len(curves),), len(steps) - 1)
    for i in range(len(steps) - 1):
        enough = curves[:, i + 1 :] - curves[:, i : i + 1] >= needed
        j = i + 1 + enough.double().argmax(1)
        length = torch.where(enough.any(1), places[j] - places[i], torch.inf)
        better = length < best
        best = torch.where(better, length, best)
        start, end = torch.where(better, i, start), torch.where(better, j, end)
    whole = places[-1] - places[0]
    return start, end, torch.where(best.isfinite(), best / whole, 1.0)
