"""The same model written down in other weights: what means something must not change."""

from __future__ import annotations

from copy import deepcopy

import torch

from model import GPT


@torch.no_grad()
def bias_of_ln1_moved(gpt: GPT) -> GPT:
    """The bias of each layer's ln1 moved into the biases of its projections; for models whose heads read ln1."""
    other = deepcopy(gpt)
    for block in other.layers:
        if block.ln1 is None or block.ln1.b is None:
            raise ValueError("there is no bias to move")
        for projection in (block.attn.q_proj, block.attn.k_proj, block.attn.v_proj):
            projection.bias.add_(block.ln1.shrink * projection.weight @ block.ln1.b)
        block.ln1.b.zero_()
    return other
