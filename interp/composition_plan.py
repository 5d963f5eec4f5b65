"""What a question about composition comes to for one model: kinds, offsets and directions; and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.common_directions import orthonormal, removal_note
from interp.composition_algebra import Kind, Over, Plan, rotation_moments
from interp.folding import FoldedHeads, reads_are_centred, require_bilinear_scores
from interp.offsets import resolve_offsets
from model.errors import InputError, UndefinedError
from model.settings import as_enum

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT


def planned(
    gpt: GPT,
    kinds: Sequence[Kind | str],
    over: Over | str,
    offsets: int | Sequence[int] | None,
    without: Tensor | None,
) -> Plan:
    """What to compute, having refused what is not defined for this model."""
    config, asked = gpt.config, tuple(as_enum(Kind, kind, "kinds") for kind in kinds)
    config.require_additive_stream("Composition")
    if not asked:
        raise InputError(f"kinds names no composition; give one or more of {', '.join(Kind)}.")
    for kind in asked:
        if kind is not Kind.V:
            require_bilinear_scores(config, f"{kind.upper()}-composition")
    if config.n_layers < 2:
        raise UndefinedError(
            "a model of one layer has no later head that could read an earlier one; take two or more.",
            setting="n_layers=1",
        )
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


def planned_note(heads: FoldedHeads, plan: Plan) -> str:
    """What was folded, averaged over and taken out, in sentences."""
    said = [heads.note]
    if len(plan.offsets) > 1:
        n_all = plan.offsets[-1] - plan.offsets[0] + 1
        spaced = "" if n_all == len(plan.offsets) else ", not all of those between"
        said.append(
            f"Q and K: {plan.over} over {len(plan.offsets)} offsets {plan.offsets[0]}..{plan.offsets[-1]}{spaced}."
        )
    return " ".join(said) + removal_note(len(plan.basis) - reads_are_centred(plan.config))


def null_of_rotations(writers: Tensor, readers: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """`rotation_moments` for this plan.

    Raises:
        InputError: the plan is of a maximum, of which they know nothing.
    """
    if plan.over is Over.MAX and len(plan.offsets) > 1:
        raise InputError(
            'null="rotation" knows the moments of a mean over offsets, not of a maximum; take over="mean", one offset, '
            'or, for whole heads, null="gaussian".'
        )
    return rotation_moments(writers, readers, plan.n_free)
