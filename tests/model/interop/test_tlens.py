"""What of the TransformerLens bridge needs no TransformerLens: its tokenizer, its refusals, its page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from model import GPT, Tap
from model.errors import InputError
from model.imported_tokenizer import ImportedTokenizer
from model.interop.tlens import to_bridge
from model.interop.tlens_text import BridgeTokenizer
from model.tokenizer import ByteTokenizer, CharTokenizer
from tests.model.interop import forge

PAGE = Path(__file__).parents[3] / "docs/transformerlens.md"


def test_without_transformer_lens_it_is_said_what_to_install(tiny: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformer_lens", None)
    with pytest.raises(
        InputError, match=r"TransformerLens 4, .* not installed; run, .*: pip install -e '\.\[interop\]'"
    ):
        to_bridge(tiny)


def test_smeared_keys_are_refused_with_what_would_go_wrong(make_gpt: Callable[..., GPT]) -> None:
    with pytest.raises(InputError, match=r"smeared_keys=true has no counterpart in TransformerLens, whose QK circuits"):
        to_bridge(make_gpt(smeared_keys=True))


def test_a_tokenizer_of_another_model_is_refused(tiny: GPT) -> None:
    with pytest.raises(InputError, match=r"the tokenizer has 257 tokens, the model 50; give the tokenizer"):
        to_bridge(tiny, ByteTokenizer())


class Opened:
    """As much of a Lab as tells one."""

    gpt = None


@pytest.mark.parametrize(("given", "named"), [(Opened(), "not a Lab"), ("runs/x", "not 'runs/x'"), (None, "not None")])
def test_a_run_in_place_of_its_model_is_answered_with_what_to_write(given: object, named: str) -> None:
    with pytest.raises(InputError, match=rf"{named}; .* to_bridge\(lab\.gpt, lab\.tokenizer\)"):
        to_bridge(given)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("settings", "eos", "pad"),
    [
        ({"eos_token": "<|im_end|>", "pad_token": "<|im_start|>"}, 2, 1),
        ({"eos_token": "<|im_end|>"}, 2, 2),
        ({}, None, None),
    ],
    ids=str,
)
def test_an_imported_tokenizer_ends_and_pads_texts_as_it_was_declared_to(
    settings: dict[str, str], eos: int | None, pad: int | None
) -> None:
    declared = {"settings": settings}
    imported = ImportedTokenizer(forge.smollm_definition(), d_vocab=290, bos=None, declared=declared)
    tokenizer = BridgeTokenizer(imported)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (None, eos, pad)
    assert tokenizer.eos_token == settings.get("eos_token")
    if pad is not None:
        assert tokenizer(["the cat", "t"])["input_ids"][1].tolist()[-1] == pad
    with_bos = ImportedTokenizer(forge.smollm_definition(), d_vocab=290, bos=0, declared={"settings": {}})
    assert BridgeTokenizer(with_bos).eos_token_id == BridgeTokenizer(with_bos).pad_token_id == 0


def test_texts_are_cut_as_ours_behind_bos_and_padded_with_it() -> None:
    tokenizer = BridgeTokenizer(ByteTokenizer())
    assert tokenizer("ab")["input_ids"].tolist() == [[256, 97, 98]]
    assert tokenizer(["ab", "c"])["input_ids"].tolist() == [[256, 97, 98], [256, 99, 256]]
    assert tokenizer(["ab", "c"], padding_side="left")["input_ids"].tolist() == [[256, 97, 98], [256, 256, 99]]
    assert tokenizer("abcd", truncation=True, max_length=3)["input_ids"].tolist() == [[256, 97, 98]]
    assert tokenizer("<bos>")["input_ids"].tolist() == [[256, *b"<bos>"]]


def test_decoding_shows_bos_and_keeps_characters_of_several_bytes_whole() -> None:
    tokenizer = BridgeTokenizer(ByteTokenizer())
    assert tokenizer.decode([256, *"né".encode(), 256, 33]) == "<bos>né<bos>!"
    assert tokenizer.decode(torch.tensor(104)) == "h"
    assert tokenizer.batch_decode([[104], [256]], clean_up_tokenization_spaces=False) == ["h", "<bos>"]
    assert tokenizer.decode([]) == ""


def test_without_a_bos_nothing_is_put_before_a_text_or_behind_it() -> None:
    tokenizer = BridgeTokenizer(CharTokenizer("abc", has_bos=False))
    assert tokenizer.bos_token is tokenizer.eos_token_id is tokenizer.pad_token_id is None
    assert tokenizer(["ab", "ca"])["input_ids"].tolist() == [[0, 1], [2, 0]]
    assert tokenizer.decode([0, 1]) == "ab"
    with pytest.raises(InputError, match=r"different lengths need padding.*neither BOS"):
        tokenizer(["ab", "c"])


def test_the_page_names_every_place() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [tap.name for tap in Tap if tap.template.rpartition(".")[2] not in text] == []
