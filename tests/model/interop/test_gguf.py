"""A GGUF file is refused in a sentence before anything is read; reading one is tested in tests/real."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.errors import CheckpointError, ConfigError, InputError
from model.interop import gguf

PLAIN = {
    "general.architecture": "llama",
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.rope.dimension_count": 16,
    "tensors": [("token_embd.weight", "F32")],
}
REFUSED = {
    "architecture": ({"general.architecture": "gemma3"}, "its architecture is gemma3"),
    "parts": ({"split.count": 3}, "it is one of 3 parts"),
    "experts": ({"llama.expert_count": 8}, "a mixture of 8 experts"),
    "scaling": ({"llama.rope.scaling.type": "yarn"}, r"its rotation is scaled \(yarn\)"),
    "scaling table": ({"tensors": [("rope_freqs.weight", "F32")]}, r"its rotation is scaled \(rope_freqs\)"),
    "partial rotation": ({"llama.rope.dimension_count": 8}, "its rotation turns 8 of the 16 dimensions of a head"),
    "wide heads": ({"llama.attention.key_length": 32}, "its rotation turns 16 of the 32 dimensions of a head"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_model_that_would_be_read_wrongly_is_refused(changes: dict, reason: str) -> None:
    gguf.refuse_others(PLAIN, Path("plain.gguf"))
    with pytest.raises(ConfigError, match=f"odd.gguf cannot be imported: .*{reason}.*Allowed is a plain Llama model"):
        gguf.refuse_others(PLAIN | changes, Path("odd.gguf"))


def test_what_is_missing_is_named_with_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(gguf, "find_spec", lambda name: None if name != "transformers" else object())
    with pytest.raises(InputError, match="gguf, accelerate are not installed; run: pip install gguf accelerate"):
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
