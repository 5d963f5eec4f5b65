"""Our model opened in TransformerLens 4, as a `TransformerBridge`.

    lab = open_run("runs/demo")
    bridge = to_bridge(lab.gpt, lab.tokenizer)
    logits, cache = bridge.run_with_cache("def main():")

The bridge runs the GPT itself: same weights, same forward pass, and under every hook name of docs/sites.md the same
tensor, to be read or edited. docs/transformerlens.md says what was measured and what has no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from model.config import AttentionKind, FFNKind, GPTConfig, Norm, NormKind, Positions
from model.errors import InputError
from model.interop.tlens_text import BridgeTokenizer

if TYPE_CHECKING:
    from transformer_lens.config import TransformerBridgeConfig  # pyright: ignore[reportMissingImports]
    from transformer_lens.model_bridge import TransformerBridge  # pyright: ignore[reportMissingImports]

    from model.gpt import GPT
    from model.tokenizer import Tokenizer

ARCHITECTURE = "CutawayGPT"
"""Our name among TransformerLens's architectures; its entry point in pyproject.toml leads to `CutawayAdapter`."""


def to_bridge(gpt: GPT, tokenizer: Tokenizer | None = None) -> TransformerBridge:
    """A `TransformerBridge` around `gpt`: not a copy, so what is trained or edited in one is so in the other.

    Without a tokenizer the bridge takes tokens; with one, texts as well.
    """
    _require_model(gpt)
    _require_own_keys(gpt)
    _require_fit(gpt, tokenizer)
    register()
    from transformer_lens.model_bridge.sources import build_bridge_from_module  # pyright: ignore[reportMissingImports]

    from model.interop.tlens_model import BridgedGPT

    bridge = build_bridge_from_module(BridgedGPT(gpt), ARCHITECTURE, tl_config=bridge_config(gpt.config))
    if tokenizer is not None:
        bridge.cfg.default_prepend_bos = bridge.cfg.tokenizer_prepends_bos = tokenizer.bos is not None
        bridge.tokenizer = BridgeTokenizer(tokenizer)
    return bridge


def _require_model(gpt: object) -> None:
    if not isinstance(gpt, nn.Module):
        given = "a Lab" if hasattr(gpt, "gpt") else repr(gpt)
        raise InputError(
            f"to_bridge takes a model and its tokenizer, not {given}; "
            "open the run as lab = open_run(...), then to_bridge(lab.gpt, lab.tokenizer)."
        )


def _require_own_keys(gpt: GPT) -> None:
    if gpt.config.smeared_keys:
        raise InputError(
            "smeared_keys=true has no counterpart in TransformerLens, whose QK circuits and composition scores take a "
            "key for its own token's alone and would be wrong without a word; give a model with smeared_keys=false."
        )


def _require_fit(gpt: GPT, tokenizer: Tokenizer | None) -> None:
    if tokenizer is not None and tokenizer.d_vocab != gpt.config.d_vocab:
        raise InputError(
            f"the tokenizer has {tokenizer.d_vocab} tokens, the model {gpt.config.d_vocab}; "
            "give the tokenizer that the model was trained with."
        )


def register() -> None:
    """Make our architecture known to TransformerLens, also where the entry point was not installed."""
    try:
        from transformer_lens.factories.architecture_adapter_factory import (  # pyright: ignore[reportMissingImports]
            ArchitectureAdapterFactory,
        )
    except ModuleNotFoundError as missing:
        raise InputError(
            f"A bridge needs TransformerLens 4, and {missing.name} is not installed; "
            "run, in the folder of Cutaway: pip install -e '.[interop]'."
        ) from None
    from model.interop.tlens_adapter import CutawayAdapter

    ArchitectureAdapterFactory.discover_entry_points()  # before ours, or it would warn of two
    ArchitectureAdapterFactory.register_adapter(ARCHITECTURE, CutawayAdapter)


def bridge_config(config: GPTConfig) -> TransformerBridgeConfig:
    """The config in TransformerLens's words, as `bridge.cfg` shows it. It describes; nothing is built from it."""
    from transformer_lens.config import TransformerBridgeConfig  # pyright: ignore[reportMissingImports]

    described = TransformerBridgeConfig(**_sizes(config), **_choices(config), architecture=ARCHITECTURE)
    described.d_mlp = config.ffn_width
    described.rotary_base = config.rope_base  # pyright: ignore[reportAttributeAccessIssue] (given before, it is rounded)
    return described


def _sizes(config: GPTConfig) -> dict[str, Any]:
    grouped = config.kv_heads < config.n_heads
    return {
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "n_key_value_heads": config.kv_heads if grouped else None,
        "d_model": config.d_model,
        "d_head": config.head_width,
        "d_mlp": config.ffn_width,
        "n_ctx": config.n_ctx,
        "d_vocab": config.d_vocab,
        "d_vocab_out": config.d_vocab,
        "n_params": config.n_params,
        "eps": config.norm_eps,
    }


def _choices(config: GPTConfig) -> dict[str, Any]:
    rotary = config.positions is Positions.ROPE
    rms = config.norm_kind is NormKind.RMSNORM
    return {
        "model_name": "cutaway",
        "normalization_type": None if config.norm is Norm.NONE else _NORM_KINDS[config.norm_kind],
        "final_rms": config.has_final_norm and rms,
        "uses_rms_norm": rms,
        "use_normalization_before_and_after": config.norm is Norm.SANDWICH,
        "positional_embedding_type": _POSITIONS[config.positions],
        "rotary_dim": config.head_width if rotary else None,
        "rotary_base": config.rope_base,
        "act_fn": _ACTIVATIONS[config.ffn],
        "gated_mlp": config.ffn is FFNKind.SWIGLU,
        "attn_only": config.ffn is FFNKind.NONE,
        "attn_scale": config.head_width**0.5,
        "attention_dir": "causal" if config.attention is AttentionKind.CAUSAL else "bidirectional",
        "use_qk_norm": config.qk_norm,
        "tie_word_embeddings": config.tie_embeddings,
        "init_weights": False,
        "default_prepend_bos": False,
    }


_NORM_KINDS = {NormKind.LAYERNORM: "LN", NormKind.RMSNORM: "RMS"}
_POSITIONS = {Positions.ROPE: "rotary", Positions.LEARNED: "standard"} | {
    each: each.value for each in (Positions.SINUSOIDAL, Positions.ALIBI, Positions.NONE)
}
_ACTIVATIONS = {
    FFNKind.GELU: "gelu",
    FFNKind.GELU_TANH: "gelu_new",
    FFNKind.RELU: "relu",
    FFNKind.SWIGLU: "silu",
    FFNKind.NONE: "",
}
