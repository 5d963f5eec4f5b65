"""What a memory does everywhere: prefixes from each tenth of its coefficients, and random ones, beside its triggers.

The strongest examples alone mislead (Bolukbasi et al. 2021, "An interpretability illusion for BERT"): what fires a
memory at its extremes need not be what fires it elsewhere. So beside the exact triggers stand

* deciles: one prefix from each tenth of the memory's coefficients over the corpus. It is drawn from the random sample
  of `interp.position_sample`, and its rank, the share of prefixes with a smaller coefficient, is bounded exactly by the
  histograms of all prefixes (`decile_low`, `decile_high`: the ends of its bin) and estimated inside the bin by the
  sample's order there. Where many prefixes share one coefficient, as zero under ReLU, the bounds are as far apart as
  their share, and several tenths lie between them.
* random: the first prefixes of the sample, drawn evenly, the same for all memories.

Which prefixes are sampled depends on the seed and corpus offsets alone, so any split of the corpus gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from interp.coefficient_bins import histogram_edges
from interp.memory_stream import CoefficientStream
from interp.prefixes import Windows, tails

N_DECILES = 10


@dataclass(frozen=True, kw_only=True)
class MemoryExamples:
    """Sampled prefixes, and which of them stand for each tenth of a memory's coefficients."""

    offset: Int[Tensor, " example"]
    """Corpus offset of each sampled prefix's first token, in an order that is random."""
    length: Int[Tensor, " example"]
    """Its tokens, BOS not counted."""
    context: Int[Tensor, "example token"]
    """Its last tokens, for showing; -1 before it begins."""
    next_token: Int[Tensor, " example"]
    """The token that follows in the corpus."""

    decile: Int[Tensor, "layer memory decile"]
    """Which sampled prefix stands for each tenth, smallest coefficients first; -1 where the sample has none there."""
    decile_coefficient: Float[Tensor, "layer memory decile"]
    """NaN where there is none, as for the three that follow."""
    decile_rank: Float[Tensor, "layer memory decile"]
    """Share of prefixes with a smaller coefficient: an estimate between the bounds."""
    decile_low: Float[Tensor, "layer memory decile"]
    decile_high: Float[Tensor, "layer memory decile"]

    random_coefficient: Float[Tensor, "layer memory random"]
    """Coefficients at the first sampled prefixes."""
    random_rank: Float[Tensor, "layer memory random"]
    """Share of prefixes with a smaller coefficient, estimated."""


def memory_examples(
    streams: Sequence[CoefficientStream],
    tokens: Integer[np.ndarray, " corpus"],
    windows: Windows,
    *,
    n_random: int,
    n_context: int,
) -> MemoryExamples:
    """Decile and random examples of every layer, from its stream over `windows`."""
    sample = streams[0].sample
    offset = windows.start_of(sample.offsets)
    length = sample.offsets - offset + 1
    parts = [_layer_examples(stream, n_random) for stream in streams]
    return MemoryExamples(
        offset=offset,
        length=length.int(),
        context=tails(tokens, offset, length, n_context),
        next_token=torch.from_numpy(np.asarray(tokens[(sample.offsets + 1).numpy()], dtype=np.int32)),
        **{name: torch.stack([part[name] for part in parts]) for name in parts[0]},
    )


def coefficient_ranks(
    stream: CoefficientStream,
) -> tuple[Float[Tensor, "memory sample"], Float[Tensor, "memory sample"], Float[Tensor, "memory sample"]]:
    """Share of all prefixes with a smaller coefficient than each sampled one: estimate, and exact bounds."""
    values = stream.sample.values.contiguous()
    histogram = _signed(stream)
    up_to = histogram.cumsum(-1)
    bins = _signed_bins(values)
    order = values.argsort(dim=-1, stable=True)
    in_order = bins.gather(-1, order)
    first, behind = (torch.searchsorted(in_order, in_order, right=right) for right in (False, True))
    within = (torch.arange(values.shape[-1]) - first + 0.5) / (behind - first)
    high = up_to.gather(-1, bins)
    low = high - histogram.gather(-1, bins)
    share = torch.empty_like(low).scatter_(-1, order, within.double())
    return (low + (high - low) * share).float(), low.float(), high.float()


def _layer_examples(stream: CoefficientStream, n_random: int) -> dict[str, Tensor]:
    values = stream.sample.values.contiguous()
    rank, low, high = coefficient_ranks(stream)
    n = values.shape[-1]
    tenth = (rank * N_DECILES).floor().clamp(0, N_DECILES - 1)
    in_order = torch.arange(n)
    firsts = [torch.where(tenth == decile, in_order, n).amin(-1) for decile in range(N_DECILES)]
    chosen = torch.stack(firsts, dim=-1)
    absent, inside = chosen >= n, chosen.clamp_max(n - 1)
    of_decile = {"coefficient": values, "rank": rank, "low": low, "high": high}
    return {
        "decile": chosen.masked_fill(absent, -1).int(),
        **{
            f"decile_{name}": each.gather(-1, inside).masked_fill(absent, torch.nan) for name, each in of_decile.items()
        },
        "random_coefficient": values[:, :n_random].clone(),
        "random_rank": rank[:, :n_random].clone(),
    }


def _signed(stream: CoefficientStream) -> Float[Tensor, "memory bin"]:
    """Share of prefixes per bin from the most negative to the largest; all that is near zero is in the middle one."""
    below, above = stream.negative_histogram[:, 1:].flip(-1), stream.histogram[:, 1:]
    middle = stream.n_prefixes - below.sum(-1, keepdim=True) - above.sum(-1, keepdim=True)
    return torch.cat([below, middle, above], dim=-1).double() / max(stream.n_prefixes, 1)


def _signed_bins(values: Float[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
    edges = histogram_edges()
    above, below = (torch.bucketize(side, edges, right=True) for side in (values, -values))
    return len(edges) + above - below
