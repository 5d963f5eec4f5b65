"""What the triggers of a memory have in common: the automatic version of Geva et al. 2021's annotated patterns.

Their section 3 lets people name patterns that occur in at least 3 of a key's 25 strongest prefixes. Here what can be
counted is counted, for each memory over its triggers: the commonest last token, last two and last three tokens; the
longest end that at least three share; how many lie close together in one document; whether they begin alike; whether
they stop at one position of the window. Copies of one text (a licence at the head of many files) are no evidence of a
pattern: triggers with the same last 16 tokens are counted, and count once where a memory is given a kind. Nor is an
end that is as common in the one stretch of text that all come from (`interp.trigger_regions`).

Frequent tokens end many prefixes, and files repeat themselves. So every measure stands beside the same for sets of as
many random prefixes of the same corpus, and a kind needs a share that none of those sets reaches: by chance that
happens to a memory at most once in 1 + their number, for each kind.

What it does not show: meanings. A memory of the kind "none" may fire on something that a reader would see at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from interp.pattern_kinds import TriggerPattern
from interp.prefix_sets import (
    PrefixSets,
    copies,
    n_groups,
    nth_longest,
    prefix_sets,
    shared_beginning,
    shared_end,
)
from interp.prefixes import Windows
from interp.trigger_regions import beyond_region

FEWEST = 3
"""Triggers that make a pattern, as in Geva et al. 2021."""

MEASURES = (
    "last_token_share", "last_bigram_share", "last_trigram_share", "covered_share", "region_share", "position_share",
    "copied_share", "suffix_share", "prefix_share", "suffix_length", "majority_suffix", "prefix_length", "n_patterns",
    "n_documents", "n_distinct",
)  # fmt: skip
"""What is measured of a set of triggers, and of sets of random prefixes."""

_SHARE_OF = {
    TriggerPattern.REPEATED_TEXT: "copied_share",
    TriggerPattern.SUFFIX: "last_trigram_share",
    TriggerPattern.LAST_BIGRAM: "last_bigram_share",
    TriggerPattern.LAST_TOKEN: "last_token_share",
    TriggerPattern.REGION: "region_share",
    TriggerPattern.POSITION: "position_share",
    TriggerPattern.SEVERAL: "covered_share",
}

_PLACES = {kind: place for place, kind in enumerate(TriggerPattern)}
_N_LAST = {TriggerPattern.SUFFIX: 3, TriggerPattern.LAST_BIGRAM: 2, TriggerPattern.LAST_TOKEN: 1}
"""Last tokens that must be the same."""


@dataclass(frozen=True, kw_only=True)
class RandomEvidence:
    """The same measures of sets of random prefixes."""

    n_sets: int
    """Sets that were drawn, each without replacement."""

    mean: Float[Tensor, "measure size"]
    """Mean over the sets, in the order of `MEASURES`, for sets of 0, 1, 2 ... prefixes; NaN for sets of none."""

    highest: Float[Tensor, "measure size"]
    """The largest of any set."""

    def level(self, measure: str, n: Int[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """What a measure is for n random prefixes, on average."""
        return self.mean[MEASURES.index(measure)][n.long()]


@dataclass(frozen=True, kw_only=True)
class TriggerEvidence:
    """What each memory's triggers share. Shares are of its triggers, from 0 to 1, NaN where it has none."""

    n: Int[Tensor, "*layer memory"]
    """Triggers compared."""

    last_token_share: Float[Tensor, "*layer memory"]
    """Triggers that end in the commonest last token among them."""
    last_bigram_share: Float[Tensor, "*layer memory"]
    """The same of the last two tokens."""
    last_trigram_share: Float[Tensor, "*layer memory"]
    """The same of the last three tokens."""
    covered_share: Float[Tensor, "*layer memory"]
    """Triggers that end in a token in which at least three end."""
    region_share: Float[Tensor, "*layer memory"]
    """Most triggers that end in one document within 256 tokens of each other."""
    position_share: Float[Tensor, "*layer memory"]
    """Triggers that end at the commonest position of their windows."""
    copied_share: Float[Tensor, "*layer memory"]
    """Triggers whose last 16 tokens, or all if fewer, are those of a stronger one."""
    suffix_share: Float[Tensor, "*layer memory"]
    """Triggers that end in the longest end that at least three share."""
    prefix_share: Float[Tensor, "*layer memory"]
    """Triggers that begin as at least three windows do, by the longest such beginning."""

    suffix_length: Float[Tensor, "*layer memory"]
    """Tokens of the longest end that at least three triggers share; 32 stands for 32 or more."""
    majority_suffix: Float[Tensor, "*layer memory"]
    """Tokens of the longest end that more than half of the triggers share; 32 stands for 32 or more."""
    prefix_length: Float[Tensor, "*layer memory"]
    """Tokens of the longest beginning that triggers from at least three windows share; 32 stands for 32 or more."""
    n_patterns: Float[Tensor, "*layer memory"]
    """Last tokens in which at least three triggers end."""
    n_documents: Float[Tensor, "*layer memory"]
    """Documents that the triggers come from."""
    n_distinct: Float[Tensor, "*layer memory"]
    """Triggers that are no copies."""

    kind: Int[Tensor, "*layer memory"]
    """Place of its kind in `TriggerPattern`."""
    holds: Bool[Tensor, "*layer memory kind"]
    """Every pattern that holds of it, in the order of `TriggerPattern`."""

    random: RandomEvidence

    def kind_of(self, layer: int, memory: int) -> TriggerPattern:
        """A memory's kind."""
        return tuple(TriggerPattern)[int(self.kind[layer, memory])]

    def counts(self, layer: int) -> dict[TriggerPattern, int]:
        """How many of a layer's memories are of each kind."""
        return {kind: int((self.kind[layer] == place).sum()) for place, kind in enumerate(TriggerPattern)}

    def random_level(self, measure: str) -> Float[Tensor, "*layer memory"]:
        """What a measure is for as many random prefixes as a memory has triggers, on average."""
        return self.random.level(measure, self.n)


