"""A norm with its scale held at a run's own value: affine, and without its bias linear.

    out = (x C / scale) diag(gain) shrink + bias      C centres (LayerNorm; the identity for RMSNorm)

`after_norm` takes parts of the stream through it, `before_norm` directions back: for every part and direction
after_norm(part) . direction = part . before_norm(direction). The bias belongs to no part. Both are computed in the
widest of the precisions involved, at least fp32, and answer in that of what they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from model.norms import NormLayer

Held = Float[Tensor, "*batch one"] | float
"""The scale of each position; any one positive number where only directions matter."""


def after_norm(norm: NormLayer, scale: Held, change: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any d_model"]:
    """What the norm with this scale makes of a part, or a change, of the stream; its bias left out."""
    exact = change.to(torch.promote_types(change.dtype, torch.float32))
    return (_centred(norm, exact) / scale * norm.w * norm.shrink).to(change.dtype)


def before_norm(
    norm: NormLayer, scale: Held, direction: Float[Tensor, "*any d_model"]
) -> Float[Tensor, "*any d_model"]:
    """The direction that, before the norm with this scale, does what `direction` does after it."""
    exact = direction.to(torch.promote_types(direction.dtype, torch.float32))
    return _centred(norm, exact * norm.w * norm.shrink / scale).to(direction.dtype)


def _centred(norm: NormLayer, x: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any d_model"]:
    return x - x.mean(-1, keepdim=True) if norm.centres else x
