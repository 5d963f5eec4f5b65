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
                pair, from exact moments under random rotations
    untrained   all pairs of another model, such as the checkpoint of step 0: one mean and sd per kind
    permuted    the other writers that the same reader could have read from

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
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits import named_head
from interp.common_directions import embedding_mean, orthonormal, removal_note, top_directions
from interp.composition_algebra import (
    HeadWeights,
    Kind,
    Over,
    Plan,
    concentration_of_readers,
    concentration_of_writers,
    layers_of,
    readers_of,
    rotation_moments,
    scores_between,
    writers_of,
)
from interp.controls import every_head
from interp.folding import FoldedHeads, folded_heads, reads_are_centred, require_bilinear_scores
from interp.offsets import resolve_offsets
from interp.places import Place, head
from model.errors import InputError, UnknownNameError
from model.settings import as_enum

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT

__all__ = [
    "ComponentComposition",
    "Composition",
    "Kind",
    "Null",
    "Over",
    "Pair",
    "component_composition",
    "composition",
    "embedding_mean",
    "top_directions",
]

Pairs = Float[Tensor, "kind writer_layer writer_head reader_layer reader_head"]
OfKind = Float[Tensor, "writer_layer writer_head reader_layer reader_head"]

_NULL_HEADS = 32


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_enum(Kind, self.kind, "kind"))

    @property
    def z(self) -> float:
        """(score - null mean) / null sd."""
        return (self.score - self.null_mean) / self.null_sd

    def __str__(self) -> str:
        way = f"{self.kind.upper()}-composition {self.writer} -> {self.reader}"
        return f"{way}: {self.score:.3f}, null {self.null_mean:.3f}, z {self.z:.1f}"


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

    @property
    def z(self) -> Pairs:
        """(score - null mean) / null sd."""
        return (self.scores - self.null_mean) / self.null_sd

    def of(self, kind: Kind | str) -> OfKind:
        """The scores of one kind."""
        return self.scores[self._axis(kind)]

    def z_of(self, kind: Kind | str) -> OfKind:
        """The z of one kind."""
        return self.z[self._axis(kind)]

    def strongest(
        self, kind: Kind | str, n: int = 10, *, reader: str | None = None, writer: str | None = None
    ) -> tuple[Pair, ...]:
        """The `n` pairs of the largest z, falling; of all, or of those with one reader or one writer ("L1H3")."""
        axis, z = self._axis(kind), self.z_of(kind).nan_to_num(nan=-math.inf)
        if reader is not None:
            z = _only(z, self._head(reader), axes=(2, 3))
        if writer is not None:
            z = _only(z, self._head(writer), axes=(0, 1))
        largest = z.flatten().topk(min(n, int((z > -math.inf).sum()))).indices
        places = zip(*torch.unravel_index(largest, z.shape), strict=True)
        return tuple(self._pair(axis, *map(int, place)) for place in places)

    def _pair(self, axis: int, writer_layer: int, writer: int, reader_layer: int, reader: int) -> Pair:
        place = (axis, writer_layer, writer, reader_layer, reader)
        return Pair(
            writer=head(writer_layer, writer).label,
            reader=head(reader_layer, reader).label,
            kind=self.kinds[axis],
            score=float(self.scores[place]),
            null_mean=float(self.null_mean[place]),
            null_sd=float(self.null_sd[place]),
        )

    def _axis(self, kind: Kind | str) -> int:
        kind = as_enum(Kind, kind, "kind")
        if kind not in self.kinds:
            raise UnknownNameError(f"{kind}-composition was not computed here; there is {', '.join(self.kinds)}.")
        return self.kinds.index(kind)

    def _head(self, label: str) -> tuple[int, int]:
        _, n_layers, n_heads = self.scores.shape[:3]
        heads = {head(*each).label: each for each in every_head(n_layers, n_heads)}
        if label not in heads:
            raise UnknownNameError(
                f'no head "{label}" here; name one of {n_layers} layers x {n_heads} heads, such as L{n_layers - 1}H0.'
            )
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
        InputError: qk_norm or smeared keys (take kinds="v"), a single layer, or a null that cannot be had so.
    """
    plan, null = _plan(gpt, kinds, over, offsets, without), as_enum(Null, null, "null")
    heads = folded_heads(gpt)
    scores, writers, readers = _all_pairs(heads, plan)
    match null:
        case Null.GAUSSIAN:
            mean, sd = _gaussian(plan, seed)
        case Null.ROTATION:
            mean, sd = _rotation(writers, readers, plan)
        case Null.UNTRAINED:
            mean, sd = _untrained(untrained, plan)
        case Null.PERMUTED:
            mean, sd = _permuted(scores)
    undefined = torch.where(scores.isnan(), torch.nan, 0.0)
    return Composition(
        kinds=plan.kinds,
        scores=scores.cpu(),
        null_mean=(mean + undefined).cpu(),
        null_sd=(sd + undefined).cpu(),
        null=null,
        offsets=plan.offsets,
        over=plan.over,
        note=_note(heads, plan),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComponentComposition:
    """How far later heads read each singular direction of what one head writes; NaN in its own and earlier layers."""

    writer: str
    kinds: tuple[Kind, ...]
    share: Float[Tensor, " component"]
    """Of the writer's squared Frobenius norm; falling, sums to 1."""

    scores: Float[Tensor, "component kind reader_layer reader_head"]
    """||v X Y^T|| / ||X Y^T|| of each direction v. At one offset, squares weighted by `share` add up to the head's."""

    null_mean: Float[Tensor, "component kind reader_layer reader_head"]
    """Of a random direction."""

    null_sd: Float[Tensor, "component kind reader_layer reader_head"]
    note: str

    @property
    def z(self) -> Float[Tensor, "component kind reader_layer reader_head"]:
        """(score - null mean) / null sd."""
        return (self.scores - self.null_mean) / self.null_sd

    def of(self, kind: Kind | str) -> Float[Tensor, "component reader_layer reader_head"]:
        """The scores of one kind."""
        return self.scores[:, self.kinds.index(as_enum(Kind, kind, "kind"))]

    def __repr__(self) -> str:
        return f"ComponentComposition({self.writer}, {len(self.share)} components; {', '.join(self.kinds)})"


