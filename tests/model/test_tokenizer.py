from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import CheckpointError, InputError
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, load_tokenizer, printable

CODE = 'def café(x):\n\treturn "naïve \\ \u200b\U0001f600 <bos>" + x\r\n'
TEXT = CODE * 20 + "the cat sat on the mat, the cat sat. " * 50


def tokenizers() -> list[Tokenizer]:
    return [ByteTokenizer(), CharTokenizer.train(TEXT), BPETokenizer.train(TEXT, 300)]


ALL = pytest.mark.parametrize("tokenizer", tokenizers(), ids=lambda tokenizer: tokenizer.kind)
TOTAL = pytest.mark.parametrize("tokenizer", [tokenizers()[0], tokenizers()[2]], ids=lambda tokenizer: tokenizer.kind)


def bytes_behind(printed: str) -> bytes:
    """What a printed token stands for, by Python's own reading of escapes."""
    return printed.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1", "surrogatepass")


@ALL
def test_decoding_an_encoding_gives_the_text_back(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(TEXT)
    assert tokenizer.decode(tokens) == TEXT
    assert tokenizer.decode(torch.tensor([tokens])) == TEXT
    assert tokenizer.decode(np.array(tokens, dtype=np.uint16)) == TEXT
    assert max(tokens) < tokenizer.d_vocab


@TOTAL
@given(text=st.text())
@settings(max_examples=50, deadline=None)
def test_every_text_survives_a_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@ALL
def test_bos_is_the_last_id_stands_for_nothing_and_no_text_makes_it(tokenizer: Tokenizer) -> None:
    assert tokenizer.bos == tokenizer.d_vocab - 1
    assert tokenizer.bos not in tokenizer.encode(TEXT)
    assert tokenizer.decode([tokenizer.bos]) == ""
    assert tokenizer.str_tokens([tokenizer.bos]) == ["<bos>"]
    assert tokenizer.n_bytes([tokenizer.bos]) == 0


def test_a_character_tokenizer_can_do_without_bos(tmp_path: Path) -> None:
    tokenizer = CharTokenizer("\n abc", has_bos=False)
    assert (tokenizer.bos, tokenizer.d_vocab) == (None, 5)
    assert tokenizer.str_tokens(tokenizer.encode("a\nc")) == ["a", "\\n", "c"]
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert (loaded.bos, loaded.token_bytes) == (None, tokenizer.token_bytes)


@ALL
def test_n_bytes_counts_the_bytes_of_the_text(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(TEXT)
    assert tokenizer.n_bytes(tokens) == len(TEXT.encode())
    assert tokenizer.n_bytes(torch.tensor(tokens[:40]).reshape(2, 20)) == tokenizer.n_bytes(tokens[:40])
    assert tokenizer.n_bytes([]) == 0


@ALL
def test_every_printed_token_is_printable_and_no_two_look_alike(tokenizer: Tokenizer) -> None:
    printed = tokenizer.str_tokens(range(tokenizer.d_vocab))
    assert all(token.isprintable() and token for token in printed)
    assert len(set(printed)) == tokenizer.d_vocab


@given(raw=st.binary(max_size=12))
def test_printing_bytes_loses_nothing(raw: bytes) -> None:
    printed = printable(raw)
    assert printed.isprintable()
    pieces = "".join(c if ord(c) < 128 else "".join(f"\\x{b:02x}" for b in c.encode()) for c in printed)
    assert bytes_behind(pieces) == raw


def test_the_printed_form_of_common_tokens() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.str_tokens(tokenizer.encode("a \n\t\\é")) == ["a", " ", "\\n", "\\t", "\\\\", "\\xc3", "\\xa9"]
    assert CharTokenizer.train("é").str_tokens([0]) == ["é"]
    assert printable(b"<bos>") != "<bos>"


@ALL
@pytest.mark.parametrize("unknown", [-1, 100_000])
def test_a_token_out_of_range_is_refused_in_a_sentence(tokenizer: Tokenizer, unknown: int) -> None:
    for call in (tokenizer.decode, tokenizer.str_tokens, tokenizer.n_bytes):
        with pytest.raises(InputError, match=f"There is no token {unknown}: ids run from 0 to {tokenizer.d_vocab - 1}"):
            call([0, unknown])


def test_an_unknown_character_is_named_with_its_place() -> None:
    with pytest.raises(InputError, match=r"character 'z' \(U\+007A, position 3\) is none of the 3"):
        CharTokenizer.train("abc").encode("abcz")


@ALL
def test_half_a_surrogate_pair_is_refused_in_a_sentence(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"U\+D800"):
        tokenizer.encode("a\ud800")


@ALL
def test_a_saved_tokenizer_is_the_same_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(loaded) is type(tokenizer)
    assert loaded.token_bytes == tokenizer.token_bytes
    assert loaded.encode(TEXT) == tokenizer.encode(TEXT)
    assert json.loads((tmp_path / "tokenizer.json").read_text())["kind"] == tokenizer.kind


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"kind": "words"}',
        '{"kind": "bytes"',
        '{"kind": "bytes", "d_vocab": 256, "bos": null}',
        '{"kind": "chars", "d_vocab": 3, "bos": 2}',
        '{"kind": "bpe", "definition": "x"}',
    ],
)
def test_a_damaged_tokenizer_file_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"describes no tokenizer|is not readable JSON"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_a_missing_tokenizer_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json could not be read: there is no such file"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_bpe_shortens_text_and_learns_the_same_merges_twice() -> None:
    first, second = BPETokenizer.train(TEXT, 300), BPETokenizer.train(iter([TEXT]), 300)
    assert first.d_vocab == 300
    assert first.token_bytes == second.token_bytes
    assert len(first.encode(TEXT)) < 0.7 * len(TEXT.encode())
    assert b" cat" in first.token_bytes


def test_bpe_refuses_a_size_that_cannot_be_reached() -> None:
    with pytest.raises(InputError, match="at least 257"):
        BPETokenizer.train(TEXT, 256)
    with pytest.raises(InputError, match="The text is too short for a BPE of 5000 tokens: it yields"):
        BPETokenizer.train("the cat", 5000)
    assert BPETokenizer.train("", 257).encode("é\n") == ByteLevelIds.of("é\n")


def test_an_empty_text_has_no_characters() -> None:
    with pytest.raises(InputError, match="cannot be made from an empty text"):
        CharTokenizer.train("")


class ByteLevelIds:
    """The ids of a BPE without merges: bytes in the order of their visible stand-ins."""

    @staticmethod
    def of(text: str) -> list[int]:
        bare = BPETokenizer.train("", 257)
        return [bare.token_bytes.index(bytes([value])) for value in text.encode()]
