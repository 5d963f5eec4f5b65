"""What heads do on text: where, how far and at what they look, and when they write most.

A corpus is streamed once through every head (`interp.head_stream`, which says what is counted and how); what is kept is
read out here: distances (`interp.distances`), tokens (`interp.head_tokens`) and examples (`interp.head_examples`).
Attention is given raw and value-weighted, A_ij |v_j W_O|; a value-weighted share is of all that the head moved over the
corpus, so that queries at which it moves much count for more.

Source: the forms are those of dataset-example pages for heads and neurons (such as HeadVis, Neuronpedia);
value-weighted attention is that of Kobayashi et al. 2020. Cost: one forward pass on the explicit attention path, and a
little (`bench/head_behaviour.py`). What it does not show: why a head looks there, or whether anything depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from interp.distances import (
    N_EXACT,
    binned_distances,
    distance_edges,
    even_distances,
    mean_distances,
    median_distances,
)
from interp.head_examples import Examples, decile_examples, random_examples, top_examples
from interp.head_stream import ENTROPY_EVERY, HeadStream, empty_stream, merged_streams, stream_windows
from interp.head_tokens import (
    TokenList,
    attended_tokens,
    attended_tokens_by_lift,
    attended_tokens_weighted,
    query_tokens,
)
from interp.prefixes import Windows, window_batches
from model.errors import InputError

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT

__all__ = [
    "HeadBehaviour", "HeadStream", "behaviour_of", "empty_stream", "finished", "fitting_batch", "merged_streams",
    "stream_windows",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadBehaviour:
    """What the heads of one model do over some text."""

    n_queries: int
    """Positions that were read as queries: all but position 0 of each window."""

    n_windows: int
    seed: int
    """Drew the random positions."""

    written: Float[Tensor, "layer head"]
    """How much a head writes at a query, on average: |(z - b_V) W_O|, in units of the stream."""

    position_zero: Float[Tensor, "layer head"]
    """Share of attention on position 0: BOS, where there is one."""

    position_zero_weighted: Float[Tensor, "layer head"]
    """Share of value-weighted attention on it; NaN, as all such shares, for a head that moves nothing."""

    even_position_zero: float
    """What even attention would put there."""

    distance: Float[Tensor, "layer head bin"]
    """Share of attention by how far back the key is, position 0 left out; with `position_zero`, it sums to 1."""

    distance_weighted: Float[Tensor, "layer head bin"]
    even_distance: Float[Tensor, " bin"]

    distance_edges: Int[Tensor, " bin"]
    """The lowest distance of each bin: 0 is the query itself, 1 the token before it."""

    median_distance: Float[Tensor, "layer head"]
    """Half of the attention that is not on position 0 lies within; NaN where all of it is."""

    mean_distance: Float[Tensor, "layer head"]
    entropy: Float[Tensor, "layer head"]
    """Mean over queries at positions 3, 7, 11, ..., in nats; NaN where windows are shorter."""

    even_entropy: float
    """The most it could be: that of even attention at the same queries."""

    query_tokens: TokenList
    """Tokens at which each head writes most."""

    attended: TokenList
    """Tokens that receive most of its attention."""

    attended_weighted: TokenList
    """Tokens that receive most of its value-weighted attention."""

    attended_lift: TokenList
    """Tokens that receive most over what even attention would give them."""

    top: Examples
    """Where each head writes most."""

    deciles: Examples
    """One query from each tenth of how much it writes, least first."""

    random: Examples
    """Any queries, the same for all heads."""

    def local_share(self, n: int) -> Float[Tensor, "layer head"]:
        """Share of attention on the nearest `n` keys, the query itself among them, position 0 left out."""
        return self.distance[..., : self._near(n)].sum(-1)

    def even_local_share(self, n: int) -> float:
        """What even attention would put there."""
        return float(self.even_distance[: self._near(n)].sum())

    def _near(self, n: int) -> int:
        if not 1 <= n <= N_EXACT:
            raise InputError(f"n={n} keys cannot be told apart here; take 1 to {N_EXACT}, the distances kept exactly.")
        return n


def behaviour_of(
    gpt: GPT,
    tokens: Integer[np.ndarray, " corpus"],
    windows: Windows,
    *,
    bos: int | None,
    n_top: int = 8,
    n_random: int = 8,
    n_listed: int = 10,
    seed: int = 0,
    batch_size: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> HeadBehaviour:
    """Stream a corpus through every head of a model.

    Args:
        gpt: a causal model without active dropout.
        tokens: the corpus.
        windows: which stretches of it are read (`interp.prefixes.cut_windows`, `sampled_windows`).
        bos: what stands before every window; None if nothing does.
        n_top: strongest examples kept for each head.
        n_random: random examples.
        n_listed: tokens in each list.
        seed: draws the random positions.
        batch_size: windows read at a time; fewer where patterns are large.
        progress: called with (batches done, batches).
    """
    stream = empty_stream(gpt, n_top=n_top, seed=seed)
    size = fitting_batch(gpt.config, batch_size)
    n_batches = -(-len(windows) // size)
    for done, (rows, ends) in enumerate(window_batches(tokens, windows, bos=bos, batch_size=size)):
        if progress is not None:
            progress(done, n_batches)
        stream_windows(gpt, rows, ends, stream)
    return finished(stream, windows, n_random=n_random, n_listed=n_listed)


def finished(stream: HeadStream, windows: Windows, *, n_random: int = 8, n_listed: int = 10) -> HeadBehaviour:
    """What a stream over all of `windows` says."""
    n = stream.n_queries
    if n == 0:
        raise InputError("No window holds two tokens, so no query has a choice of keys; read more text.")
    if not (np.diff(windows.starts) > 0).all():
        raise InputError("The windows are not in rising order, so no example finds its own; cut documents in order.")
    weighted = stream.distance_weighted.sum(-1) + stream.position_zero_weighted
    even = even_distances(stream.n_queries_at)
    visible = torch.arange(1, len(even) + 1)
    some = slice(ENTROPY_EVERY - 1, None, ENTROPY_EVERY)
    return HeadBehaviour(
        n_queries=n,
        n_windows=len(windows),
        seed=stream.sample.seed,
        written=(stream.written.sum(0) / n).float(),
        position_zero=(stream.position_zero / n).float(),
        position_zero_weighted=(stream.position_zero_weighted / weighted).float(),
        even_position_zero=float((stream.n_queries_at / visible).sum() / n),
        distance=(binned_distances(stream.distance) / n).float(),
        distance_weighted=(binned_distances(stream.distance_weighted) / weighted[..., None]).float(),
        even_distance=(binned_distances(even) / n).float(),
        distance_edges=distance_edges(len(even)),
        median_distance=median_distances(stream.distance).float(),
        mean_distance=mean_distances(stream.distance).float(),
        entropy=(stream.entropy / stream.n_queries_at[some].sum()).float(),
        even_entropy=float(
            (stream.n_queries_at * visible.double().log())[some].sum() / stream.n_queries_at[some].sum()
        ),
        query_tokens=query_tokens(stream, n_listed),
        attended=attended_tokens(stream, n_listed),
        attended_weighted=attended_tokens_weighted(stream, n_listed),
        attended_lift=attended_tokens_by_lift(stream, n_listed),
        top=top_examples(stream, windows),
        deciles=decile_examples(stream, windows),
        random=random_examples(stream, windows, n_random),
    )


def fitting_batch(config: GPTConfig, most: int) -> int:
    """How many windows to read at once: `most`, or fewer where a layer's patterns take over 32 MB."""
    return max(1, min(most, _PATTERN_NUMBERS // (config.n_heads * config.n_ctx**2)))


_PATTERN_NUMBERS = 8_000_000
"""Largest number of pattern entries formed at once, for one layer."""
