"""FFN memories, keys: which prefixes of a corpus fire each one (Geva et al. 2021, arXiv 2012.14913, section 3).

An FFN layer is a sum of memories, FFN(x) = sum_i m_i v_i + b. The coefficient m_i = f(x . k_i) says how well the stream
matches key i (it is `hook_post`, for swiglu with its gate). What the value v_i then writes: `interp.memory_values`.

A corpus is streamed once, and of every prefix of it the t with the largest coefficient are kept per memory, exactly
(`interp.topk`); beside them counts, a histogram, and sums in fp64. What is kept does not grow with the corpus, and two
halves merged give what one pass gives. Only one layer's coefficients of one batch exist at a time.

ReLU has a natural zero. GELU and swiglu have not: there "active" (m > 0) says only on which side the key was passed,
and the share of prefixes above a tenth of the largest coefficient is the better firing rate. Negative coefficients of
swiglu, which write -v_i, are not ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.topk import empty_top, merged_tops, updated_top
from model.config import AttentionKind, FFNKind
from model.errors import InputError, NotAdditiveError
from model.sites import Tap

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT

N_BINS = 65
"""Bins of the coefficient histogram: one for everything below 2^-10 (zero and negative too), then four to an octave."""

_FIRST_BITS = (127 - 10) * 4  # exponent and two mantissa bits of 2^-10


@dataclass(frozen=True, kw_only=True)
class CoefficientStream:
    """What is known of one layer's memories after some part of a corpus."""

    top: Int[Tensor, "memory trigger"]
    """Keys of `interp.topk`: the largest coefficients, and the corpus offset of each prefix's last token."""

    n_active: Int[Tensor, " memory"]
    """Prefixes with a coefficient above zero."""

    histogram: Int[Tensor, "memory bin"]
    """Prefixes per bin of `histogram_edges`."""

    total: Float[Tensor, " memory"]
    """Sum of the coefficients, fp64."""

    total_squares: Float[Tensor, " memory"]
    """Sum of their squares, fp64."""

    n_prefixes: int
    """Prefixes seen."""


def require_memories(config: GPTConfig) -> None:
    """Refuse models in which "memory" or "prefix" means nothing."""
    if config.ffn is FFNKind.NONE:
        raise InputError("This model is attention-only (ffn=none), so it has no FFN memories; study one with an FFN.")
    if config.attention is not AttentionKind.CAUSAL:
        raise InputError(
            "attention=bidirectional lets a coefficient depend on later tokens, so no prefix fires it; "
            "FFN memories are studied in causal models."
        )
    if not config.skip_connections:
        raise NotAdditiveError(
            "skip_connections=false lets a value reach the logits only through later layers, so it promotes no token "
            "by itself; study FFN memories in a model with skip connections."
        )


def empty_stream(n_memories: int, n_triggers: int) -> CoefficientStream:
    """A layer that has seen nothing yet."""
    if n_triggers < 1:
        raise InputError(f"n_triggers={n_triggers} keeps nothing; keep at least 1 trigger per memory.")
    return CoefficientStream(
        top=empty_top(n_memories, n_triggers),
        n_active=torch.zeros(n_memories, dtype=torch.int64),
        histogram=torch.zeros(n_memories, N_BINS, dtype=torch.int64),
        total=torch.zeros(n_memories, dtype=torch.float64),
        total_squares=torch.zeros(n_memories, dtype=torch.float64),
        n_prefixes=0,
    )


def updated_stream(
    stream: CoefficientStream, coefficients: Float[Tensor, "memory prefix"], ends: Int[Tensor, " prefix"]
) -> CoefficientStream:
    """The stream after more prefixes; `ends` are the corpus offsets of their last tokens."""
    seen = CoefficientStream(
        top=updated_top(stream.top, coefficients, ends),
        n_active=(coefficients > 0).sum(dim=1).cpu(),
        histogram=_binned(coefficients).cpu(),
        total=coefficients.double().sum(dim=1).cpu(),
        total_squares=coefficients.double().square().sum(dim=1).cpu(),
        n_prefixes=len(ends),
    )
    return _summed(stream, seen, top=seen.top)


