"""FFN memories, keys: which prefixes of a corpus fire each one (Geva et al. 2021, arXiv 2012.14913, section 3).

An FFN layer is a sum of memories, FFN(x) = sum_i m_i v_i + b. The coefficient m_i = f(x . k_i) says how well the stream
matches key i (it is `hook_post`, for swiglu with its gate). What the value v_i then writes: `interp.memory_values`.

A corpus is streamed once. Kept per memory are the t prefixes with the largest coefficients and the t with the most
negative ones, exactly (`interp.topk`); counts and a histogram of either sign; fp64 sums (`interp.exact_sums`); and the
coefficients at prefixes drawn by hash, the same for all memories (`interp.position_sample`). What is kept does not grow
with the corpus, and batches taken in and parts merged in any order give the same, bit for bit.

ReLU has a natural zero. GELU and swiglu have not: there "active" (m > 0) says only on which side the key was passed,
and the share of prefixes above a tenth of the largest coefficient is the better firing rate. A negative coefficient
writes -m_i v_i, small for GELU (at least -0.17), of any size for swiglu.

The pass itself is `interp.memory_pass`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.coefficient_bins import N_BINS
from interp.exact_sums import N_LIMBS, added, value_of
from interp.position_sample import PositionSample, empty_sample, merged_samples
from interp.topk import empty_top, merged_tops
from model.config import AttentionKind, FFNKind
from model.errors import InputError, NotAdditiveError

if TYPE_CHECKING:
    from model.config import GPTConfig

N_SAMPLED = 1024
"""Prefixes at which all coefficients are kept unless told otherwise: 4 KB a memory."""


@dataclass(frozen=True, kw_only=True)
class CoefficientStream:
    """What is known of one layer's memories after some part of a corpus; on the CPU."""

    top: Int[Tensor, "memory trigger"]
    """Keys of `interp.topk`: the largest coefficients, and the corpus offset of each prefix's last token."""

    bottom: Int[Tensor, "memory negative_trigger"]
    """The same of the coefficients with their signs turned: the most negative ones first."""

    n_active: Int[Tensor, " memory"]
    """Prefixes with a coefficient above zero (2^-128: what is smaller counts as zero)."""

    n_negative: Int[Tensor, " memory"]
    """Prefixes with a coefficient below zero, in the same sense."""

    histogram: Int[Tensor, "memory bin"]
    """Prefixes per bin of `interp.coefficient_bins.histogram_edges`; negative coefficients are in the first."""

    negative_histogram: Int[Tensor, "memory bin"]
    """The same of the coefficients with their signs turned."""

    sums: Int[Tensor, "limb power memory"]
    """Of each batch the fp64 sum of the coefficients, and that of their squares, added up exactly."""

    sample: PositionSample
    """Coefficients [memory, sample] at prefixes drawn by hash, named by the offset of their last token."""

    n_prefixes: int
    """Prefixes seen."""

    @property
    def total(self) -> Float[Tensor, " memory"]:
        """Sum of the coefficients, fp64."""
        return value_of(self.sums)[0]

    @property
    def total_squares(self) -> Float[Tensor, " memory"]:
        """Sum of their squares, fp64."""
        return value_of(self.sums)[1]

    @property
    def mean(self) -> Float[Tensor, " memory"]:
        """Mean coefficient, fp64."""
        return self.total / self.n_prefixes

    @property
    def std(self) -> Float[Tensor, " memory"]:
        """Standard deviation of the coefficients, fp64; below a millionth of their size it is rounding, and zero."""
        mean_square = self.total_squares / self.n_prefixes
        variance = mean_square - self.mean.square()
        return torch.where(variance.abs() <= _ROUNDING * mean_square, 0.0, variance).sqrt()


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


def empty_stream(
    n_memories: int, n_triggers: int, *, n_negative: int | None = None, n_sampled: int = N_SAMPLED, seed: int = 0
) -> CoefficientStream:
    """A layer that has seen nothing yet; `seed` draws the prefixes that are sampled.

    `n_negative` most negative coefficients are kept, as many as the `n_triggers` largest unless told otherwise.
    """
    n_negative = n_triggers if n_negative is None else n_negative
    if min(n_triggers, n_negative) < 1:
        name, given = ("n_triggers", n_triggers) if n_triggers < 1 else ("n_negative", n_negative)
        raise InputError(f"{name}={given} keeps nothing; keep at least 1 trigger per memory.")
    return CoefficientStream(
        top=empty_top(n_memories, n_triggers),
        bottom=empty_top(n_memories, n_negative),
        n_active=torch.zeros(n_memories, dtype=torch.int64),
        n_negative=torch.zeros(n_memories, dtype=torch.int64),
        histogram=torch.zeros(n_memories, N_BINS, dtype=torch.int64),
        negative_histogram=torch.zeros(n_memories, N_BINS, dtype=torch.int64),
        sums=torch.zeros(N_LIMBS, 2, n_memories, dtype=torch.int64),
        sample=empty_sample((n_memories,), n_sampled, seed),
        n_prefixes=0,
    )


def merged_streams(left: CoefficientStream, right: CoefficientStream) -> CoefficientStream:
    """The stream over both parts of a corpus; they must not overlap."""
    return CoefficientStream(
        top=merged_tops(left.top, right.top),
        bottom=merged_tops(left.bottom, right.bottom),
        n_active=left.n_active + right.n_active,
        n_negative=left.n_negative + right.n_negative,
        histogram=left.histogram + right.histogram,
        negative_histogram=left.negative_histogram + right.negative_histogram,
        sums=added(left.sums, right.sums),
        sample=merged_samples(left.sample, right.sample),
        n_prefixes=left.n_prefixes + right.n_prefixes,
    )


def fitting_windows(config: GPTConfig, n_pos: int, most: int) -> int:
    """How many windows to stream at once: `most`, or fewer where a layer's coefficients take over a gigabyte."""
    per_window = 12 * config.ffn_width * n_pos  # the FFN's own tensors, then keys and bins in twice as many bytes
    return max(1, min(most, _COEFFICIENTS // per_window))


_ROUNDING = 1e-12
"""What fp64 leaves of the difference of two mean squares, as a share of them, at the most."""

_COEFFICIENTS = 2**28
"""Largest number of fp32 numbers held at once."""
