"""Examples of what a head does: where it writes most, at every level of how much it writes, and anywhere.

The strongest examples alone mislead (Bolukbasi et al. 2021, "An interpretability illusion for BERT"): what a head does
at its extremes need not be what it does. So beside the exact top stand

* deciles: one query from each tenth of the distribution of how much the head writes. It is drawn from the random
  sample of `interp.position_sample`, and its rank, the share of queries at which the head writes less, is bounded
  exactly by the histogram of all queries (`rank_low`, `rank_high`: the edges of its bin, 1.6% wide at most) and
  estimated inside the bin by the sample's order there, with a standard error of at most half the bin's share over the
  square root of how many sampled queries it holds.
* random: the first queries of the sample, uniform over the corpus, the same for all heads.

Which queries are sampled depends on the seed and corpus offsets alone, so any split of the corpus gives the same.

Attention rows are not kept in the stream: `interp.example_rows` reads the kept windows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.head_stream import HeadStream
from interp.log_bins import bin_of
from interp.prefixes import Windows
from interp.topk import positions_of, values_of

N_DECILES = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Queries of a corpus, for every head."""

    start: Int[Tensor, "layer head example"]
    """Corpus offset of the first token of the query's window; -1 where there is no example."""

    query: Int[Tensor, "layer head example"]
    """Corpus offset of the query; -1 where there is no example."""

    value: Float[Tensor, "layer head example"]
    """How much the head writes there, in units of the stream; NaN where there is no example."""

    rank: Float[Tensor, "layer head example"]
    """Share of queries at which the head writes less: exact for the top, else an estimate between the bounds."""

    rank_low: Float[Tensor, "layer head example"]
    rank_high: Float[Tensor, "layer head example"]

    @property
    def present(self) -> Bool[Tensor, "layer head example"]:
        """Which examples exist."""
        return self.query >= 0


def top_examples(stream: HeadStream, windows: Windows) -> Examples:
    """The queries at which each head writes most, strongest first; of equals, the first in the corpus."""
    shape = (*stream.entropy.shape, -1)
    keys = stream.top.cpu().view(shape)
    found = positions_of(keys)
    rank = 1 - torch.arange(1, keys.shape[-1] + 1, dtype=torch.float64) / max(stream.n_queries, 1)
    rank = rank.expand(keys.shape)
    return _examples(windows, found, values_of(keys), (rank, rank, rank))


def decile_examples(stream: HeadStream, windows: Windows) -> Examples:
    """One query from each tenth of how much a head writes, least first; none where the sample has none."""
    ranks, n = _ranks(stream), len(stream.sample)
    tenth = (ranks[0] * N_DECILES).floor().clamp(0, N_DECILES - 1)
    in_order = torch.arange(n)
    firsts = [torch.where(tenth == d, in_order, n).amin(-1) for d in range(N_DECILES)]
    return _sampled(stream, windows, ranks, torch.stack(firsts, dim=-1))


def random_examples(stream: HeadStream, windows: Windows, n: int) -> Examples:
    """Queries drawn evenly from all, the same for every head."""
    chosen = torch.arange(min(n, len(stream.sample))).expand(*stream.entropy.shape, -1)
    return _sampled(stream, windows, _ranks(stream), chosen)


def _ranks(stream: HeadStream) -> tuple[Tensor, Tensor, Tensor]:
    """Rank, and its exact bounds, of every sampled query [layer, head, sample], as shares of all queries."""
    histogram = stream.written_histogram.double() / max(stream.n_queries, 1)
    up_to = histogram.cumsum(-1)
    bins = bin_of(stream.sample.values)
    order = stream.sample.values.argsort(dim=-1, stable=True)
    in_order = bins.gather(-1, order)
    first, behind = (torch.searchsorted(in_order, in_order, right=right) for right in (False, True))
    within = (torch.arange(len(stream.sample)) - first + 0.5) / (behind - first)
    high = up_to.gather(-1, bins)
    low = high - histogram.gather(-1, bins)
    share = torch.empty_like(low).scatter_(-1, order, within.double())
    return low + (high - low) * share, low, high


def _sampled(
    stream: HeadStream, windows: Windows, ranks: tuple[Tensor, Tensor, Tensor], which: Int[Tensor, "layer head example"]
) -> Examples:
    """Examples from the sample, by their place in it; none where that is beyond its end."""
    sample, n = stream.sample, len(stream.sample)
    absent, inside = which >= n, which.clamp_max(n - 1)
    found = sample.offsets[inside].masked_fill(absent, -1)
    return _examples(windows, found, sample.values.gather(-1, inside), tuple(rank.gather(-1, inside) for rank in ranks))


def _examples(windows: Windows, query: Tensor, value: Tensor, ranks: Sequence[Tensor]) -> Examples:
    absent = query < 0
    rank, low, high = (each.float().masked_fill(absent, torch.nan) for each in ranks)
    return Examples(
        start=windows.start_of(query).masked_fill(absent, -1),
        query=query,
        value=value.masked_fill(absent, torch.nan),
        rank=rank,
        rank_low=low,
        rank_high=high,
    )
