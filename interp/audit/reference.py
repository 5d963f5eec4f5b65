"""The model's algebra written a second time, from the config and raw weights, in fp64.

Nothing here calls the model's own layers: rotation turns complex numbers, norms are spelled out, the activation
functions are their definitions. What only looks right because both sides use the same code would pass unseen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.audit.quantity import Quantity, exact
from model.config import AttentionKind, FFNKind, GPTConfig, Norm, NormKind, Positions

if TYPE_CHECKING:
    from model.norms import NormLayer


@dataclass(frozen=True, slots=True)
class Normed:
    """The inside of a norm."""

    scale: Quantity
    normalized: Quantity
    out: Quantity


def normed(x: Quantity, norm: NormLayer, config: GPTConfig, *, shrink: float = 1.0) -> Normed:
    """What a norm with these gains (and bias) makes of `x`, all else as the config says."""
    value, size = x.value, x.size
    if config.norm_kind is NormKind.LAYERNORM:
        value, size = value - value.mean(-1, keepdim=True), size + size.mean(-1, keepdim=True)
    scale = (value.square().mean(-1, keepdim=True) + config.norm_eps).sqrt()
    scale_size = scale + size.square().mean(-1, keepdim=True).sqrt()
    normalized = Quantity(value / scale, size / scale + (value / scale).abs() * scale_size / scale)
    gain = exact(norm.w) * shrink
    out = Quantity(normalized.value * gain, normalized.size * gain.abs())
    if norm.b is not None:
        out = out + Quantity.of(exact(norm.b) * shrink)
    return Normed(Quantity(scale, scale_size), normalized, out)


def shrink_of(config: GPTConfig, layer: int) -> float:
    """What the scaled placement divides by: the square root of the layer's number, counted from 1."""
    return 1 / math.sqrt(layer + 1) if config.norm is Norm.SCALED else 1.0


def carried(config: GPTConfig) -> float:
    """How much of the stream a sum keeps: 1, DeepNorm's alpha, or nothing without skip connections."""
    if not config.skip_connections:
        return 0.0
    return math.pow(2.0 * config.n_layers, 1 / 4) if config.norm is Norm.DEEPNORM else 1.0


def unit_heads(x: Quantity, gain: Tensor, config: GPTConfig) -> Quantity:
    """Heads divided by their root mean square, times the gain (qk_norm)."""
    scale = (x.value.square().mean(-1, keepdim=True) + config.norm_eps).sqrt()
    spread = x.size.square().mean(-1, keepdim=True).sqrt()
    value = x.value / scale * exact(gain)
    return Quantity(value, x.size / scale * exact(gain).abs() + value.abs() * (1 + spread / scale))


def mixed_with_previous(keys: Quantity, alpha: Tensor) -> Quantity:
    """Smeared keys: each head's own share of a key, 1 / (1 + exp(-alpha)), and the rest of the key before it."""
    own = 1 / (1 + torch.exp(-exact(alpha)))[:, None]
    value, size = (own * each + (1 - own) * each[:, _before(each.shape[1])] for each in (keys.value, keys.size))
    return Quantity(value, size)


def _before(n_pos: int) -> Tensor:
    """The position before each one; the first is before itself."""
    return (torch.arange(n_pos) - 1).clamp(min=0)


def turned(heads: Quantity, config: GPTConfig) -> Quantity:
    """Each pair (i, i + d_head / 2) as a complex number, turned by position * rope_base^(-2 i / d_head)."""
    n_pos, half = heads.value.shape[1], config.head_width // 2
    turns = torch.exp(-2 * math.log(config.rope_base) * torch.arange(half, dtype=torch.float64) / config.head_width)
    angles = torch.arange(n_pos, dtype=torch.float64)[:, None, None] * turns
    first, second = heads.value[..., :half], heads.value[..., half:]
    rotated = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    size = torch.complex(first, second).abs()
    return Quantity(torch.cat((rotated.real, rotated.imag), -1), torch.cat((size, size), -1))


def visible(config: GPTConfig, n_pos: int) -> Bool[Tensor, "query key"]:
    """Which keys a query may see."""
    query, key = torch.arange(n_pos)[:, None], torch.arange(n_pos)[None]
    return key <= query if config.attention is AttentionKind.CAUSAL else torch.ones(n_pos, n_pos, dtype=torch.bool)


def position_bias(config: GPTConfig, n_pos: int) -> Float[Tensor, "#head query key"]:
    """What is added to the scores: minus slope times distance for ALiBi, else nothing."""
    if config.positions is not Positions.ALIBI:
        return torch.zeros(1, n_pos, n_pos, dtype=torch.float64)
    power = 1 << (config.n_heads.bit_length() - 1)
    exponents = [8 * head / power for head in range(1, power + 1)]
    exponents += [8 * (head - 0.5) / power for head in range(1, config.n_heads - power + 1)]
    slopes = torch.tensor([0.5**exponent for exponent in exponents], dtype=torch.float64)
    places = torch.arange(n_pos, dtype=torch.float64)
    return -slopes[:, None, None] * (places[:, None] - places[None]).abs()


def coefficients(kind: FFNKind, pre: Quantity, linear: Quantity | None) -> Quantity:
    """The FFN's activation function."""
    x = pre.value
    match kind:
        case FFNKind.GELU:
            value = x * (1 + torch.erf(x / math.sqrt(2))) / 2
        case FFNKind.GELU_TANH:
            value = x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
        case FFNKind.RELU:
            value = torch.where(x > 0, x, 0.0)
        case _:
            value = x / (1 + torch.exp(-x))
    if linear is None:
        return Quantity(value, pre.size)
    return Quantity(value * linear.value, pre.size * linear.size)