def trigger_evidence(
    tokens: Integer[np.ndarray, " corpus"],
    documents: Int[np.ndarray, "document 2"],
    offset: Int[Tensor, "memory trigger"],
    length: Int[Tensor, "memory trigger"],
    random: RandomEvidence,
) -> TriggerEvidence:
    """What the triggers of one layer's memories share; strongest first, length 0 where there is none.

    Documents are given in rising order, by the offset of the first token and the one behind the last.
    """
    sets = prefix_sets(tokens, documents, offset, length)
    ends, beginnings = shared_end(sets), shared_beginning(sets)
    found = _measured(sets, ends, beginnings, sets.present)
    distinct = sets.present & ~copies(sets, ends)
    alone = _measured(sets, ends, beginnings, distinct) | {"copied_share": found["copied_share"]}
    n = sets.present.sum(-1)
    holds = _holding(alone, distinct.sum(-1), n, random)
    in_region = holds[:, _PLACES[TriggerPattern.REGION]].clone()
    for kind, n_last in _N_LAST.items():
        said = beyond_region(tokens, sets, ends, distinct, n_last, level=1 / (1 + random.n_sets))
        holds[:, _PLACES[kind]] &= said | ~in_region
    holds[:, _PLACES[TriggerPattern.FEW]] = n < FEWEST
    holds[:, _PLACES[TriggerPattern.NONE]] = ~holds.any(-1)
    return TriggerEvidence(n=n.int(), **found, kind=holds.int().argmax(-1).int(), holds=holds, random=random)


def stacked(per_layer: Sequence[TriggerEvidence]) -> TriggerEvidence:
    """The evidence of all layers in one."""
    names = ("n", *MEASURES, "kind", "holds")
    of_all = {name: torch.stack([getattr(each, name) for each in per_layer]) for name in names}
    return TriggerEvidence(**of_all, random=per_layer[0].random)


