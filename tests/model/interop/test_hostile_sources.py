"""Sources that lie about themselves, or are called like something else: a sentence each, and nothing guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from model.checkpoint import save_checkpoint, weights_sha256
from model.config import FFNKind
from model.errors import CheckpointError, ConfigError, InputError, UnknownNameError
from model.interop import exchange, step_said
from model.interop.exchange import import_model
from model.interop.given_tokenizer import given_tokenizer
from model.interop.hf import from_hf, to_hf
from model.interop.hf_config import config_from_hf, config_to_hf
from model.interop.nanogpt import from_nanogpt
from model.interop.recognise import Kind, recognised
from model.lab import open_run
from model.tokenizer import ByteTokenizer
from tests.conftest import make_gpt_with
from tests.model.interop.imports import nano_file
from tests.model.interop.nano import Nano, saved
from tests.model.interop.variants import GPT2, LLAMA

BYTES = 257


def foreign(folder: Path, variant: dict[str, Any], **fields: Any) -> Path:
    """A model of another program's in `folder`, its config.json changed afterwards."""
    to_hf(make_gpt_with(**(variant | {"d_vocab": BYTES})), ByteTokenizer(), folder)
    path = folder / "config.json"
    plain = {key: value for key, value in json.loads(path.read_text()).items() if key != "cutaway"}
    path.write_text(json.dumps(plain | fields))
    return folder


# --- a config of another size than the weights ---

