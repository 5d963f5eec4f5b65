"""Whether the common end of triggers that lie in one stretch of text says more than that they lie there.

A memory that fires in one table of numbers has triggers that end in digits because the table is made of digits. So
where most triggers end within 256 tokens of one document, their common end counts as a pattern only if it is commoner
among them than in that stretch, as far as it lies in the document: of the n triggers there, at least the k that share
it would do so by chance with probability under 1 / (1 + sets) if each token of the stretch were as likely to end one
(binomial). Neighbouring tokens are not independent, so the probability orders, and does not calibrate.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from interp.prefix_sets import REGION, PrefixSets


def beyond_region(
    tokens: Integer[np.ndarray, " corpus"],
    sets: PrefixSets,
    ends: Int[Tensor, "set prefix other"],
    present: Bool[Tensor, "set prefix"],
    n_last: int,
    level: float,
) -> Bool[Tensor, " set"]:
    """Whether each set's commonest last `n_last` tokens are commoner among its prefixes of its densest region."""
    rows = torch.arange(len(sets.offset))
    both = present[:, :, None] & present[:, None, :]
    region = (sets.near & both).sum(-1).argmax(-1)  # the prefix whose end begins the densest region
    commonest = (torch.where(both, ends, -1) >= n_last).sum(-1).argmax(-1)
    inside = (sets.near & both)[rows, region]
    k = (inside & (ends[rows, commonest] >= n_last)).sum(-1)
    stretch = sets.end[rows, region], sets.document_start[rows, region], sets.document_stop[rows, region]
    share = _share_of_region(tokens, *stretch, sets.last[rows, commonest, :n_last])
    return _upper_tail(k, inside.sum(-1), share) < level


def _share_of_region(
    tokens: np.ndarray,
    start: Int[Tensor, " set"],
    document_start: Int[Tensor, " set"],
    document_stop: Int[Tensor, " set"],
    wanted: Int[Tensor, "set token"],
) -> Float[Tensor, " set"]:
    """Share of the places in each region at which the wanted last tokens, the very last one first, end."""
    places = start[:, None] + torch.arange(REGION)
    inside = places < document_stop[:, None]
    alike = inside & (places - wanted.shape[1] + 1 >= document_start[:, None])
    for back in range(wanted.shape[1]):
        read = (places - back).clamp(0, len(tokens) - 1)
        alike &= torch.from_numpy(np.asarray(tokens[read.numpy()], dtype=np.int32)) == wanted[:, back, None]
    return alike.sum(-1).double() / inside.sum(-1).clamp_min(1)


def _upper_tail(k: Int[Tensor, " set"], n: Int[Tensor, " set"], share: Float[Tensor, " set"]) -> Float[Tensor, " set"]:
    """Probability of k or more of n under a binomial."""
    most = int(n.max()) if len(n) else 0
    j, n = torch.arange(most + 1).double(), n[:, None].double()
    ways = torch.lgamma(n + 1) - torch.lgamma(j + 1) - torch.lgamma((n - j).clamp_min(0) + 1)
    share = share[:, None].clamp(1e-12, 1 - 1e-12)
    terms = (ways + j * share.log() + (n - j) * (1 - share).log()).exp()
    return (terms * ((j >= k[:, None]) & (j <= n))).sum(-1)