def random_evidence(
    tokens: Integer[np.ndarray, " corpus"],
    documents: Int[np.ndarray, "document 2"],
    windows: Windows,
    *,
    n_triggers: int,
    n_sets: int,
    seed: int,
) -> RandomEvidence:
    """The measures of `n_sets` sets of random prefixes of the windows, for sets of every size up to `n_triggers`."""
    n_each, rng = min(n_triggers, windows.n_prefixes), np.random.default_rng(seed)
    drawn = np.stack([rng.choice(windows.n_prefixes, n_each, replace=False) for _ in range(n_sets)])
    ends = windows.nth_end(torch.from_numpy(drawn).flatten()).view(n_sets, n_each)
    offset = windows.start_of(ends)
    sets = prefix_sets(tokens, documents, offset, ends - offset + 1)
    end, beginning = shared_end(sets), shared_beginning(sets)
    mean, highest = torch.full((2, len(MEASURES), n_triggers + 1), torch.nan)
    for size in range(1, n_each + 1):
        some = sets.first_of_each(size)
        measured = _measured(some, end[:, :size, :size], beginning[:, :size, :size], some.present)
        values = torch.stack([measured[name] for name in MEASURES])
        mean[:, size], highest[:, size] = values.mean(-1), values.amax(-1)
    return RandomEvidence(n_sets=n_sets, mean=mean, highest=highest)


def _measured(
    sets: PrefixSets,
    ends: Int[Tensor, "set prefix other"],
    beginnings: Int[Tensor, "set prefix other"],
    present: Bool[Tensor, "set prefix"],
) -> dict[str, Tensor]:
    """All `MEASURES` of the present prefixes of each set, fp32."""
    both = present[:, :, None] & present[:, None, :]
    ends, beginnings = torch.where(both, ends, -1), torch.where(both, beginnings, -1)
    n, few = present.sum(-1), torch.full((len(present),), FEWEST)
    alike = {length: (ends >= length).sum(-1) for length in (1, 2, 3)}
    of_one_window = (sets.offset[:, :, None] == sets.offset[:, None, :]) & both
    longest = ~(of_one_window & (sets.length[:, :, None] < sets.length[:, None, :])).any(-1)  # stands for its window
    suffix = nth_longest(ends, few)
    prefix = nth_longest(torch.where(longest[:, None, :], beginnings, -1), few)
    distinct = (present & ~copies(sets, ends)).sum(-1)
    of_document = (sets.document[:, :, None] == sets.document[:, None, :]) & both
    of_position = (sets.length[:, :, None] == sets.length[:, None, :]) & both
    measures = {
        "last_token_share": alike[1].amax(-1) / n,
        "last_bigram_share": alike[2].amax(-1) / n,
        "last_trigram_share": alike[3].amax(-1) / n,
        "covered_share": (alike[1] >= FEWEST).sum(-1) / n,
        "region_share": (sets.near & both).sum(-1).amax(-1) / n,
        "position_share": of_position.sum(-1).amax(-1) / n,
        "copied_share": 1 - distinct / n,
        "suffix_share": _sharing(ends, suffix) / n,
        "prefix_share": _sharing(beginnings, prefix) / n,
        "suffix_length": suffix.amax(-1),
        "majority_suffix": nth_longest(ends, (n // 2 + 1).clamp_min(2)).amax(-1),
        "prefix_length": prefix.amax(-1),
        "n_patterns": n_groups(ends >= 1, (alike[1] >= FEWEST) & present),
        "n_documents": n_groups(of_document, present),
        "n_distinct": distinct,
    }
    return {name: measures[name].float() for name in MEASURES}


def _sharing(shared: Int[Tensor, "set prefix other"], longest: Int[Tensor, "set prefix"]) -> Int[Tensor, " set"]:
    """How many prefixes share the longest of what is shared; of equally long ones, the most common."""
    best = longest.amax(-1, keepdim=True)
    chosen = (longest == best) & (best > 0)
    return ((shared >= best[..., None]).sum(-1) * chosen).amax(-1)


def _holding(
    found: Mapping[str, Tensor], n: Int[Tensor, " memory"], n_all: Int[Tensor, " memory"], random: RandomEvidence
) -> Bool[Tensor, "memory kind"]:
    """Which patterns hold: more than half of the n distinct triggers, three at least, and more than in any random set.

    Copies are counted among all triggers.
    """
    holds = torch.zeros(len(n), len(TriggerPattern), dtype=torch.bool)
    for kind, name in _SHARE_OF.items():
        size = n_all if kind is TriggerPattern.REPEATED_TEXT else n
        highest = random.highest[MEASURES.index(name)][size]
        holds[:, _PLACES[kind]] = (found[name] > 0.5) & (size >= FEWEST) & (found[name] > highest)
    return holds
