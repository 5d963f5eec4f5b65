"""The stored ends of all triggers as bytes in one row, in which a text is looked for at once (for `memories.text`).

For 46,080 memories with 10 contexts of 32 tokens the row has some 60 MB. It is laid out once, some tokens at a time.
Then a text is looked for by its rarest byte, and by the others only where that one stands. A single byte, which can
occur anywhere, is looked for in the tokens instead: it cannot run over two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int, UInt8

_TOKENS = 2**20
"""Tokens laid out at a time."""

_SAMPLED = 61
"""Every so manieth byte is counted to tell which are rare."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contexts:
    """Contexts of memories, one behind the other, strongest trigger of a memory first."""

    tokens: Int[np.ndarray, "context token"]
    """Their tokens; -1 where a prefix has not begun."""

    token_bytes: Sequence[bytes]
    """The bytes of each token, with none at -1."""

    whole: UInt8[np.ndarray, " byte"]
    """The bytes of all of them."""

    starts: Int[np.ndarray, " edge"]
    """Where each one begins; the last entry is the end of all."""

    last: Int[np.ndarray, " context"]
    """Where the last token of each one begins."""

    @cached_property
    def folded(self) -> UInt8[np.ndarray, " byte"]:
        """`whole` with capital ASCII letters as small ones."""
        return _SMALL[self.whole]

    @cached_property
    def frequency(self) -> Int[np.ndarray, " value"]:
        """How often each byte occurs in a part of `folded`."""
        return np.bincount(self.folded[::_SAMPLED], minlength=256)

    def hits(self, needle: bytes, *, folds: bool) -> tuple[Bool[np.ndarray, " context"], Bool[np.ndarray, " context"]]:
        """Which contexts hold `needle`, and in which it reaches into the last token.

        Args:
            needle: the bytes; where capitals are to count as small letters, without capitals.
            folds: whether they are.
        """
        if len(needle) == 1:
            holds = np.array([needle in (raw.lower() if folds else raw) for raw in self.token_bytes])
            return np.any(holds[self.tokens], axis=1), holds[self.tokens[:, -1]]
        begins = self._begins(needle, folds)
        late = self.starts[1:] - len(needle) + 1  # from here on it would run into the next context
        reaching = np.maximum(self.starts[:-1], self.last - len(needle) + 1)
        before, within, ending = (np.searchsorted(begins, places) for places in (late, self.starts[:-1], reaching))
        return before > within, before > ending

    def _begins(self, needle: bytes, folds: bool) -> Int[np.ndarray, " occurrence"]:  # noqa: FBT001
        """Where `needle` begins in the row, in order; also where it runs from one context into the next."""
        room = len(self.whole) - len(needle) + 1
        if not needle or room < 1:
            return np.zeros(0, dtype=np.int64)
        hay = self.folded if folds else self.whole
        rarest, *others = sorted(range(len(needle)), key=lambda place: self.frequency[_SMALL[needle[place]]])
        begins = np.flatnonzero(hay[rarest : rarest + room] == needle[rarest])
        for place in others:
            begins = begins[hay[begins + place] == needle[place]]
        return begins


def laid_out(tokens: Int[np.ndarray, "*axes token"], token_bytes: Sequence[bytes]) -> Contexts:
    """Contexts in one row; `token_bytes[-1]`, of what is no token, is empty."""
    ids = tokens.reshape(-1, tokens.shape[-1])
    lengths = np.array([len(raw) for raw in token_bytes], dtype=np.int32)
    starts = np.concatenate([[0], lengths[ids].sum(axis=1, dtype=np.int64).cumsum()])
    return Contexts(
        tokens=ids,
        token_bytes=token_bytes,
        whole=_bytes_of(ids.ravel(), token_bytes, lengths),
        starts=starts,
        last=starts[1:] - lengths[ids[:, -1]],
    )


def _bytes_of(
    ids: Int[np.ndarray, " token"], token_bytes: Sequence[bytes], lengths: Int[np.ndarray, " id"]
) -> UInt8[np.ndarray, " byte"]:
    """The bytes of tokens, one behind the other."""
    vocabulary = np.frombuffer(b"".join(token_bytes), dtype=np.uint8)
    offsets = lengths.cumsum(dtype=np.int32) - lengths
    parts = []
    for begin in range(0, len(ids), _TOKENS):
        some = ids[begin : begin + _TOKENS]
        sizes = lengths[some]
        ends = sizes.cumsum(dtype=np.int32)
        places = np.repeat(offsets[some] - (ends - sizes), sizes) + np.arange(ends[-1], dtype=np.int32)
        parts.append(vocabulary[places])
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)


_SMALL = np.frombuffer(bytes(range(256)).lower(), dtype=np.uint8)
"""Each byte as a small letter, if it is a capital one."""
