"""Our config and Hugging Face's config.json, both ways, for the Llama and GPT-2 families.

What one side has and the other has not is refused by name, never guessed. An exported config.json carries our whole
config under "cutaway", because Hugging Face has no field for how a model was initialised or whether a GPT-2 has biases
at all; it is believed only where it says the same as Hugging Face's own fields. Keys as transformers 5.24 writes them;
older spellings (top-level rope_theta, rope_scaling, hidden_size for n_embd and the like) are read too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from model.config import AttentionKind, FFNKind, GPTConfig, Norm, NormKind, Positions
from model.errors import ConfigError
from model.interop.hf_fields import Fields
from model.settings import from_plain, to_plain

ENTRY = "cutaway"
"""The key of config.json under which our own config travels."""
ENTRY_FORMAT = 1
_GPT2_ACTIVATIONS = {
    **{"gelu_new": FFNKind.GELU_TANH, "gelu_pytorch_tanh": FFNKind.GELU_TANH},
    **{"gelu": FFNKind.GELU, "relu": FFNKind.RELU},
}
_GPT2_NAMES = {FFNKind.GELU_TANH: "gelu_new", FFNKind.GELU: "gelu", FFNKind.RELU: "relu"}
_SHARED = {
    **{"norm": (Norm.PRE,), "attention": (AttentionKind.CAUSAL,)},
    **{"qk_norm": (False,), "skip_connections": (True,), "smeared_keys": (False,)},
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """One of Hugging Face's model types."""

    name: str
    """Its `model_type`."""
    spoken: str
    allows: Mapping[str, tuple[Any, ...]]
    """The choices of our config that it has fields for, by our field names."""


LLAMA = Family(
    name="llama",
    spoken="Llama",
    allows={
        **_SHARED,
        **{"norm_kind": (NormKind.RMSNORM,), "ffn": (FFNKind.SWIGLU,), "positions": (Positions.ROPE,)},
    },
)
GPT2 = Family(
    name="gpt2",
    spoken="GPT-2",
    allows={
        **_SHARED,
        **{"norm_kind": (NormKind.LAYERNORM,), "ffn": tuple(_GPT2_NAMES), "positions": (Positions.LEARNED,)},
    },
)


def family_of(config: GPTConfig) -> Family:
    """The family that has a counterpart for every field of `config`; fields that have none are a `ConfigError`."""
    lacking = {family.name: _without_counterpart(config, family) for family in (LLAMA, GPT2)}
    for family in (LLAMA, GPT2):
        if not lacking[family.name]:
            return family
    ways = "; ".join(f"a {family.spoken} needs {', '.join(lacking[family.name])}" for family in (LLAMA, GPT2))
    raise ConfigError(
        f"This model has no counterpart in Hugging Face's transformers: {ways}. A config with one of the two lists met "
        "can be exported."
    )


def config_to_hf(config: GPTConfig) -> dict[str, Any]:
    """config.json of a transformers model that computes the same; a field without counterpart is a `ConfigError`."""
    family = family_of(config)
    specific = _llama_fields(config) if family is LLAMA else _gpt2_fields(config)
    return {
        "model_type": family.name,
        **specific,
        "vocab_size": config.d_vocab,
        "tie_word_embeddings": config.tie_embeddings,
        ENTRY: {"format": ENTRY_FORMAT, "config": to_plain(config)},
    }


def config_from_hf(mapping: Mapping[str, Any]) -> GPTConfig:
    """Our config for a config.json of the Llama or GPT-2 family; a field that we cannot follow is a `ConfigError`."""
    return read_config(mapping)[0]


def read_config(mapping: Mapping[str, Any]) -> tuple[GPTConfig, tuple[str, ...]]:
    """Our config, and sentences on what was adapted."""
    theirs, notes = fields_alone(mapping)
    kept, note = _kept(mapping, theirs)
    if kept is not None:
        return kept, ()
    return theirs, (*notes, *note)


def fields_alone(mapping: Mapping[str, Any]) -> tuple[GPTConfig, tuple[str, ...]]:
    """The config that Hugging Face's own fields describe, whatever our entry says, and what was adapted."""
    fields = Fields(mapping)
    family = family_named(fields)
    fields.refuse("quantization_config", unless=None, why="its weights are quantised")
    return _from_llama(fields) if family is LLAMA else _from_gpt2(fields)


def family_named(fields: Fields) -> Family:
    """The family that model_type, or else the architecture, names."""
    said = fields.get("model_type")
    if said is None:
        classes = fields.get("architectures")
        first = classes[0] if isinstance(classes, list) and classes else None
        said = next((name for name, model in _CLASSES.items() if first == model), first)
    for family in (LLAMA, GPT2):
        if said == family.name:
            return family
    if said is None:
        raise ConfigError("config.json names no model_type; models of the families llama and gpt2 are read.")
    raise ConfigError(f'model_type="{said}" is neither llama nor gpt2; models of these two families are read.')


_CLASSES = {LLAMA.name: "LlamaForCausalLM", GPT2.name: "GPT2LMHeadModel"}


def _without_counterpart(config: GPTConfig, family: Family) -> list[str]:
    """What `config` would have to be, field by field, to be of a family."""
    wrong = [
        f"{field}={'|'.join(map(_said, allowed))} (it has {_said(getattr(config, field))})"
        for field, allowed in family.allows.items()
        if getattr(config, field) not in allowed
    ]
    if family is GPT2 and config.kv_heads != config.n_heads:
        wrong.append(f"n_kv_heads={config.n_heads} (it has {config.kv_heads})")
    if family is GPT2 and config.n_heads * config.head_width != config.d_model:
        wrong.append(f"d_head=d_model/n_heads (it has {config.head_width})")
    if family is LLAMA and config.d_model % config.n_heads:
        wrong.append(f"d_model={config.d_model} to divide into n_heads={config.n_heads}")
    return wrong


