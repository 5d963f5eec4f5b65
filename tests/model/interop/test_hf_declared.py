"""An imported tokenizer goes out as it came in: special tokens, ids at which generation stops, and the template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from model.imported_tokenizer import ImportedTokenizer
from model.interop.hf import from_hf, to_hf
from model.interop.hf_declared import special_ids
from model.interop.hf_tokenizer import load_hf_tokenizer, tokenizer_from_hf, tokenizer_to_hf
from model.tokenizer import ByteTokenizer, load_tokenizer
from tests.conftest import make_gpt_with
from tests.model.interop import forge
from tests.model.interop.variants import EXPORTABLE

END, IDS = "<|endoftext|>", {"bos_token_id": 0, "eos_token_id": [0, 2], "pad_token_id": 2}
SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": END,
    "eos_token": {"content": END, "lstrip": False, "special": True},
    "pad_token": "<|im_end|>",
    "unk_token": None,
    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    "padding_side": "right",
}


def source(folder: Path, settings: dict[str, Any] | None = None, ids: dict[str, Any] | None = None) -> Path:
    """A folder as another program saved it: a model, SmolLM2's kind of tokenizer, and what they declare."""
    to_hf(make_gpt_with(**EXPORTABLE["gpt2"], d_vocab=290), None, folder)
    config = json.loads((folder / "config.json").read_text())
    plain = {key: value for key, value in config.items() if key not in ("cutaway", *IDS)}
    (folder / "config.json").write_text(json.dumps(plain | (IDS if ids is None else ids)))
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2], "temperature": 0.5}')
    (folder / "tokenizer.json").write_text(forge.smollm_definition())
    (folder / "tokenizer_config.json").write_text(json.dumps(SETTINGS if settings is None else settings))
    return folder


def there_and_back(folder: Path, out: Path) -> dict[str, dict[str, Any]]:
    """What an export writes of the model in `folder`, after its tokenizer was saved in a run and read again."""
    imported = from_hf(folder)
    assert imported.tokenizer is not None
    imported.tokenizer.save(folder / "saved.json")
    to_hf(imported.gpt, load_tokenizer(folder / "saved.json"), out)
    return {file.stem: json.loads(file.read_text()) for file in out.glob("*.json")}


def test_special_tokens_and_the_ids_that_end_a_text_go_out_as_they_came_in(tmp_path: Path) -> None:
    written = there_and_back(source(tmp_path / "theirs"), tmp_path / "out")
    settings = written["tokenizer_config"]
    assert (settings["bos_token"], settings["eos_token"], settings["pad_token"]) == (END, END, "<|im_end|>")
    assert settings["additional_special_tokens"] == SETTINGS["additional_special_tokens"]
    assert settings["padding_side"] == "right" and "unk_token" not in settings
    assert "split_special_tokens" not in settings
    assert {key: written["config"][key] for key in IDS} == IDS
    assert written["generation_config"] == {"eos_token_id": [0, 2]}


