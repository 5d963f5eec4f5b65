"""config.json of the Llama and GPT-2 families: what maps, what older spellings mean, what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from model import FFNKind, GPTConfig
from model.errors import ConfigError
from model.interop.hf import config_from_hf, config_to_hf
from model.interop.hf_config import ENTRY, read_config
from tests.conftest import TINY
from tests.model.interop.variants import EXPORTABLE, GPT2, LLAMA
from tests.model.variants import ALL, name_of

THEIR_LLAMA = {
    "model_type": "llama",
    **{"vocab_size": 50, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 24, "hidden_act": "silu"},
    **{"rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    **{"tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "head_dim": 8},
}
THEIR_GPT2 = {
    "model_type": "gpt2",
    **{"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24, "n_inner": None},
    **{"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
    **{"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
}


def test_a_llama_is_read_field_by_field() -> None:
    assert config_from_hf(THEIR_LLAMA) == GPTConfig(
        **TINY, **LLAMA, n_kv_heads=2, d_head=8, d_ff=80, norm_eps=1e-6, rope_base=500000.0, tie_embeddings=True
    )


def test_a_gpt2_is_read_field_by_field() -> None:
    assert config_from_hf(THEIR_GPT2) == GPTConfig(**TINY, **GPT2, d_ff=128, biases=True, dropout=0.1)


@pytest.mark.parametrize("variant", EXPORTABLE.values(), ids=EXPORTABLE.keys())
def test_a_config_comes_back_as_it_went(variant: dict[str, Any]) -> None:
    config = GPTConfig(**(TINY | variant), init="xavier", embed_std=0.7)
    assert config_from_hf(config_to_hf(config)) == config


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names}


OLD_SPELLINGS = {
    "top-level theta": (without(THEIR_LLAMA, "rope_parameters") | {"rope_theta": 500000.0}, THEIR_LLAMA),
    "no theta": (
        without(THEIR_LLAMA, "rope_parameters") | {"rope_scaling": None},
        THEIR_LLAMA | {"rope_parameters": {"rope_theta": 10000.0}},
    ),
    "default scaling": (THEIR_LLAMA | {"rope_scaling": {"type": "default", "rope_theta": 500000.0}}, THEIR_LLAMA),
    "no head_dim": (without(THEIR_LLAMA, "head_dim"), THEIR_LLAMA),
    "head_dim null": (THEIR_LLAMA | {"head_dim": None}, THEIR_LLAMA),
    "all heads": (without(THEIR_LLAMA, "num_key_value_heads"), THEIR_LLAMA | {"num_key_value_heads": 4}),
    "own head by default": (without(THEIR_LLAMA, "tie_word_embeddings"), THEIR_LLAMA | {"tie_word_embeddings": False}),
    "eps by default": (without(THEIR_LLAMA, "rms_norm_eps"), THEIR_LLAMA),
    "swish": (THEIR_LLAMA | {"hidden_act": "swish"}, THEIR_LLAMA),
    "architecture": (without(THEIR_LLAMA, "model_type") | {"architectures": ["LlamaForCausalLM"]}, THEIR_LLAMA),
    "training only": (THEIR_LLAMA | {"pretraining_tp": 2, "torch_dtype": "bfloat16", "use_cache": False}, THEIR_LLAMA),
    "attribute names": (
        without(THEIR_GPT2, "n_embd", "n_layer", "n_head", "n_positions")
        | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 24},
        THEIR_GPT2,
    ),
    "n_ctx": (without(THEIR_GPT2, "n_positions", "n_inner") | {"n_ctx": 24}, THEIR_GPT2),
    "tanh by its other name": (THEIR_GPT2 | {"activation_function": "gelu_pytorch_tanh"}, THEIR_GPT2),
    "defaults": (without(THEIR_GPT2, "activation_function", "layer_norm_epsilon", "resid_pdrop"), THEIR_GPT2),
    "upcast": (THEIR_GPT2 | {"reorder_and_upcast_attn": True, "scale_attn_weights": True}, THEIR_GPT2),
}


@pytest.mark.parametrize(("old", "new"), OLD_SPELLINGS.values(), ids=OLD_SPELLINGS.keys())
def test_older_spellings_and_defaults_mean_what_transformers_takes_them_for(old: Any, new: Any) -> None:
    assert config_from_hf(old) == config_from_hf(new)


@pytest.mark.parametrize(
    ("activation", "kind"), [("gelu", FFNKind.GELU), ("relu", FFNKind.RELU), ("gelu_new", FFNKind.GELU_TANH)]
)
def test_a_gpt2_of_another_activation_that_ours_has_is_read(activation: str, kind: FFNKind) -> None:
    assert config_from_hf(THEIR_GPT2 | {"activation_function": activation}).ffn is kind


REFUSED = {
    "family": (THEIR_LLAMA | {"model_type": "mamba"}, 'model_type="mamba" is neither llama nor gpt2'),
    "nothing": ({}, "config.json names no model_type; models of the families"),
    "a size": (without(THEIR_LLAMA, "hidden_size"), "config.json lacks hidden_size"),
    "a word for a size": (THEIR_LLAMA | {"hidden_size": "32"}, "says hidden_size='32'; a whole number"),
    "a word for a number": (THEIR_LLAMA | {"rms_norm_eps": "1e-6"}, "says rms_norm_eps='1e-6'; a number"),
    "a word for a flag": (THEIR_LLAMA | {"mlp_bias": "no"}, "says mlp_bias='no'; true or false"),
    "activation": (THEIR_LLAMA | {"hidden_act": "gelu"}, "hidden_act='gelu' has no counterpart here; allowed is silu"),
    "llama 3.1": (
        THEIR_LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        "rope_scaling of type 'llama3' has no counterpart",
    ),
    "old scaling": (THEIR_LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling of type 'linear'"),
    "new scaling": (
        THEIR_LLAMA | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
        "rope_parameters of type 'yarn'",
    ),
    "partial rotation": (
        THEIR_LLAMA | {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor=0.5 has no counterpart",
    ),
    "interleaved": (THEIR_LLAMA | {"rope_interleaved": True}, "rope_interleaved=True has no counterpart"),
    "quantised": (THEIR_LLAMA | {"quantization_config": {"bits": 4}}, "quantization_config=.+weights are quantised"),
    "layer scale": (THEIR_GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
    "no scale": (THEIR_GPT2 | {"scale_attn_weights": False}, r"scale_attn_weights=False .+sqrt\(d_head\)"),
    "encoder": (THEIR_GPT2 | {"add_cross_attention": True}, "add_cross_attention=True"),
    "gpt2 activation": (THEIR_GPT2 | {"activation_function": "silu"}, "activation_function='silu'.+gelu_new or"),
    "uneven heads": (THEIR_GPT2 | {"n_head": 5}, "d_model=32 does not divide into n_heads=5"),
}


@pytest.mark.parametrize(("theirs", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_changes_the_function_is_refused_by_its_field(theirs: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config_from_hf(theirs)


def test_what_acts_in_training_only_is_dropped_with_a_note() -> None:
    config, notes = read_config(THEIR_GPT2 | {"attn_pdrop": 0.2})
    assert config.dropout == 0 and "attn_pdrop=0.2" in notes[0]
    config, notes = read_config(THEIR_LLAMA | {"attention_dropout": 0.2})
    assert config.dropout == 0 and "attention_dropout" in notes[0]


# --- what of ours has no counterpart ----------------------------------------------------------------------------------

CHOICES = ("norm", "norm_kind", "positions", "ffn", "attention", "qk_norm", "skip_connections", "smeared_keys")
SIZES = ("n_kv_heads", "d_head")


@pytest.mark.parametrize("base", [LLAMA, GPT2], ids=["llama", "gpt2"])
@pytest.mark.parametrize("variant", [*ALL, {"attention": "bidirectional"}], ids=name_of)
def test_a_config_is_exported_as_it_is_or_refused_by_each_field_without_counterpart(
    base: dict[str, Any], variant: dict[str, Any]
) -> None:
    config = GPTConfig(**(TINY | base | variant))
    try:
        exported = config_to_hf(config)
    except ConfigError as refusal:
        family = str(refusal).split("a GPT-2 needs")[base is GPT2]
        differing = [
            name for name in CHOICES + SIZES if getattr(config, name) != getattr(GPTConfig(**(TINY | base)), name)
        ]
        followed = {"n_kv_heads", "d_head"} if base is LLAMA else set()  # a Llama has fields for these
        assert set(differing) - followed
        assert all(f"{name}=" in family for name in set(differing) - followed), family
    else:
        assert config_from_hf(exported) == config
        assert config_from_hf(without(exported, ENTRY)).norm_kind is config.norm_kind


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        (
            {},
            r"a Llama needs ffn=swiglu \(it has gelu\); a GPT-2 needs norm_kind=layernorm \(it has rmsnorm\), pos",
        ),
        (LLAMA | {"norm": "post"}, r"a Llama needs norm=pre \(it has post\); a GPT-2"),
        (LLAMA | {"qk_norm": True}, r"a Llama needs qk_norm=false \(it has true\);"),
        (LLAMA | {"smeared_keys": True}, r"a Llama needs smeared_keys=false \(it has true\);"),
        (LLAMA | {"d_model": 30, "d_head": 8}, r"a Llama needs d_model=30 to divide into n_heads=4;"),
        (GPT2 | {"ffn": "swiglu"}, r"a GPT-2 needs ffn=gelu_tanh\|gelu\|relu \(it has swiglu\)"),
        (GPT2 | {"positions": "alibi"}, r"a GPT-2 needs positions=learned \(it has alibi\)"),
        (GPT2 | {"n_kv_heads": 2, "d_head": 6}, r"n_kv_heads=4 \(it has 2\), d_head=d_model/n_heads \(it has 6\)"),
    ],
)
def test_the_refusal_names_the_fields_and_what_would_be_exportable(variant: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config_to_hf(GPTConfig(**(TINY | variant)))
