"""Controls for a claim about a set of heads: other sets, matched layer by layer.

A claim such as "these heads carry the copying" is held against sets that have as many heads in every layer but were
chosen without looking (Shi et al. 2024, 2410.13032). Small models have few such sets; then all are used, and the
smallest p that can come out is said, so that a p of 1/6 is not mistaken for weak evidence.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from interp.places import Head
from model.errors import InputError


@dataclass(frozen=True)
class MatchedSets:
    """Head sets to hold a claimed set against: as many heads in each layer, chosen without looking."""

    sets: tuple[tuple[Head, ...], ...]

    n_possible: int
    """How many such sets exist, the claimed one not counted."""

    @property
    def enumerated(self) -> bool:
        """Whether these are all that exist."""
        return len(self.sets) == self.n_possible

    @property
    def smallest_p(self) -> float:
        """The smallest p that `control_p` can give with these sets; 1 where no control exists."""
        return 1 / (1 + len(self.sets))

    def __iter__(self) -> Iterator[tuple[Head, ...]]:
        """The sets, one after the other."""
        return iter(self.sets)

    def __len__(self) -> int:
        """How many sets there are."""
        return len(self.sets)


def matched_head_sets(
    heads: Collection[Head], n_layers: int, n_heads: int, limit: int = 200, seed: int = 0
) -> MatchedSets:
    """Other sets with as many heads per layer as `heads`: all of them where `limit` allows, else distinct random ones.

    A control may share heads with the claimed set (a permutation test needs that) but is never equal to it.
    """
    claimed = _checked_heads(heads, n_layers, n_heads)
    counts = Counter(layer for layer, _ in claimed)
    n_possible = math.prod(math.comb(n_heads, count) for count in counts.values()) - 1
    if n_possible <= limit:
        parts = (itertools.combinations(_heads_of(layer, n_heads), counts[layer]) for layer in sorted(counts))
        sets = (tuple(itertools.chain(*part)) for part in itertools.product(*parts))
        return MatchedSets(tuple(each for each in sets if each != claimed), n_possible)
    return MatchedSets(_drawn_sets(claimed, n_heads, limit, seed), n_possible)


def control_p(observed: float, controls: Sequence[float] | Float[Tensor, " n"]) -> float:
    """Share of control sets with an effect at least as large, the claimed set counted among them.

    >>> control_p(3.0, [1.0, 2.0, 3.0])
    0.5
    """
    return (1 + sum(float(control) >= observed for control in controls)) / (1 + len(controls))


def _checked_heads(heads: Collection[Head], n_layers: int, n_heads: int) -> tuple[Head, ...]:
    for layer, head in heads:
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise InputError(
                f"There is no head L{layer}H{head}; layers run 0 to {n_layers - 1}, heads 0 to {n_heads - 1}."
            )
    return tuple(sorted(set(heads)))


def _heads_of(layer: int, n_heads: int) -> list[Head]:
    return [(layer, head) for head in range(n_heads)]


def _drawn_sets(claimed: tuple[Head, ...], n_heads: int, limit: int, seed: int) -> tuple[tuple[Head, ...], ...]:
    """`limit` distinct random sets; there are more than that, so drawing until enough are found ends."""
    counts = Counter(layer for layer, _ in claimed)
    chance = random.Random(seed)
    found: dict[tuple[Head, ...], None] = {}
    while len(found) < limit:
        parts = (chance.sample(_heads_of(layer, n_heads), count) for layer, count in sorted(counts.items()))
        chosen = tuple(sorted(itertools.chain(*parts)))
        if chosen != claimed:
            found[chosen] = None
    return tuple(found)
