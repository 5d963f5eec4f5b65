"""What transformers' Llama and GPT-2 compute, written from their formulas in a few lines, over their own tensor names.

A second opinion on names, transpositions and the order of c_attn that needs no package: nothing of ours is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

State = Mapping[str, Tensor]
Settings = Mapping[str, Any]


def logits_of(state: State, settings: Settings, tokens: Tensor) -> Tensor:
    """Logits [batch, pos, d_vocab] of the model that config.json and its tensors describe."""
    return (_llama if settings["model_type"] == "llama" else _gpt2)(state, settings, tokens)


def _llama(state: State, settings: Settings, tokens: Tensor) -> Tensor:
    def linear(name: str, x: Tensor) -> Tensor:
        out = x @ state[f"{name}.weight"].T
        return out + state[f"{name}.bias"] if f"{name}.bias" in state else out

    def norm(name: str, x: Tensor) -> Tensor:
        return state[f"{name}.weight"] * x * (x.pow(2).mean(-1, keepdim=True) + settings["rms_norm_eps"]).rsqrt()

    x = state["model.embed_tokens.weight"][tokens]
    n_heads, n_groups, width = (settings[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    for layer in range(settings["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        normed = norm(f"{at}.input_layernorm", x)
        q, k, v = (linear(f"{at}.self_attn.{one}_proj", normed).unflatten(-1, (-1, width)) for one in "qkv")
        q, k = (_turned(heads, settings["rope_parameters"]["rope_theta"]) for heads in (q, k))
        k, v = (heads.repeat_interleave(n_heads // n_groups, dim=2) for heads in (k, v))
        x = x + linear(f"{at}.self_attn.o_proj", _attended(q, k, v))
        normed = norm(f"{at}.post_attention_layernorm", x)
        gate = torch.nn.functional.silu(linear(f"{at}.mlp.gate_proj", normed))
        x = x + linear(f"{at}.mlp.down_proj", gate * linear(f"{at}.mlp.up_proj", normed))
    head = "model.embed_tokens" if settings["tie_word_embeddings"] else "lm_head"
    return norm("model.norm", x) @ state[f"{head}.weight"].T


def _gpt2(state: State, settings: Settings, tokens: Tensor) -> Tensor:
    def conv(name: str, x: Tensor) -> Tensor:
        return x @ state[f"{name}.weight"] + state[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + eps).sqrt()
        return x * state[f"{name}.weight"] + state[f"{name}.bias"]

    eps = settings["layer_norm_epsilon"]
    x = state["transformer.wte.weight"][tokens] + state["transformer.wpe.weight"][: tokens.shape[1]]
    for layer in range(settings["n_layer"]):
        at = f"transformer.h.{layer}"
        read = conv(f"{at}.attn.c_attn", norm(f"{at}.ln_1", x)).split(settings["n_embd"], dim=-1)
        q, k, v = (part.unflatten(-1, (settings["n_head"], -1)) for part in read)
        x = x + conv(f"{at}.attn.c_proj", _attended(q, k, v))
        inner = conv(f"{at}.mlp.c_fc", norm(f"{at}.ln_2", x))
        x = x + conv(f"{at}.mlp.c_proj", _BENT[settings["activation_function"]](inner))
    head = "transformer.wte" if settings["tie_word_embeddings"] else "lm_head"
    return norm("transformer.ln_f", x) @ state[f"{head}.weight"].T


_BENT = {
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "relu": lambda x: x * (x > 0),
}


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.einsum("bhqk,bkhe->bqhe", scores.masked_fill(later, -math.inf).softmax(-1), v).flatten(2)


def _turned(heads: Tensor, theta: float) -> Tensor:
    """Dimension i and i + d_head / 2 as the real and imaginary part of a number that is turned."""
    half = heads.shape[-1] // 2
    rates = theta ** (-torch.arange(half) / half)
    turns = torch.polar(torch.ones(()), torch.arange(heads.shape[1])[:, None, None] * rates)
    turned = torch.complex(heads[..., :half], heads[..., half:]) * turns
    return torch.cat((turned.real, turned.imag), dim=-1)
