"""How a token's position enters the model: rotation, added vectors, or a penalty on distance.

Angles are computed in fp64 and applied in fp32 or better, whatever the model's dtype, so that a rotated dot product
depends on the distance alone even at position 4000 in bf16. Nothing is stored, so nothing can be cast by `.to(...)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary positions (Su et al. 2021, eq. 34), half-split: dimension i turns with dimension i + d_head / 2."""

    cos: Float[Tensor, "batch pos one d_head"]
    sin: Float[Tensor, "batch pos one d_head"]
    """With the sign that it has in each dimension: minus in the first half, plus in the second."""

    @classmethod
    def of(cls, positions: Int[Tensor, "batch pos"], d_head: int, base: float, dtype: torch.dtype) -> Rotation:
        """The rotation of each position; pair i turns by position * base^(-2 i / d_head)."""
        pairs = torch.arange(0, d_head, 2, dtype=torch.float64, device=positions.device)
        angles = positions.clamp(min=0).double()[..., None, None] * base ** (-pairs / d_head)
        dtype = torch.promote_types(dtype, torch.float32)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        return cls(torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1))

    def at(self, positions: Int[Tensor, "batch pos"]) -> Rotation:
        """The rotation of these positions, looked up in a table of positions 0, 1, 2, ..."""
        rows = positions.clamp(min=0)
        return Rotation(self.cos[0, rows], self.sin[0, rows])

    def __call__(self, x: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos head d_head"]:
        """`x` rotated; norms and dtype are kept."""
        exact = x if x.dtype is self.cos.dtype else x.to(self.cos.dtype)
        rotated = exact * self.cos + exact.roll(x.shape[-1] // 2, dims=-1) * self.sin
        return rotated if x.dtype is self.cos.dtype else rotated.to(x.dtype)


def sinusoids(positions: Int[Tensor, "batch pos"], d_model: int) -> Float[Tensor, "batch pos d_model"]:
    """Vaswani et al. 2017, section 3.5: sines in the even dimensions, cosines in the odd ones, in fp64."""
    pairs = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device)
    angles = positions.clamp(min=0).double()[..., None] * 10_000 ** (-pairs / d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def alibi_slopes(n_heads: int) -> Float[Tensor, " head"]:
    """Press et al. 2022, section 3: a geometric sequence from 2^(-8/n) for a power of two, interleaved for the rest.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * (n_heads - power), 2)]
    return torch.tensor(slopes + between, dtype=torch.float64)


def alibi_bias(
    query_positions: Int[Tensor, "batch query"],
    key_positions: Int[Tensor, "batch key"],
    n_heads: int,
    dtype: torch.dtype,
) -> Float[Tensor, "batch head query key"]:
    """What ALiBi adds to the scores: minus slope times distance."""
    distance = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).abs().double()
    slopes = alibi_slopes(n_heads).to(distance.device)[:, None, None]
    return (-slopes * distance).to(torch.promote_types(dtype, torch.float32))
