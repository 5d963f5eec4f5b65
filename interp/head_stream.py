"""What every head does over a corpus, in one pass whose memory does not grow with it.

Windows are read one batch at a time. Inside the forward pass each layer's values, pattern and z are reduced to a few
numbers per position and head, and freed; after it they are added to what is known. Counts, histogram, the strongest
positions (`interp.topk`) and the random ones (`interp.position_sample`) are exact. Sums within a batch are in the
precision of the pattern, those over batches in fp64: two streams over disjoint parts merge into that of the whole, to
the rounding of one batch.

* How much a head writes at a query is |(z - b_V) W_O|, in units of the stream, without b_V, the constant part of its
  values (the projection's bias and that of the norm before it), which writes the same everywhere. (The share of the
  stream that it writes into would rank early layers and small streams up, such as positions just behind BOS; and under
  a norm on the stream it would still not be what arrives.) Norms that come after the heads are left out
  (`interp.attention_bases`).
* Position 0 of a window is never a query, since it has nothing to choose; as a key it is kept apart, for it is where
  heads rest that look for nothing (attention sinks; Xiao et al. 2023). It is BOS where the tokenizer has one.
* Beside every sum of attention stands what even attention over the same queries would give.

Memory: three fp64 numbers per head and token of the vocabulary (319 MB for 270 heads and 49,152 tokens), and one
layer's patterns of one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention_bases import lengths_written, output_factors, own_values, value_bias, without_value_bias
from interp.distances import distance_sums, even_received
from interp.log_bins import N_BINS, binned_counts
from interp.position_sample import PositionSample, admitted, empty_sample, merged_samples, updated_sample
from interp.requirements import require_causal_patterns, require_deterministic
from interp.topk import empty_top, merged_tops, updated_top, values_of
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

ENTROPY_EVERY = 4
"""Entropies, whose logarithms would cost more than everything else, are taken at positions 3, 7, 11, ..."""

N_SAMPLE = 1024
"""Random positions that are kept, the same for all heads."""


class Spare:
    """Memory that is asked of the system once: fresh pages for every pattern cost more than what is done with them."""

    def __init__(self) -> None:
        self._held = torch.empty(0)

    def like(self, wanted: Tensor) -> Tensor:
        """Some tensor of the same shape, kind and device, whose content means nothing."""
        alike = self._held.dtype == wanted.dtype and self._held.device == wanted.device
        if not alike or self._held.numel() < wanted.numel():
            self._held = torch.empty(wanted.numel(), dtype=wanted.dtype, device=wanted.device)
        return self._held[: wanted.numel()].view(wanted.shape)


@dataclass(kw_only=True)
class HeadStream:
    """What is known of all heads after some part of a corpus. `stream_windows` adds to it in place."""

    top: Int[Tensor, "layer_head example"]
    """Keys of `interp.topk`: the largest writes, and the corpus offset of each query."""

    sample: PositionSample
    """Random queries, with what every head [layer, head] writes there."""

    written_histogram: Int[Tensor, "layer head write_bin"]
    """Queries per bin of `interp.log_bins`, by how much the head writes."""

    distance: Float[Tensor, "layer head distance"]
    """Attention by distance, key position 0 left out; as of all sums of attention here, over all queries."""

    distance_weighted: Float[Tensor, "layer head distance"]
    position_zero: Float[Tensor, "layer head"]
    position_zero_weighted: Float[Tensor, "layer head"]

    entropy: Float[Tensor, "layer head"]
    """Sum over queries at every fourth position, in nats."""

    written: Float[Tensor, "token layer head"]
    """How much a head writes at queries of each token, summed."""

    received: Float[Tensor, "token layer head"]
    """Attention that keys of each token receive, key position 0 left out."""

    received_weighted: Float[Tensor, "token layer head"]

    even_received: Float[Tensor, " token"]
    """What they would receive from even attention."""

    n_token: Int[Tensor, " token"]
    """How often each token is a query. Position 0 left out, it is a key as often."""

    n_queries_at: Int[Tensor, " distance"]
    """Queries at each position of the window."""

    spare: Spare = field(default_factory=lambda: Spare(), repr=False)
    """Memory for one layer's patterns, used again for every batch; says nothing."""

    @property
    def n_queries(self) -> int:
        """Queries read so far."""
        return int(self.n_queries_at.sum())


