"""One pass over a corpus that takes every layer's coefficients in (`interp.memory_stream` says what is kept of them).

Coefficients stay where they are: one gather leaves out BOS and padding, and everything else works on these rows, in
tensors that are used again from batch to batch. What enters the top k, or the sample, is so rare after the first
batches that finding it costs a comparison. Only one layer's coefficients of one batch exist at a time.

Cost: a forward pass up to the last layer's coefficients, and about ten elementwise operations on each;
`bench/trigger_pass.py` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.coefficient_bins import N_SIGNED, above_zero, code_of, sides, signed_bins
from interp.exact_sums import N_LIMBS, added, limbs
from interp.memory_stream import CoefficientStream
from interp.position_sample import admitted, updated_sample
from interp.running_top import RunningTop
from interp.topk import NOT_FINITE
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

Batch = tuple[Int[Tensor, "..."], Int[Tensor, "..."]]
"""Tokens [batch pos], and the corpus offset of each: -1 where the prefix that ends there does not count."""


def stream_prefixes(
    gpt: GPT, batches: Iterable[Batch], streams: Sequence[CoefficientStream]
) -> tuple[CoefficientStream, ...]:
    """Every layer's stream after batches of corpus windows (`interp.prefixes.window_batches`).

    Prefixes that end in BOS, or in padding on the right, have the offset -1 and do not count. All streams were started
    alike; they are not changed.
    """
    bench = _Bench(gpt.device)
    layers = [_Layer(stream, bench) for stream in streams]
    with torch.no_grad():
        for tokens, ends in batches:
            _take_in(gpt, tokens, ends, layers)
    return tuple(layer.settled() for layer in layers)


def updated_stream(
    stream: CoefficientStream, coefficients: Float[Tensor, "prefix memory"], ends: Int[Tensor, " prefix"]
) -> CoefficientStream:
    """One layer's stream after more prefixes; `ends` are the corpus offsets of their last tokens."""
    layer = _Layer(stream, _Bench(coefficients.device))
    layer.add(coefficients, torch.arange(len(ends), device=coefficients.device), ends, admitted(stream.sample, ends))
    return layer.settled()


def _take_in(gpt: GPT, tokens: Int[Tensor, "batch pos"], ends: Int[Tensor, "batch pos"], layers: list[_Layer]) -> None:
    counted = (ends >= 0).flatten().nonzero()[:, 0].cpu()
    offsets, kept = ends.flatten().cpu()[counted], counted.to(gpt.device)
    sampled = admitted(layers[0].sample, offsets)

    def taking(layer: _Layer) -> Callable[[Tensor, object], None]:
        def take(coefficients: Tensor, hook: object) -> None:
            del hook
            layer.add(coefficients.flatten(0, 1), kept, offsets, sampled)
            if layer is layers[-1]:
                raise _AllRead

        return take

    hooks = [(Tap.MLP_POST.at(index), taking(layer)) for index, layer in enumerate(layers)]
    with suppress(_AllRead):
        gpt.run_with_hooks(tokens.to(gpt.device), fwd_hooks=hooks, return_type=None)


class _AllRead(Exception):
    """Raised behind the last layer's coefficients: what the model would go on to compute is not needed."""


class _Bench:
    """Tensors to work in, one after another for all layers: fresh ones cost more than what is done in them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flat: dict[str, Tensor] = {}

    def room(self, name: str, dtype: torch.dtype, n_rows: int, n_columns: int) -> Tensor:
        """A tensor of that shape with anything in it; the one of the same name is overwritten."""
        size = n_rows * n_columns
        if name not in self._flat or self._flat[name].numel() < size:
            self._flat[name] = torch.empty(size, dtype=dtype, device=self.device)
        return self._flat[name][:size].view(n_rows, n_columns)


class _Layer:
    """One layer's stream while it grows, in place."""

    def __init__(self, stream: CoefficientStream, bench: _Bench) -> None:
        n_memories, device = len(stream.top), bench.device
        self.sample = stream.sample
        self._before = stream
        self._bench = bench
        self._largest = RunningTop(stream.top, 1, device)
        self._smallest = RunningTop(stream.bottom, -1, device)
        self._counts = torch.zeros(n_memories * N_SIGNED, dtype=torch.int64, device=device)
        self._sums = torch.zeros(N_LIMBS, 2, n_memories, dtype=torch.int64)
        self._bins = signed_bins().to(device)
        self._columns = torch.arange(n_memories, dtype=torch.int32, device=device) * N_SIGNED
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._n_prefixes = 0

    def add(
        self,
        coefficients: Float[Tensor, "position memory"],
        kept: Int[Tensor, " prefix"],
        ends: Int[Tensor, " prefix"],
        sampled: Int[Tensor, " sampled"],
    ) -> None:
        """Take in the positions `kept`; those of them with the indices `sampled` are for the sample."""
        rows = self._bench.room("rows", torch.float32, len(kept), coefficients.shape[1])
        torch.index_select(coefficients.float(), 0, kept, out=rows)
        self._sum(rows)
        self._count(rows)
        self._largest.add(rows, ends)
        self._smallest.add(rows, ends)
        self._wait(ends[sampled], rows.index_select(0, sampled.to(rows.device)).cpu())
        self._n_prefixes += len(ends)

    def settled(self) -> CoefficientStream:
        """The stream as a value again."""
        before, counts = self._before, self._counts.view(-1, N_SIGNED).cpu()
        (n_active, n_negative), (histogram, negative_histogram) = above_zero(counts), sides(counts)
        self._draw()
        return replace(
            before,
            top=self._largest.top,
            bottom=self._smallest.top,
            n_active=before.n_active + n_active,
            n_negative=before.n_negative + n_negative,
            histogram=before.histogram + histogram,
            negative_histogram=before.negative_histogram + negative_histogram,
            sums=added(before.sums, self._sums),
            sample=self.sample,
            n_prefixes=before.n_prefixes + self._n_prefixes,
        )

    def _count(self, rows: Float[Tensor, "prefix memory"]) -> None:
        codes = code_of(rows, out=self._bench.room("codes", torch.int32, *rows.shape))
        places = self._bench.room("places", torch.int32, *rows.shape)
        torch.index_select(self._bins, 0, codes.view(-1), out=places.view(-1))
        places.add_(self._columns)
        self._counts += torch.bincount(places.view(-1), minlength=len(self._counts))

    def _sum(self, rows: Float[Tensor, "prefix memory"]) -> None:
        total = total_squares = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
        for block in rows.split(max(1, _BLOCK // rows.shape[1])):
            exact = self._bench.room("exact", torch.float64, *block.shape).copy_(block)
            total = total + exact.sum(0)
            total_squares = total_squares + exact.square_().sum(0)
        totals = torch.stack([total, total_squares]).cpu()
        if not totals.isfinite().all():
            raise InputError(NOT_FINITE)
        self._sums = added(self._sums, limbs(totals))

    def _wait(self, ends: Int[Tensor, " sampled"], coefficients: Float[Tensor, "sampled memory"]) -> None:
        self._waiting.append((ends, coefficients))
        if sum(len(ends) for ends, _ in self._waiting) > self.sample.capacity // 2:
            self._draw()

    def _draw(self) -> None:
        """Let what waits into the sample, as far as it belongs there."""
        if self._waiting:
            ends, coefficients = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
            self.sample = updated_sample(self.sample, ends, coefficients.T)
            self._waiting = []


_BLOCK = 2**18
"""Coefficients that are summed at a time: as many as a processor's cache holds in fp64."""
