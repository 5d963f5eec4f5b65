"""SmolLM2's forward pass in plain torch on the file's own numbers: nothing of ours, and nothing of transformers.

Weights are restored by the package `gguf`. Rows of queries and keys lie in the file for interleaved rotation, in which
dimensions 2i and 2i + 1 turn together, so that is how they are rotated here; `put_back` is our own un-permutation.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

N_LAYERS, N_HEADS, N_KV_HEADS, D_HEAD, EPS, BASE = 30, 9, 3, 64, 9.999999747378752e-06, 100_000.0
Weights = dict[str, Tensor]


def weights_of(path: Path) -> Weights:
    """Every tensor of a GGUF file as fp32, by llama.cpp's names, [out, in] as they multiply."""
    from gguf import GGUFReader, dequantize

    restored = {each.name: dequantize(each.data, each.tensor_type).copy() for each in GGUFReader(path).tensors}
    return {name: torch.from_numpy(values) for name, values in restored.items()}


def put_back(rows: Tensor, n_heads: int) -> Tensor:
    """Rows in half-split order: row 2i of a head to i, row 2i + 1 to i + d_head / 2."""
    by_head = rows.view(n_heads, -1, rows.shape[1])
    return torch.cat((by_head[:, 0::2], by_head[:, 1::2]), dim=1).reshape(rows.shape)


def mixed_up(rows: Tensor, n_heads: int) -> Tensor:
    """The inverse: half-split rows in the file's order."""
    first, second = rows.view(n_heads, -1, rows.shape[1]).chunk(2, dim=1)
    return torch.stack((first, second), dim=2).reshape(rows.shape)


@torch.no_grad()
def forward(weights: Weights, tokens: Tensor, *, interleaved: bool = True) -> tuple[Tensor, list[Tensor]]:
    """Logits [pos, d_vocab] and the stream before the first layer and after each, [pos, d_model]."""
    x = weights["token_embd.weight"][tokens]
    streams, n_pos = [x], len(tokens)
    hidden = torch.ones(n_pos, n_pos, dtype=torch.bool).triu(1)
    for layer in range(N_LAYERS):
        part = {name.split(".")[2]: w for name, w in weights.items() if name.startswith(f"blk.{layer}.")}
        read = _normed(x, part["attn_norm"])
        q = _turned(F.linear(read, part["attn_q"]).view(n_pos, N_HEADS, D_HEAD), interleaved=interleaved)
        k = _turned(F.linear(read, part["attn_k"]).view(n_pos, N_KV_HEADS, D_HEAD), interleaved=interleaved)
        v = F.linear(read, part["attn_v"]).view(n_pos, N_KV_HEADS, D_HEAD)
        k, v = (each.repeat_interleave(N_HEADS // N_KV_HEADS, dim=1) for each in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(D_HEAD)
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), v)
        x = x + F.linear(mixed.flatten(1), part["attn_output"])
        read = _normed(x, part["ffn_norm"])
        x = x + F.linear(F.silu(F.linear(read, part["ffn_gate"])) * F.linear(read, part["ffn_up"]), part["ffn_down"])
        streams.append(x)
    return F.linear(_normed(x, weights["output_norm.weight"]), weights["token_embd.weight"]), streams


def nats(logits: Tensor, tokens: Tensor) -> float:
    """Mean next-token loss."""
    return float(F.cross_entropy(logits[:-1], tokens[1:]))


def _normed(x: Tensor, gain: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * gain


def _turned(x: Tensor, *, interleaved: bool) -> Tensor:
    pairs = torch.arange(0, D_HEAD, 2, dtype=torch.float64)
    angles = torch.arange(len(x), dtype=torch.float64)[:, None, None] * BASE ** (-pairs / D_HEAD)
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
