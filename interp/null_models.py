"""Models to hold a trained one against: what its sizes alone give, and what its keys and values give unpaired.

Both are models of their own; the one they are made of stays as it is. A reading of memories that comes out the same on
a `reinitialised` model is a reading of the architecture (its vocabulary, its tied embeddings, how peaked the text is).
One that comes out the same on a model with its `values_dealt` says nothing about which key goes with which value: every
key and every value of a layer is there, in other pairs (Geva et al. 2021 have chance 1/d_vocab instead, which is low
where some tokens are frequent).

What they do not show: a fresh model's coefficients and streams are smaller than a trained one's, and a dealt model's
later layers read what they were never trained on. So compare readings of weights, and of a layer by itself.
Cost: the memory of a second model; a fresh one also draws its weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from model.config import FFNKind
from model.errors import InputError
from model.gpt import GPT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Int
    from torch import Tensor

_APART = 611_953
"""Added to the seed of a fresh model, so that the seed of a run does not name the run's own step 0."""


def reinitialised(gpt: GPT, seed: int) -> GPT:
    """A model of the same config with fresh weights, in evaluation mode, on the same device and in the same format.

    `seed` names the weights. They are never those that training with that seed began with.
    """
    return GPT(gpt.config, seed=seed + _APART).to(device=gpt.device, dtype=gpt.dtype).eval()


def values_dealt(gpt: GPT, seed: int) -> GPT:
    """The same model with each layer's values (rows of W_out) dealt to the layer's memories anew, in evaluation mode.

    Every deal is as likely as any other, so a memory may keep its value. Keys, biases and all else are copies.
    """
    deals = dealt_orders(gpt, seed)
    made = _copied(gpt)
    with torch.no_grad():
        for block, order in zip(made.layers, deals, strict=True):
            if block.mlp is not None:
                block.mlp.W_out.copy_(block.mlp.W_out[order])
    return made


def dealt_orders(gpt: GPT, seed: int) -> Sequence[Int[Tensor, " memory"]]:
    """For each layer, whose value each memory gets from `values_dealt`; for a reading that needs no second model."""
    if gpt.config.ffn is FFNKind.NONE:
        raise InputError("This model is attention-only (ffn=none), so it has no values to deal; take one with an FFN.")
    chance = torch.Generator().manual_seed(seed)
    width = gpt.config.ffn_width
    return [torch.randperm(width, generator=chance).to(gpt.device) for _ in range(gpt.config.n_layers)]


def _copied(gpt: GPT) -> GPT:
    """The same weights in another model, without whatever hooks are in force."""
    made = GPT(gpt.config).to(device=gpt.device, dtype=gpt.dtype)
    made.load_state_dict(gpt.state_dict())
    return made.eval()
