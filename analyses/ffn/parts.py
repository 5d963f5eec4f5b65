"""What is kept of a checkpoint's FFN memories, field by field (for `analyses.ffn.reading`, which fills them).

Everything is indexed [layer, memory, ...]; a trigger that does not exist (the memory fired less often than triggers are
kept) has length 0, coefficient 0, and -1 for its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.coefficient_bins import histogram_edges, share_above

DEAD = 1e-6
"""A memory whose coefficient is never further from zero than this is dead."""

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Of a memory's largest coefficient: thresholds above which it can be called active where there is no natural zero."""


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """The prefixes that fire each memory most, strongest first; of equals, the one that comes first in the corpus.

    Of the negative side they are those with the most negative coefficients.
    """

    coefficient: Float[Tensor, "layer memory trigger"]
    """What the memory's coefficient is at the prefix's last token."""

    offset: Int[Tensor, "layer memory trigger"]
    """Corpus offset of the prefix's first token."""

    length: Int[Tensor, "layer memory trigger"]
    """Tokens of the prefix, BOS not counted."""

    document: Int[Tensor, "layer memory trigger"]
    """Number of its document among those of the text that was read; -1 where there is no trigger."""

    last_token: Int[Tensor, "layer memory trigger"]

    next_token: Int[Tensor, "layer memory trigger"]
    """The token that follows in the corpus."""

    context: Int[Tensor, "layer memory shown token"]
    """The last tokens of the first few prefixes, for showing; -1 before a prefix begins."""

    @property
    def present(self) -> Bool[Tensor, "layer memory trigger"]:
        """Which triggers exist."""
        return self.length > 0


@dataclass(frozen=True, kw_only=True)
class Values:
    """What each value does to the logits of tokens, per unit of coefficient and of final-norm scale."""

    promoted: Int[Tensor, "layer memory rank"]
    promoted_score: Float[Tensor, "layer memory rank"]
    suppressed: Int[Tensor, "layer memory rank"]
    suppressed_score: Float[Tensor, "layer memory rank"]

    confidence: Float[Tensor, "layer memory"]
    """Largest probability of softmax(v W_U). Not calibrated: only its order over memories means something."""

    skew: Float[Tensor, "layer memory"]
    """Third standardized moment of the scores over the vocabulary."""
    kurtosis: Float[Tensor, "layer memory"]
    """Fourth standardized moment less 3."""

    norm: Float[Tensor, "layer memory"]
    """Length of what is added to the stream per unit of coefficient."""
    key_norm: Float[Tensor, "layer memory"]
    """Length of the key that reads the stream; for swiglu the gate's."""
    key_value_cosine: Float[Tensor, "layer memory"]
    """Cosine of key and value in the stream's basis; near -1 the memory takes away what it was fired by."""
    linear_value_cosine: Float[Tensor, "layer memory"]
    """The same for the linear key of swiglu; NaN for other FFNs."""

    next_rank: Int[Tensor, "layer memory"]
    """Place of the top trigger's next token in the order of promotion, from 0; -1 without triggers."""

    concept: Int[Tensor, "layer memory"]
    """What stands out most among its 30 most promoted tokens, by its place in `concepts`; -1 where nothing does."""
    concept_covered: Int[Tensor, "layer memory"]
    """How many of the 30 it covers."""
    concept_p: Float[Tensor, "layer memory"]
    """Chance that as many of 30 random tokens share any concept, after Bonferroni's correction."""
    concepts: tuple[str, ...]
    """All concepts of the vocabulary."""


@dataclass(frozen=True, kw_only=True)
class Activity:
    """How much each memory does over the corpus."""

    firing_rate: Float[Tensor, "layer memory"]
    """Share of prefixes with a coefficient above zero."""

    negative_rate: Float[Tensor, "layer memory"]
    """Share of prefixes with a coefficient below zero."""

    strong_rate: Float[Tensor, "layer memory"]
    """Share of prefixes whose coefficient reaches a tenth of the largest (down to a bin's edge)."""

    largest: Float[Tensor, "layer memory"]
    lowest: Float[Tensor, "layer memory"]
    """The most negative coefficient; 0 where none is negative."""
    mean: Float[Tensor, "layer memory"]
    std: Float[Tensor, "layer memory"]

    histogram: Int[Tensor, "layer memory bin"]
    """Prefixes per bin of `interp.coefficient_bins.histogram_edges`."""

    negative_histogram: Int[Tensor, "layer memory bin"]
    """The same of the coefficients with their signs turned."""

    @property
    def alive(self) -> Bool[Tensor, "layer memory"]:
        """Memories that fired at least once."""
        return self.firing_rate > 0

    @property
    def furthest(self) -> Float[Tensor, "layer memory"]:
        """The largest coefficient of either sign, without it."""
        return torch.maximum(self.largest, -self.lowest)

    @property
    def dead(self) -> Bool[Tensor, "layer memory"]:
        """Memories whose coefficient is never further than `DEAD` from zero."""
        return self.furthest <= DEAD

    @property
    def dense(self) -> Bool[Tensor, "layer memory"]:
        """Memories that fire on more than half of all prefixes."""
        return self.firing_rate > 0.5

    def active_above(self, fractions: Sequence[float] = FRACTIONS) -> Float[Tensor, "layer memory fraction"]:
        """Share of prefixes with |m| of at least each fraction of the memory's largest |m|; NaN for dead ones.

        Down to a bin's edge; what is nearer to zero than 2^-10 is never counted.
        """
        shares = [
            reaching(self.histogram, self.furthest * fraction)
            + reaching(self.negative_histogram, self.furthest * fraction)
            for fraction in fractions
        ]
        return torch.where(self.dead[..., None], torch.nan, torch.stack(shares, dim=-1))


def reaching(histogram: Int[Tensor, "*axes bin"], thresholds: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Share of prefixes that reach a threshold, down to a bin's edge; of the first bin, which holds zero, none do."""
    return share_above(histogram, thresholds.clamp_min(float(histogram_edges()[0])))