def empty_stream(gpt: GPT, *, n_top: int = 8, n_sample: int = N_SAMPLE, seed: int = 0) -> HeadStream:
    """A model's heads before anything is read; refuses models whose patterns or runs mean nothing here."""
    require_causal_patterns(gpt)
    require_deterministic(gpt)
    if n_top < 1:
        raise InputError(f"n_top={n_top} keeps no example; keep at least 1 for each head.")
    heads = (gpt.config.n_layers, gpt.config.n_heads)

    def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.zeros(*shape, dtype=dtype)

    n_ctx, d_vocab = gpt.config.n_ctx, gpt.config.d_vocab
    return HeadStream(
        top=empty_top(heads[0] * heads[1], n_top),
        sample=empty_sample(heads, n_sample, seed),
        written_histogram=zeros(*heads, N_BINS, dtype=torch.int64),
        distance=zeros(*heads, n_ctx),
        distance_weighted=zeros(*heads, n_ctx),
        position_zero=zeros(*heads),
        position_zero_weighted=zeros(*heads),
        entropy=zeros(*heads),
        written=zeros(d_vocab, *heads),
        received=zeros(d_vocab, *heads),
        received_weighted=zeros(d_vocab, *heads),
        even_received=zeros(d_vocab),
        n_token=zeros(d_vocab, dtype=torch.int64),
        n_queries_at=zeros(n_ctx, dtype=torch.int64),
    )


@torch.no_grad()
def stream_windows(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], ends: Int[Tensor, "batch pos"], stream: HeadStream
) -> None:
    """Add one batch of `interp.prefixes.window_batches` to the stream.

    `ends` are the corpus offsets of the tokens, -1 for BOS and for padding on the right. Nothing is added if reading
    the batch fails.
    """
    queries = ends >= 0
    queries[:, 0] = False
    if not queries.any():
        return
    readers = [_LayerReader(gpt, layer, queries.to(gpt.device), stream.spare) for layer in range(gpt.config.n_layers)]
    hooks = [hook for reader in readers for hook in reader.hooks()]
    gpt.run_with_hooks(tokens.to(gpt.device), fwd_hooks=hooks, return_type=None)
    _add(stream, tokens, ends, queries, readers)


def merged_streams(left: HeadStream, right: HeadStream) -> HeadStream:
    """The stream over both parts of a corpus; they must not overlap."""
    summed = {name: getattr(left, name) + getattr(right, name) for name in _SUMMED}
    top = merged_tops(left.top, right.top)
    return HeadStream(top=top, sample=merged_samples(left.sample, right.sample), **summed)


_SUMMED = (
    *("written_histogram", "distance", "distance_weighted", "position_zero", "position_zero_weighted", "entropy"),
    *("written", "received", "received_weighted", "even_received", "n_token", "n_queries_at"),
)


@dataclass
class _LayerReader:
    """Reduces one layer's attention to what is kept of a batch, while the pass is there."""

    gpt: GPT
    layer: int
    queries: Bool[Tensor, "batch pos"]
    spare: Spare
    factors: Tensor = field(init=False)
    bias: Tensor = field(init=False)
    moved: Tensor = field(init=False)
    written: Tensor = field(init=False)
    """[batch, pos, head]"""
    received: Tensor = field(init=False)
    """[batch, head, key], raw; key 0 included."""
    distance: Tensor = field(init=False)
    distance_weighted: Tensor = field(init=False)
    entropy: Tensor = field(init=False)
    """[head]"""

    def __post_init__(self) -> None:
        self.factors = output_factors(self.gpt.layers[self.layer].attn)
        self.bias = value_bias(self.gpt, self.layer)

    def hooks(self) -> list[tuple[str, Callable[[Tensor, object], None]]]:
        """What is read, in the order in which the pass comes by."""
        taken = {Tap.V: self._take_values, Tap.PATTERN: self._take_pattern, Tap.Z: self._take_z}
        return [(str(tap.at(self.layer)), take) for tap, take in taken.items()]

    def _take_values(self, values: Tensor, hook: object) -> None:
        del hook
        moved = lengths_written(own_values(values, self.bias), self.factors)
        self.moved = moved.transpose(1, 2).contiguous()  # [batch, head, key]

    def _take_pattern(self, pattern: Tensor, hook: object) -> None:
        del hook
        counted = self.queries[:, None, None].to(pattern.dtype)
        self.received = (counted @ pattern)[:, :, 0]
        self.entropy = entropies(pattern, self.queries, self.spare)
        spare = self.spare.like(pattern)
        behind_first = torch.ones_like(self.moved)
        behind_first[..., 0] = 0
        self.distance = distance_sums(torch.mul(pattern, behind_first[:, :, None], out=spare), self.queries)
        weights = (behind_first * self.moved)[:, :, None]
        self.distance_weighted = distance_sums(torch.mul(pattern, weights, out=spare), self.queries)

    def _take_z(self, z: Tensor, hook: object) -> None:
        del hook
        self.written = lengths_written(without_value_bias(z, self.bias), self.factors)


