"""What composition scores are compared with: the mean and sd of each null (named in `interp.composition`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.composition_algebra import HeadWeights, Pairs, Plan, all_pairs, readers_of, scores_between, writers_of
from interp.composition_plan import null_of_rotations
from interp.folding import folded_heads
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT

_NULL_HEADS = 32


def gaussian(plan: Plan, seed: int) -> tuple[Tensor, Tensor]:
    """Mean and sd per kind, over all pairs of as many random writers as readers."""
    config, generator = plan.config, torch.Generator().manual_seed(seed)
    wide, tall = (_NULL_HEADS, config.d_model, config.head_width), (_NULL_HEADS, config.head_width, config.d_model)

    def draw(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(plan.basis.device)

    writers = writers_of(draw(wide), draw(tall), plan)
    heads = HeadWeights(W_Q=draw(wide), W_K=draw(wide), W_V=draw(wide), W_O=draw(tall), n_sharing=1)
    found = [scores_between(writers, readers_of(kind, heads, plan), plan.over).flatten() for kind in plan.kinds]
    return _per_kind(found)


def rotation(writers: Tensor, readers: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Mean and sd for each pair, from concentrations of writers [layer, head] and readers [kind, layer, head, two]."""
    moments = null_of_rotations(writers.flatten(), readers.flatten(0, 2), plan)
    mean, sd = (each.view(*writers.shape, *readers.shape[:3]).movedim(2, 0) for each in moments)
    return mean, sd


def untrained(other: GPT | None, plan: Plan) -> tuple[Tensor, Tensor]:
    """Mean and sd per kind, over all pairs of the other model."""
    if other is None:
        raise InputError('null="untrained" needs that model; pass untrained=open_run("RUN@0").gpt, or another.')
    if other.config != plan.config:
        raise InputError(
            'null="untrained" compares with the same model before training, and configs differ; pass its checkpoint '
            "of step 0, or GPT(gpt.config, seed=1)."
        )
    scores, _, _ = all_pairs(folded_heads(other), plan)
    return _per_kind([each[each.isfinite()] for each in scores])


def others(scores: Pairs) -> tuple[Tensor, Tensor]:
    """For each pair the mean over the reader's other writers. They are too few for an sd that could bear a z: NaN."""
    if scores.shape[2] < 2:
        raise InputError(
            'null="permuted" compares a writer with the others, and layers of one head have none; take another null, '
            'such as "rotation".'
        )
    n = scores.isfinite().sum((1, 2), keepdim=True)
    known = scores.nan_to_num()
    mean = (known.sum((1, 2), keepdim=True) - known) / (n - 1)
    return mean, torch.full_like(mean, torch.nan)


def share_at_least(scores: Pairs) -> Pairs:
    """Of the reader's writers, the share that scores at least as much as this one: 1 / their number for the first."""
    each = scores.flatten(1, 2)
    at_least = (each[:, None] >= each[:, :, None]).sum(2).unflatten(1, scores.shape[1:3])
    return torch.where(scores.isnan(), torch.nan, at_least / scores.isfinite().sum((1, 2), keepdim=True))


def _per_kind(found: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and sd of each kind's scores, to be broadcast over pairs."""
    mean, sd = torch.stack([each.mean() for each in found]), torch.stack([each.std() for each in found])
    return mean[:, None, None, None, None], sd[:, None, None, None, None]