TOO_MUCH = {
    "a vocabulary": (LLAMA, {"vocab_size": 10**12}, r"model\.embed_tokens\.weight is .*asks for \[1000000000000, "),
    "a width": (LLAMA, {"hidden_size": 10**30}, r"model\.embed_tokens\.weight is .*asks for"),
    "layers": (LLAMA, {"num_hidden_layers": 10**9}, r"asks for 1000000000 layers, and there are \d+ weights"),
    "an FFN": (LLAMA, {"intermediate_size": 10**12}, r"mlp\.up_proj\.weight is .*asks for \[1000000000000, "),
    "heads": (LLAMA, {"head_dim": 10**12}, r"self_attn\.q_proj\.weight is .*asks for"),
    "positions": (GPT2, {"n_positions": 10**12}, r"transformer\.wpe\.weight is .*asks for \[1000000000000, "),
    "layers of a GPT-2": (GPT2, {"n_layer": 10**9}, r"asks for 1000000000 layers"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("variant", "fields", "said"), TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_a_config_cannot_ask_for_more_than_its_weights(
    variant: dict[str, Any], fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=said):
        from_hf(foreign(tmp_path / "model", variant, **fields))


# --- fields that no one expects ---


@pytest.mark.parametrize("classes", [5, [["x"]], {"a": 1}, "LlamaForCausalLM", [], None])
def test_architectures_of_any_kind_are_no_traceback(classes: Any) -> None:
    with pytest.raises(ConfigError, match="model_type"):
        config_from_hf({"architectures": classes})


def test_an_empty_rope_scaling_hides_no_rope_parameters() -> None:
    plain = config_to_hf(make_gpt_with(**LLAMA).config)
    plain = {key: value for key, value in plain.items() if key not in ("cutaway", "rope_theta")}
    theirs = plain | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert config_from_hf(theirs | {"rope_scaling": {}}).rope_base == 5e5
    assert config_from_hf(theirs | {"rope_scaling": None}).rope_base == 5e5
    nested = {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}
    with pytest.raises(ConfigError, match=r"rope_parameters differs from layer to layer \(full_attention\)"):
        config_from_hf(plain | {"rope_parameters": nested})


@pytest.mark.parametrize(("said", "step"), [(7, 7), (0, None), (-5, None), (True, None), (2.0, None), ("7", None)])
def test_a_step_is_a_whole_number_above_zero_or_unknown(said: Any, step: int | None, tmp_path: Path) -> None:
    foreign(tmp_path / "model", GPT2)
    (tmp_path / "model" / "trainer_state.json").write_text(json.dumps({"global_step": said}))
    assert from_hf(tmp_path / "model").step == step
    assert step_said(said) == step


# --- names on the hub ---


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    """A hub that serves one model; and what was asked of it: name, revision, patterns."""
    asked: list[tuple[str, Any, Any]] = []
    snapshot = tmp_path / "cache" / "0123456789abcdef"
    foreign(snapshot, GPT2)
    weights = (snapshot / "model.safetensors").read_bytes()
    (snapshot / "model.safetensors").unlink()

    def download(name: str, *, revision: str | None = None, allow_patterns: list[str]) -> str:
        asked.append((name, revision, tuple(allow_patterns)))
        if "*.safetensors" in allow_patterns:
            (snapshot / "model.safetensors").write_bytes(weights)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return asked


def test_a_hub_name_is_fetched_even_where_a_folder_is_called_so(fetched: list[tuple[str, Any, Any]]) -> None:
    local = foreign(Path("gpt2"), LLAMA)
    assert exchange.opened("hf:gpt2").source.startswith("gpt2 on the Hugging Face hub")
    assert fetched[0][0] == "gpt2"
    del fetched[:]
    assert exchange.opened("gpt2").source == f"the folder {local}"
    assert not fetched


def test_the_settings_are_looked_at_before_the_weights_are_fetched(fetched: list[tuple[str, Any, Any]]) -> None:
    settings, weights = ("*.json", "merges.txt"), ("*.safetensors",)
    imported = exchange.opened("hf:owner/name")
    assert fetched == [("owner/name", None, settings), ("owner/name", "0123456789abcdef", weights)]
    again = from_hf(Path("../cache/0123456789abcdef"))
    assert weights_sha256(imported.gpt) == weights_sha256(again.gpt)
    del fetched[:]
    config = Path("../cache/0123456789abcdef/config.json")
    config.write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(ConfigError, match='model_type="mamba" is neither llama nor gpt2'):
        exchange.opened("hf:owner/name")
    assert [patterns for _, _, patterns in fetched] == [settings], "nothing large was fetched in vain"


@pytest.mark.parametrize("name", ["..", ".", "../x", "x/..", "./x", "x/.", "a/b/c", "/x", "", ".hidden/x", "x\n"])
def test_a_hub_name_never_walks_through_folders(name: str, fetched: list[tuple[str, Any, Any]]) -> None:
    foreign(Path("../x"), GPT2)
    with pytest.raises(UnknownNameError, match="is no name on the Hugging Face hub; write hf:gpt2"):
        recognised(f"hf:{name}")
    with pytest.raises(InputError, match="is no name on the Hugging Face hub"):
        from_hf(name, from_hub=True)
    assert not fetched


# --- things that are not what they are taken for ---


@pytest.mark.parametrize("part", ["", "model.safetensors", "config.json"])
def test_our_own_checkpoint_is_named_as_what_it_is(part: str, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "runs" / "mine", make_gpt_with(**GPT2), step=40, tokens_seen=0)
    with pytest.raises(InputError, match=r"is a checkpoint of the run .*mine of Cutaway.*generate .*runs/mine@40$"):
        recognised(folder / part)


def test_a_folder_whose_weights_are_gguf_names_that_file(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "model", GPT2)
    (folder / "model.safetensors").rename(folder / "model-q4.gguf")
    assert recognised(folder).kind is Kind.HUGGING_FACE
    with pytest.raises(CheckpointError, match=r"holds its weights as GGUF; give that file itself: .*model-q4\.gguf"):
        from_hf(folder)


# --- nanoGPT checkpoints ---

QKV, NORM = "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"
NOT_NANO: dict[str, tuple[dict[Any, Any], dict[Any, Any], str]] = {
    "two prefixes": (
        {"_orig_mod.transformer.wte.weight": torch.zeros(11, 16)},
        {},
        r"wte\.weight twice",
    ),
    "whole numbers": ({NORM: torch.ones(16, dtype=torch.int64)}, {}, r"ln_f\.weight as torch\.int64, .*a plain tensor"),
    "complex numbers": ({NORM: torch.ones(16, dtype=torch.complex64)}, {}, r"ln_f\.weight as torch\.complex64"),
    "a sparse tensor": ({NORM: torch.ones(16).to_sparse()}, {}, r"ln_f\.weight as torch\.float32, torch\.sparse_coo"),
    "no tensor": ({"transformer.wte.weight": 5}, {}, r"wte\.weight as int; a weight is a plain tensor"),
    "no text as a name": ({5: torch.ones(2)}, {}, "a weight is called 5, which is no text"),
    "two rows": ({QKV: torch.ones(2, 16)}, {}, r"c_attn\.weight is \[2, 16\], not \[48, 16\]"),
    "a scalar": ({QKV: torch.tensor(1.0)}, {}, r"c_attn\.weight is \[\], not \[48, 16\]"),
    "no dropout": ({}, {"dropout": None}, r"model_args\.dropout=None; a number belongs there"),
    "dropout in words": ({}, {"dropout": "a"}, r"model_args\.dropout='a'; a number belongs there"),
    "settings of mixed kinds": ({}, {5: 1, "a": 2}, r"model_args\.5=1, which nanoGPT's own model does not know"),
    "too many ids": ({}, {"vocab_size": 10**12}, r"wte\.weight is \[11, 16\], not \[1000000000000, 16\]"),
    "too many layers": ({}, {"n_layer": 10**9}, "weights are too few for n_layer=1000000000"),
    "a head of another format": ({"lm_head.weight": torch.zeros(11, 16).half()}, {}, ""),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("weights", "sizes", "said"), NOT_NANO.values(), ids=NOT_NANO.keys())
def test_a_nanogpt_checkpoint_of_anything_else_is_refused_in_a_sentence(
    weights: dict[Any, Any], sizes: dict[Any, Any], said: str, tmp_path: Path
) -> None:
    file = saved(Nano(bias=True), tmp_path / "ckpt.pt")
    content = torch.load(file, weights_only=True)
    content["model"] |= weights
    content["model_args"] |= sizes
    torch.save(content, file)
    if not said:
        assert not from_nanogpt(file).gpt.config.tie_embeddings
        return
    with pytest.raises((CheckpointError, ConfigError), match=said):
        from_nanogpt(file)


def test_a_nanogpt_step_that_is_no_count_is_unknown(tmp_path: Path) -> None:
    for said, step in ((True, None), (-5, None), (9, 9)):
        assert from_nanogpt(saved(Nano(bias=True), tmp_path / "ckpt.pt", iter_num=said)).step == step


def test_the_older_gelu_can_be_imported_as_a_run(tmp_path: Path) -> None:
    file = nano_file(tmp_path)
    tokenizer = f"chars:{tmp_path / 'input.txt'}"
    older = import_model(file, tmp_path / "older", tokenizer=tokenizer, ffn="gelu_tanh")
    newer = import_model(file, tmp_path / "newer", tokenizer=tokenizer)
    assert [open_run(run).config.ffn for run in (older, newer)] == [FFNKind.GELU_TANH, FFNKind.GELU]
    assert any("for a model of older code give --ffn gelu_tanh" in note for note in exchange.opened(file).notes)
    with pytest.raises(InputError, match="A Hugging Face directory says its own FFN; leave out ffn=gelu"):
        exchange.opened(foreign(tmp_path / "model", GPT2), ffn="gelu")


def test_the_tokenizer_of_a_run_of_ours_can_be_given(tmp_path: Path) -> None:
    run = import_model(nano_file(tmp_path), tmp_path / "run", tokenizer=f"chars:{tmp_path / 'input.txt'}")
    own = open_run(run).tokenizer
    for spec in (run, run / "tokenizer.json"):
        assert given_tokenizer(str(spec), own.d_vocab).encode("lazy dog") == own.encode("lazy dog")
    with pytest.raises(InputError, match=r"run/tokenizer\.json has \d+ tokens, and the model's vocabulary is 99"):
        given_tokenizer(str(run), 99)
