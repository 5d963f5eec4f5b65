"""Do values promote what followed their keys? Agreement, and what chance would give (Geva et al. 2021, section 4).

A memory agrees when the token its value promotes most is the token that followed its strongest trigger in the corpus.
Precision@k asks the same of its k strongest triggers: the share of them that were followed by that token, on average
over memories.

Frequent tokens follow many triggers and are promoted by many values, so one over the vocabulary is the wrong chance
level. The null here deals the layer's next tokens to its memories at random: both sides keep their frequencies, only
the pairing goes. Its mean is known exactly; its spread, and p, come from permutations. The unit is the memory: what a
layer's memories share (one stream, one corpus) is not resampled. Dead memories are to be left out by the caller. How
agreement goes with confidence and with depth is in `interp.agreement_trends`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.share_intervals import bounded_interval, share_interval
from interp.stats import Interval
from model.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How often values and triggers agree, beside chance. Shares, from 0 to 1."""

    n: int
    """Memories compared: those that were ever active."""

    share: float
    """Memories whose value's top token followed their top trigger (or mean share of triggers it did); NaN if n is 0."""

    low: float
    """Lower end of the 95% interval of `share` over memories: Clopper and Pearson's, or that for what is bounded."""

    high: float
    """Upper end."""

    chance: float
    """Expected share when next tokens are dealt at random among the layer's memories, exactly."""

    chance_low: float
    """2.5th percentile of the permuted shares."""

    chance_high: float
    """97.5th percentile of the permuted shares."""

    p: float
    """(1 + permutations that agree at least as often) / (1 + permutations)."""

    n_permutations: int

    @property
    def lift(self) -> float | None:
        """`share` over `chance`; None where chance is zero."""
        return self.share / self.chance if self.chance > 0 else None


def measured_agreement(
    promoted: Int[Tensor, " memory"],
    followed: Int[Tensor, " memory"],
    *,
    n_permutations: int,
    seed: int,
    layers: Int[Tensor, " memory"] | None = None,
) -> Agreement:
    """Agreement of each memory's most promoted token with the token that followed its top trigger.

    Where the memories are of several `layers`, next tokens are dealt within each of these only.

    >>> two = torch.tensor([3, 4])
    >>> found = measured_agreement(two, two, n_permutations=99, seed=0)
    >>> found.share, found.chance, found.lift
    (1.0, 0.5, 2.0)
    """
    permuted = permuted_shares(promoted, followed, n_permutations=n_permutations, seed=seed, layers=layers)
    agrees = (promoted == followed).double()
    return _beside_chance(agrees, permuted, chance_agreement(promoted, followed, layers))


def precision_at(
    promoted: Int[Tensor, " memory"], followed: Int[Tensor, "memory trigger"], k: int, *, n_permutations: int, seed: int
) -> Agreement:
    """Precision@k: share of a memory's `k` strongest triggers that its value's top token followed, mean over memories.

    `followed` holds what followed each trigger, strongest first, -1 where there is none. Memories without triggers are
    left out; of those with fewer than `k`, all are counted. The null deals whole rows of next tokens.

    >>> found = precision_at(torch.tensor([3, 4]), torch.tensor([[3, 9], [4, -1]]), 2, n_permutations=9, seed=0)
    >>> found.share, found.chance
    (0.75, 0.375)
    """
    if k < 1:
        raise InputError(f"k={k} triggers are none; ask for precision at 1 or more.")
    there = followed[:, 0] >= 0
    promoted, followed = promoted[there], followed[there, :k]
    n_triggers = (followed >= 0).sum(1).double()

    def shares(rows: Tensor, counts: Tensor) -> Tensor:
        return (rows == promoted[:, None]).sum(1).double() / counts

    orders = _orders(len(promoted), n_permutations, seed)
    permuted = [shares(followed[order], n_triggers[order]).mean() for order in orders]
    weights = (followed >= 0).double() / n_triggers[:, None]
    chance = _expected(promoted, followed.flatten(), weights.flatten()) / max(1, len(promoted))
    return _beside_chance(shares(followed, n_triggers), torch.tensor(permuted, dtype=torch.float64), chance)


def _beside_chance(
    agrees: Float[Tensor, " memory"], permuted: Float[Tensor, " permutation"], chance: float
) -> Agreement:
    """The mean of `agrees` with its interval, beside the means of permutations and their expectation."""
    n_permutations = len(permuted)
    if len(agrees) == 0:
        nan = float("nan")
        return Agreement(
            n=0, share=nan, low=nan, high=nan, chance=nan, chance_low=nan, chance_high=nan, p=1.0,
            n_permutations=n_permutations,
        )  # fmt: skip
    found = _interval(agrees)
    chance_low, chance_high = torch.quantile(permuted, torch.tensor([0.025, 0.975], dtype=permuted.dtype)).tolist()
    share = agrees.mean()
    return Agreement(
        n=len(agrees),
        share=float(share),
        low=found.low,
        high=found.high,
        chance=chance,
        chance_low=chance_low,
        chance_high=chance_high,
        p=(1 + int((permuted >= share - 1e-12).sum())) / (1 + n_permutations),
        n_permutations=n_permutations,
    )


