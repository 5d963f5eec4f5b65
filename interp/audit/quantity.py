"""A number together with the yardstick of its rounding.

What a computation rounds away is proportional to the magnitudes that went into it, not to what came out: a sum of
large terms that cancel is known no better than its terms. So every reference value is carried in fp64 beside its
*size*, the same computation with the magnitudes of all terms (running error analysis: Wilkinson 1963; Higham, "Accuracy
and Stability of Numerical Algorithms", chapter 3). An error is stated relative to the size. There n terms added in any
order are off by at most n unit roundoffs, and, as roundings fall either way, by about sqrt(n) (Higham and Mary 2019).

Below the smallest normal number of a format, numbers stand at equal distances, and rounding is off by as much as it is
at that number. So every number that was read counts as at least that large: nothing in fp32 or bf16 (1e-38), a matter
of 3e-8 in fp16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Quantity:
    """A reference value and its size, elementwise, in fp64 on the CPU."""

    value: Float[Tensor, "*axes"]
    size: Float[Tensor, "*axes"]

    @classmethod
    def of(cls, tensor: Tensor) -> Quantity:
        """A tensor as it was read: its size is its magnitude, and the least that its format rounds to in proportion."""
        value = exact(tensor)
        return cls(value, value.abs() + smallest_normal(tensor.dtype))

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.value + other.value, self.size + other.size)

    def times(self, factor: float) -> Quantity:
        """Multiplied by a number."""
        return Quantity(self.value * factor, self.size * abs(factor))

    def product(self, equation: str, other: Tensor) -> Quantity:
        """The einsum of this and a known tensor."""
        known = exact(other)
        return Quantity(torch.einsum(equation, self.value, known), torch.einsum(equation, self.size, known.abs()))

    def through(self, weight: Float[Tensor, "out in"], bias: Tensor | None) -> Quantity:
        """Through a linear map, its weight as torch stores it."""
        out = self.product("...i,oi->...o", weight)
        return out if bias is None else out + Quantity.of(bias)

    def summed(self, axis: int) -> Quantity:
        """Summed over an axis."""
        return Quantity(self.value.sum(axis), self.size.sum(axis))

    def error(self, found: Tensor) -> float:
        """The largest difference to what was found, relative to the size; not a number where either is not."""
        difference = (exact(found) - self.value).abs()
        relative = difference / (self.size + smallest_normal(found.dtype))
        return float(torch.where(difference == 0, 0.0, relative).max())


def exact(tensor: Tensor) -> Float[Tensor, "*axes"]:
    """A tensor in fp64 on the CPU."""
    return tensor.detach().to("cpu", torch.float64)


def unit_roundoff(dtype: torch.dtype) -> float:
    """The largest relative error of rounding to a number format: half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def smallest_normal(dtype: torch.dtype) -> float:
    """The smallest number of a format whose neighbours stand as close, in proportion, as those of 1."""
    return torch.finfo(dtype).smallest_normal


def rounding(dtype: torch.dtype, n_terms: int, *, n_stored: int = 4) -> float:
    """What rounding is allowed to cost, relative to the size of a quantity.

    Args:
        dtype: the number format in which results are stored.
        n_terms: terms added in fp32, or better if the format is better: 4 sqrt(n_terms) unit roundoffs of that.
        n_stored: intermediate results rounded to the format itself: a unit roundoff each.
    """
    inner = torch.promote_types(dtype, torch.float32)
    return n_stored * unit_roundoff(dtype) + 4 * math.sqrt(n_terms) * unit_roundoff(inner)
