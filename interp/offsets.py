"""Relative positions: weights turned by an offset, as rope turns queries and keys.

A score q_i R_i (k_j R_j)^T depends on the offset i - j alone (query minus key position): q R(i - j) k^T. So a query is
turned by the offset and the key left as it is. Angles are the model's own (`model.positions.Rotation`), in fp64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from model.config import AttentionKind, Positions
from model.errors import InputError
from model.positions import Rotation

if TYPE_CHECKING:
    from model.config import GPTConfig

MOST_OFFSETS = 64
"""Of more offsets than this, as many evenly spaced ones stand for all."""


def turned(weights: Float[Tensor, "*axes d_head"], offset: int, config: GPTConfig) -> Float[Tensor, "*axes d_head"]:
    """Weights whose queries are turned by `offset`, backwards where it is negative; unchanged without rope."""
    if config.positions is not Positions.ROPE:
        return weights
    return _rotation([offset], config, weights)(weights.reshape(1, 1, -1, weights.shape[-1])).reshape(weights.shape)


def turned_grams(
    grams: Float[Tensor, "head d_head d_head"], offsets: Sequence[int], config: GPTConfig
) -> Float[Tensor, "head offset d_head d_head"]:
    """Gram matrices W^T W of weights turned by each offset, from those of the weights: R^T gram R."""
    each = grams.expand(len(offsets), -1, -1, -1)
    if config.positions is not Positions.ROPE:
        return each.transpose(0, 1)
    rotation = _rotation(offsets, config, grams)
    for _ in range(2):  # its columns, then its rows: a Gram matrix is symmetric
        each = rotation(each.flatten(1, 2)[None])[0].unflatten(1, (len(grams), -1)).mT
    return each.transpose(0, 1)


def _rotation(offsets: Sequence[int], config: GPTConfig, like: Tensor) -> Rotation:
    """The model's rotation of each offset, on an axis of positions."""
    by = torch.tensor([list(offsets)], device=like.device)
    forwards = Rotation.of(by.abs(), config.head_width, config.rope_base, like.dtype)
    return Rotation(forwards.cos, forwards.sin * by.sign()[..., None, None])


def _whole(offset: SupportsIndex) -> int:
    try:
        return index(offset)
    except TypeError:
        raise InputError(f"offset {offset} is no whole number of positions; give integers.") from None


def resolve_offsets(config: GPTConfig, offsets: int | Sequence[int] | None) -> tuple[int, ...]:
    """The offsets to look at: those given, or those of a full context, at most `MOST_OFFSETS` of them, evenly spaced.

    Without rope weights are the same at all offsets, and one stands for them.

    Raises:
        InputError: an offset no pair of positions of this model has.
    """
    causal = config.attention is AttentionKind.CAUSAL
    furthest = config.n_ctx - 1
    nearest = 0 if causal else -furthest
    if offsets is None:
        if config.positions is not Positions.ROPE:
            return (0,)
        n = min(furthest - nearest + 1, MOST_OFFSETS)
        return tuple(torch.linspace(nearest, furthest, n, dtype=torch.float64).round().long().tolist())
    given = tuple(_whole(each) for each in (offsets if isinstance(offsets, Iterable) else [offsets]))
    beyond = [offset for offset in given if not nearest <= offset <= furthest]
    if beyond or not given:
        raise InputError(
            f"offsets {list(given)} are not all query minus key positions of this model; "
            f"give one or more from {nearest} to {furthest}."
        )
    return given