def _llama_fields(config: GPTConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.kv_heads,
        "hidden_size": config.d_model,
        "head_dim": config.head_width,
        "intermediate_size": config.ffn_width,
        "hidden_act": "silu",
        "max_position_embeddings": config.n_ctx,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "rope_theta": config.rope_base,  # where transformers 4 looks for it
        "attention_bias": config.biases,
        "mlp_bias": config.biases,
        "attention_dropout": 0.0,
    }


def _gpt2_fields(config: GPTConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_embd": config.d_model,
        "n_inner": config.ffn_width,
        "n_positions": config.n_ctx,
        "activation_function": _GPT2_NAMES[config.ffn],
        "layer_norm_epsilon": config.norm_eps,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        **dict.fromkeys(_GPT2_DROPOUTS, config.dropout),
    }


_GPT2_DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop")


def _kept(mapping: Mapping[str, Any], theirs: GPTConfig) -> tuple[GPTConfig | None, tuple[str, ...]]:
    """The config under "cutaway" if it says what Hugging Face's fields say, else a sentence on why not."""
    entry = mapping.get(ENTRY)
    if entry is None:
        return None, ()
    try:
        kept = from_plain(GPTConfig, entry["config"])
        again = fields_alone(config_to_hf(kept))[0]
    except (ConfigError, KeyError, TypeError, AttributeError):
        return None, (f'The "{ENTRY}" entry of config.json could not be read and was ignored.',)
    if again == theirs:
        return kept, ()
    before, now = to_plain(again), to_plain(theirs)
    changed = ", ".join(f"{key}={now[key]} (was {before[key]})" for key in now if now[key] != before[key])
    return None, (f'The "{ENTRY}" entry of config.json contradicts the rest and was ignored: {changed}.',)


def _from_llama(fields: Fields) -> tuple[GPTConfig, tuple[str, ...]]:
    fields.refuse("rope_interleaved", unless=False, why="rotation pairs neighbouring dimensions")
    fields.one_of("hidden_act", ("silu", "swish"), default="silu")
    attention, ffn = fields.flag("attention_bias", default=False), fields.flag("mlp_bias", default=False)
    notes = ()
    if attention != ffn:
        lacking = "FFN" if attention else "attention"
        notes += (f"Only {'attention' if attention else 'the FFN'} had biases; those of the {lacking} are zeros here.",)
    if fields.number("attention_dropout", default=0.0):
        notes += ("Dropout on attention alone (attention_dropout) was dropped; it acts in training only.",)
    n_heads = fields.size("num_attention_heads")
    config = GPTConfig(
        n_layers=fields.size("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=fields.size("num_key_value_heads", default=n_heads),
        d_model=fields.size("hidden_size"),
        d_head=fields.optional_size("head_dim"),
        d_ff=fields.size("intermediate_size"),
        n_ctx=fields.size("max_position_embeddings"),
        d_vocab=fields.size("vocab_size"),
        norm_kind=NormKind.RMSNORM,
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
        positions=Positions.ROPE,
        rope_base=fields.rope_base(),
        ffn=FFNKind.SWIGLU,
        biases=attention or ffn,
        tie_embeddings=fields.flag("tie_word_embeddings", default=False),
    )
    return config, notes


def _from_gpt2(fields: Fields) -> tuple[GPTConfig, tuple[str, ...]]:
    fields.refuse("scale_attn_weights", unless=True, why="scores are not divided by sqrt(d_head)")
    fields.refuse("scale_attn_by_inverse_layer_idx", unless=False, why="scores are divided by the layer number")
    fields.refuse("add_cross_attention", unless=False, why="it attends to an encoder")
    activation = fields.one_of("activation_function", tuple(_GPT2_ACTIVATIONS), default="gelu_new")
    rates = {name: fields.number(name, default=0.1) for name in _GPT2_DROPOUTS}
    notes = ()
    if len(set(rates.values())) > 1:
        given = ", ".join(f"{name}={rate}" for name, rate in rates.items())
        notes = (f"Dropout differs from place to place ({given}) and is 0 here; it acts in training only.",)
    d_model = fields.size("n_embd", "hidden_size")
    config = GPTConfig(
        n_layers=fields.size("n_layer", "num_hidden_layers"),
        n_heads=fields.size("n_head", "num_attention_heads"),
        d_model=d_model,
        d_ff=fields.size("n_inner", default=4 * d_model),
        n_ctx=fields.size("n_positions", "max_position_embeddings", "n_ctx"),
        d_vocab=fields.size("vocab_size"),
        norm_kind=NormKind.LAYERNORM,
        norm_eps=fields.number("layer_norm_epsilon", default=1e-5),
        positions=Positions.LEARNED,
        ffn=_GPT2_ACTIVATIONS[activation],
        biases=True,
        dropout=0.0 if notes else rates["resid_pdrop"],
        tie_embeddings=fields.flag("tie_word_embeddings", default=True),
    )
    return config, notes


def _said(value: Any) -> str:
    return str(to_plain(value)).lower() if isinstance(value, bool) else str(to_plain(value))