@torch.no_grad()
def component_composition(
    gpt: GPT,
    writer: str | Place,
    *,
    kinds: Sequence[Kind | str] = tuple(Kind),
    over: Over | str = Over.MEAN,
    offsets: int | Sequence[int] | None = None,
    without: Tensor | None = None,
) -> ComponentComposition:
    """Composition of all later heads with each singular direction that `writer` ("L0H1") writes.

    The null is a random direction of the stream with the reader kept. Other arguments as of `composition`.
    """
    plan, heads = _plan(gpt, kinds, over, offsets, without), folded_heads(gpt)
    layer, index = named_head(gpt.config, writer)
    whole = writers_of(heads.W_V[layer, index, None], heads.W_O[layer, index, None], plan)[0]
    _, sizes, directions = torch.linalg.svd(whole, full_matrices=False)
    n_layers, n_heads = heads.W_Q.shape[:2]
    shape = (len(sizes), len(plan.kinds), n_layers, n_heads)
    scores, mean, sd = (torch.full(shape, torch.nan, dtype=torch.float64, device=gpt.device) for _ in range(3))
    for later, weights in enumerate(layers_of(heads)):
        for axis, kind in enumerate(plan.kinds if later > layer else ()):
            readers = readers_of(kind, weights, plan)
            scores[:, axis, later] = scores_between(directions[:, None], readers, plan.over)
            of_one = torch.ones_like(sizes)
            moments = rotation_moments(of_one, concentration_of_readers(readers), plan.n_free)
            mean[:, axis, later], sd[:, axis, later] = moments
    return ComponentComposition(
        writer=head(layer, index).label,
        kinds=plan.kinds,
        share=sizes.square().cpu(),
        scores=scores.cpu(),
        null_mean=mean.cpu(),
        null_sd=sd.cpu(),
        note=_note(heads, plan),
    )


# --- pairs ------------------------------------------------------------------------------------------------------------


def _plan(
    gpt: GPT,
    kinds: Sequence[Kind | str],
    over: Over | str,
    offsets: int | Sequence[int] | None,
    without: Tensor | None,
) -> Plan:
    config, asked = gpt.config, tuple(as_enum(Kind, kind, "kinds") for kind in kinds)
    config.require_additive_stream("Composition")
    for kind in asked:
        if kind is not Kind.V:
            require_bilinear_scores(config, f"{kind.upper()}-composition")
    if config.n_layers < 2:
        raise InputError("a model of one layer has no later head that could read an earlier one; take two or more.")
    return Plan(
        config=config,
        kinds=asked,
        offsets=resolve_offsets(config, offsets),
        over=as_enum(Over, over, "over"),
        basis=orthonormal(config, without, _unread(config)).to(gpt.device),
    )


def _unread(config: GPTConfig) -> Float[Tensor, "direction d_model"] | None:
    """The direction that no reader reads: the mean of the stream, where all of them are LayerNorms."""
    return torch.ones(1, config.d_model) if reads_are_centred(config) else None


