"""Cutting a corpus into the prefixes that an FFN study feeds.

Documents are cut into neighbouring windows no longer than the context. A window never crosses a document's border and
always leaves one token after it, so that every prefix of it is real text with a real next token. A prefix is named by
its first token's offset into the corpus and its length: feeding BOS (where the tokenizer has one) and these tokens
again is the same input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

from model.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Stretches of a corpus in rising order, none overlapping."""

    starts: Int[np.ndarray, " window"]
    """Corpus offset of each window's first token."""

    lengths: Int[np.ndarray, " window"]
    """Tokens in each: each of them ends one prefix."""

    @property
    def n_prefixes(self) -> int:
        """Prefixes, and so positions, in all windows together."""
        return int(self.lengths.sum())

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: slice) -> Windows:
        return Windows(starts=self.starts[which], lengths=self.lengths[which])

    def nth_end(self, index: Int[Tensor, " prefix"]) -> Int[Tensor, " prefix"]:
        """Offset of the last token of the prefixes with the given indices, counted in order from 0."""
        behind = torch.from_numpy(self.lengths.cumsum())
        window = torch.searchsorted(behind, index, right=True)
        lengths, starts = torch.from_numpy(self.lengths)[window], torch.from_numpy(self.starts)[window]
        return starts + lengths - (behind[window] - index)

    def start_of(self, ends: Int[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
        """Where the window begins that holds the token at each offset."""
        starts = torch.from_numpy(self.starts)
        return starts[(torch.searchsorted(starts, ends, right=True) - 1).clamp_min(0)]


def cut_windows(documents: Sequence[tuple[int, int]], length: int) -> Windows:
    """All windows of at most `length` tokens in documents given as (first offset, offset after the last)."""
    if length < 1:
        raise InputError(
            f"A window of {length} tokens holds no prefix; the context must have room for BOS and a token."
        )
    starts = [np.arange(start, stop - 1, length, dtype=np.int64) for start, stop in documents]
    stops = [np.full(len(s), stop - 1, dtype=np.int64) for s, (_, stop) in zip(starts, documents, strict=True)]
    if not sum(map(len, starts)):
        raise InputError("The corpus has no document of two tokens, so no prefix has a next token; give it more text.")
    first = np.concatenate(starts)
    return Windows(starts=first, lengths=np.minimum(np.concatenate(stops) - first, length))


def sampled_windows(windows: Windows, n_prefixes: int, seed: int) -> Windows:
    """Whole windows, drawn without replacement, until they hold at least `n_prefixes`; all if there are fewer."""
    if n_prefixes < 1:
        raise InputError(f"n_tokens={n_prefixes} leaves nothing to read; read at least 1 token.")
    order = np.random.default_rng(seed).permutation(len(windows))
    needed = 1 + int(np.searchsorted(np.cumsum(windows.lengths[order]), n_prefixes))
    kept = np.sort(order[:needed])
    return Windows(starts=windows.starts[kept], lengths=windows.lengths[kept])


def window_batches(
    tokens: Integer[np.ndarray, " corpus"], windows: Windows, *, bos: int | None, batch_size: int
) -> Iterator[tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]]:
    """The windows as model input, with the corpus offset of the token at each position.

    Rows begin with BOS where there is one and are padded on the right, which a causal model's earlier positions cannot
    see. The offset of BOS and of padding is -1.
    """
    for first in range(0, len(windows), batch_size):
        batch = windows[first : first + batch_size]
        columns = np.arange(int(batch.lengths.max()))
        inside = columns < batch.lengths[:, None]
        ends = np.where(inside, batch.starts[:, None] + columns, -1)
        rows = np.where(inside, np.asarray(tokens[np.maximum(ends, 0)], dtype=np.int64), 0)
        if bos is not None:
            ends = np.pad(ends, ((0, 0), (1, 0)), constant_values=-1)
            rows = np.pad(rows, ((0, 0), (1, 0)), constant_values=bos)
        yield torch.from_numpy(rows), torch.from_numpy(ends)


def prefix_tokens(
    tokens: Integer[np.ndarray, " corpus"], offset: int, length: int, *, bos: int | None
) -> Int[Tensor, "1 pos"]:
    """One prefix as model input: BOS where there is one, then the corpus from `offset` on."""
    taken = np.asarray(tokens[offset : offset + length], dtype=np.int64).tolist()
    return torch.tensor([taken if bos is None else [bos, *taken]])


def tails(
    tokens: Integer[np.ndarray, " corpus"],
    offsets: Int[Tensor, "*axes"],
    lengths: Int[Tensor, "*axes"],
    n_shown: int,
) -> Int[Tensor, "*axes shown"]:
    """The last `n_shown` tokens of each prefix, for showing; -1 before its beginning."""
    places = (offsets + lengths)[..., None] + torch.arange(-n_shown, 0)
    known = (places >= offsets[..., None]) & (lengths[..., None] > 0)
    found = torch.from_numpy(np.asarray(tokens[places.clamp_min(0).numpy()], dtype=np.int32))
    return torch.where(known, found, -1)
