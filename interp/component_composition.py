"""Composition of each singular direction of what a head writes: one large singular value hides what the others do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.composition_algebra import (
    Kind,
    Over,
    concentration_of_readers,
    layers_of,
    readers_of,
    scores_between,
    writers_of,
)
from interp.composition_plan import null_of_rotations, planned, planned_note
from interp.folding import folded_heads
from interp.places import Place, head
from interp.resolved_places import named_head
from model.settings import as_enum

if TYPE_CHECKING:
    from model.gpt import GPT


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

    The null is a random direction of the stream with the reader kept (`rotation_moments` says how exact it is; a head
    has as many z as directions, readers and kinds). Other arguments as of `composition`.

    Raises:
        InputError: a maximum over several offsets, or what `composition` refuses.
    """
    plan, heads = planned(gpt, kinds, over, offsets, without), folded_heads(gpt)
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
            moments = null_of_rotations(of_one, concentration_of_readers(readers), plan)
            mean[:, axis, later], sd[:, axis, later] = moments
    return ComponentComposition(
        writer=head(layer, index).label,
        kinds=plan.kinds,
        share=sizes.square().cpu(),
        scores=scores.cpu(),
        null_mean=mean.cpu(),
        null_sd=sd.cpu(),
        note=planned_note(heads, plan),
    )
