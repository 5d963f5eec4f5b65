"""Composition: how much of what an earlier head writes a later head reads, from weights alone (Elhage et al. 2021).

With the writer's OV and the reader's QK and OV (row convention; norms' gains folded in, `interp.folding`):

    Q   ||OV QK||    / (||OV|| ||QK||)         the reader's queries read what the writer wrote
    K   ||OV QK^T||  / (||OV|| ||QK||)         its keys do
    V   ||OV OV'||   / (||OV|| ||OV'||)        its values do

in [0, 1], Frobenius norms, no product ever formed (`interp.composition_algebra`). With rope QK is one matrix per
offset, and Q and K are the mean (or the maximum) of the score over offsets; V is the same at all of them.

A score means something beside what it would be for heads that know nothing of each other, mean 1/sqrt(d_model). Nulls:

    gaussian    heads with Gaussian weights of the same shapes, between no norms: one mean and sd per kind, measured
    rotation    the writer's output rotated at random, its singular values and the reader kept: mean and sd for every
                pair, to the second order from the squared score's exact moments
    untrained   all pairs of another model, such as the checkpoint of step 0: one mean and sd per kind
    permuted    the other writers that the same reader could have read from: a rank among these few, and no z

The largest z of many pairs is large by chance: 3 to 4.5 of 384 pairs that nobody trained. A `Pair` therefore says how
many it was chosen from, and its p times that number.

Singular values of trained heads are far from those of Gaussian ones: `rotation` takes that out, and its z is smaller.
A direction that everything writes and reads (the embedding's mean) inflates every score: take it out with `without=`.
One large singular value dominates a head's score: `component_composition` gives a score for each of them.

What it does not show: paths through FFNs or a third head, how often both heads attend so that the path is used, and the
scales of norms. A high score is a place to patch, not a circuit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp import composition_nulls as nulls
from interp.composition_algebra import Kind, Over, Pairs, all_pairs
from interp.composition_plan import planned, planned_note
from interp.folding import folded_heads
from interp.places import every_head, head
from model.errors import InputError, UnknownNameError
from model.settings import as_enum

if TYPE_CHECKING:
    from model.gpt import GPT

OfKind = Float[Tensor, "writer_layer writer_head reader_layer reader_head"]


class Null(StrEnum):
    """What scores are compared with (see the module's text)."""

    GAUSSIAN = "gaussian"
    ROTATION = "rotation"
    UNTRAINED = "untrained"
    PERMUTED = "permuted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two heads, and how far the later reads the earlier."""

    writer: str
    """Such as L0H1."""

    reader: str
    kind: Kind
    score: float
    null_mean: float
    null_sd: float
    """NaN where the null is the reader's other writers."""

    p: float
    """By chance at least this score, for this pair alone: by a normal null, or the rank among the reader's writers."""

    n_pairs: int
    """Pairs of this kind in the model, among which one may have looked for it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_enum(Kind, self.kind, "kind"))

    @property
    def z(self) -> float:
        """(score - null mean) / null sd."""
        return (self.score - self.null_mean) / self.null_sd

    @property
    def p_of_all(self) -> float:
        """`p` corrected for all pairs of this kind (Bonferroni): by chance one of them at least scores so."""
        return min(1.0, self.n_pairs * self.p)

    def __str__(self) -> str:
        way = f"{self.kind.upper()}-composition {self.writer} -> {self.reader}"
        among = f"p {self.p:.2g} among its writers" if math.isnan(self.null_sd) else f"z {self.z:.1f}"
        p = f"p {self.p_of_all:.2g}" if self.p_of_all >= 1e-4 else "p < 0.0001"
        return f"{way}: {self.score:.3f}, null {self.null_mean:.3f}, {among} ({p} as one of {self.n_pairs} pairs)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Composition:
    """Composition of every pair of heads; NaN where the writer stands in no earlier layer than the reader."""

    kinds: tuple[Kind, ...]
    """Those of the first axis."""

    scores: Pairs
    null_mean: Pairs
    null_sd: Pairs
    null: Null
    offsets: tuple[int, ...]
    """Query minus key positions over which Q and K were taken; one where all give the same."""

    over: Over
    note: str
    """What was folded and taken out, in sentences."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "null", as_enum(Null, self.null, "null"))
        object.__setattr__(self, "over", as_enum(Over, self.over, "over"))

    @cached_property
    def z(self) -> Pairs:
        """(score - null mean) / null sd.

        Raises:
            InputError: the null is the reader's other writers.
        """
        if self.null is Null.PERMUTED:
            raise InputError(
                'null="permuted" ranks the few writers of each reader, which gives a p and no z; read `p`, or take '
                'another null, such as "rotation".'
            )
        return (self.scores - self.null_mean) / self.null_sd

    @cached_property
    def p(self) -> Pairs:
        """By chance at least this score, pair by pair: one-sided by a normal null, or the rank among its writers."""
        if self.null is Null.PERMUTED:
            return nulls.share_at_least(self.scores)
        return torch.special.erfc(self.z / math.sqrt(2)) / 2

    def of(self, kind: Kind | str) -> OfKind:
        """The scores of one kind."""
        return self.scores[self._axis(kind)]

    def z_of(self, kind: Kind | str) -> OfKind:
        """The z of one kind."""
        return self.z[self._axis(kind)]

    def strongest(
        self, kind: Kind | str, n: int = 10, *, reader: str | None = None, writer: str | None = None
    ) -> tuple[Pair, ...]:
        """The `n` pairs of the largest z, falling; of all, or of those with one reader or one writer ("L1H3").

        Under null="permuted" those of the largest excess over the mean of the reader's other writers.
        """
        if n < 1:
            raise InputError(f"n={n} is no number of pairs; ask for 1 or more.")
        axis, here = self._axis(kind), self._among(writer, reader)
        excess = self.z if self.null is not Null.PERMUTED else self.scores - self.null_mean
        among = excess[axis][here].nan_to_num(nan=-math.inf)
        largest = among.flatten().topk(min(n, int((among > -math.inf).sum()))).indices
        inside = np.unravel_index(largest.numpy(), among.shape)  # torch's imports a second of sympy
        places = zip(*(at + (each.start or 0) for at, each in zip(inside, here, strict=True)), strict=True)
        p, n_pairs = self.p[axis], int(self._n_pairs[axis])
        return tuple(self._pair((axis, *map(int, place)), float(p[place]), n_pairs) for place in places)

    def largest_z(self, kind: Kind | str) -> float:
        """The largest z of any pair of one kind; minus infinity where there is none."""
        return float(self._largest_z[self._axis(kind)])

    def _among(self, writer: str | None, reader: str | None) -> tuple[slice, ...]:
        """The part of one kind's pairs with this writer and this reader, where they are named."""
        named = ((writer, "writer"), (reader, "reader"))
        places = [self._head(label, role) if label is not None else (None, None) for label, role in named]
        return tuple(slice(at, None if at is None else at + 1) for place in places for at in place)

    def _pair(self, place: tuple[int, ...], p: float, n_pairs: int) -> Pair:
        axis, writer_layer, writer, reader_layer, reader = place
        return Pair(
            writer=head(writer_layer, writer).label,
            reader=head(reader_layer, reader).label,
            kind=self.kinds[axis],
            score=float(self.scores[place]),
            null_mean=float(self.null_mean[place]),
            null_sd=float(self.null_sd[place]),
            p=p,
            n_pairs=n_pairs,
        )

    def _axis(self, kind: Kind | str) -> int:
        kind = as_enum(Kind, kind, "kind")
        if kind not in self.kinds:
            raise UnknownNameError(f"{kind}-composition was not computed here; there is {', '.join(self.kinds)}.")
        return self.kinds.index(kind)

    @cached_property
    def _n_pairs(self) -> Tensor:
        return self.scores.isfinite().flatten(1).sum(1)

    @cached_property
    def _largest_z(self) -> Tensor:
        return self.z.where(self.z.isfinite(), -math.inf).flatten(1).amax(1)

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        _, n_layers, n_heads = self.scores.shape[:3]
        return {head(*each).label: each for each in every_head(n_layers, n_heads)}

    def _head(self, label: str, role: str) -> tuple[int, int]:
        _, n_layers, n_heads = self.scores.shape[:3]
        heads = self._places
        if label not in heads:
            raise UnknownNameError(
                f'no head "{label}" here; name one of {n_layers} layers x {n_heads} heads, such as L{n_layers - 1}H0.'
            )
        if heads[label][0] == {"reader": 0, "writer": n_layers - 1}[role]:
            other = "writer before" if role == "reader" else "reader after"
            raise InputError(f"{label} has no {other} it; name a {role} of another layer.")
        return heads[label]

    def __repr__(self) -> str:
        _, n_layers, n_heads = self.scores.shape[:3]
        return f"Composition({', '.join(self.kinds)}; {n_layers} layers x {n_heads} heads; null {self.null})"


@torch.no_grad()
def composition(
    gpt: GPT,
    *,
    kinds: Sequence[Kind | str] = tuple(Kind),
    null: Null | str = Null.GAUSSIAN,
    over: Over | str = Over.MEAN,
    offsets: int | Sequence[int] | None = None,
    without: Tensor | None = None,
    untrained: GPT | None = None,
    seed: int = 0,
) -> Composition:
    """Composition scores of all pairs of heads, with a null.

    Args:
        gpt: a model with an additive stream and, for Q and K, scores that are bilinear in it.
        kinds: "q", "k", "v".
        null: what to compare with.
        over: the mean of the score over offsets, or its maximum.
        offsets: query minus key positions; by default those of a full context, at most 64 of them, evenly spaced.
        without: [direction, d_model], taken out of what is written and read, such as `embedding_mean(gpt)`.
        untrained: the model of that null, with the same config.
        seed: names the draw of the Gaussian heads.

    Raises:
        NotAdditiveError: what a head writes does not reach later layers as it is.
        UndefinedError: qk_norm or smeared keys (take kinds="v"), or a single layer.
        InputError: a null that cannot be had so, or arguments that say nothing.
    """
    plan, null = planned(gpt, kinds, over, offsets, without), as_enum(Null, null, "null")
    heads = folded_heads(gpt)
    scores, writers, readers = all_pairs(heads, plan)
    match null:
        case Null.GAUSSIAN:
            mean, sd = nulls.gaussian(plan, seed)
        case Null.ROTATION:
            mean, sd = nulls.rotation(writers, readers, plan)
        case Null.UNTRAINED:
            mean, sd = nulls.untrained(untrained, plan)
        case Null.PERMUTED:
            mean, sd = nulls.others(scores)
    undefined = torch.where(scores.isnan(), torch.nan, 0.0)
    return Composition(
        kinds=plan.kinds,
        scores=scores.cpu(),
        null_mean=(mean + undefined).cpu(),
        null_sd=(sd + undefined).cpu(),
        null=null,
        offsets=plan.offsets,
        over=plan.over,
        note=planned_note(heads, plan),
    )