def entropies(
    pattern: Float[Tensor, "batch head query key"], queries: Bool[Tensor, "batch query"], spare: Spare
) -> Float[Tensor, " head"]:
    """Minus p ln p, summed over keys and marked queries of every fourth position, for each head, in fp64."""
    some = pattern[:, :, _FOURTH]
    logs = torch.clamp(some, min=torch.finfo(some.dtype).tiny, out=spare.like(some))
    torch.mul(torch.log(logs, out=logs), some, out=logs)
    counted = queries[:, None, None, _FOURTH].to(some.dtype)
    return -(counted @ logs).double().sum((0, 2, 3))


_FOURTH = slice(ENTROPY_EVERY - 1, None, ENTROPY_EVERY)


def _add(
    stream: HeadStream,
    tokens: Int[Tensor, "batch pos"],
    ends: Int[Tensor, "batch pos"],
    queries: Bool[Tensor, "batch pos"],
    readers: list[_LayerReader],
) -> None:
    at = queries.flatten().nonzero()[:, 0]
    offsets, ids = ends.flatten()[at], tokens.cpu().flatten()[at]
    written = _by_position([reader.written for reader in readers], at)
    received = _by_position([reader.received.transpose(1, 2) for reader in readers], at)
    weighted = _by_position([(reader.received * reader.moved).transpose(1, 2) for reader in readers], at)
    n_layers, n_heads = written.shape[1:]
    by_head = written.flatten(1).T.contiguous()
    rising = (~(by_head < values_of(stream.top[:, -1:]))).any(0)  # what is not a number passes too, and is refused
    stream.top = updated_top(stream.top, by_head[:, rising], offsets[rising])
    chosen = admitted(stream.sample, offsets)
    kept = written[chosen].permute(1, 2, 0)
    stream.sample = updated_sample(stream.sample, offsets[chosen], kept)
    stream.written_histogram += binned_counts(by_head).view(n_layers, n_heads, -1)
    for total, several in (
        (stream.written, written),
        (stream.received, received),
        (stream.received_weighted, weighted),
    ):
        total.index_add_(0, ids, several.double())
    stream.even_received.index_add_(0, ids, even_received(queries).flatten()[at])
    stream.n_token += torch.bincount(ids, minlength=len(stream.n_token))
    stream.n_queries_at[: queries.shape[1]] += queries.sum(0)
    _add_attention(stream, readers)


def _add_attention(stream: HeadStream, readers: list[_LayerReader]) -> None:
    for layer, reader in enumerate(readers):
        n_pos = reader.distance.shape[1]
        stream.distance[layer, :, :n_pos] += reader.distance.cpu()
        stream.distance_weighted[layer, :, :n_pos] += reader.distance_weighted.cpu()
        first = reader.received[..., 0].double()
        stream.position_zero[layer] += first.sum(0).cpu()
        stream.position_zero_weighted[layer] += (first * reader.moved[..., 0]).sum(0).cpu()
        stream.entropy[layer] += reader.entropy.cpu()


def _by_position(
    by_layer: list[Float[Tensor, "batch pos head"]], at: Int[Tensor, " counted"]
) -> Float[Tensor, "counted layer head"]:
    """One row for every counted position, on the CPU."""
    return torch.stack([each.flatten(0, 1).cpu()[at] for each in by_layer], dim=1)