@pytest.mark.parametrize(
    "make", [forge.gpt2_definition, forge.smollm_definition, forge.llama3_definition], ids=["gpt2", "smollm", "llama3"]
)
def test_the_exported_definition_gives_the_original_ids_special_tokens_among_them(make: Any, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(make())
    (tmp_path / "tokenizer_config.json").write_text("{}")
    tokenizer = load_hf_tokenizer(tmp_path, 290)
    definition, settings = tokenizer_to_hf(tokenizer, 24)
    theirs, again = Backend.from_str(make()), Backend.from_str(definition)
    assert not settings.get("split_special_tokens")
    before, after = json.loads(theirs.to_str()), json.loads(again.to_str())
    assert {key for key in before if after[key] != before[key]} <= {"decoder"}, "one is added where there is none"
    assert before["decoder"] in (None, after["decoder"])
    special = json.loads(make())["added_tokens"][0]
    for text in (*forge.HOSTILE, f"the cat{special['content']}sat"):
        assert again.encode(text).ids == theirs.encode(text).ids
    assert special["id"] in again.encode(f"the cat{special['content']}sat").ids
    assert special["id"] not in tokenizer.encode(f"the cat{special['content']}sat"), "here it is text"


def test_a_setting_that_splits_special_tokens_is_kept_too(tmp_path: Path) -> None:
    written = there_and_back(source(tmp_path / "theirs", SETTINGS | {"split_special_tokens": True}), tmp_path / "out")
    assert written["tokenizer_config"]["split_special_tokens"] is True


@pytest.mark.parametrize(
    ("settings", "eos"),
    [({}, END), ({"tokenizer_class": "GPT2Tokenizer"}, END), ({"eos_token": None}, None),
     ({"tokenizer_class": "PreTrainedTokenizerFast"}, None), ({"eos_token": "<nowhere>"}, None)],
    ids=str,
)  # fmt: skip
def test_what_the_class_of_a_tokenizer_declares_is_declared(
    settings: dict[str, Any], eos: str | None, tmp_path: Path
) -> None:
    tokenizer = from_hf(source(tmp_path / "theirs", settings)).tokenizer
    assert isinstance(tokenizer, ImportedTokenizer) and tokenizer.declared is not None
    assert tokenizer.declared["settings"].get("eos_token") == eos
    assert tokenizer.declared_id("eos_token") == (None if eos is None else 0)


def test_ids_that_a_config_leaves_to_its_family_are_written_out_where_the_model_has_them(tmp_path: Path) -> None:
    written = there_and_back(source(tmp_path / "theirs", ids={}), tmp_path / "out")
    assert {key: written["config"][key] for key in IDS} == dict.fromkeys(IDS), "GPT-2's 50256 is none of 290"
    config = json.loads((tmp_path / "theirs/config.json").read_text()) | {"model_type": "llama"}
    (tmp_path / "theirs/config.json").write_text(json.dumps(config))
    tokenizer = load_hf_tokenizer(tmp_path / "theirs", 290)
    assert special_ids(tokenizer)[0] == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}


def test_without_a_config_the_ids_are_those_of_the_declared_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(forge.smollm_definition())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 2}
    assert special_ids(load_hf_tokenizer(tmp_path, 290)) == (ids, ids)
    assert special_ids(load_hf_tokenizer(tmp_path / "tokenizer.json", 290)) == (ids, ids)


def test_a_tokenizer_saved_before_there_were_declarations_still_loads_and_goes_out_as_before(tmp_path: Path) -> None:
    saved = {"format": 1, "kind": "imported", "definition": forge.smollm_definition(), "d_vocab": 290, "bos": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(tokenizer, ImportedTokenizer) and tokenizer.declared is None
    assert tokenizer.state().keys() == {"definition"}
    settings = tokenizer_to_hf(tokenizer, 24)[1]
    assert (settings["bos_token"], settings["split_special_tokens"]) == (END, True)
    assert special_ids(tokenizer) == ({"bos_token_id": 0, "eos_token_id": None}, {"bos_token_id": 0})


def test_a_token_that_would_stand_behind_a_text_is_said_and_goes_out_again(tmp_path: Path) -> None:
    plain = json.loads(forge.llama3_definition())
    end = {"SpecialToken": {"id": "<|end_of_text|>", "type_id": 0}}
    plain["post_processor"]["single"].append(end)
    entry = {"id": "<|end_of_text|>", "ids": [280], "tokens": ["<|end_of_text|>"]}
    plain["post_processor"]["special_tokens"]["<|end_of_text|>"] = entry
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain))
    tokenizer, notes = tokenizer_from_hf(tmp_path, 290)
    assert tokenizer is not None
    assert "puts <|end_of_text|> behind a text too; here nothing stands there" in notes[1]
    ids = Backend.from_str(tokenizer_to_hf(tokenizer, 24)[0]).encode("the cat").ids
    assert ids == [279, *tokenizer.encode("the cat"), 280]


def test_ours_declares_its_bos_and_nothing_else() -> None:
    assert special_ids(ByteTokenizer()) == ({"bos_token_id": 256, "eos_token_id": None}, {"bos_token_id": 256})
    assert special_ids(None) == ({"bos_token_id": None, "eos_token_id": None}, {})