def merged_streams(left: CoefficientStream, right: CoefficientStream) -> CoefficientStream:
    """The stream over both parts of a corpus; they must not overlap."""
    return _summed(left, right, top=merged_tops(left.top, right.top))


def stream_prefixes(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    ends: Int[Tensor, "batch pos"],
    streams: Sequence[CoefficientStream],
) -> tuple[CoefficientStream, ...]:
    """Every layer's stream after one batch of corpus windows.

    `ends[b, p]` is the corpus offset of the token at position p of row b; -1 where the prefix that ends there does
    not count (BOS, padding on the right).
    """
    after = list(streams)
    counted = (ends >= 0).flatten()
    offsets = ends.flatten()[counted].to(gpt.device)
    kept = counted.to(gpt.device)

    def taking(layer: int) -> Callable[[Tensor, object], None]:
        def take(coefficients: Tensor, hook: object) -> None:
            del hook
            by_memory = coefficients.flatten(0, 1)[kept].T.contiguous()
            after[layer] = updated_stream(after[layer], by_memory, offsets)

        return take

    hooks = [(Tap.MLP_POST.at(layer), taking(layer)) for layer in range(gpt.config.n_layers)]
    with torch.no_grad():
        gpt.run_with_hooks(tokens.to(gpt.device), fwd_hooks=hooks, return_type=None)
    return tuple(after)


def histogram_edges() -> Float[Tensor, " edge"]:
    """Lower edges of all bins but the first: 2^-10 times 1, 1.25, 1.5, 1.75, 2, 2.5 ... The last bin has no upper edge.

    >>> [round(edge * 2**10, 2) for edge in histogram_edges()[:6].tolist()]
    [1.0, 1.25, 1.5, 1.75, 2.0, 2.5]
    """
    return ((torch.arange(N_BINS - 1, dtype=torch.int32) + _FIRST_BITS) << 21).view(torch.float32)


def share_above(histogram: Int[Tensor, "*axes bin"], thresholds: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Share of prefixes whose coefficient reaches the bin edge at or just below each threshold."""
    first = torch.bucketize(thresholds, histogram_edges(), right=True)  # the bin that the threshold lies in
    reached = torch.arange(N_BINS) >= first[..., None]
    counts = histogram.double()
    return ((counts * reached).sum(-1) / counts.sum(-1).clamp_min(1)).float()


def fitting_windows(config: GPTConfig, n_pos: int, most: int) -> int:
    """How many windows to stream at once: `most`, or fewer where a layer's coefficients take over a gigabyte."""
    per_window = 12 * config.ffn_width * n_pos  # the FFN's own tensors, then keys and bins in twice as many bytes
    return max(1, min(most, _COEFFICIENTS // per_window))


_COEFFICIENTS = 2**28
"""Largest number of fp32 numbers held at once."""


def _binned(coefficients: Float[Tensor, "memory prefix"]) -> Int[Tensor, "memory bin"]:
    """Counts per histogram bin: the bin is read off the float's exponent and first two mantissa bits."""
    n_memories = coefficients.shape[0]
    bits = (
        coefficients.float().contiguous().view(torch.int32) >> 21
    )  # negative floats give negative bits: the first bin
    bins = (bits - _FIRST_BITS + 1).clamp(0, N_BINS - 1).long()
    rows = torch.arange(n_memories, device=bins.device)[:, None] * N_BINS
    return torch.bincount((bins + rows).flatten(), minlength=n_memories * N_BINS).view(n_memories, N_BINS)


def _summed(left: CoefficientStream, right: CoefficientStream, *, top: Tensor) -> CoefficientStream:
    return CoefficientStream(
        top=top,
        n_active=left.n_active + right.n_active,
        histogram=left.histogram + right.histogram,
        total=left.total + right.total,
        total_squares=left.total_squares + right.total_squares,
        n_prefixes=left.n_prefixes + right.n_prefixes,
    )
