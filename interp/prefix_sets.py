"""Sets of prefixes of a corpus held against one another: how long an end any two share, and how long a beginning.

A set is a memory's triggers, or as many random prefixes. Ends and beginnings are compared over at most 32 tokens, all
pairs of a set at once: sets times prefixes squared, whatever the corpus holds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from interp.prefixes import tails

COMPARED = 32
"""Tokens of ends and beginnings that are compared."""
REGION = 256
"""Tokens within which the ends of prefixes of one document lie in one region."""
COPY = 16
"""Prefixes with this many last tokens in common, or with all of them if fewer, are copies."""


@dataclass(frozen=True, kw_only=True)
class PrefixSets:
    """Sets of prefixes of a corpus; those of a memory's triggers strongest first."""

    offset: Int[Tensor, "set prefix"]
    """Corpus offset of each prefix's first token."""
    length: Int[Tensor, "set prefix"]
    """Its tokens; 0 where there is no prefix."""
    document: Int[Tensor, "set prefix"]
    """Number of the document it lies in."""
    document_start: Int[Tensor, "set prefix"]
    """Corpus offset of that document's first token."""
    document_stop: Int[Tensor, "set prefix"]
    """Corpus offset behind its last token."""
    last: Int[Tensor, "set prefix token"]
    """Its last tokens, the very last one first; -1 beyond its beginning."""
    first: Int[Tensor, "set prefix token"]
    """Its first tokens; -1 beyond its end."""

    @property
    def present(self) -> Bool[Tensor, "set prefix"]:
        """Which prefixes exist."""
        return self.length > 0

    @property
    def end(self) -> Int[Tensor, "set prefix"]:
        """Corpus offset of each prefix's last token."""
        return self.offset + self.length - 1

    @property
    def near(self) -> Bool[Tensor, "set prefix other"]:
        """Which others end in the same document, in the `REGION` tokens that begin where a prefix ends."""
        behind = self.end[:, None, :] - self.end[:, :, None]
        return (behind >= 0) & (behind < REGION) & (self.document[:, :, None] == self.document[:, None, :])

    def first_of_each(self, n: int) -> PrefixSets:
        """Sets of the first n prefixes of each."""
        return PrefixSets(**{each.name: getattr(self, each.name)[:, :n] for each in fields(self)})


def prefix_sets(
    tokens: Integer[np.ndarray, " corpus"],
    documents: Int[np.ndarray, "document 2"],
    offset: Int[Tensor, "set prefix"],
    length: Int[Tensor, "set prefix"],
) -> PrefixSets:
    """The prefixes that begin at the given offsets; documents, in rising order, by first offset and the one behind."""
    starts, stops = torch.from_numpy(np.asarray(documents, dtype=np.int64)).T.contiguous()
    document = torch.searchsorted(starts, offset.contiguous(), right=True) - 1
    ahead = offset[..., None] + torch.arange(COMPARED)
    inside = torch.arange(COMPARED) < length[..., None]
    first = torch.from_numpy(np.asarray(tokens[ahead.clamp(0, len(tokens) - 1).numpy()], dtype=np.int32))
    return PrefixSets(
        offset=offset,
        length=length.long(),
        document=document,
        document_start=starts[document.clamp_min(0)],
        document_stop=stops[document.clamp_min(0)],
        last=tails(tokens, offset, length, COMPARED).flip(-1),
        first=torch.where(inside, first, -1),
    )


def shared_end(sets: PrefixSets) -> Int[Tensor, "set prefix other"]:
    """How many last tokens two prefixes of a set have in common, 32 at most; -1 where one does not exist."""
    return _shared(sets.last, sets.present)


def shared_beginning(sets: PrefixSets) -> Int[Tensor, "set prefix other"]:
    """How many first tokens two prefixes of a set have in common, 32 at most; -1 where one does not exist."""
    return _shared(sets.first, sets.present)


def copies(sets: PrefixSets, ends: Int[Tensor, "set prefix other"]) -> Bool[Tensor, "set prefix"]:
    """Which prefixes are copies of an earlier one of their set; `ends` is -1 where one of two does not count."""
    whole = (ends == sets.length[:, :, None]) & (ends == sets.length[:, None, :])
    return ((ends >= COPY) | (whole & (ends > 0))).tril(diagonal=-1).any(-1)


def nth_longest(shared: Int[Tensor, "set prefix other"], n: Int[Tensor, " set"]) -> Int[Tensor, "set prefix"]:
    """What each prefix shares with at least n of its set, itself among them; 0 where they are not so many."""
    ordered = shared.sort(dim=-1, descending=True).values
    place = (n - 1)[:, None, None].expand(-1, shared.shape[1], 1)
    found = ordered.gather(-1, place.clamp(0, shared.shape[2] - 1)).squeeze(-1)
    return torch.where(place.squeeze(-1) < shared.shape[2], found, 0).clamp_min(0)


def n_groups(alike: Bool[Tensor, "set prefix other"], counted: Bool[Tensor, "set prefix"]) -> Int[Tensor, " set"]:
    """How many groups of prefixes that are alike there are among the counted ones, whose groups are counted whole."""
    return (counted / alike.sum(-1).clamp_min(1)).sum(-1).round().long()


def _shared(lists: Int[Tensor, "set prefix token"], present: Bool[Tensor, "set prefix"]) -> Tensor:
    both = present[:, :, None] & present[:, None, :]
    shared, alike = torch.zeros_like(both, dtype=torch.int16), both
    for place in range(lists.shape[-1]):
        one = lists[..., place]
        alike = alike & (one[:, :, None] == one[:, None, :]) & (one >= 0)[:, :, None]
        if not alike.any():
            break
        shared += alike
    return torch.where(both, shared, -1)
