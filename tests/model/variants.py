"""The choices that model tests run over: each enum value at least once, in company that stresses it."""

from __future__ import annotations

from typing import Any

from model import FFNKind, Norm, NormKind, Positions

PLACEMENTS: list[dict[str, Any]] = [{"norm": norm, "norm_kind": kind} for norm in Norm for kind in NormKind]
POSITIONS: list[dict[str, Any]] = [{"positions": positions} for positions in Positions]
FFNS: list[dict[str, Any]] = [{"ffn": ffn} for ffn in FFNKind]
EXTRAS: list[dict[str, Any]] = [
    {"n_kv_heads": 2, "biases": True},
    {"n_kv_heads": 1, "d_head": 6},
    {"qk_norm": True, "norm": "reordered"},
    {"tie_embeddings": False, "biases": True, "norm_kind": "layernorm", "positions": "learned", "ffn": "gelu_tanh"},
    {"skip_connections": False, "norm": "none"},
    {"smeared_keys": True, "n_kv_heads": 2},
]
ALL = [*PLACEMENTS, *POSITIONS, *FFNS, *EXTRAS]


def name_of(variant: dict[str, Any]) -> str:
    """A readable test id."""
    return "-".join(f"{key}={value}" for key, value in variant.items())
