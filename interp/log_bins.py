"""Histograms of lengths over many orders of magnitude, exact counts in bins that are narrow everywhere.

Sixty-four bins to an octave from 2^-20 to 2^20, so that a bin is at most 1.6% wide; one below (zero too), one above.
The bin is read off the bits of a float: exponent and six bits of the mantissa.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_PER_OCTAVE_BITS, _OCTAVES = 6, 20
_SHIFT = 23 - _PER_OCTAVE_BITS
_FIRST = (127 - _OCTAVES) << _PER_OCTAVE_BITS

N_BINS = (2 * _OCTAVES << _PER_OCTAVE_BITS) + 2


def bin_of(values: Float[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
    """The bin of each value; whatever is below 2^-20, negative numbers too, is in bin 0."""
    bits = values.float().contiguous().view(torch.int32) >> _SHIFT
    return (bits - _FIRST + 1).clamp(0, N_BINS - 1).long()


def bin_edges() -> Float[Tensor, " edge"]:
    """The lowest value of every bin but the first.

    >>> [round(edge * 2**20, 4) for edge in bin_edges()[:4].tolist()]
    [1.0, 1.0156, 1.0312, 1.0469]
    """
    return ((torch.arange(N_BINS - 1, dtype=torch.int32) + _FIRST) << _SHIFT).view(torch.float32)


def binned_counts(values: Float[Tensor, "row value"]) -> Int[Tensor, "row bin"]:
    """How many values of each row fall into each bin."""
    n_rows = len(values)
    offsets = torch.arange(n_rows, device=values.device)[:, None] * N_BINS
    return torch.bincount((bin_of(values) + offsets).flatten(), minlength=n_rows * N_BINS).view(n_rows, N_BINS)
