"""Smeared keys: each key is in part the key of the token before it (Olsson et al. 2022, Argument 2).

    k_j <- s k_j + (1 - s) k_{j-1}        s = sigmoid(alpha), one learned alpha per layer and key-value head

What is mixed are the keys that a head would otherwise use: after `qk_norm`, before rotation, so that rope turns the
mixture at its own position j, and `hook_k` holds the mixture. The first token of a sequence keeps its own key, and
padding is passed over: the token before is the last one that is no padding. alpha begins at 0, an even mixture: neither
key is favoured, and alpha learns fastest there. It is no matrix, so weight decay does not touch it.

It is a setting for studies: with it the match that induction needs, of this token with the one before a key, takes one
layer instead of two.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Keys = Float[Tensor, "batch pos kv_head d_head"]


def predecessors(positions: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos_and_next"]:
    """Where the token before each new token stands in the line [the past's last key, the new keys].

    The first token of a sequence, and padding, stand for themselves. The last column is for the token to come.

    Args:
        positions: absolute positions of the new tokens, -1 for padding.

    >>> predecessors(torch.tensor([[-1, 0, 1, 2]])).tolist(), predecessors(torch.tensor([[7, 8]])).tolist()
    ([[1, 2, 2, 3, 4]], [[0, 1, 2]])
    """
    own = torch.arange(1, positions.shape[1] + 1, device=positions.device)
    latest = torch.where(positions >= 0, own, 0).cummax(-1).values
    before = torch.where(positions > 0, F.pad(latest[:, :-1], (1, 0)), own)
    return torch.cat((before, latest[:, -1:]), dim=1)


def smeared(
    keys: Keys,
    alpha: Float[Tensor, " kv_head"],
    before: Int[Tensor, "one_or_batch pos_and_next"],
    past: Float[Tensor, "batch one kv_head d_head"] | None,
) -> tuple[Keys, Float[Tensor, "batch one kv_head d_head"]]:
    """The mixed keys, and each sequence's last key before mixing, which is the next token's `past`.

    Mixed in fp32 at least, and exactly a key's own where it has no predecessor.
    """
    line = torch.cat((torch.zeros_like(keys[:, :1]) if past is None else past, keys), dim=1)
    index = before.expand(len(keys), -1)[:, :, None, None].expand(-1, -1, *keys.shape[2:])
    previous = line.gather(1, index)
    exact = torch.promote_types(keys.dtype, torch.float32)
    share = alpha.to(exact).sigmoid()[:, None]
    return torch.lerp(previous[:, :-1].to(exact), keys.to(exact), share).to(keys.dtype), previous[:, -1:]
