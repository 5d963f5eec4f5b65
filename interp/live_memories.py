"""Which memories write most at one token of a text: the sub-updates m_i v_i with the largest |m_i| |v_i|.

Importance is that of Geva et al. 2022 (arXiv 2203.14680): how much a memory adds to the stream there, in stream units.
What it does not show: that the prediction rests on it; what is long may point where nothing is read, and two memories
may cancel. One pass through the model; of each layer one position's coefficients are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ffn_parts import written_values
from interp.live import LiveText, live_tokens
from interp.memory_stream import require_memories
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class WritingMemories:
    """The memories that write most at one position, the longest sub-update first."""

    layer: Int[Tensor, " memory"]
    index: Int[Tensor, " memory"]
    """Their numbers within their layers."""

    coefficient: Float[Tensor, " memory"]

    written: Float[Tensor, " memory"]
    """|m| |v|, in stream units (before an output norm's scale, where there is one)."""

    share: Float[Tensor, " memory"]
    """Of the sum of |m| |v| over the memory's layer."""


@torch.no_grad()
def writing_memories(lab: Lab, text: LiveText | str, prompt: str, position: int, *, n: int = 10) -> WritingMemories:
    """The `n` memories of all layers that write most at `position` of the text.

    Raises:
        InputError: the text has no such position, or the model no memories.
    """
    require_memories(lab.config)
    tokens, _ = live_tokens(lab, text, prompt)
    if not 0 <= position < len(tokens):
        raise InputError(f"there is no position {position} in this text; it has 0..{len(tokens) - 1}")
    places = [Tap.MLP_POST.at(layer) for layer in range(lab.config.n_layers)]
    _, cache = lab.gpt.run_with_cache(tokens[None], list(map(str, places)), pos_slice=position, return_type=None)
    coefficients = torch.stack([cache[place].flatten().float() for place in places])
    lengths = torch.stack([written_values(lab.gpt, layer).norm(dim=1) for layer in range(lab.config.n_layers)])
    written = coefficients.abs() * lengths
    top = written.flatten().topk(min(n, written.numel())).indices
    layer, index = top // written.shape[1], top % written.shape[1]
    share = written[layer, index] / written.sum(dim=1)[layer].clamp_min(torch.finfo(written.dtype).tiny)
    parts = (layer, index, coefficients[layer, index], written[layer, index], share)
    return WritingMemories(**dict(zip(_FIELDS, (part.cpu() for part in parts), strict=True)))


_FIELDS = ("layer", "index", "coefficient", "written", "share")
