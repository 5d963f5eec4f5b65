"""The bound of a claim, such as `harm >= 1.0`, and what one number per sequence says beside it.

    harm      ablated minus clean, worse being positive, in the metric's unit (nats)
    gain      the reverse: by how much the ablation makes it better
    |harm|    its size either way; at most so much of it is a claim of absence
    share     of an ablation: harm over (loss of token frequencies - clean loss); of a path: its effect over the
              sender's total effect. A ratio of means, never a mean of ratios.

A claim is judged three times, and all must agree: the whole bootstrap interval at level 1 - alpha lies on one side of
the bound; so does the whole studentized interval (Efron and Tibshirani 1993, ch. 12.5), since the usual one is too
narrow where deltas are skewed; and a sign-flip test tells the mean from the bound. The latter two take, for a share,
the mean of effect - bound * whole, which is zero exactly where the ratio is the bound. An interval that merely holds
the bound decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import Float
from torch import Tensor

from interp.sequential import studentized
from interp.stats import Interval, bootstrap_mean, bootstrap_ratios, sign_flip_p
from model.errors import InputError, closest
from model.settings import as_enum

Values = Float[Tensor, " sequence"]

WHOLE_FLOOR = 0.05
"""Nats; of a whole that may be smaller, no share is told."""


class Quantity(StrEnum):
    """What a bound is about."""

    HARM = "harm"
    GAIN = "gain"
    SIZE = "|harm|"
    SHARE = "share"


class Standing(StrEnum):
    """What comes of a claim."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """At least, or at most, so much of something."""

    quantity: Quantity
    at_least: bool
    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantity", as_enum(Quantity, self.quantity, "quantity"))

    def __str__(self) -> str:
        return f"{self.quantity} {'>=' if self.at_least else '<='} {self.value:g}"

    @property
    def is_share(self) -> bool:
        """Whether the bound is a share and not an amount."""
        return self.quantity == Quantity.SHARE

    @property
    def is_absence(self) -> bool:
        """Whether it says that at most so much is lost."""
        return not self.at_least and not self.is_share

    def holds(self, interval: Interval) -> bool:
        """Whether all of the interval satisfies the bound."""
        if self.at_least:
            return interval.low >= self.value
        return interval.high <= self.value and (self.quantity != Quantity.SIZE or interval.low >= -self.value)

    def fails(self, interval: Interval) -> bool:
        """Whether none of the interval satisfies the bound."""
        if self.at_least:
            return interval.high < self.value
        return interval.low > self.value or (self.quantity == Quantity.SIZE and interval.high < -self.value)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An effect beside its bound."""

    interval: Interval
    """Of what the bound is about, in its unit, at level 1 - alpha."""

    p: float
    """Two-sided sign-flip p that the mean is the bound."""

    standing: Standing
    """By the intervals alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "standing", as_enum(Standing, self.standing, "standing"))


_BOUND = re.compile(r"(?P<quantity>\S+?)\s*(?P<relation>>=|<=)\s*(?P<value>[-+.\deE]+)")
_HOW = "Write `harm >= 1.0` or `harm <= 0.05` in the metric's unit, `|harm| <= 0.05`, `gain >= 0.1`, or `share >= 0.5`."


def parse_bound(text: str) -> Bound:
    """Read a bound and refuse one that no measurement could meet, or none could miss.

    >>> str(parse_bound("share >= 0.50"))
    'share >= 0.5'

    Raises:
        InputError: not a bound; a share outside 0 to 1; negative; or a form that says nothing.
    """
    found = _BOUND.fullmatch(text.strip())
    if found is None:
        raise InputError(f'"{text}" is no bound. {_HOW}')
    name, at_least = found["quantity"], found["relation"] == ">="
    if name not in list(Quantity):
        raise InputError(f'"{name}" is nothing that a bound is about.{closest(name, list(Quantity))} {_HOW}')
    try:
        value = float(found["value"])
    except ValueError:
        raise InputError(f'"{found["value"]}" in "{text}" is no number. {_HOW}') from None
    bound = Bound(quantity=Quantity(name), at_least=at_least, value=value)
    _require_sense(bound)
    return bound


def _require_sense(bound: Bound) -> None:
    if bound.value < 0:
        raise InputError(
            f'"{bound}" bounds by a negative number. A null says `|harm| <= 0.05` or `harm <= 0.05`; that the places '
            "hurt is said as `gain >= ...`."
        )
    if bound.is_share and not 0 < bound.value <= 1:
        raise InputError(f'"{bound}" is no share of a whole; give a number above 0 and up to 1.')
    if bound.quantity == Quantity.SIZE and bound.at_least:
        raise InputError(f'"{bound}" does not say in which direction; write `harm >= ...` or `gain >= ...`.')
    if bound.quantity == Quantity.GAIN and not bound.at_least:
        raise InputError(f'"{bound}" is no claim of absence, since harm would do too; write `|harm| <= ...`.')
    if bound.quantity == Quantity.SIZE and bound.value == 0:
        raise InputError(f'"{bound}" asks for exactly nothing, which no interval can show; give a bound above 0.')


def contrast(bound: Bound, harm: Values, whole: Values | None) -> tuple[Values, tuple[float, ...]]:
    """One number for each sequence, and what its mean is held against: the bound, or both ends of "within".

    Raises:
        InputError: a share of something that has no whole.
    """
    if bound.is_share:
        if whole is None:
            raise InputError(f'"{bound}" needs something to be a share of; bound this outcome in its own unit.')
        return harm - bound.value * whole, (0.0,)
    if bound.quantity == Quantity.SIZE:
        return harm, (-bound.value, bound.value)
    return (-harm if bound.quantity == Quantity.GAIN else harm), (bound.value,)


def judged(bound: Bound, harm: Values, whole: Values | None = None, *, alpha: float, seed: int) -> Judged:
    """Hold the harm of each sequence against the bound; a share needs `whole`, what it is a share of."""
    values, ends = contrast(bound, harm, whole)
    robust = studentized(values, level=1 - alpha, seed=seed)
    return judged_by(
        bound,
        estimate(bound, harm, whole, level=1 - alpha, seed=seed),
        sides=[robust.above(end) for end in ends],
        ps=[sign_flip_p(values - end, seed=seed) for end in ends],
    )


def judged_by(bound: Bound, interval: Interval, *, sides: Sequence[bool | None], ps: Sequence[float]) -> Judged:
    """From the interval of what the bound is about, and where the mean of `contrast` lies beside each of its ends.

    Args:
        bound: what is claimed.
        interval: as `estimate` gives it.
        sides: for each end whether the mean surely lies above it; None where that is open.
        ps: for each end the p that the mean is the end.
    """
    if bound.holds(interval) and _hold(bound, sides):  # within two ends: both must be told apart
        return Judged(interval=interval, p=max(ps), standing=Standing.SUPPORTED)
    if bound.fails(interval) and _fail(bound, sides):
        return Judged(interval=interval, p=ps[-1] if interval.mean > 0 else ps[0], standing=Standing.REFUTED)
    return Judged(interval=interval, p=max(ps), standing=Standing.UNDECIDED)


def _hold(bound: Bound, sides: Sequence[bool | None]) -> bool:
    if bound.quantity == Quantity.SIZE:
        return sides[0] is True and sides[1] is False
    return sides[0] is bound.at_least


def _fail(bound: Bound, sides: Sequence[bool | None]) -> bool:
    if bound.quantity == Quantity.SIZE:
        return sides[0] is False or sides[1] is True
    return sides[0] is (not bound.at_least)


def estimate(bound: Bound, harm: Values, whole: Values | None, *, level: float, seed: int) -> Interval:
    """What the bound is about, in its unit, with its interval."""
    if bound.is_share and whole is not None:
        return bootstrap_ratios(harm[:, None], whole[:, None], seed=seed, level=level)[0]
    return bootstrap_mean(contrast(bound, harm, whole)[0], seed=seed, level=level)
