"""What a Hugging Face folder says of its special tokens: kept with an imported tokenizer, and said again by an export.

Here no text can produce a special token, and only BOS is ever put before a text. Other programs need more: at which id
generation stops, which token pads, whether "<|endoftext|>" in a text is that token. None of it acts here, so it is
carried as it was found: the settings of tokenizer_config.json, the post-processor of tokenizer.json, and the ids of
config.json and generation_config.json. Limit: sampling defaults and chat templates in files of their own stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.imported_tokenizer import ImportedTokenizer
from model.interop.hf_files import CONFIG, read_settings
from model.tokenizer import Tokenizer

Plain = dict[str, Any]

SETTINGS, GENERATION = "tokenizer_config.json", "generation_config.json"
TOKENS = tuple(f"{role}_token" for role in ("bos", "eos", "pad", "unk", "sep", "cls", "mask"))
LISTS = ("additional_special_tokens", "extra_special_tokens")
KEPT = ("split_special_tokens", "padding_side", "clean_up_tokenization_spaces", "chat_template")
IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_CLASS_DEFAULTS = {
    "gpt2": dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"),
    "llama": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
}
"""What transformers' tokenizer of a family declares where its settings do not."""
_CONFIG_DEFAULTS = {
    "gpt2": {"bos_token_id": 50_256, "eos_token_id": 50_256},
    "llama": {"bos_token_id": 1, "eos_token_id": 2},
}


def settings_in(folder: Path) -> Plain:
    """tokenizer_config.json, completed by the special_tokens_map.json of older versions."""
    settings: Plain = {}
    for name in ("special_tokens_map.json", SETTINGS):
        settings |= read_settings(folder / name) if (folder / name).is_file() else {}
    return settings


def declared_in(folder: Path, definition: Plain, d_vocab: int) -> Plain:
    """What the files of `folder` declare, beside the definition of its tokenizer, for a model of `d_vocab` ids."""
    config = read_settings(folder / CONFIG) if (folder / CONFIG).is_file() else None
    family = str((config or {}).get("model_type"))
    declared: Plain = {
        "settings": _settings(settings_in(folder), ids_of(definition), family),
        "post_processor": definition.get("post_processor"),
    }
    if config is None:
        return declared
    defaults = {key: value for key, value in _CONFIG_DEFAULTS.get(family, {}).items() if value < d_vocab}
    ids = {key: config.get(key, defaults.get(key)) for key in IDS}
    generation = read_settings(folder / GENERATION) if (folder / GENERATION).is_file() else ids
    return declared | {"config": ids, "generation": {key: generation[key] for key in IDS if key in generation}}


def special_ids(tokenizer: Tokenizer | None) -> tuple[Plain, Plain]:
    """The ids that an export writes into config.json and into generation_config.json."""
    if isinstance(tokenizer, ImportedTokenizer) and tokenizer.declared is not None:
        ids = tokenizer.declared.get("config") or {key: tokenizer.declared_id(key.removesuffix("_id")) for key in IDS}
        generation = tokenizer.declared.get("generation", ids)
    else:
        ids = {"bos_token_id": None if tokenizer is None else tokenizer.bos, "eos_token_id": None}
        generation = ids
    return dict(ids), {key: value for key, value in generation.items() if value is not None}


def ids_of(plain: Mapping[str, Any]) -> dict[str, int]:
    """The id of every token of a definition, by how it is written."""
    vocab = plain["model"]["vocab"]
    added = {entry["content"]: entry["id"] for entry in plain.get("added_tokens") or []}
    return (dict(vocab) if isinstance(vocab, Mapping) else {}) | added


def written(token: object) -> str | None:
    """A special token's text, which is given as it is or with flags."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _settings(given: Plain, ids: Mapping[str, int], family: str) -> Plain:
    """The settings to keep, with what the family's own tokenizer class adds to them."""
    named = str(given.get("tokenizer_class", family)).lower()
    defaults = next((tokens for name, tokens in _CLASS_DEFAULTS.items() if named.startswith(name)), {})
    tokens = {key: written(given.get(key, defaults.get(key))) for key in TOKENS}
    lists = {key: [written(token) for token in given[key]] for key in LISTS if isinstance(given.get(key), list)}
    return {
        **{key: token for key, token in tokens.items() if token is not None and token in ids},
        **{key: [token for token in tokens if token in ids] for key, tokens in lists.items()},
        **{key: given[key] for key in KEPT if key in given},
    }
