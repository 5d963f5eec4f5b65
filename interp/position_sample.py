"""The same random positions of a corpus, however it is cut, dealt out or ordered.

Every position gets a number by hashing its offset with the seed, and the k smallest are kept. So whether a position is
in the sample depends on nothing but seed, offset and which other positions were read: two samples of disjoint parts
merge into that of the whole, exactly. All heads share the positions; beside each stand values, such as what every head
wrote there. The sample is uniform without replacement, and in the order of the hash each first part of it is one too.

The hash is the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection of 64-bit numbers, so that no two
positions are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from model.errors import InputError

_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, kw_only=True)
class PositionSample:
    """Positions with the smallest hashes, in the order of the hash, and values of every row at each."""

    order: Int[Tensor, " sample"]
    """Hash of each position, rising."""

    offsets: Int[Tensor, " sample"]

    values: Float[Tensor, "*rows sample"]
    """Fp32; NaN where a row has not been filled. One position's values lie side by side in memory."""

    capacity: int
    """Positions kept at most."""

    seed: int

    def __len__(self) -> int:
        return len(self.offsets)


def empty_sample(rows: tuple[int, ...], capacity: int, seed: int) -> PositionSample:
    """The sample of nothing."""
    if capacity < 1:
        raise InputError(f"a sample of {capacity} positions holds nothing; keep at least 1.")
    none = torch.empty(0, dtype=torch.int64)
    return PositionSample(order=none, offsets=none, values=torch.empty(*rows, 0), capacity=capacity, seed=seed)


def admitted(sample: PositionSample, offsets: Int[Tensor, " candidate"]) -> Int[Tensor, " admitted"]:
    """The candidates (indices into `offsets`) that could enter the sample: only these need values."""
    order = hashed(offsets, sample.seed)
    if len(sample) < sample.capacity:
        return order.argsort()[: sample.capacity]
    return (order < sample.order[-1]).nonzero()[:, 0]


def updated_sample(
    sample: PositionSample, offsets: Int[Tensor, " candidate"], values: Float[Tensor, "*rows candidate"]
) -> PositionSample:
    """The sample after more positions, none of which it has met."""
    order = hashed(offsets, sample.seed)
    return _smallest(sample, order, offsets, values)


def merged_samples(left: PositionSample, right: PositionSample) -> PositionSample:
    """The sample of both parts of a corpus; they must not overlap, and must share seed and capacity."""
    if (left.seed, left.capacity) != (right.seed, right.capacity):
        raise InputError(
            f"samples of {left.capacity} positions by seed {left.seed} and of {right.capacity} by seed {right.seed} "
            "do not merge; start both alike."
        )
    return _smallest(left, right.order, right.offsets, right.values)


def hashed(offsets: Int[Tensor, "*axes"], seed: int) -> Int[Tensor, "*axes"]:
    """A number for each offset that looks random, and is the same whenever offset and seed are."""
    bits = offsets.cpu().numpy().astype(np.uint64) + np.uint64((seed * _GOLDEN + _GOLDEN) % 2**64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy((bits ^ (bits >> np.uint64(31))).view(np.int64))


def _smallest(
    sample: PositionSample,
    order: Int[Tensor, " candidate"],
    offsets: Int[Tensor, " candidate"],
    values: Float[Tensor, "*rows candidate"],
) -> PositionSample:
    if not len(order):
        return sample
    all_order = torch.cat([sample.order, order])
    kept = all_order.argsort()[: sample.capacity]
    by_position = torch.cat([sample.values.movedim(-1, 0), values.float().movedim(-1, 0)])
    return PositionSample(
        order=all_order[kept],
        offsets=torch.cat([sample.offsets, offsets])[kept],
        values=by_position.index_select(0, kept).movedim(0, -1),
        capacity=sample.capacity,
        seed=sample.seed,
    )
