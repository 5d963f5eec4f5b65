"""Sums of fp64 numbers that do not depend on their order: integers, in three limbs.

Adding fp64 numbers rounds, so that parts of a corpus added in another order give other last digits. Here each number is
written as a multiple of 2^32 and two rests, multiples of 2^-8 and of 2^-48, and integers add exactly: any order and any
grouping give the same bits. A number is rounded once, by at most 2^-49.

A sum may reach 2^94 (2e28) and hold 2^23 numbers; where more is added up, `added` says so before anything is wrong.
Read over a billion prefixes, coefficients may be 4e9 each, further than any model that is of use goes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model.errors import InputError

N_LIMBS = 3
_UNITS = (2.0**32, 2.0**-8, 2.0**-48)
_CARRY = 40
"""Bits of a limb below the next one's unit."""
_MOST = 2**62
"""No limb reaches this: two of them add up within 64 bits."""


def limbs(values: Float[Tensor, "*axes"]) -> Int[Tensor, " limb *axes"]:
    """Finite fp64 numbers as integers, to be `added`; `value_of` reads them.

    >>> round(float(value_of(limbs(torch.tensor([0.1, 2.5e9]).double()).sum(1))), 6)
    2500000000.1
    """
    if values.numel() and float(values.abs().max()) >= _MOST * _UNITS[0]:
        raise InputError(_TOO_LARGE)
    parts = []
    for unit in _UNITS:
        parts.append((values / unit).round())
        values = values - parts[-1] * unit
    return torch.stack(parts).long()


def added(left: Int[Tensor, " limb *axes"], right: Int[Tensor, " limb *axes"]) -> Int[Tensor, " limb *axes"]:
    """The sum of both, exactly; raises `InputError` where it would not be."""
    sums = left + right
    if sums.numel() and int(sums.abs().max()) >= _MOST:
        raise InputError(_TOO_LARGE)
    return sums


def value_of(sums: Int[Tensor, " limb *axes"]) -> Float[Tensor, "*axes"]:
    """The fp64 number nearest to what the limbs add up to, but for two roundings."""
    high, middle, low = sums
    middle, low = middle + (low >> _CARRY), low & (2**_CARRY - 1)
    high, middle = high + (middle >> _CARRY), middle & (2**_CARRY - 1)
    return high.double() * _UNITS[0] + middle.double() * _UNITS[1] + low.double() * _UNITS[2]


_TOO_LARGE = (
    "The coefficients of an FFN layer are so large that their squares add up to more than 2e28, which cannot be summed "
    "exactly; look whether the model has diverged, or read fewer tokens (--set n_tokens=...)."
)