def _all_pairs(heads: FoldedHeads, plan: Plan) -> tuple[Pairs, Tensor, Tensor]:
    """Scores [kind, layer, head, layer, head]; concentrations of writers [layer, head], readers [kind, layer, head]."""
    n_layers, n_heads = heads.W_Q.shape[:2]
    writers = writers_of(heads.W_V.flatten(0, 1), heads.W_O.flatten(0, 1), plan)
    shape = (len(plan.kinds), n_layers, n_heads, n_layers, n_heads)
    scores = writers.new_full(shape, torch.nan)
    concentrations = writers.new_full((len(plan.kinds), n_layers, n_heads), torch.nan)
    for layer, weights in enumerate(layers_of(heads)):
        for axis, kind in enumerate(plan.kinds if layer else ()):
            readers = readers_of(kind, weights, plan)
            found = scores_between(writers[: layer * n_heads], readers, plan.over)
            scores[axis, :layer, :, layer] = found.unflatten(0, (layer, n_heads))
            concentrations[axis, layer] = concentration_of_readers(readers)
    return scores, concentration_of_writers(writers).view(n_layers, n_heads), concentrations


def _only(z: OfKind, place: tuple[int, int], *, axes: tuple[int, int]) -> OfKind:
    """`z` of the pairs with one head, minus infinity elsewhere."""
    keep = torch.ones_like(z, dtype=torch.bool)
    for axis, index in zip(axes, place, strict=True):
        here = torch.zeros(z.shape[axis], dtype=torch.bool)
        here[index] = True
        keep = keep & here.view([-1 if each == axis else 1 for each in range(4)])
    return z.masked_fill(~keep, -math.inf)


def _note(heads: FoldedHeads, plan: Plan) -> str:
    said = [heads.note]
    if len(plan.offsets) > 1:
        n_all = plan.offsets[-1] - plan.offsets[0] + 1
        spaced = "" if n_all == len(plan.offsets) else ", not all of those between"
        said.append(
            f"Q and K: {plan.over} over {len(plan.offsets)} offsets {plan.offsets[0]}..{plan.offsets[-1]}{spaced}."
        )
    return " ".join(said) + removal_note(len(plan.basis) - reads_are_centred(plan.config))


# --- nulls ------------------------------------------------------------------------------------------------------------


def _gaussian(plan: Plan, seed: int) -> tuple[Tensor, Tensor]:
    """Mean and sd per kind, over all pairs of as many random writers as readers."""
    config, generator = plan.config, torch.Generator().manual_seed(seed)
    wide, tall = (_NULL_HEADS, config.d_model, config.head_width), (_NULL_HEADS, config.head_width, config.d_model)

    def draw(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(plan.basis.device)

    writers = writers_of(draw(wide), draw(tall), plan)
    heads = HeadWeights(W_Q=draw(wide), W_K=draw(wide), W_V=draw(wide), W_O=draw(tall), n_sharing=1)
    found = [scores_between(writers, readers_of(kind, heads, plan), plan.over).flatten() for kind in plan.kinds]
    return _per_kind(found)


def _rotation(writers: Tensor, readers: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    if plan.over is Over.MAX and len(plan.offsets) > 1:
        raise InputError(
            'null="rotation" knows the moments of a mean over offsets, not of a maximum; take over="mean", one offset, '
            'or null="gaussian".'
        )
    mean, sd = rotation_moments(writers.flatten(), readers.flatten(), plan.n_free)
    shape = (*writers.shape, *readers.shape)
    return tuple(each.view(shape).movedim(2, 0) for each in (mean, sd))  # type: ignore[return-value]


def _untrained(untrained: GPT | None, plan: Plan) -> tuple[Tensor, Tensor]:
    """Mean and sd per kind, over all pairs of the other model."""
    if untrained is None:
        raise InputError('null="untrained" needs that model; pass untrained=open_run("RUN@0").gpt, or another.')
    if untrained.config != plan.config:
        raise InputError(
            'null="untrained" compares with the same model before training, and configs differ; pass its checkpoint '
            "of step 0, or GPT(gpt.config, seed=1)."
        )
    scores, _, _ = _all_pairs(folded_heads(untrained), plan)
    return _per_kind([each[each.isfinite()] for each in scores])


def _permuted(scores: Pairs) -> tuple[Tensor, Tensor]:
    """For each pair the mean and sd over the reader's other writers."""
    n = scores.isfinite().sum((1, 2), keepdim=True)
    if scores.shape[2] < 3:
        raise InputError(
            f'null="permuted" compares a writer with the others, and layers of {scores.shape[2]} heads have too few; '
            'take another null, such as "rotation".'
        )
    known = scores.nan_to_num()
    mean = (known.sum((1, 2), keepdim=True) - known) / (n - 1)
    squares = known.square().sum((1, 2), keepdim=True) - known.square()
    return mean, ((squares - (n - 1) * mean.square()) / (n - 2)).clamp_min(0).sqrt()


def _per_kind(found: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and sd of each kind's scores, to be broadcast over pairs."""
    mean, sd = torch.stack([each.mean() for each in found]), torch.stack([each.std() for each in found])
    return mean[:, None, None, None, None], sd[:, None, None, None, None]
