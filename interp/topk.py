"""The exact largest k of a stream that is too long to keep, whatever order it comes in.

A candidate is a value and the position it was seen at. Both go into one 64-bit integer: the value's bits, rearranged so
that integers sort as the floats do, above; the position, negated, below. A larger key is a larger value and, among
equal values, an earlier position. No two keys are equal, so there are no ties left to break, and any order of updates
and merges ends in the same k keys. Memory is k numbers per row.

Values are compared as fp32. Positions run from 0 to 2^32 - 2.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model.errors import InputError

EMPTY = -(2**63)
"""The key of a place that nothing has filled yet; smaller than every other."""

NOT_FINITE = "A value is not finite, so it has no rank; check that the checkpoint's loss is a number."

_LOW = 2**32 - 1
_MAGNITUDE = 2**31 - 1


def empty_top(n_rows: int, k: int) -> Int[Tensor, "row k"]:
    """The top k of nothing."""
    return torch.full((n_rows, k), EMPTY, dtype=torch.int64)


def sort_keys(values: Float[Tensor, "*axes"], positions: Int[Tensor, "*#axes"]) -> Int[Tensor, "*axes"]:
    """One integer per candidate: sorts by value, then by earlier position.

    >>> keys = sort_keys(torch.tensor([1.0, -2.0, 1.0]), torch.tensor([7, 3, 5]))
    >>> keys.argsort(descending=True).tolist()
    [2, 0, 1]
    """
    bits = (values.float() + 0.0).view(torch.int32)  # + 0.0 makes minus zero equal to zero
    ordered = torch.where(bits < 0, bits ^ _MAGNITUDE, bits)
    return (ordered.long() << 32) | (_LOW - positions)


def values_of(keys: Int[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The fp32 values inside keys; NaN where a place is empty."""
    ordered = (keys >> 32).int()
    return torch.where(ordered < 0, ordered ^ _MAGNITUDE, ordered).view(torch.float32)


def positions_of(keys: Int[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
    """The positions inside keys; -1 where a place is empty."""
    return torch.where(keys == EMPTY, -1, _LOW - (keys & _LOW))


def updated_top(
    top: Int[Tensor, "row k"], values: Float[Tensor, "row candidate"], positions: Int[Tensor, " candidate"]
) -> Int[Tensor, "row k"]:
    """The top k after more candidates, in falling order; raises `InputError` where a value is not a number."""
    if not values.isfinite().all():
        raise InputError(NOT_FINITE)
    if positions.numel() and int(positions.max()) >= _LOW:
        raise InputError(f"Position {int(positions.max())} is beyond {_LOW - 1}, the last one a key can hold.")
    return merged_tops(top, sort_keys(values, positions))


def merged_tops(top: Int[Tensor, "row k"], other: Int[Tensor, "row other"]) -> Int[Tensor, "row k"]:
    """The top k of two disjoint streams from the keys of each."""
    return torch.cat([top.to(other.device), other], dim=1).topk(top.shape[1], dim=1).values
