"""The same GPT a second time: numpy in extended precision, one line per equation, sharing no code with the model.

What precision is measured against. On machines without an 80-bit format numpy's longdouble is fp64, which the fp64
tolerance still covers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model import GPT, FFNKind, Norm, NormKind, Positions

Array = NDArray[np.longdouble]
PRE = (Norm.PRE, Norm.SANDWICH, Norm.SCALED)
OUTPUT = (Norm.SANDWICH, Norm.REORDERED)
ON_SUM = (Norm.POST, Norm.DEEPNORM)


class Reference:
    """The logits and residuals of `gpt`'s own weights (as they are, cast or not) on some tokens."""

    def __init__(self, gpt: GPT, tokens: Tensor) -> None:
        self.config = gpt.config
        self.weights = {name: to_array(tensor) for name, tensor in gpt.state_dict().items()}
        self.found: dict[str, Array] = {}
        self._run(tokens.numpy())

    def _run(self, tokens: NDArray[np.int64]) -> None:
        config, positions = self.config, np.arange(tokens.shape[1])
        x = self.weights["embed.weight"][tokens]
        if config.positions is Positions.LEARNED:
            x = x + self.weights["pos_embed.weight"][positions]
        if config.positions is Positions.SINUSOIDAL:
            x = x + sinusoids(positions, config.d_model)
        for layer in range(config.n_layers):
            x = self._block(x, layer)
        if config.has_final_norm:
            x = self._norm(x, "ln_final")
        self.found["hook_logits"] = x @ self.weights["unembed.weight"].T

    def _block(self, x: Array, layer: int) -> Array:
        block = f"blocks.{layer}"
        self.found[f"{block}.hook_resid_pre"] = x
        x = self._half(x, f"{block}.ln1", lambda read: self._attention(read, f"{block}.attn"), layer)
        if self.config.ffn is not FFNKind.NONE:
            self.found[f"{block}.hook_resid_mid"] = x
            x = self._half(x, f"{block}.ln2", lambda read: self._ffn(read, f"{block}.mlp"), layer)
        self.found[f"{block}.hook_resid_post"] = x
        return x

    def _half(self, x: Array, norm: str, sublayer: Callable[[Array], Array], layer: int) -> Array:
        kind, read = self.config.norm, x
        if kind in PRE:
            read = self._norm(x, norm) / (np.sqrt(np.longdouble(layer + 1)) if kind is Norm.SCALED else 1)
        out = sublayer(read)
        out = self._norm(out, f"{norm}_post") if kind in OUTPUT else out
        carry = np.longdouble(2 * self.config.n_layers) ** 0.25 if kind is Norm.DEEPNORM else 1
        total = (carry * x if self.config.skip_connections else 0) + out
        return self._norm(total, norm) if kind in ON_SUM else total

    def _norm(self, x: Array, name: str) -> Array:
        if self.config.norm_kind is NormKind.LAYERNORM:
            x = x - x.mean(-1, keepdims=True)
        scaled = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.longdouble(self.config.norm_eps))
        return scaled * self.weights[f"{name}.w"] + self.weights.get(f"{name}.b", 0)

    def _attention(self, x: Array, name: str) -> Array:
        config, n_pos = self.config, x.shape[1]
        q, k, v = (self._heads(x, f"{name}.{part}_proj") for part in "qkv")
        if config.qk_norm:
            q, k = (self._unit(heads, f"{name}.{part}_gain") for heads, part in ((q, "q"), (k, "k")))
        if config.smeared_keys:
            share = 1 / (1 + np.exp(-self.weights[f"{name}.k_smear"]))[:, None]
            k = share * k + (1 - share) * np.concatenate((k[:, :1], k[:, :-1]), axis=1)
        if config.positions is Positions.ROPE:
            q, k = (rotated(heads, config.rope_base) for heads in (q, k))
        k, v = (heads.repeat(config.n_heads // config.kv_heads, axis=2) for heads in (k, v))
        scores = np.einsum("bqhe,bkhe->bhqk", q, k) / np.sqrt(np.longdouble(config.head_width))
        distance = np.arange(n_pos)[:, None] - np.arange(n_pos)
        if config.positions is Positions.ALIBI:  # for a number of heads that is a power of two
            slopes = np.longdouble(2) ** (-8 * np.arange(1, config.n_heads + 1) / config.n_heads)
            scores = scores - slopes[:, None, None] * np.abs(distance)
        grown = np.exp(scores - scores.max(-1, keepdims=True)) * (distance >= 0)
        pattern = grown / grown.sum(-1, keepdims=True)
        z = np.einsum("bhqk,bkhe->bqhe", pattern, v)
        return self._linear(z.reshape(*z.shape[:2], -1), f"{name}.o_proj")

    def _heads(self, x: Array, name: str) -> Array:
        return self._linear(x, name).reshape(*x.shape[:2], -1, self.config.head_width)

    def _unit(self, heads: Array, gain: str) -> Array:
        size = np.sqrt((heads * heads).mean(-1, keepdims=True) + np.longdouble(self.config.norm_eps))
        return heads / size * self.weights[gain]

    def _ffn(self, x: Array, name: str) -> Array:
        pre = self._linear(x, f"{name}.in_proj")
        if self.config.ffn is FFNKind.SWIGLU:
            gate = self._linear(x, f"{name}.gate_proj")
            return self._linear(pre * gate / (1 + np.exp(-gate)), f"{name}.out_proj")
        return self._linear(ACTIVATIONS[self.config.ffn](pre), f"{name}.out_proj")

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)


def rotated(heads: Array, base: float) -> Array:
    """[batch, pos, head, d_head], dimension i turned with i + d_head / 2 by pos * base^(-2 i / d_head)."""
    pairs = np.arange(0, heads.shape[-1], 2).astype(np.longdouble)
    angles = np.arange(heads.shape[1])[:, None, None] * np.longdouble(base) ** (-pairs / heads.shape[-1])
    first, second = np.split(heads, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def sinusoids(positions: NDArray[np.int64], d_model: int) -> Array:
    angles = positions[:, None] * np.longdouble(10_000) ** (-np.arange(0, d_model, 2).astype(np.longdouble) / d_model)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(len(positions), d_model)


def to_array(tensor: Tensor) -> Array:
    """The same numbers: every format that a model may have fits into fp64, and that into longdouble."""
    return tensor.detach().double().numpy().astype(np.longdouble)


def error_of(found: Tensor, exact: Array) -> float:
    """The largest error, as a share of the root mean square of the exact numbers."""
    return float(np.abs(to_array(found) - exact).max() / np.sqrt((exact * exact).mean()))


def _gelu_tanh(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.longdouble(np.pi)) * (x + np.longdouble("0.044715") * x**3)))


def _gelu(x: Array) -> Array:
    erf = torch.erf(torch.from_numpy((x / np.sqrt(np.longdouble(2))).astype(np.float64))).numpy()  # exact to fp64
    return x / 2 * (1 + erf.astype(np.longdouble))


ACTIVATIONS: dict[FFNKind, Callable[[Array], Array]] = {
    FFNKind.GELU: _gelu,
    FFNKind.GELU_TANH: _gelu_tanh,
    FFNKind.RELU: lambda x: np.maximum(x, 0),
}
