"""What each memory of a layer adds to a logit by itself: direct logit attribution inside one FFN (Geva et al. 2022).

A memory writes m_i v_i, and the final norm with its scale held is affine, so it adds m_i (v_i . d) to the logit, with d
as in `interp.attribution`; through an output norm, that norm's scale is held as well. The memories and the FFN's biases
sum to what the FFN adds.

What it does not show: what a memory does through later layers, or to the scales. Cost: one forward pass and one product
of the size of W_out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention_bases import Against
from interp.attribution import along, logit_direction
from interp.linear_norms import before_norm
from interp.live import LiveText, live_tokens
from interp.live_targets import Target, one_token, targets_of
from interp.memory_stream import require_memories
from model.errors import InputError
from model.settings import as_enum
from model.sites import Tap

if TYPE_CHECKING:
    from model.lab import Lab


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryAttribution:
    """What the memories of one layer add to a logit at one position; on the CPU."""

    layer: int
    coefficient: Float[Tensor, " memory"]
    added: Float[Tensor, " memory"]
    """In logits."""

    biases: float
    """What the FFN's biases add, an output norm's among them."""

    @property
    def total(self) -> float:
        """What the FFN as a whole adds."""
        return float(self.added.sum()) + self.biases


@torch.no_grad()
def memories_towards(
    lab: Lab,
    text: LiveText | str,
    prompt: str,
    layer: int,
    position: int,
    *,
    target: Target | str = Target.NEXT,
    word: str = "",
    against: Against | str = Against.MEAN,
    against_word: str = "",
) -> MemoryAttribution:
    """Take apart what the FFN of `layer` adds to the target's logit at `position`; choices as in `attribution_on`.

    Raises:
        NotAdditiveError: the stream of this model is not a sum.
        InputError: the text cannot be read or has no such position, or the model no such layer, or no memories.
    """
    lab.config.require_additive_stream("direct logit attribution")
    require_memories(lab.config)
    tokens, _ = live_tokens(lab, text, prompt)
    if not 0 <= position < len(tokens):
        raise InputError(f"there is no position {position} in this text; it has 0..{len(tokens) - 1}")
    if not 0 <= layer < lab.config.n_layers:
        raise InputError(f"there is no layer {layer}; layers run 0..{lab.config.n_layers - 1}")
    gpt, here = lab.gpt, slice(position, position + 1)
    target_there = targets_of(lab, tokens, target, word, here)[None, here]
    direction = logit_direction(gpt, tokens[None, here], target_there)
    other = one_token(lab, against_word) if against_word else as_enum(Against, against, "against")
    direction = direction - logit_direction(gpt, tokens[None, here], other)
    block = gpt.layers[layer]
    if block.mlp is None:
        raise RuntimeError("an attention-only model has been let through")
    scales = [Tap.LN_FINAL_SCALE.at()] if gpt.ln_final is not None else []
    scales += [Tap.LN2_POST_SCALE.at(layer)] if block.ln2_post is not None else []
    _, cache = gpt.run_with_cache(tokens[None], [Tap.MLP_POST.at(layer), *scales], return_type=None, pos_slice=here)
    if gpt.ln_final is not None:
        direction = before_norm(gpt.ln_final, cache[scales[0]], direction)
    written = direction
    if block.ln2_post is not None:
        written = before_norm(block.ln2_post, cache[scales[-1]], direction)
    coefficient = cache[Tap.MLP_POST.at(layer)].to(direction.dtype).flatten()
    added = coefficient * (block.mlp.W_out.to(direction.dtype) @ written.flatten())
    parts = [(block.mlp.out_proj.bias, written), (None if block.ln2_post is None else block.ln2_post.b, direction)]
    biases = sum(float(along(bias, towards)) for bias, towards in parts if bias is not None)
    return MemoryAttribution(layer=layer, coefficient=coefficient.cpu(), added=added.cpu(), biases=biases)
