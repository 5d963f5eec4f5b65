"""Configs that have a counterpart in Hugging Face's models."""

from __future__ import annotations

from typing import Any

LLAMA: dict[str, Any] = {"norm_kind": "rmsnorm", "ffn": "swiglu", "positions": "rope"}
GPT2: dict[str, Any] = {"norm_kind": "layernorm", "ffn": "gelu_tanh", "positions": "learned"}
EXPORTABLE: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama-grouped-untied": LLAMA | {"n_kv_heads": 2, "tie_embeddings": False, "rope_base": 500.0, "norm_eps": 1e-6},
    "llama-biases-wide-heads": LLAMA | {"n_kv_heads": 1, "d_head": 6, "biases": True, "d_ff": 40, "dropout": 0.1},
    "gpt2": GPT2 | {"biases": True},
    "gpt2-biasless": GPT2 | {"dropout": 0.2},
    "gpt2-erf": GPT2 | {"ffn": "gelu"},
    "gpt2-relu": GPT2 | {"ffn": "relu", "biases": True},
    "gpt2-untied": GPT2 | {"biases": True, "tie_embeddings": False, "d_ff": 40, "norm_eps": 1e-3},
}
