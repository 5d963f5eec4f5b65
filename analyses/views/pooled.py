"""Patterns made smaller: pooled by what is largest, never averaged, so that a single strong weight stays in sight."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from analyses.views.payload import Scale, packed

SIDES = (64, 32, 16)
"""Sides that a thumbnail may have, in pixels."""

MOST = 200_000
"""Bytes that the thumbnails of one pattern may take once encoded; with more heads they get smaller."""


def pool_max(pattern: Float[Tensor, "head query key"], factor: int) -> Float[Tensor, "head row column"]:
    """Return `pattern` with each `factor` by `factor` square replaced by what is largest in it, be it below zero."""
    if factor == 1:
        return pattern
    highest = F.max_pool2d(pattern[None], factor, ceil_mode=True)[0]
    if not bool((pattern < 0).any()):
        return highest
    lowest = -F.max_pool2d(-pattern[None], factor, ceil_mode=True)[0]
    return torch.where(-lowest > highest, lowest, highest)


def levels(values: Float[Tensor, " *axes"], scale: Scale) -> Float[Tensor, " *axes"]:
    """Where each value lies between the ends of the scale, 0 to 1."""
    return (values - scale.low) / (scale.high - scale.low)


def rooted(values: Float[Tensor, " *axes"], scale: Scale) -> Float[Tensor, " *axes"]:
    """Levels in which weak values are seen: square roots, to either side of zero where values are signed."""
    if scale.kind == "sequential":
        return levels(values, scale).clamp(min=0).sqrt()
    signed = 2 * levels(values, scale) - 1
    return (1 + signed.sign() * signed.abs().sqrt()) / 2


def cells(squares: Float[Tensor, "head row column"], *, causal: bool) -> Float[Tensor, "head cell"]:
    """Return what is sent of each square: its lower triangle, row by row, or all of it."""
    if not causal:
        return squares.flatten(1)
    rows, columns = torch.tril_indices(squares.shape[1], squares.shape[2])
    return squares[:, rows, columns]


def thumb_side(n_heads: int, *, causal: bool) -> int:
    """Return the largest side at which the thumbnails of `n_heads` heads stay below `MOST` bytes, or the smallest."""

    def size(side: int) -> float:
        return n_heads * (side * (side + 1) / 2 if causal else side * side) * 4 / 3

    return next((side for side in SIDES if size(side) <= MOST), SIDES[-1])


def small(pattern: Float[Tensor, "head query key"], scale: Scale, side: int, *, causal: bool) -> str:
    """Return the patterns pooled to at most `side` by `side`, at 8 bits of `rooted`, packed."""
    factor = -(-pattern.shape[-1] // side)
    return packed(cells(rooted(pool_max(pattern, factor), scale), causal=causal), 8)
