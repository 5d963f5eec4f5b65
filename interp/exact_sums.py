"""Sums of fp64 numbers that do not depend on their order: integers, in two limbs.

Adding fp64 numbers rounds, so that parts of a corpus added in another order give other last digits. Here each number is
written as a multiple of 2^-8 and a rest, a multiple of 2^-48, and integers add exactly: any order and any grouping give
the same bits. A number is rounded once, by at most 2^-49; sums may reach 2^54, and hold 2^24 numbers.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_HIGH, _LOW = 2.0**8, 2.0**48


def limbs(values: Float[Tensor, "*axes"]) -> Int[Tensor, " limb *axes"]:
    """fp64 numbers as integers, to be added; `value_of` reads them.

    >>> round(float(value_of(limbs(torch.tensor([0.1, 2.5e9]).double()).sum(1))), 6)
    2500000000.1
    """
    high = (values * _HIGH).round()
    low = ((values - high / _HIGH) * _LOW).round()
    return torch.stack([high, low]).long()


def value_of(sums: Int[Tensor, " limb *axes"]) -> Float[Tensor, "*axes"]:
    """The fp64 number nearest to what two limbs add up to, but for one rounding."""
    return sums[0].double() / _HIGH + sums[1].double() / _LOW
