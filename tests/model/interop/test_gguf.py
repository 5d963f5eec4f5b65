"""A GGUF file is refused in a sentence before anything is read; reading one is tested in tests/real."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from model.errors import CheckpointError, ConfigError, InputError
from model.imported_tokenizer import ImportedTokenizer
from model.interop import gguf
from model.interop.hf_declared import special_ids
from model.interop.hf_tokenizer import tokenizer_to_hf
from tests.model.interop import forge

BLOCK = {
    **{"attn_norm": (64,), "attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64)},
    **{"ffn_norm": (64,), "ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)},
}
OUTSIDE = {"token_embd": (11, 64), "output_norm": (64,), "output": (11, 64)}
SHAPES = OUTSIDE | {f"blk.{layer}.{part}": shape for layer in range(2) for part, shape in BLOCK.items()}
PLAIN = {
    "general.architecture": "llama",
    "llama.context_length": 32,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": 16,
    "tokenizer.ggml.tokens": 11,
    "lists": {"tokenizer.ggml.tokens"},
    "tensors": [gguf.Stored(f"{name}.weight", "F32", shape) for name, shape in SHAPES.items()],
}


def more(*tensors: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    """The same tensors, and these."""
    return {"tensors": [*PLAIN["tensors"], *(gguf.Stored(name, "F32", shape) for name, shape in tensors)]}


REFUSED = {
    "architecture": ({"general.architecture": "gemma3"}, "its architecture is gemma3"),
    "parts": ({"split.count": 3}, "it is one of 3 parts"),
    "experts": ({"llama.expert_count": 8}, "a mixture of 8 experts"),
    "scaling": ({"llama.rope.scaling.type": "yarn"}, r"its rotation is scaled \(yarn\)"),
    "scaling table": (more(("rope_freqs.weight", (8,))), r"its rotation is scaled \(rope_freqs\)"),
    "partial rotation": ({"llama.rope.dimension_count": 8}, "its rotation turns 8 of the 16 dimensions of a head"),
    "wide heads": ({"llama.attention.key_length": 32}, "its rotation turns 16 of the 32 dimensions of a head"),
    "no rotation said": (
        {"llama.attention.key_length": 32, "llama.rope.dimension_count": 32, "llama.attention.head_count_kv": 1},
        r"its blk\.0\.attn_q\.weight is \[64, 64\], not \[128, 64\]",
    ),
    "a bias": (more(("blk.0.attn_q.bias", (64,))), r"it holds blk\.0\.attn_q\.bias, which the Llama"),
    "a norm of queries": (more(("blk.1.attn_q_norm.weight", (16,))), r"it holds blk\.1\.attn_q_norm\.weight"),
    "a norm behind": (more(("blk.0.post_attention_norm.weight", (64,))), "it holds blk.0.post_attention_norm.weight"),
    "sinks": (more(("blk.0.attn_sinks.weight", (4,))), "it holds blk.0.attn_sinks.weight"),
    "fewer blocks": ({"llama.block_count": 1}, "it holds blk.1.attn_norm.weight"),
    "more blocks": ({"llama.block_count": 3}, r"it lacks the tensor blk\.2\.attn_k\.weight"),
    "no end of blocks": ({"llama.block_count": 10**12}, "it lacks the tensor blk"),
    "another width": ({"llama.feed_forward_length": 95}, r"ffn_gate\.weight is \[96, 64\], not \[95, 64\]"),
    "another vocabulary": ({"llama.vocab_size": 12}, r"token_embd\.weight is \[11, 64\], not \[12, 64\]"),
    "no heads": ({"llama.attention.head_count": 0}, "it says llama.attention.head_count=0"),
    "uneven heads": ({"llama.attention.head_count": 5}, "its width of 64 does not divide into 5 heads"),
    "heads in words": ({"llama.attention.head_count": "4"}, "it says llama.attention.head_count='4'"),
    "no number": ({"llama.rope.freq_base": math.nan}, "it says llama.rope.freq_base=nan"),
    "heads layer by layer": (
        {"lists": {"llama.attention.head_count"}},
        "it gives llama.attention.head_count layer by layer",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_model_that_would_be_read_wrongly_is_refused(changes: dict, reason: str) -> None:
    gguf.refuse_others(PLAIN, Path("plain.gguf"))
    with pytest.raises(ConfigError, match=f"odd.gguf cannot be imported: .*{reason}.*Allowed is a plain Llama model"):
        gguf.refuse_others(PLAIN | changes, Path("odd.gguf"))


@pytest.mark.parametrize("name", [f"llama.{key}" for key in (*gguf.SIZES, *gguf.NUMBERS)])
def test_a_setting_that_is_missing_is_not_taken_from_defaults(name: str) -> None:
    without = {key: value for key, value in PLAIN.items() if key != name}
    with pytest.raises(ConfigError, match=f"it lacks {name}, without which what it computes is not known"):
        gguf.refuse_others(without, Path("odd.gguf"))


@pytest.mark.parametrize("tensor", PLAIN["tensors"], ids=lambda tensor: tensor.name)
def test_a_weight_that_is_missing_is_not_drawn_at_random(tensor: gguf.Stored) -> None:
    without = PLAIN | {"tensors": [other for other in PLAIN["tensors"] if other != tensor]}
    if tensor.name == "output.weight":  # it is the embedding then
        gguf.refuse_others(without, Path("tied.gguf"))
        return
    with pytest.raises(ConfigError, match=f"it lacks the tensor {tensor.name}"):
        gguf.refuse_others(without, Path("odd.gguf"))


def test_what_is_missing_is_named_with_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(gguf, "find_spec", lambda name: None if name != "transformers" else object())
    with pytest.raises(
        InputError, match=r"not installed \(gguf, accelerate\); run, .*: pip install -e '\.\[interop\]'"
    ):
        gguf.from_gguf(tmp_path / "model.gguf")


def test_a_file_that_is_no_gguf_is_refused_without_any_package(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError, match=r"model\.gguf is no GGUF file: it does not begin with GGUF"):
        gguf.from_gguf(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match=r"There is no file .*gone\.gguf"):
        gguf.from_gguf(tmp_path / "gone.gguf")


def test_bos_stands_where_the_file_wants_it() -> None:
    named = {"tokenizer.ggml.bos_token_id": 1}
    assert gguf.bos_of(named | {"tokenizer.ggml.add_bos_token": False}, "gpt2")[0] is None
    assert gguf.bos_of(named | {"tokenizer.ggml.add_bos_token": True}, "gpt2")[0] == 1
    assert [gguf.bos_of(named, kind)[0] for kind in ("gpt2", "llama")] == [None, 1]  # llama.cpp's rule
    assert gguf.bos_of({}, "llama")[0] is None


def test_the_special_tokens_that_the_file_names_are_kept_for_an_export() -> None:
    named = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.padding_token_id": 999}
    declared = gguf.declared_by(named, json.loads(forge.smollm_definition()))
    assert declared == {"settings": {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}}
    tokenizer = ImportedTokenizer(forge.smollm_definition(), d_vocab=290, bos=None, declared=declared)
    assert special_ids(tokenizer)[1] == {"bos_token_id": 0, "eos_token_id": 2}
    definition, settings = tokenizer_to_hf(tokenizer, 24)
    assert settings["eos_token"] == "<|im_end|>" and "split_special_tokens" not in settings
    assert Backend.from_str(definition).encode("the cat<|im_end|>").ids == [*tokenizer.encode("the cat"), 2]
