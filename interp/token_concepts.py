"""Do the tokens that a value promotes have something in common? Concepts without a human (Geva et al. 2022, section 4).

In arXiv 2203.14680 people looked at the 30 tokens that a value promotes most, and named a concept where at least four
of them share one; values had far more concepts than random vectors. Here the names are fixed rules on a token's text
(`interp.concept_kinds`), and a concept is *meaningful* of a value where

* it covers at least four of the value's top 30 tokens, as in the paper, and
* thirty tokens drawn from the vocabulary at random would be covered that often with a probability below 0.05, after
  Bonferroni's correction for all the concepts of the vocabulary (the hypergeometric tail).

The second condition is what makes small vocabularies right: of 64 characters 26 may be small letters, and any thirty
hold four of them. A concept that is half of the vocabulary can still be meaningful, but its base rate stands beside
it, and it covers at most twice what chance does. Where the top 30 are the whole vocabulary nothing can be meaningful.

Chance over tokens is not the whole control: an unembedding puts tokens that are alike in one direction, so that random
directions, read through it, promote tokens that are alike as well. `random_coverage` says how often. A value's norm
does not change the order of its tokens, so a direction's length plays no part. A freshly initialised model says what
the architecture gives (`interp.null_models.reinitialised`). The unit is the value; values of one model are not
independent of each other, and the interval over them speaks for this model's values only.

Cost: a table of concepts once per vocabulary, and a count per value, in groups.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.concept_kinds import ConceptKind, concepts_of
from interp.share_intervals import share_interval
from interp.stats import Interval
from model.settings import as_enum

N_TOP = 30
"""Tokens of a value that are looked at (Geva et al. 2022)."""

LEAST = 4
"""Tokens that a concept has to cover (Geva et al. 2022)."""

LEVEL = 0.05
"""Chance, after the correction, that a concept is called meaningful where tokens are drawn at random."""


@dataclass(frozen=True, kw_only=True)
class Concept:
    """Something that tokens of a vocabulary have in common."""

    kind: ConceptKind

    text: str
    """What the tokens of a family share, such as a stem; "" for a class."""

    n_tokens: int
    """How many tokens of the vocabulary it covers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_enum(ConceptKind, self.kind, "kind"))

    def __str__(self) -> str:
        return f"{self.kind} {self.text}" if self.text else str(self.kind)


@dataclass(frozen=True, kw_only=True)
class ConceptTable:
    """The concepts of a vocabulary: those with at least four tokens, as others cannot cover four."""

    concepts: tuple[Concept, ...]

    member: Int[Tensor, "d_vocab place"]
    """Which concepts each token belongs to, by their place in `concepts`; filled up with `len(concepts)`."""

    @property
    def d_vocab(self) -> int:
        """How many tokens the vocabulary has."""
        return len(self.member)


@dataclass(frozen=True, kw_only=True)
class ConceptCoverage:
    """The concept that stands out most among the top tokens of each value."""

    concept: Int[Tensor, " memory"]
    """Its place in `ConceptTable.concepts`; -1 where no concept covers four tokens."""

    covered: Int[Tensor, " memory"]
    """How many of the top tokens it covers; 0 where there is none."""

    base_rate: Float[Tensor, " memory"]
    """Share of the vocabulary that it covers; NaN where there is none."""

    p: Float[Tensor, " memory"]
    """Chance that as many random tokens are covered so often by any of the concepts (Bonferroni); 1 where none is."""

    n_top: int
    """Tokens looked at per value: 30, or the vocabulary where it is smaller."""

    n_concepts: int
    """Concepts tried."""

    @property
    def meaningful(self) -> Bool[Tensor, " memory"]:
        """Whether the concept covers four tokens and more than chance does."""
        return (self.concept >= 0) & (self.p <= LEVEL)


@dataclass(frozen=True, kw_only=True)
class MeaningfulShare:
    """How many values have a meaningful concept, beside random directions."""

    n: int
    """Values that were looked at."""

    share: Interval | None
    """Share of them with a meaningful concept, and Clopper and Pearson's interval; None where there are no values."""

    n_random: int
    """Random directions."""

    random: Interval | None
    """The same share of random directions."""

    p: float
    """Chance that as many of the meaningful ones are values, if values and directions were one lot (Fisher's exact)."""

    @property
    def lift(self) -> float | None:
        """The values' share over that of the directions; None where either is missing or no direction has a concept."""
        if self.share is None or self.random is None or self.random.mean == 0:
            return None
        return self.share.mean / self.random.mean


def concept_table(token_bytes: Sequence[bytes]) -> ConceptTable:
    r"""The concepts of a vocabulary, given the bytes of each token.

    >>> table = concept_table([b"(", b")", b"[", b"]", b"0", b"1", b"2", b"3", b"x"])
    >>> [(str(concept), concept.n_tokens) for concept in table.concepts]
    [('brackets', 4), ('punctuation', 4), ('digits', 4)]
    """
    tokens = defaultdict(list)
    for token, raw in enumerate(token_bytes):
        for named in concepts_of(raw):
            tokens[named].append(token)
    kept = {named: owned for named, owned in tokens.items() if len(owned) >= LEAST}
    places = [[] for _ in token_bytes]
    for place, owned in enumerate(kept.values()):
        for token in owned:
            places[token].append(place)
    width = max((len(own) for own in places), default=0)
    member = torch.full((len(places), width), len(kept), dtype=torch.int32)
    for token, own in enumerate(places):
        member[token, : len(own)] = torch.tensor(own, dtype=torch.int32)
    concepts = (Concept(kind=kind, text=text, n_tokens=len(owned)) for (kind, text), owned in kept.items())
    return ConceptTable(concepts=tuple(concepts), member=member)


