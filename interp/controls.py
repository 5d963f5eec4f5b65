"""Controls for a claim about a set of heads: other sets, matched layer by layer.

A claim such as "these heads carry the copying" is held against sets that have as many heads in every layer but were
chosen without looking (Shi et al. 2024, 2410.13032). Small models have few such sets; then all are used, and the
smallest p that can come out is said, so that a p of 1/6 is not mistaken for weak evidence.

Where some heads are zeroed and others replaced by their mean, a set is an assignment: which of them get what. Every
assignment is as likely as any other, so that the claimed one is one of them like the others.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
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


Assignment = tuple[tuple[tuple[int, ...], ...], ...]
"""By group (a layer, or a part of one), then by what is put in their place: which components, in order."""


def matched_head_sets(
    heads: Collection[Head], n_layers: int, n_heads: int, limit: int = 200, seed: int = 0
) -> MatchedSets:
    """Other sets with as many heads per layer as `heads`: all of them where `limit` allows, else distinct random ones.

    A control may share heads with the claimed set (a permutation test needs that) but is never equal to it.
    """
    claimed = _checked_heads(heads, n_layers, n_heads)
    layers = {layer: [[head for each, head in claimed if each == layer]] for layer, _ in claimed}
    found, n_possible = matched_assignments(layers, dict.fromkeys(layers, n_heads), limit=limit, seed=seed)
    sets = (zip(layers, each, strict=True) for each in found)
    return MatchedSets(tuple(tuple((layer, head) for layer, (at,) in each for head in at) for each in sets), n_possible)


def matched_assignments(
    claimed: Mapping[Any, Sequence[Collection[int]]], n_components: Mapping[Any, int], *, limit: int, seed: int
) -> tuple[tuple[Assignment, ...], int]:
    """Other ways to give components the roles that `claimed` gives, and how many there are: all, or `limit` drawn ones.

    Args:
        claimed: by group, the components of each role; no component has two.
        n_components: how many each group has.
        limit: at most so many; more are drawn at random, each as likely as any other, none twice.
        seed: draws them.
    """
    own = tuple(tuple(tuple(sorted(role)) for role in roles) for roles in claimed.values())
    counts, sizes = [[len(role) for role in roles] for roles in own], [n_components[group] for group in claimed]
    n_possible = math.prod(map(_n_ways, sizes, counts)) - 1
    if n_possible <= limit:
        every = itertools.product(*(_ways(range(n), each) for n, each in zip(sizes, counts, strict=True)))
        return tuple(each for each in every if each != own), n_possible
    chance, found = random.Random(seed), dict[Assignment, None]()
    while len(found) < limit:  # there are more than that, so this ends
        drawn = tuple(map(_drawn, itertools.repeat(chance), sizes, counts))
        if drawn != own:
            found[drawn] = None
    return tuple(found), n_possible


def control_p(observed: float, controls: Sequence[float] | Float[Tensor, " n"]) -> float:
    """Share of control sets with an effect at least as large, the claimed set counted among them.

    What differs by no more than rounding is a tie, and a tie counts against the claim: means of the same numbers summed
    in another order are not the same float.

    >>> control_p(3.0, [1.0, 2.0, 3.0])
    0.5
    >>> control_p(0.1 + 0.2, [0.3])
    1.0
    """
    return (1 + int(at_least(controls, observed).sum())) / (1 + len(controls))


def at_least(effects: Sequence[float] | Float[Tensor, " n"], observed: float) -> Bool[Tensor, " n"]:
    """Which effects are no smaller than `observed`; a tie within rounding is none smaller.

    >>> at_least([0.3, 0.2, 0.4], 0.1 + 0.2).tolist()
    [True, False, True]
    """
    return torch.as_tensor(effects, dtype=torch.float64) >= observed - _TIE * max(1.0, abs(observed))


_TIE = 1e-9
"""Effects nearer than that, or than that share of the observed one, are equal."""


def _checked_heads(heads: Collection[Head], n_layers: int, n_heads: int) -> tuple[Head, ...]:
    for layer, head in heads:
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise InputError(
                f"There is no head L{layer}H{head}; layers run 0 to {n_layers - 1}, heads 0 to {n_heads - 1}."
            )
    return tuple(sorted(set(heads)))


def _n_ways(n: int, counts: Sequence[int]) -> int:
    """In how many ways `counts` different components can be taken out of `n`, one role after the other."""
    taken = itertools.accumulate(counts, initial=0)
    return math.prod(math.comb(n - before, count) for before, count in zip(taken, counts, strict=False))


def _ways(free: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All of these ways."""
    if not counts:
        yield ()
        return
    for first in itertools.combinations(free, counts[0]):
        for others in _ways([each for each in free if each not in first], counts[1:]):
            yield (first, *others)


def _drawn(chance: random.Random, n: int, counts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """One of these ways, each as likely as any other."""
    drawn = iter(chance.sample(range(n), sum(counts)))
    return tuple(tuple(sorted(itertools.islice(drawn, count))) for count in counts)