def _interval(agrees: Float[Tensor, " memory"]) -> Interval:
    """Of memories that agree or do not the exact one; of shares of triggers, which lie between, that for what does."""
    if bool(((agrees == 0) | (agrees == 1)).all()):
        return share_interval(int(agrees.sum()), len(agrees))
    return bounded_interval(agrees, least=0.0)


def chance_agreement(
    promoted: Int[Tensor, " memory"], followed: Int[Tensor, " memory"], layers: Int[Tensor, " memory"] | None = None
) -> float:
    """Expected agreement after a random permutation: sum over tokens of the product of the two shares.

    >>> chance_agreement(torch.tensor([1, 1, 2, 3]), torch.tensor([1, 2, 2, 9]))  # (2*1 + 1*2) / 16
    0.25
    """
    if len(promoted) == 0:
        return float("nan")
    groups = torch.zeros_like(promoted) if layers is None else layers
    expected = 0.0
    for layer in groups.unique():
        own = groups == layer
        expected += _expected(promoted[own], followed[own], torch.ones(int(own.sum()), dtype=torch.float64))
    return expected / len(promoted)


def _expected(promoted: Tensor, followed: Tensor, weights: Tensor) -> float:
    """Sum over memories of what agrees with them on average, when rows of weighted next tokens are dealt evenly."""
    if len(promoted) == 0:
        return 0.0
    size = 1 + int(torch.maximum(promoted.max(), followed.max()))
    counts = torch.bincount(promoted, minlength=size).double()
    found = torch.bincount(followed.clamp_min(0), weights=torch.where(followed >= 0, weights, 0.0), minlength=size)
    return float(counts @ found) / len(promoted)


def permuted_shares(
    promoted: Int[Tensor, " memory"],
    followed: Int[Tensor, " memory"],
    *,
    n_permutations: int,
    seed: int,
    layers: Int[Tensor, " memory"] | None = None,
) -> Float[Tensor, " permutation"]:
    """The share that agrees in each of `n_permutations` random pairings (within layers, if they are given), fp64."""
    orders = _orders(len(promoted), n_permutations, seed) if layers is None else dealt(layers, n_permutations, seed)
    shares = [(promoted == followed[order]).sum() for order in orders]
    return torch.stack(shares).double() / max(1, len(promoted))


def _orders(n: int, n_permutations: int, seed: int) -> Iterator[Int[Tensor, " memory"]]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randperm(n, generator=generator) for _ in range(n_permutations))


def dealt(layers: Int[Tensor, " memory"], n_permutations: int, seed: int) -> Iterator[Int[Tensor, " memory"]]:
    """Random orders of memories in which each takes the place of one of its own layer.

    >>> order = next(dealt(torch.tensor([0, 1, 0, 1]), 1, seed=0))
    >>> sorted(order[[0, 2]].tolist()), sorted(order[[1, 3]].tolist())
    ([0, 2], [1, 3])
    """
    generator = torch.Generator().manual_seed(seed)
    in_layers = layers.argsort(stable=True)
    for _ in range(n_permutations):
        mixed = torch.randperm(len(layers), generator=generator)
        order = torch.empty_like(mixed)
        order[in_layers] = mixed[layers[mixed].argsort(stable=True)]
        yield order


def ranks(scores: Float[Tensor, "memory d_vocab"], tokens: Int[Tensor, "memory asked"]) -> Int[Tensor, "memory asked"]:
    """The place of each memory's tokens in its value's order of promotion: 0 for the most promoted; equals share one.

    Tokens below 0, which stand for nothing, get -1. A few counts for each row are cheaper than to sort it.

    >>> ranks(torch.tensor([[0.1, 3.0, 2.0]]), torch.tensor([[2, 1, -1]])).tolist()
    [[1, 0, -1]]
    """
    levels = scores.gather(1, tokens.clamp_min(0).long()).numpy()
    above = [[np.count_nonzero(row > level) for level in own] for row, own in zip(scores.numpy(), levels, strict=True)]
    return torch.where(tokens < 0, -1, torch.tensor(above, dtype=torch.int64).view(tokens.shape)).int()


def partners(n: int, most: int, seed: int) -> Int[Tensor, "memory partner"]:
    """For each of n memories `most` others, or all others where there are no more; each is as often a partner.

    They sit in a random circle, and look at who sits the same random distances further on.

    >>> sorted(partners(4, 9, seed=0)[2].tolist())
    [0, 1, 3]
    """
    generator = torch.Generator().manual_seed(seed)
    circle = torch.randperm(n, generator=generator)
    distances = 1 + torch.randperm(max(0, n - 1), generator=generator)[:most]
    return circle[(circle.argsort()[:, None] + distances) % max(1, n)]
