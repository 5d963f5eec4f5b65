"""TransformerLens 4's native model with the weights of one of ours, to be compared with: numbers and time.

It rotates neighbouring dimensions, ours the two halves, so rows of queries and keys go over interleaved. The library is
imported where it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from model import GPT


def theirs_with_our_weights(gpt: GPT) -> Any:
    """TransformerLens's native model with the weights of `gpt`."""
    config_module = importlib.import_module("transformer_lens.config")
    bridge_module = importlib.import_module("transformer_lens.model_bridge")

    config = gpt.config
    sizes = {each: getattr(config, each) for each in ("n_layers", "n_heads", "d_model", "n_ctx", "d_head", "d_vocab")}
    rotary = {"positional_embedding_type": "rotary", "rotary_base": int(config.rope_base), "rotary_dim": config.d_head}
    activation = {"gelu": "gelu", "gelu_tanh": "gelu_new", "swiglu": "silu"}[config.ffn]
    bridge = bridge_module.TransformerBridge.boot_native(
        config_module.TransformerBridgeConfig(
            **sizes,
            **{"d_mlp": config.d_ff, "act_fn": activation, "gated_mlp": config.ffn == "swiglu"},
            **{"n_key_value_heads": config.n_kv_heads, "eps": config.norm_eps, "init_weights": False},
            **{"normalization_type": "RMS" if config.norm_kind == "rmsnorm" else "LN"},
            **(rotary if config.positions == "rope" else {"positional_embedding_type": "standard"}),
        )
    )
    state = bridge.state_dict()  # shares memory with the parameters
    weights = weights_in_their_layout(gpt)
    # What we give must exist there; what we do not have are biases, and those are zero.
    assert set(weights) <= set(state)
    assert all(name.endswith(".bias") for name in set(state) - set(weights))
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(weights.get(name, torch.zeros(())))
    return bridge.eval()


def weights_in_their_layout(gpt: GPT) -> dict[str, Tensor]:
    """Every weight under its name there; its rotary queries and keys turn neighbouring dimensions."""
    linears: dict[str, Any] = {"unembed": gpt.unembed}
    norms: dict[str, Any] = {"ln_final": gpt.ln_final}
    weights: dict[str, Tensor] = {"embed.weight": gpt.embed.weight}
    weights |= {} if gpt.pos_embed is None else {"pos_embed.weight": gpt.pos_embed.weight}
    layers: Any = gpt.layers  # which parts there are follows from the config
    for layer, block in enumerate(layers):
        at, attn, mlp = f"blocks.{layer}", block.attn, block.mlp
        linears |= {f"{at}.attn.{name}": getattr(attn, f"{name}_proj") for name in "qkvo"}
        linears |= {f"{at}.mlp.in": mlp.in_proj, f"{at}.mlp.out": mlp.out_proj}
        linears |= {} if mlp.gate_proj is None else {f"{at}.mlp.gate": mlp.gate_proj}
        norms |= {f"{at}.ln1": block.ln1, f"{at}.ln2": block.ln2}
    for name, norm in norms.items():
        weights |= {f"{name}.weight": norm.w} if norm.b is None else {f"{name}.weight": norm.w, f"{name}.bias": norm.b}
    for name, linear in linears.items():
        rotated = name.endswith((".q", ".k")) and gpt.config.positions == "rope"
        weights[f"{name}.weight"] = interleaved(linear.weight, gpt) if rotated else linear.weight
        if linear.bias is not None:
            weights[f"{name}.bias"] = interleaved(linear.bias, gpt) if rotated else linear.bias
    return weights


def interleaved(rows: Tensor, gpt: GPT) -> Tensor:
    """Rows of queries or keys, head by head, with the two halves of d_head interleaved."""
    return rows.unflatten(0, (-1, 2, gpt.config.head_width // 2)).transpose(1, 2).flatten(0, 2)
