"""Histograms of coefficients of either sign: four bins to an octave, read off the bits of a float.

The first bin of a side holds what lies below 2^-10 on it, zero and the other sign too; then come the quarters of each
octave; the last holds everything from 1.75 * 2^5 up. A float's sign, exponent and first two bits of mantissa say which.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

N_BINS = 65
"""Bins of one side."""

N_SIGNED = 2 * N_BINS + 1
"""Bins while both sides are counted at once: negative by falling magnitude, zero (below 2^-128), positive."""

_FIRST = (127 - 10) * 4  # exponent and two bits of mantissa of 2^-10
_CODES = 2**10  # exponents and two bits of mantissa, of either sign


def histogram_edges() -> Float[Tensor, " edge"]:
    """Lower edges of all bins but the first: 2^-10 times 1, 1.25, 1.5, 1.75, 2, 2.5 ... The last bin has no upper edge.

    >>> [round(edge * 2**10, 2) for edge in histogram_edges()[:6].tolist()]
    [1.0, 1.25, 1.5, 1.75, 2.0, 2.5]
    """
    return ((torch.arange(N_BINS - 1, dtype=torch.int32) + _FIRST) << 21).view(torch.float32)


def share_above(histogram: Int[Tensor, "*axes bin"], thresholds: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Share of prefixes whose coefficient reaches the bin edge at or just below each threshold."""
    first = torch.bucketize(thresholds, histogram_edges(), right=True)  # the bin that the threshold lies in
    reached = torch.arange(N_BINS) >= first[..., None]
    counts = histogram.double()
    return ((counts * reached).sum(-1) / counts.sum(-1).clamp_min(1)).float()


def signed_bins() -> Int[Tensor, " code"]:
    """The signed bin of every `code_of`, from 0 on."""
    magnitude = (torch.arange(_CODES, dtype=torch.int32) - _FIRST + 1).clamp(0, N_BINS - 1) + 1
    magnitude[0] = 0
    return torch.cat([-magnitude, magnitude]) + N_BINS


def code_of(values: Float[Tensor, "*axes"], out: Int[Tensor, "*axes"] | None = None) -> Int[Tensor, "*axes"]:
    """Sign, exponent and two bits of mantissa of fp32 values as a number from 0 to 2047; negative ones come first."""
    return torch.bitwise_right_shift(values.view(torch.int32), 21, out=out).add_(_CODES)


def sides(counts: Int[Tensor, "*rows signed_bin"]) -> tuple[Int[Tensor, "*rows bin"], Int[Tensor, "*rows bin"]]:
    """The histogram of values from their counts per signed bin, and that of the values with their signs turned."""
    return _side(counts), _side(counts.flip(-1))


def above_zero(counts: Int[Tensor, "*rows signed_bin"]) -> tuple[Int[Tensor, "*rows"], Int[Tensor, "*rows"]]:
    """How many values are positive and how many negative, from their counts per signed bin."""
    return counts[..., N_BINS + 1 :].sum(-1), counts[..., :N_BINS].sum(-1)


def _side(counts: Int[Tensor, "*rows signed_bin"]) -> Int[Tensor, "*rows bin"]:
    near_zero = counts[..., : N_BINS + 2].sum(-1, keepdim=True)
    return torch.cat([near_zero, counts[..., N_BINS + 2 :]], dim=-1)
