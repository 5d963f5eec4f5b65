"""The QK circuit as a family: one matrix per offset between query and key.

    score(i, j) = x_i QK(i - j) x_j^T / sqrt(d_head) + bias(i - j)        QK(D) = W_Q R(D) W_K^T

x is the stream that the heads read, divided by the norm's scale (`ln1.hook_normalized`; `hook_resid_pre` where no norm
stands before the heads); the norm's gain is folded in (`interp.folding`). With rope R(D) turns d_head / 2 planes by as
many angles, so that no single matrix is "the" QK circuit, and that of offset 0 is used by a token with itself only.
Under ALiBi, learned or sinusoidal positions and without positions QK(D) is the same for every D: ALiBi adds
bias(D) = -slope D, and the others put positions into x itself.

Terms of biases are left out of QK: they are x_i W_Q R(D) b_K^T, b_Q R(D) (x_j W_K)^T and b_Q R(D) b_K^T, from the
fields of `FoldedHeads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.folding import folded_heads
from interp.offsets import resolve_offsets
from model.config import Positions
from model.factored import FactoredMatrix
from model.positions import alibi_bias

if TYPE_CHECKING:
    from model.gpt import GPT


def qk_circuits(gpt: GPT, offset: int = 0) -> FactoredMatrix:
    """W_Q R(offset) W_K^T of every head, folded: [layer, head, d_model, d_model], fp64.

    Args:
        gpt: a model whose scores are bilinear in the stream: without qk_norm and smeared keys.
        offset: query position minus key position; negative in bidirectional models only.

    Raises:
        InputError: the model's scores are not bilinear, or it has no such offset.
    """
    resolve_offsets(gpt.config, offset)
    return folded_heads(gpt).QK(offset)


def score_bias(gpt: GPT, offset: int) -> Float[Tensor, " head"]:
    """What is added to a head's scores at an offset, after the division by sqrt(d_head): ALiBi's penalty, else 0."""
    resolve_offsets(gpt.config, offset)
    if gpt.config.positions is not Positions.ALIBI:
        return torch.zeros(gpt.config.n_heads, dtype=torch.float64)
    query, key = (torch.tensor([[position]]) for position in (max(offset, 0), max(-offset, 0)))
    return alibi_bias(query, key, gpt.config.n_heads, torch.float64)[0, :, 0, 0]
