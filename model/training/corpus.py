"""The text a run is trained and evaluated on, tokenised once and addressed by offset.

All documents stand one behind the other in one array of tokens, without separators: an offset into it names a place in
the text for good, which is what a study quotes when it shows where a memory fired. Windows never cross from a document
into the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from model.errors import InputError
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from model.training.sources import DataConfig, Document, read_documents, tokenizer_size

__all__ = ["Corpus", "DataConfig", "Split", "build_corpus", "build_tokenizer"]


@dataclass(frozen=True)
class Split:
    """Some documents of a corpus, as spans of its tokens."""

    spans: Int[np.ndarray, "document 2"]
    """Where each document starts, and where it ends (exclusive)."""

    @property
    def n_tokens(self) -> int:
        """Tokens in all documents."""
        return int((self.spans[:, 1] - self.spans[:, 0]).sum())

    def shorter_than(self, length: int) -> Split:
        """The documents in which no window of `length` tokens fits."""
        return Split(self.spans[self._room(length) == 0])

    def n_windows(self, length: int) -> int:
        """How many offsets have `length` tokens of one document ahead of them."""
        return int(self._room(length).sum())

    def nth_window(self, index: Int[np.ndarray, " window"], length: int) -> Int[np.ndarray, " window"]:
        """Offsets of the windows with the given indices, counted in order from 0 to n_windows - 1."""
        ends = self._room(length).cumsum()
        document = np.searchsorted(ends, index, side="right")
        return self.spans[document, 1] - length + 1 - (ends[document] - index)

    def windows(self, length: int, stride: int | None = None) -> Int[np.ndarray, " window"]:
        """Offsets of windows laid through every document, `stride` apart (default: edge to edge).

        What is left at the end of a document, shorter than a window, is not covered.
        """
        laid = [np.arange(start, end - length + 1, stride or length) for start, end in self.spans]
        return np.concatenate([np.empty(0, dtype=np.int64), *laid])

    def _room(self, length: int) -> Int[np.ndarray, " document"]:
        return np.maximum(self.spans[:, 1] - self.spans[:, 0] - length + 1, 0)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents of one or more text sources, as tokens."""

    tokens: Integer[np.ndarray, " token"]
    """All documents, one behind the other, without BOS; uint16 or int32, whichever holds the vocabulary."""
    starts: Int[np.ndarray, " document"]
    """Offset of each document's first token."""
    names: tuple[str, ...]
    """Name of each document: its source and path."""
    source_names: tuple[str, ...]
    """Which source each document belongs to."""
    is_held_out: Bool[np.ndarray, " document"]
    """Which documents are never trained on."""

    @property
    def ends(self) -> Int[np.ndarray, " document"]:
        """Offset behind each document's last token."""
        return np.append(self.starts[1:], len(self.tokens))[: len(self.starts)]

    @property
    def train(self) -> Split:
        """The documents that are trained on."""
        return self._split(~self.is_held_out)

    @property
    def held_out(self) -> Split:
        """The documents that are never trained on."""
        return self._split(self.is_held_out)

    def train_of(self, source: str) -> Split:
        """The documents of one source that are trained on."""
        return self._split(~self.is_held_out & np.array([name == source for name in self.source_names], dtype=bool))

    @cached_property
    def sha256(self) -> str:
        """Hash of every token, document border, name and split: equal exactly where offsets mean the same."""
        digest = hashlib.sha256(self.tokens.astype("<i4").tobytes())
        digest.update(self.starts.astype("<i8").tobytes())
        digest.update(np.packbits(self.is_held_out).tobytes())
        digest.update("\0".join((*self.names, *self.source_names)).encode())
        return digest.hexdigest()

    def window(self, offset: int, n: int) -> Int[Tensor, " pos"]:
        """The `n` tokens from `offset` on."""
        return self.rows(np.array([offset]), n)[0]

    def rows(self, offsets: Int[np.ndarray, " row"] | Sequence[int], n: int) -> Int[Tensor, "row pos"]:
        """The `n` tokens from each offset on."""
        offsets = np.asarray(offsets, dtype=np.int64)
        outside = offsets[(offsets < 0) | (offsets + n > len(self.tokens))]
        if outside.size:
            raise InputError(
                f"No window of {n} tokens starts at offset {outside[0]} of a corpus of {len(self.tokens)} tokens; "
                f"offsets run from 0 to {len(self.tokens) - n}."
            )
        return torch.from_numpy(self.tokens[offsets[:, None] + np.arange(n)].astype(np.int64))

    def where(self, offset: int) -> tuple[str, int]:
        """The document that holds the token at `offset`, and the token's place in it."""
        if not 0 <= offset < len(self.tokens):
            raise InputError(f"There is no token {offset} in a corpus of {len(self.tokens)} tokens.")
        document = int(np.searchsorted(self.starts, offset, side="right")) - 1
        return self.names[document], offset - int(self.starts[document])

    def describe(self) -> dict[str, Any]:
        """What run.json says about the corpus."""
        return {
            "corpus_sha256": self.sha256,
            "corpus": {
                "n_tokens": len(self.tokens),
                "n_held_out_tokens": self.held_out.n_tokens,
                "n_documents": len(self.names),
                "tokens_by_source": {source: self._size_of(source) for source in dict.fromkeys(self.source_names)},
            },
        }

    def _split(self, chosen: Bool[np.ndarray, " document"]) -> Split:
        return Split(np.stack([self.starts, self.ends], axis=1)[chosen])

    def _size_of(self, source: str) -> int:
        belongs = np.array([name == source for name in self.source_names])
        return int((self.ends - self.starts)[belongs].sum())


def build_corpus(config: DataConfig, tokenizer: Tokenizer) -> Corpus:
    """Read and tokenise the text sources of `config`; without any text source the corpus is empty.

    Deterministic: the same files and config give the same corpus, hash included.
    """
    documents = read_documents(config)
    dtype = np.uint16 if tokenizer.d_vocab <= 2**16 else np.int32
    pieces = [np.array(_encode(tokenizer, document), dtype=dtype) for document in documents]
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    return Corpus(
        tokens=np.concatenate([np.empty(0, dtype=dtype), *pieces]),
        starts=lengths.cumsum() - lengths,
        names=tuple(document.name for document in documents),
        source_names=tuple(document.source for document in documents),
        is_held_out=np.array([document.held_out for document in documents], dtype=bool),
    )


def build_tokenizer(config: DataConfig) -> Tokenizer:
    """The tokenizer that `config` asks for.

    BPE merges are learned from the training documents only. Characters are collected from all documents, since one that
    the tokenizer does not know could not be evaluated at all. `chars:N` needs no text.
    """
    if config.tokenizer == "bytes":
        return ByteTokenizer()
    size = tokenizer_size(config.tokenizer) or 0
    if config.tokenizer.startswith("chars:"):
        return CharTokenizer.visible(size)
    documents = read_documents(config)
    if not documents:
        raise InputError(
            f"A {config.tokenizer} tokenizer is made from text, and data.sources has none; use bytes or chars:N."
        )
    if config.tokenizer == "chars":
        return CharTokenizer.train(document.text for document in documents)
    return BPETokenizer.train((document.text for document in documents if not document.held_out), size)


def _encode(tokenizer: Tokenizer, document: Document) -> list[int]:
    try:
        return tokenizer.encode(document.text)
    except InputError as fault:
        raise InputError(f"{document.name} cannot be tokenised. {fault}") from None
