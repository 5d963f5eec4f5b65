"""Tokenizers that other programs trained: exact bytes, special tokens out of reach of any text, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import CheckpointError, InputError
from model.imported_tokenizer import ImportedTokenizer
from model.tokenizer import load_tokenizer
from tests.model.interop import forge

D_VOCAB = 320


def tokenizers() -> dict[str, ImportedTokenizer]:
    makers = {
        "gpt2": (forge.gpt2_definition(), 279),
        "smollm": (forge.smollm_definition(), 1),
        "llama3": (forge.llama3_definition(), 279),
        "llama2": (forge.llama2_definition(), 1),
        "llama2-cut": (forge.llama2_definition(cut=True), 1),
    }
    return {name: ImportedTokenizer(text, d_vocab=D_VOCAB, bos=bos) for name, (text, bos) in makers.items()}


MADE = tokenizers()
ALL = pytest.mark.parametrize("tokenizer", MADE.values(), ids=MADE.keys())
BYTE_LEVEL = pytest.mark.parametrize("name", ["gpt2", "smollm", "llama3"])


@ALL
@pytest.mark.parametrize("text", forge.HOSTILE)
def test_decoding_an_encoding_gives_a_hostile_text_back(tokenizer: ImportedTokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    spaced_alike = tokenizer is MADE["llama2-cut"] and text.startswith(" ")  # it reads " x" as "x"; see below
    assert tokenizer.decode(tokens) == (text[1:] if spaced_alike else text)
    prefix = b" " if text and tokenizer in (MADE["llama2"], MADE["llama2-cut"]) and not spaced_alike else b""
    assert b"".join(tokenizer.token_bytes[token] for token in tokens) == prefix + text.encode()
    assert tokenizer.n_bytes(tokens) == len(prefix + text.encode())


@BYTE_LEVEL
@given(text=st.text())
@settings(max_examples=50, deadline=None)
def test_every_text_survives_a_byte_level_round_trip(name: str, text: str) -> None:
    assert MADE[name].decode(MADE[name].encode(text)) == text


@ALL
def test_special_tokens_stand_for_nothing_and_no_text_makes_one(tokenizer: ImportedTokenizer) -> None:
    specials = [added["id"] for added in json.loads(tokenizer.definition)["added_tokens"]]
    assert tokenizer.bos in specials
    assert tokenizer.decode(specials) == "" and tokenizer.n_bytes(specials) == 0
    contents = "".join(added["content"] for added in json.loads(tokenizer.definition)["added_tokens"])
    assert not set(specials) & set(tokenizer.encode(contents))


@ALL
def test_ids_that_the_vocabulary_lacks_stand_for_nothing_and_say_so(tokenizer: ImportedTokenizer) -> None:
    assert tokenizer.d_vocab == D_VOCAB
    assert tokenizer.decode([D_VOCAB - 1]) == ""
    assert tokenizer.str_tokens([D_VOCAB - 1]) == [f"<no token {D_VOCAB - 1}>"]
    assert tokenizer.str_tokens([tokenizer.bos]) == ["<bos>"]


@ALL
def test_no_two_tokens_of_different_bytes_look_alike(tokenizer: ImportedTokenizer) -> None:
    printed = tokenizer.str_tokens(range(tokenizer.d_vocab))
    assert all(text and text.isprintable() for text in printed)
    # What is alike is alike in its bytes, and of the ids that stand for none each is itself.
    pairs = enumerate(zip(printed, tokenizer.token_bytes, strict=True))
    different = {(shown, raw or token) for token, (shown, raw) in pairs}
    assert len(different) == len({shown for shown, _ in different})


def test_a_word_spelled_like_a_special_token_is_printed_escaped() -> None:
    plain = json.loads(forge.gpt2_definition())
    plain["model"]["vocab"]["<eos>"] = 300
    plain["added_tokens"] += [forge.special("<eos> ", 301)]
    tokenizer = ImportedTokenizer(json.dumps(plain), d_vocab=D_VOCAB, bos=None)
    assert tokenizer.str_tokens([300, 301]) == ["<eos>", "<eos> "]
    plain["model"]["vocab"] |= {"<eos>Ġ": 302}
    tokenizer = ImportedTokenizer(json.dumps(plain), d_vocab=D_VOCAB, bos=None)
    assert tokenizer.str_tokens([301, 302]) == ["<eos> ", "\\x3ceos> "]


def test_metaspace_takes_a_leading_space_for_its_own() -> None:
    tokenizer = MADE["llama2-cut"]
    assert tokenizer.encode(" the") == tokenizer.encode("the")
    assert MADE["llama2"].encode(" the") != MADE["llama2"].encode("the")


def test_a_character_that_the_tokens_cannot_spell_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match=r"cannot spell the text exactly: near byte 4 \('the .+at'\)"):
        MADE["llama2"].encode("the \u2581at")


def test_a_vocabulary_may_lack_a_byte_and_texts_that_have_it_are_refused_instead_of_cut() -> None:
    plain = json.loads(forge.gpt2_definition())
    plain["model"]["vocab"].pop("!")
    tokenizer = ImportedTokenizer(json.dumps(plain), d_vocab=D_VOCAB, bos=None)
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"
    with pytest.raises(InputError, match=r"cannot spell the text exactly: near byte 7 \('.*!'\)"):
        tokenizer.encode("the cat!")


@ALL
def test_a_saved_tokenizer_is_the_same_one(tokenizer: ImportedTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(loaded) is ImportedTokenizer
    assert (loaded.bos, loaded.token_bytes) == (tokenizer.bos, tokenizer.token_bytes)
    assert loaded.encode(forge.TEXT) == tokenizer.encode(forge.TEXT)


def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"kind": "imported", "definition": "{}", "d_vocab": 3, "bos": 2}')
    with pytest.raises(CheckpointError, match="describes no tokenizer that this version can read"):
        load_tokenizer(tmp_path / "tokenizer.json")


def _model(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plain: plain["model"].update(changes)


def _rule(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plain: plain.update(changes)


REFUSED = {
    "unigram": (forge.gpt2_definition, _model(type="Unigram"), "its model is Unigram"),
    "dropout": (forge.gpt2_definition, _model(dropout=0.1), "its dropout is 0.1"),
    "suffix": (forge.gpt2_definition, _model(end_of_word_suffix="</w>"), "its end_of_word_suffix is '</w>'"),
    "normalizer": (
        forge.gpt2_definition,
        _rule(normalizer={"type": "NFC"}),
        r"its normalizer \(NFC\) changes the text",
    ),
    "prefix": (
        forge.gpt2_definition,
        _rule(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
        "it puts a space before a text",
    ),
    "whitespace": (forge.gpt2_definition, _rule(pre_tokenizer={"type": "Whitespace"}), "by Whitespace"),
    "no rule": (forge.gpt2_definition, _rule(pre_tokenizer=None), "by no rule"),
    "fallback": (forge.llama2_definition, _model(byte_fallback=False), "it has no byte fallback"),
    "a spelling": (
        forge.gpt2_definition,
        lambda plain: plain["model"]["vocab"].update({"a b": 300}),
        "The token 'a b' is not spelled in bytes: ' ' stands for none",
    ),
    "size": (forge.gpt2_definition, lambda plain: plain["model"]["vocab"].update(zz=999), '"zz" has the id 999'),
}


@pytest.mark.parametrize(("make", "spoil", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_tokenizer_whose_bytes_are_not_exact_is_refused(make: Any, spoil: Any, reason: str) -> None:
    plain = json.loads(make())
    spoil(plain)
    with pytest.raises(InputError, match=reason):
        ImportedTokenizer(json.dumps(plain), d_vocab=D_VOCAB, bos=None)


def test_what_is_no_definition_is_refused() -> None:
    with pytest.raises(InputError, match="no definition of a tokenizer"):
        ImportedTokenizer("[1]", d_vocab=D_VOCAB, bos=None)
    with pytest.raises(InputError, match=r"bos=320 is no id of a vocabulary of 320"):
        ImportedTokenizer(forge.gpt2_definition(), d_vocab=D_VOCAB, bos=D_VOCAB)
