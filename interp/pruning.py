"""Pruning curves: what is left of a model as heads are taken out, in an order that somebody proposes.

An order of all heads gives nested sets, some tenths of the heads in each; every set is zeroed together and measured.
The area under the harm says in one number how good an order is at finding heads that can go: the lower the better. An
order by importance is held against random orders, against its own inverse, and against the order by what each head
alone truly costs (Michel et al. 2019, section 4.2, figure 3).

At one point, usually 20%, the set is also held against others with as many heads in each layer (`interp.controls`):
an order that merely spares an important layer passes the first comparison and fails this one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.controls import at_least, control_p, matched_head_sets
from interp.harm import measure_harms
from interp.importance import head_importance
from interp.outcomes import Outcome
from interp.places import Head, Intervention, every_head, head
from interp.stats import Interval, Intervals, bootstrap_mean, bootstrap_means
from interp.sweep import MEMORY
from model.errors import InputError

if TYPE_CHECKING:
    from interp.harm import Counted
    from model.gpt import GPT

Order = Sequence[Head]
"""Every head once, the first to go first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """What each of several orders costs as more heads go; float64 on the CPU."""

    n_removed: tuple[int, ...]
    """How many heads are gone at each point, from none to all."""

    n_heads: int
    """How many there are."""

    harm: Mapping[str, Float[Tensor, "sequence point"]]
    """Ablated minus clean outcome (worse is positive) of each sequence, by the name of the order."""

    @property
    def shares(self) -> Float[Tensor, " point"]:
        """Which share of the heads is gone at each point."""
        return torch.tensor(self.n_removed, dtype=torch.float64) / self.n_heads

    def intervals(self, name: str, seed: int = 0) -> Intervals:
        """The curve of one order, [point]."""
        return bootstrap_means(self.harm[name], seed=seed)

    def areas(self, name: str) -> Float[Tensor, " sequence"]:
        """The mean harm over all shares from none to all, of each sequence (trapezoids)."""
        return torch.trapezoid(self.harm[name], self.shares, dim=1)

    def area(self, name: str, seed: int = 0) -> Interval:
        """The area under one order's curve, with its interval over sequences."""
        return bootstrap_mean(self.areas(name), seed=seed)

    def lead(self, name: str, others: Sequence[str], seed: int = 0) -> Interval:
        """By how much the area of one order is below the mean area of others, paired by sequence: positive is better.

        The interval is over sequences; which random orders were drawn is fixed.
        """
        if not others:
            raise InputError(f"{name} leads nobody: others is empty; name at least one of {', '.join(self.harm)}.")
        beside = torch.stack([self.areas(other) for other in others]).mean(0)
        return bootstrap_mean(beside - self.areas(name), seed=seed)

    def beaten_share(self, name: str, others: Sequence[str]) -> float:
        """The share of others whose mean area is larger; one that is equal but for rounding is not."""
        return costlier_share([float(self.areas(other).mean()) for other in others], float(self.areas(name).mean()))


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedDraws:
    """A set of heads beside others with as many in each layer."""

    heads: tuple[Head, ...]
    harm: Interval
    """Of the set itself."""
    others: Float[Tensor, " set"]
    """Mean harm of each other set."""
    n_possible: int
    """How many other sets there are."""

    @property
    def cheaper(self) -> float | None:
        """The share of other sets that cost more, which those that `p` counts do not; None where there is none."""
        return costlier_share(self.others, self.harm.mean) if len(self.others) else None

    @property
    def p(self) -> float | None:
        """The share of sets that cost as little or less, the set counted among them; None without others."""
        return control_p(-self.harm.mean, (-self.others).tolist()) if len(self.others) else None

    @property
    def smallest_p(self) -> float | None:
        """The smallest p that so many sets can give."""
        return 1 / (1 + len(self.others)) if len(self.others) else None


def costlier_share(costs: Sequence[float] | Float[Tensor, " n"], own: float) -> float:
    """The share of `costs` that is larger than `own`; what differs by no more than rounding is equal. 0 of none.

    >>> costlier_share([0.1 + 0.2, 0.4, 0.2, 0.3], 0.3)
    0.25
    """
    as_little = at_least([-float(each) for each in costs], -own)
    return float((~as_little).double().mean()) if len(as_little) else 0.0


