"""How far back attention reaches: sums along the diagonals of a pattern, and what even attention would do.

A causal pattern [query, key] that lies row by row in memory is, read with a row stride one longer, the same numbers as
[query, distance]: entry (i, i - d) lies d places before i (n + 1). So the sums over all queries, for every distance at
once, are one product with a vector, and nothing is copied. Entries that the longer rows pick up beside their own lie
above the diagonal, where causal attention is 0.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

N_EXACT = 64
"""Distances below this have a bin of their own; then four bins to an octave."""


def distance_sums(
    attention: Float[Tensor, "batch head query key"], queries: Bool[Tensor, "batch query"]
) -> Float[Tensor, "head key"]:
    """What the marked queries give to keys at each distance 0, 1, ..., n - 1, summed over the batch, in fp64.

    `attention` is causal (0 above the diagonal). Query 0, whose only key is itself, is never counted.
    """
    n_batch, n_heads, n_pos, _ = attention.shape
    if n_pos == 1:
        return attention.new_zeros(n_heads, 1, dtype=torch.float64)
    flat = attention.contiguous().view(n_batch * n_heads, n_pos, n_pos)
    by_distance = flat.as_strided(
        (len(flat), n_pos - 1, n_pos), (n_pos * n_pos, n_pos + 1, 1), flat.storage_offset() + 2
    )
    counted = queries[:, None, None, 1:].to(flat.dtype).expand(-1, n_heads, -1, -1)
    sums = torch.bmm(counted.reshape(len(flat), 1, n_pos - 1), by_distance).view(n_batch, n_heads, n_pos)
    return sums.double().sum(0).flip(-1)


def even_received(queries: Bool[Tensor, "batch query"]) -> Float[Tensor, "batch key"]:
    """What every key would receive from the marked queries, if each spread its attention evenly over what it sees.

    >>> even_received(torch.tensor([[False, True, True]]))  # 1/2 + 1/3, twice, and 1/3
    tensor([[0.8333, 0.8333, 0.3333]], dtype=torch.float64)
    """
    per_key = queries.double() / torch.arange(1, queries.shape[1] + 1, device=queries.device)
    return per_key.flip(-1).cumsum(-1).flip(-1)


def even_distances(n_queries: Int[Tensor, " position"]) -> Float[Tensor, " distance"]:
    """What even attention would give to keys at each distance, key position 0 left out.

    `n_queries` says how many queries stand at each position. Query i gives 1/(i + 1) to each distance below i, and
    as much to position 0.

    >>> even_distances(torch.tensor([0, 1, 1]))
    tensor([0.8333, 0.3333, 0.0000], dtype=torch.float64)
    """
    per_key = n_queries.double() / torch.arange(1, len(n_queries) + 1)
    return torch.cat([per_key.flip(0).cumsum(0).flip(0)[1:], torch.zeros(1, dtype=torch.float64)])


def distance_edges(n_distances: int) -> Int[Tensor, " bin"]:
    """The lowest distance of each bin: 0, 1, ..., 63, and then 64 times 2^(1/4), 2^(2/4), ..., in whole numbers.

    >>> distance_edges(200)[62:].tolist()
    [62, 63, 64, 76, 91, 108, 128, 152, 181]
    """
    if n_distances <= N_EXACT:
        return torch.arange(n_distances)
    octaves = torch.arange(4 * (n_distances.bit_length() - 5), dtype=torch.float64) / 4
    beyond = (N_EXACT * 2**octaves).round().long()
    return torch.cat([torch.arange(N_EXACT), beyond[beyond < n_distances]])


def binned_distances(by_distance: Num[Tensor, "*axes distance"]) -> Num[Tensor, "*axes bin"]:
    """Sums over the distances of each bin of `distance_edges`."""
    n = by_distance.shape[-1]
    edges = distance_edges(n)
    which = torch.bucketize(torch.arange(n), edges, right=True) - 1
    sums = by_distance.new_zeros(*by_distance.shape[:-1], len(edges))
    return sums.index_add_(-1, which, by_distance)


def median_distances(by_distance: Float[Tensor, "*axes distance"]) -> Float[Tensor, "*axes"]:
    """The smallest distance within which half of the attention lies; NaN where there is none."""
    reached = by_distance.cumsum(-1)
    total = reached[..., -1:]
    median = (reached < total / 2).sum(-1).to(by_distance.dtype)
    return median.masked_fill(total[..., 0] <= 0, torch.nan)


def mean_distances(by_distance: Float[Tensor, "*axes distance"]) -> Float[Tensor, "*axes"]:
    """The mean distance of what is attended to; NaN where there is nothing."""
    distance = torch.arange(by_distance.shape[-1], dtype=by_distance.dtype)
    return (by_distance * distance).sum(-1) / by_distance.sum(-1)
