"""Why a coefficient of swiglu is negative: its gate, or its linear factor.

m = silu(g) u, with g = x W_gate and u = x W_in. silu is never below -0.28, so a coefficient far below zero has a
positive gate and a negative linear factor; near zero either may be the negative one. For a sample of memories both
factors are read at their most negative and at their largest coefficients, where two negative factors are possible too.
GELU and ReLU have one factor: GELU is never below -0.17, and ReLU never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from interp.prefixes import prefix_tokens
from interp.row_readings import read_ends
from model.config import FFNKind
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True)
class GateSigns:
    """Both factors of a sample of swiglu memories at their triggers; NaN where there is no such trigger."""

    memory: Int[Tensor, "layer sampled"]
    """Numbers of the sampled memories in rising order; -1 where a layer has fewer."""

    negative_gate: Float[Tensor, "layer sampled trigger"]
    """x W_gate at the prefixes with the most negative coefficients."""
    negative_linear: Float[Tensor, "layer sampled trigger"]
    """x W_in there."""

    positive_gate: Float[Tensor, "layer sampled trigger"]
    """x W_gate at the top triggers."""
    positive_linear: Float[Tensor, "layer sampled trigger"]
    """x W_in there."""

    def linear_is_negative(self, layer: int) -> Bool[Tensor, " read"]:
        """For each of a layer's most negative coefficients that were read, whether it is u that is negative."""
        linear = self.negative_linear[layer]
        return linear[linear.isfinite()] < 0

    def both_negative(self, layer: int) -> Bool[Tensor, " read"]:
        """For each of a layer's largest coefficients that were read, whether both factors are negative."""
        linear, gate = self.positive_linear[layer], self.positive_gate[layer]
        there = linear.isfinite()
        return (linear[there] < 0) & (gate[there] < 0)


def gate_signs(
    gpt: GPT,
    tokens: Integer[np.ndarray, " corpus"],
    negative: tuple[Int[Tensor, "layer memory trigger"], Int[Tensor, "layer memory trigger"]],
    positive: tuple[Int[Tensor, "layer memory top"], Int[Tensor, "layer memory top"]],
    memories: Int[Tensor, "layer sampled"],
    *,
    bos: int | None,
    n_triggers: int,
) -> GateSigns:
    """Both factors of some memories of a swiglu model, -1 among them standing for none.

    `negative` and `positive` are offsets and lengths of the prefixes with the most negative and the largest
    coefficients, the strongest first; length 0 where there is none.
    """
    if gpt.config.ffn is not FFNKind.SWIGLU:
        raise InputError(f"ffn={gpt.config.ffn.value} has no gate, so it has no sign; gate signs are read of swiglu.")
    below, above = (
        _factors(gpt, tokens, offset[..., :n_triggers], length[..., :n_triggers], memories, bos)
        for offset, length in (negative, positive)
    )
    return GateSigns(
        memory=memories,
        negative_gate=below[0],
        negative_linear=below[1],
        positive_gate=above[0],
        positive_linear=above[1],
    )


def _factors(
    gpt: GPT, tokens: np.ndarray, offset: Tensor, length: Tensor, memories: Tensor, bos: int | None
) -> Float[Tensor, "factor layer sampled trigger"]:
    found = torch.full((2, *memories.shape, length.shape[-1]), torch.nan)
    for layer in range(len(memories)):
        there = length[layer][memories[layer].clamp_min(0).long()] * (memories[layer] >= 0)[:, None]
        places = [(int(place), int(rank)) for place, rank in (there > 0).nonzero()]
        units = [int(memories[layer, place]) for place, _ in places]
        rows = [
            prefix_tokens(tokens, int(offset[layer, unit, rank]), int(length[layer, unit, rank]), bos=bos)[0].tolist()
            for unit, (_, rank) in zip(units, places, strict=True)
        ]
        read = read_ends(gpt, layer, (Tap.MLP_PRE, Tap.MLP_PRE_LINEAR), rows, units)[..., 0]
        for (place, rank), factors in zip(places, read.T, strict=True):
            found[:, layer, place, rank] = factors
    return found