def pruning_points(n_heads: int, n_steps: int = 10) -> tuple[int, ...]:
    """How many heads are gone after each step, in even shares from none to all; none twice.

    >>> pruning_points(8, 4), pruning_points(3)
    ((0, 2, 4, 6, 8), (0, 1, 2, 3))
    """
    if n_steps < 1 or n_heads < 1:
        raise InputError(f"{n_heads} heads in {n_steps} steps make no curve; give at least one of each.")
    return tuple(sorted({math.floor(n_heads * step / n_steps + 0.5) for step in range(n_steps + 1)}))


def random_orders(n_layers: int, n_heads: int, n: int, *, seed: int) -> list[list[Head]]:
    """`n` orders of all heads, drawn without looking."""
    chance = random.Random(seed)
    heads = every_head(n_layers, n_heads)
    return [chance.sample(heads, len(heads)) for _ in range(n)]


def recomputed_order(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    outcome: Outcome,
    *,
    points: Sequence[int],
    memory: int = MEMORY,
) -> list[Head]:
    """All heads by importance, taken anew at every point in the model without those that are gone already."""
    order: list[Head] = []
    for there, upcoming in zip(points, [*points[1:], points[-1]], strict=True):
        found = head_importance(gpt, tokens, outcome, removed=order, memory=memory).order()
        order += found[: upcoming - there]
    return order


def pruning_curves(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    outcome: Outcome,
    orders: Mapping[str, Order],
    *,
    points: Sequence[int] | None = None,
    memory: int = MEMORY,
    counted: Counted | None = None,
) -> Curves:
    """Zero the first heads of each order together, more and more of them, on sequences that no order was made from.

    Args:
        gpt: a causal model, its dropout off.
        tokens: the sequences to measure on.
        outcome: what is measured.
        orders: by name; each has every head of the model once.
        points: how many heads are gone at each point; tenths by default (`pruning_points`).
        memory: bytes to work in.
        counted: told of every set.

    Sets that several orders share are measured once. Zero is what a closed gate gives, so the curve is of what
    importance is an estimate of; a mean in its place would cost less.
    """
    config = gpt.config
    heads = every_head(config.n_layers, config.n_heads)
    for name, order in orders.items():
        if sorted(order) != heads:
            raise InputError(f"the order {name} names {len(order)} heads; it must name each of {len(heads)} once.")
    points = tuple(points or pruning_points(len(heads)))
    if points[0] != 0 or points[-1] != len(heads) or list(points) != sorted(set(points)):
        raise InputError(f"points={list(points)} must rise from 0 to {len(heads)}, the number of heads.")
    sets = {
        name: [frozenset(order[:point]) for point in points] for name, order in orders.items()
    }  # the first is empty: the intact model
    distinct = [each for each in dict.fromkeys(one for several in sets.values() for one in several) if each]
    harms = measure_harms(gpt, tokens, [_zeroed(each) for each in distinct], [outcome], memory=memory, counted=counted)
    column = {each: harms.harm[:, number, 0] for number, each in enumerate(distinct)}
    column[frozenset()] = torch.zeros(len(tokens), dtype=torch.float64)
    return Curves(
        n_removed=points,
        n_heads=len(heads),
        harm={name: torch.stack([column[each] for each in several], dim=1) for name, several in sets.items()},
    )


def matched_draws(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    outcome: Outcome,
    heads: Order,
    *,
    limit: int = 200,
    seed: int = 0,
    memory: int = MEMORY,
    counted: Counted | None = None,
) -> MatchedDraws:
    """Zero `heads` together, and other sets with as many heads in each layer: all, or `limit` distinct drawn ones."""
    if not heads:
        raise InputError("there are no heads to hold against others; name at least one, as (layer, head).")
    config = gpt.config
    others = matched_head_sets(heads, config.n_layers, config.n_heads, limit=limit, seed=seed)
    sets = [_zeroed(frozenset(each)) for each in (heads, *others)]
    harm = measure_harms(gpt, tokens, sets, [outcome], memory=memory, counted=counted).harm[..., 0]
    return MatchedDraws(
        heads=tuple(sorted(heads)),
        harm=bootstrap_mean(harm[:, 0], seed=seed),
        others=harm[:, 1:].mean(0),
        n_possible=others.n_possible,
    )


def _zeroed(heads: frozenset[Head]) -> tuple:
    return tuple(head(*each, Intervention.ZERO) for each in sorted(heads))
