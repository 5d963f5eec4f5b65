"""Tokenizers as Hugging Face's files: the same ids for hostile texts, and ours recognised when they come back.

The `tokenizers` library itself stands in for AutoTokenizer, which wraps it; tests/parity does the same with that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from model.errors import CheckpointError, InputError
from model.imported_tokenizer import ImportedTokenizer
from model.interop.hf_tokenizer import load_hf_tokenizer, tokenizer_from_hf, tokenizer_to_hf
from model.interop.remarks import on_padding
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from tests.model.interop import forge

CHARACTERS = CharTokenizer.train([forge.TEXT, *forge.HOSTILE]).characters
OURS: dict[str, Tokenizer] = {
    "bytes": ByteTokenizer(),
    "chars": CharTokenizer(CHARACTERS),
    "chars-without-bos": CharTokenizer(CHARACTERS, has_bos=False),
    "bpe": BPETokenizer.train(forge.TEXT, 280),
}
IMPORTED: dict[str, Tokenizer] = {
    "gpt2": ImportedTokenizer(forge.gpt2_definition(), d_vocab=290, bos=None),
    "smollm": ImportedTokenizer(forge.smollm_definition(), d_vocab=290, bos=0),
    "llama3": ImportedTokenizer(forge.llama3_definition(), d_vocab=290, bos=279),
    "llama2": ImportedTokenizer(forge.llama2_definition(), d_vocab=290, bos=1),
}
EACH = pytest.mark.parametrize("name", [*OURS, *IMPORTED])
EACH_OF_OURS = pytest.mark.parametrize("name", OURS)
ALL = OURS | IMPORTED


def exported(tokenizer: Tokenizer) -> Backend:
    """The exported definition, opened as AutoTokenizer opens it."""
    definition, config = tokenizer_to_hf(tokenizer, 24)
    backend = Backend.from_str(definition)
    backend.encode_special_tokens = config["split_special_tokens"]
    return backend


def in_front(tokenizer: Tokenizer) -> list[int]:
    return [] if tokenizer.bos is None else [tokenizer.bos]


@EACH
@pytest.mark.parametrize("text", forge.HOSTILE)
def test_the_exported_definition_gives_the_same_ids_and_the_text_back(name: str, text: str) -> None:
    tokenizer, backend = ALL[name], exported(ALL[name])
    ids = backend.encode(text).ids
    assert ids == in_front(tokenizer) + tokenizer.encode(text)
    assert backend.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("name", ["bytes", "bpe", "gpt2", "smollm", "llama3"])
@given(text=st.text())
@settings(max_examples=40, deadline=None)
def test_any_text_has_the_same_ids(name: str, text: str) -> None:
    tokenizer = ALL[name]
    assert BACKENDS[name].encode(text).ids == in_front(tokenizer) + tokenizer.encode(text)


BACKENDS = {name: exported(tokenizer) for name, tokenizer in ALL.items()}


@EACH
def test_every_id_has_the_same_bytes(name: str) -> None:
    tokenizer, backend = ALL[name], BACKENDS[name]
    for token in range(tokenizer.d_vocab):
        raw = tokenizer.token_bytes[token]
        stripped = raw[1:] if name == "llama2" and raw.startswith(b" ") else raw  # its decoder takes the first space
        assert backend.decode([token], skip_special_tokens=True) == stripped.decode(errors="replace")


def test_an_unknown_character_is_an_error_there_too() -> None:
    with pytest.raises(Exception, match="UNK"):  # the library raises nothing more special
        exported(CharTokenizer("abc")).encode("abz")


def test_bos_is_not_written_as_a_token_that_a_text_can_make() -> None:
    plain = json.loads(BPETokenizer.train("", 257).definition)
    plain["model"]["vocab"]["<bos>"] = 256
    merged = BPETokenizer(json.dumps(plain))
    assert (merged.token_bytes[256], merged.bos) == (b"<bos>", 257)
    definition, config = tokenizer_to_hf(merged, 24)
    assert config["bos_token"] == "<|bos|>"
    assert exported(merged).encode("<bos><|bos|>").ids == [merged.bos, *merged.encode("<bos><|bos|>")]
    assert json.loads(definition)["added_tokens"][0]["id"] == merged.bos


@EACH_OF_OURS
def test_ours_is_recognised_when_it_comes_back(name: str, tmp_path: Path) -> None:
    saved(tmp_path, *tokenizer_to_hf(OURS[name], 24))
    tokenizer, notes = tokenizer_from_hf(tmp_path, OURS[name].d_vocab)
    assert type(tokenizer) is type(OURS[name]) and notes == ()
    assert (tokenizer.state(), tokenizer.bos) == (OURS[name].state(), OURS[name].bos)


@pytest.mark.parametrize("name", IMPORTED)
def test_an_imported_one_goes_out_and_comes_back(name: str, tmp_path: Path) -> None:
    saved(tmp_path, *tokenizer_to_hf(IMPORTED[name], 24))
    tokenizer = load_hf_tokenizer(tmp_path, 290)
    assert isinstance(tokenizer, ImportedTokenizer)
    assert (tokenizer.token_bytes, tokenizer.bos) == (IMPORTED[name].token_bytes, IMPORTED[name].bos)
    saved(tmp_path, *tokenizer_to_hf(tokenizer, 24))
    again = load_hf_tokenizer(tmp_path / "tokenizer.json", 290)
    assert again.state() == tokenizer.state()


def saved(folder: Path, definition: str, config: dict[str, Any]) -> None:
    """The two files in `folder`."""
    (folder / "tokenizer.json").write_text(definition)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


TEMPLATE = forge.in_front("<|begin_of_text|>", 279)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
NAMED = {"bos_token": "<|begin_of_text|>"}
PUT_IN_FRONT = {
    "by a template": (TEMPLATE, NAMED, 279),
    "by a template among others": ({"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]}, {}, 279),
    "not by a setting against the template": (TEMPLATE, NAMED | {"add_bos_token": False}, 279),
    "not, though it is named": (BYTE_LEVEL, NAMED, None),
    "not, for lack of a rule": (None, NAMED | {"add_bos_token": True}, None),
}


@pytest.mark.parametrize(("processor", "config", "bos"), PUT_IN_FRONT.values(), ids=PUT_IN_FRONT.keys())
def test_bos_stands_before_a_text_where_transformers_puts_it(
    processor: Any, config: Any, bos: int | None, tmp_path: Path
) -> None:
    plain = json.loads(forge.llama3_definition()) | {"post_processor": processor}
    saved(tmp_path, json.dumps(plain), config)
    tokenizer, notes = tokenizer_from_hf(tmp_path, 290)
    assert tokenizer is not None and tokenizer.bos == bos
    said = "puts no BOS before a text" if bos is None else "Token 279 stands before every text"
    assert said in notes[0]


@pytest.mark.parametrize(("d_vocab", "said"), [(290, "10 ids stand"), (281, "1 id stands"), (280, None)])
def test_ids_of_a_padded_vocabulary_are_counted_in_a_note(d_vocab: int, said: str | None) -> None:
    notes = on_padding(ImportedTokenizer(forge.gpt2_definition(), d_vocab=d_vocab, bos=None))
    expected = f"The model has {d_vocab} ids and the tokenizer 280 tokens: {said} for no token (a padded vocabulary)"
    assert (notes == ()) if said is None else notes[0].startswith(expected)
    assert on_padding(None) == on_padding(ByteTokenizer()) == ()


def test_gpt2s_older_files_are_read(tmp_path: Path) -> None:
    plain = json.loads(forge.gpt2_definition())
    (tmp_path / "vocab.json").write_text(json.dumps(plain["model"]["vocab"]))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in plain["model"]["merges"])]
    (tmp_path / "merges.txt").write_text("\n".join(lines))
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<|endoftext|>"}')
    (tmp_path / "added_tokens.json").write_text('{"<|pad|>": 280}')
    tokenizer = load_hf_tokenizer(tmp_path, 290)
    assert tokenizer.encode(forge.TEXT) == IMPORTED["gpt2"].encode(forge.TEXT)
    assert tokenizer.str_tokens([279, 280]) == ["<|endoftext|>", "<|pad|>"]
    assert tokenizer.n_bytes([279, 280]) == 0 and tokenizer.bos is None
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    assert load_hf_tokenizer(tmp_path, 290).bos == 279


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    assert tokenizer_from_hf(tmp_path, 290) == (None, ("There is no tokenizer beside the weights.",))
    (tmp_path / "tokenizer.model").touch()
    tokenizer, notes = tokenizer_from_hf(tmp_path, 290)
    assert tokenizer is None and "only there as tokenizer.model" in notes[0]
    with pytest.raises(InputError, match=r"gives no tokenizer\. The tokenizer is only there as tokenizer\.model"):
        load_hf_tokenizer(tmp_path, 290)


def test_a_tokenizer_of_another_model_or_kind_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, forge.gpt2_definition(), {})
    with pytest.raises(InputError, match="The tokenizer is of another model"):
        load_hf_tokenizer(tmp_path, 270)
    saved(tmp_path, '{"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}}', {})
    with pytest.raises(InputError, match="because its model is Unigram"):
        load_hf_tokenizer(tmp_path, 290)
    saved(tmp_path, "{}", {})
    with pytest.raises(CheckpointError, match="defines no tokenizer"):
        load_hf_tokenizer(tmp_path, 290)
    with pytest.raises(InputError, match="BOS is the id 285, which the tokenizer has no token for"):
        tokenizer_to_hf(ImportedTokenizer(forge.gpt2_definition(), d_vocab=290, bos=285), 24)
