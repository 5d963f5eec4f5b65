"""FFN memories, values: which tokens each one promotes (Geva et al. 2021, arXiv 2012.14913, section 4).

A memory that fires with coefficient m_i (`interp.memory_stream`) writes m_i v_i, where v_i is row i of W_out. Its
scores are v_i W_U with the final norm folded in, in logits per unit of coefficient before the final norm's scale. Only
the order of the tokens means something, and it assumes that every layer writes in the basis that the last one reads.
Where norms stand on the stream (post, deepnorm), a value passes those of all later layers: their gains and centring are
folded in too, their scales are left out, which are positive and so keep the order. Without skip connections no value
reaches the logits by itself, and the model is refused (`interp.memory_stream.require_memories`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from model.config import SUM_NORMS
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.norms import NormLayer


@torch.no_grad()
def value_scores(
    gpt: GPT,
    layer: int,
    memories: slice = slice(None),
    unembed: Float[Tensor, "d_model d_vocab"] | None = None,
) -> Float[Tensor, "memory d_vocab"]:
    """What each value of a layer adds to each token's logit, per unit of coefficient and of final-norm scale.

    The norms that a value passes on its way (an output norm; all later ones on the stream) enter with their gains and
    centring, not with their scales. `memories` are some of the layer's, where all their scores are too many at once;
    `unembed`, the model's `folded_unembed()`, spares folding it again for each of them.
    """
    ffn = gpt.layers[layer].mlp
    if ffn is None:
        raise InputError("This model is attention-only (ffn=none), so it has no FFN memories; study one with an FFN.")
    written = ffn.W_out[memories].contiguous()
    for norm in _norms_passed(gpt, layer):
        written = (written - written.mean(-1, keepdim=True) if norm.centres else written) * norm.w
    unembed = gpt.folded_unembed() if unembed is None else unembed
    return (written.float() @ unembed.float()).cpu()


def _norms_passed(gpt: GPT, layer: int) -> list[NormLayer]:
    """The norms between what the FFN of a layer writes and the final norm, which the unembedding has folded in."""
    block = gpt.layers[layer]
    if gpt.config.norm not in SUM_NORMS:
        return [] if block.ln2_post is None else [block.ln2_post]
    later = [norm for after in gpt.layers[layer + 1 :] for norm in (after.ln1, after.ln2)]
    return [norm for norm in (block.ln2, *later) if norm is not None and norm is not gpt.final_norm]


def fitting_memories(n_memories: int, d_vocab: int) -> list[slice]:
    """A layer's memories in groups, each with no more scores than fit into 64 MB: larger blocks are slower."""
    size = max(1, _SCORES // d_vocab)
    return [slice(start, min(start + size, n_memories)) for start in range(0, n_memories, size)]


_SCORES = 2**24
"""Largest number of fp32 scores held at once."""