def concept_coverage(top: Int[Tensor, "memory k"], table: ConceptTable) -> ConceptCoverage:
    """The concept that stands out most among the first 30 of each row of tokens, which are different from each other.

    That is the one with the smallest hypergeometric tail among those that cover at least four; of equals the first.
    """
    top = top[:, :N_TOP]
    tails = _tails(table, top.shape[1])
    group = max(1, _COUNTS // (len(table.concepts) + 1))
    parts = [_best(part, table, tails) for part in top.split(group)] or [_best(top, table, tails)]
    concept, covered, p = (torch.cat(each) for each in zip(*parts, strict=True))
    sizes = torch.tensor([each.n_tokens for each in table.concepts] + [math.nan], dtype=torch.float32)
    return ConceptCoverage(
        concept=concept,
        covered=covered,
        base_rate=sizes[concept.long()] / table.d_vocab,  # -1 is the last: not a number
        p=p,
        n_top=top.shape[1],
        n_concepts=len(table.concepts),
    )


_COUNTS = 2**22
"""Counts of concepts held at once."""


def _best(
    top: Int[Tensor, "memory k"], table: ConceptTable, tails: Float[Tensor, "concept covered"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Place, count and corrected p of the best concept of each row."""
    n = len(table.concepts)
    if n == 0 or not top.numel():
        none = torch.full((len(top),), -1, dtype=torch.int32)
        return none, torch.zeros_like(none), torch.ones(len(top), dtype=torch.float64)
    owned = table.member[top.long()].flatten(1).long()
    counts = torch.zeros(len(top), n + 1, dtype=torch.int64).scatter_add_(1, owned, torch.ones_like(owned))[:, :n]
    tail = torch.where(counts >= LEAST, tails[torch.arange(n), counts], 1.0)
    p, place = tail.min(dim=1)
    there = (counts >= LEAST).any(dim=1)
    place = torch.where(there, _first(tail == p[:, None], counts >= LEAST), -1)
    covered = torch.where(there, counts.gather(1, place.clamp_min(0)[:, None])[:, 0], 0)
    return place.int(), covered.int(), (p * n).clamp_max(1.0).where(there, 1.0)


def _first(equal: Bool[Tensor, "memory concept"], counted: Bool[Tensor, "memory concept"]) -> Int[Tensor, " memory"]:
    """The first concept that is as good as the best and counts."""
    return (equal & counted).int().argmax(dim=1)


def _tails(table: ConceptTable, n_top: int) -> Float[Tensor, "concept covered"]:
    """For each concept the chance that at least so many of `n_top` random tokens belong to it."""
    sizes = sorted({concept.n_tokens for concept in table.concepts})
    of_size = {size: upper_tail(table.d_vocab, size, n_top) for size in sizes}
    rows = [of_size[concept.n_tokens] for concept in table.concepts]
    return torch.stack(rows) if rows else torch.ones(0, n_top + 1, dtype=torch.float64)


def upper_tail(population: int, marked: int, drawn: int) -> Float[Tensor, " count"]:
    """P[at least x of `drawn` are marked] for x from 0 to `drawn`, drawing without replacement; fp64.

    >>> [round(chance, 4) for chance in upper_tail(10, 4, 3).tolist()]
    [1.0, 0.8333, 0.3333, 0.0333]
    """
    x = torch.arange(drawn + 1, dtype=torch.float64)
    possible = (x <= marked) & (drawn - x <= population - marked)
    logs = _choose(marked, x) + _choose(population - marked, drawn - x)
    logs = logs - _choose(population, torch.tensor(float(drawn), dtype=torch.float64))
    chances = torch.where(possible, logs.exp(), 0.0)
    return chances.flip(0).cumsum(0).flip(0).clamp_max(1.0)


def _choose(n: int, k: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Log of the number of ways to choose k of n, where 0 <= k <= n."""
    kept = k.clamp(0, n)
    return math.lgamma(n + 1) - torch.lgamma(kept + 1) - torch.lgamma(n - kept + 1)


def meaningful_share(values: Bool[Tensor, " memory"], directions: Bool[Tensor, " direction"]) -> MeaningfulShare:
    """How many of the values have a meaningful concept, and how many of the random directions.

    >>> few = meaningful_share(torch.tensor([True] * 8 + [False] * 2), torch.tensor([False] * 10))
    >>> few.share.mean, few.random.mean, round(few.p, 4)
    (0.8, 0.0, 0.0004)
    """
    both = int(values.sum()) + int(directions.sum())
    tail = upper_tail(len(values) + len(directions), both, len(values))
    return MeaningfulShare(
        n=len(values),
        share=_interval(values),
        n_random=len(directions),
        random=_interval(directions),
        p=float(tail[int(values.sum())]),
    )


def _interval(found: Bool[Tensor, " n"]) -> Interval | None:
    return share_interval(int(found.sum()), len(found)) if len(found) else None
