"""A nanoGPT checkpoint computes the same here as in nanoGPT, and what is not one is refused in a sentence."""

from __future__ import annotations

import argparse
import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from model import FFNKind
from model.checkpoint import weights_sha256
from model.errors import CheckpointError, ConfigError, InputError, UnknownNameError
from model.interop import nanogpt
from model.interop.nanogpt import from_nanogpt
from model.token_bytes import byte_letters
from model.tokenizer import load_tokenizer
from tests.model.interop.nano import SIZES, Nano, saved

TOKENS = torch.randint(0, SIZES["vocab_size"], (3, SIZES["block_size"]), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def nano() -> Nano:
    return Nano(bias=True)


@pytest.fixture
def file(nano: Nano, tmp_path: Path) -> Path:
    return saved(nano, tmp_path / "ckpt.pt")


def altered(file: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = torch.load(file, weights_only=True)
    change(content)
    torch.save(content, file)
    return file


# --- the same computation ---


@pytest.mark.parametrize("bias", [True, False])
def test_the_logits_are_those_of_nanogpt(bias: bool, tmp_path: Path) -> None:
    nano = Nano(bias=bias)
    imported = from_nanogpt(saved(nano, tmp_path / "ckpt.pt"))
    with torch.no_grad():
        expected = nano(TOKENS)
        torch.testing.assert_close(imported.gpt(TOKENS), expected, atol=1e-5, rtol=0)
    assert expected.abs().max() > 1, "small logits would agree whatever they are"
    assert imported.gpt.config.n_params == sum(parameter.numel() for parameter in nano.parameters())
    assert not imported.gpt.training
    assert imported.step == 250


@pytest.mark.parametrize("break_it", ["transposed", "k and q exchanged", "tanh", "no final bias"])
def test_the_comparison_would_notice_a_wrong_reading(
    break_it: str, nano: Nano, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(content: dict[str, Any]) -> None:
        weights = content["model"]
        name = "transformer.h.0.attn.c_attn.weight"
        if break_it == "transposed":
            square = "transformer.h.1.attn.c_proj.weight"
            weights[square] = weights[square].T.contiguous()
        elif break_it == "k and q exchanged":
            q, k, v = weights[name].chunk(3)
            weights[name] = torch.cat([k, q, v])
        elif break_it == "no final bias":
            weights["transformer.ln_f.bias"] = torch.zeros(SIZES["n_embd"])

    ffn = "gelu_tanh" if break_it == "tanh" else "gelu"
    gpt = from_nanogpt(altered(file, wrong), ffn=ffn).gpt
    with torch.no_grad():
        assert (gpt(TOKENS) - nano(TOKENS)).abs().max() > 1e-5


def test_the_older_gelu_can_be_asked_for_and_which_was_taken_is_said(tmp_path: Path) -> None:
    nano = Nano(bias=True, gelu="tanh")
    imported = from_nanogpt(saved(nano, tmp_path / "ckpt.pt"), ffn="gelu_tanh")
    with torch.no_grad():
        torch.testing.assert_close(imported.gpt(TOKENS), nano(TOKENS), atol=1e-5, rtol=0)
    assert any("tanh approximation, as asked for" in note for note in imported.notes)
    assumed = from_nanogpt(tmp_path / "ckpt.pt")
    assert assumed.gpt.config.ffn is FFNKind.GELU
    assert any("does not name its GELU: the exact one was taken" in note for note in assumed.notes)
    with pytest.raises(ConfigError, match='ffn="relu" is not what nanoGPT has'):
        from_nanogpt(tmp_path / "ckpt.pt", ffn="relu")


def test_the_weights_are_taken_bit_for_bit_and_the_tie_is_one_matrix(nano: Nano, file: Path) -> None:
    gpt = from_nanogpt(file).gpt
    assert torch.equal(gpt.blocks[1].mlp.in_proj.weight, nano.transformer["h"][1]["mlp"]["c_fc"].weight)
    assert gpt.config.tie_embeddings
    assert gpt.unembed.weight is gpt.embed.weight
    assert torch.equal(gpt.embed.weight, nano.lm_head.weight)


def test_an_untied_model_keeps_both_matrices(nano: Nano, file: Path) -> None:
    other = torch.randn(SIZES["vocab_size"], SIZES["n_embd"])
    altered(file, lambda content: content["model"].update({"lm_head.weight": other}))
    imported = from_nanogpt(file)
    assert not imported.gpt.config.tie_embeddings
    assert torch.equal(imported.gpt.unembed.weight, other)
    assert torch.equal(imported.gpt.embed.weight, nano.transformer["wte"].weight)
    assert any("are not tied" in note for note in imported.notes)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_prefixes_of_compiled_and_distributed_models_are_stripped_and_said(
    prefix: str, nano: Nano, file: Path, tmp_path: Path
) -> None:
    imported = from_nanogpt(saved(nano, tmp_path / "wrapped.pt", prefix=prefix))
    assert weights_sha256(imported.gpt) == weights_sha256(from_nanogpt(file).gpt)
    for part in ("_orig_mod.", "module."):
        assert any(note.startswith(f"{part} was stripped") for note in imported.notes) == (part in prefix)


def test_mask_buffers_are_left_out(file: Path) -> None:
    before = weights_sha256(from_nanogpt(file).gpt)
    mask = torch.ones(1, 1, 12, 12).tril()
    buffers = {f"transformer.h.{layer}.attn.bias": mask for layer in range(2)}
    altered(file, lambda content: content["model"].update(buffers))
    assert weights_sha256(from_nanogpt(file).gpt) == before


def test_half_precision_is_widened_and_said(nano: Nano, file: Path) -> None:
    def halve(content: dict[str, Any]) -> None:
        content["model"] = OrderedDict((name, tensor.bfloat16()) for name, tensor in content["model"].items())

    imported = from_nanogpt(altered(file, halve))
    assert imported.gpt.dtype == torch.float32
    assert torch.equal(imported.gpt.embed.weight, nano.lm_head.weight.bfloat16().float())
    assert any("torch.bfloat16 were converted to float32" in note for note in imported.notes)


@pytest.mark.parametrize("iter_num", [0, None, "many"])
def test_a_step_that_the_file_does_not_say_is_none(iter_num: Any, nano: Nano, tmp_path: Path) -> None:
    assert from_nanogpt(saved(nano, tmp_path / "ckpt.pt", iter_num=iter_num)).step is None


def test_a_file_in_the_older_format_of_torch_opens_too(file: Path) -> None:
    before = weights_sha256(from_nanogpt(file).gpt)
    torch.save(torch.load(file, weights_only=True), file, _use_new_zipfile_serialization=False)
    assert weights_sha256(from_nanogpt(file).gpt) == before


# --- code in the file ---


class TouchesAFile:
    """What a malicious checkpoint holds: an object whose making runs a command."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_code_is_refused_and_runs_none(zipped: bool, file: Path, tmp_path: Path) -> None:
    victim = tmp_path / "touched"
    content = {**torch.load(file, weights_only=True), "config": TouchesAFile(victim)}
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"holds more than tensors and plain data.*could run any code; it was no"):
        from_nanogpt(file)
    assert not victim.exists()
    torch.load(file, weights_only=False)
    assert victim.exists(), "the file would have done it"


def test_plain_python_objects_are_refused_by_name(file: Path) -> None:
    content = {**torch.load(file, weights_only=True), "config": argparse.Namespace(lr=1e-3)}
    torch.save(content, file)
    with pytest.raises(CheckpointError, match=r"plain data \(argparse\.Namespace\).*Save it again with model"):
        from_nanogpt(file)


def test_a_torch_that_can_be_tricked_opens_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(CheckpointError, match=r"torch 2\.9\.1\+cpu can be made to run code.*update to torch 2\.10"):
        from_nanogpt(file)


# --- what is not nanoGPT's ---


@pytest.mark.parametrize("content", [b"", b"hello world", b"PK\x03\x04", b"\x80\x04\x95"])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"ckpt\.pt (is no checkpoint of torch|holds more than tensors)"):
        from_nanogpt(tmp_path / "ckpt.pt")


def test_a_file_cut_short_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match="was cut short; copy it again"):
        from_nanogpt(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"There is no file .*ckpt\.pt; name a nanoGPT checkpoint"):
        from_nanogpt(tmp_path / "ckpt.pt")


@pytest.mark.parametrize("content", [torch.ones(2), {"model": {}}, {"state_dict": {}, "epoch": 3}])
def test_another_checkpoint_of_torch_is_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match="is no nanoGPT checkpoint: that holds `model` and `model_args`"):
        from_nanogpt(tmp_path / "ckpt.pt")


FORKS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a setting": (lambda c: c["model_args"].update(use_rmsnorm=True), r"model_args\.use_rmsnorm=True, which nanoGPT's"),
    "a size": (lambda c: c["model_args"].pop("n_head"), "model_args lacks n_head"),
    "no size": (lambda c: c["model_args"].update(vocab_size=None), "d_vocab=None is not a size"),
    "a weight": (lambda c: c["model"].update(gate=torch.ones(1)), "has gate, for which nanoGPT's model has no place"),
    "a part": (
        lambda c: c["model"].update({"transformer.h.0.mlp.c_gate.weight": torch.ones(1)}),
        r"has transformer\.h\.0\.mlp\.c_gate\.weight, for which",
    ),
    "a layer too few": (lambda c: c["model_args"].update(n_layer=3), r"lacks transformer\.h\.2\.attn\.c_attn\.bias"),
    "a layer too many": (lambda c: c["model_args"].update(n_layer=1), r"has transformer\.h\.1\."),
    "another width": (
        lambda c: c["model"].update({"transformer.h.0.mlp.c_fc.weight": torch.ones(48, 16)}),
        r"transformer\.h\.0\.mlp\.c_fc\.weight is \[48, 16\], not \[64, 16\]",
    ),
    "another width of queries, keys and values": (
        lambda c: c["model"].update({"transformer.h.0.attn.c_attn.weight": torch.ones(60, 16)}),
        r"transformer\.h\.0\.attn\.c_attn\.weight is \[60, 16\], not \[48, 16\]",
    ),
    "no biases": (
        lambda c: c["model_args"].update(bias=False),
        r"has transformer\.h\.0\.attn\.c_attn\.bias, for which",
    ),
    "no embedding": (lambda c: c["model"].pop("transformer.wpe.weight"), r"lacks transformer\.wpe\.weight"),
}


@pytest.mark.parametrize("fork", FORKS)
def test_a_fork_is_refused_by_what_it_has_or_lacks(fork: str, file: Path) -> None:
    change, expected = FORKS[fork]
    with pytest.raises(ConfigError, match=expected):
        from_nanogpt(altered(file, change))


# --- its tokenizer ---


def test_without_a_tokenizer_it_is_said_what_to_give(file: Path, tmp_path: Path) -> None:
    imported = from_nanogpt(file)
    assert imported.tokenizer is None
    assert any("give the text it was trained on, as chars:input.txt" in note for note in imported.notes)
    for size, words in ((50_257, "50257 is GPT-2's: give the folder"), (50_304, "50304 is GPT-2's, padded from 50257")):
        config = imported.gpt.config.varied(d_vocab=size)
        assert words in nanogpt.needed_tokenizer(config)


def test_characters_are_numbered_by_nanogpts_rule(file: Path, tmp_path: Path) -> None:
    text = "hello\r\nworld!!\n"  # eleven, with what opening as text makes of a line's end
    (tmp_path / "input.txt").write_bytes((text + "xy").encode())
    with (tmp_path / "input.txt").open(encoding="utf-8") as opened:
        characters = sorted(set(opened.read()))
    assert len(characters) == SIZES["vocab_size"]
    tokenizer = from_nanogpt(file, f"chars:{tmp_path / 'input.txt'}").tokenizer
    assert tokenizer is not None
    assert tokenizer.bos is None
    assert tokenizer.d_vocab == SIZES["vocab_size"]
    assert tokenizer.encode("hello\n") == [characters.index(character) for character in "hello\n"]


def test_a_text_with_other_characters_is_refused(file: Path, tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("abc")
    with pytest.raises(InputError, match=r"input\.txt has 3 different characters, and the model's vocabulary is 11; "):
        from_nanogpt(file, f"chars:{tmp_path / 'input.txt'}")


@pytest.mark.parametrize(("size", "bos"), [(256, None), (257, 256)])
def test_bytes_have_a_bos_where_the_model_has_room_for_one(size: int, bos: int | None, tmp_path: Path) -> None:
    file = saved(Nano(bias=False, vocab_size=size), tmp_path / "ckpt.pt")
    tokenizer = from_nanogpt(file, "bytes").tokenizer
    assert tokenizer is not None
    assert (tokenizer.d_vocab, tokenizer.bos) == (size, bos)
    assert tokenizer.encode("né\n ") == list("né\n ".encode())
    tokenizer.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path / "tokenizer.json").decode([110, 195, 169]) == "né"


def test_bytes_are_refused_where_there_are_not_as_many(file: Path) -> None:
    with pytest.raises(InputError, match="bytes are 256 ids, or 257 with BOS, and the model's vocabulary is 11"):
        from_nanogpt(file, "bytes")


def test_a_vocabulary_that_was_padded_takes_the_shorter_tokenizer(tmp_path: Path) -> None:
    end = {"id": 256, "content": "<|endoftext|>", "special": True, "normalized": False}
    cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": byte_letters(), "merges": []}
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    definition = {"version": "1.0", "added_tokens": [end | flags], "pre_tokenizer": cut, "decoder": cut, "model": model}
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2/tokenizer.json").write_text(json.dumps(definition))
    file = saved(Nano(bias=True, vocab_size=264), tmp_path / "ckpt.pt")  # 257, to the next multiple of 8
    for spec in ("gpt2", "gpt2/tokenizer.json"):
        tokenizer = from_nanogpt(file, str(tmp_path / spec)).tokenizer
        assert tokenizer is not None
        assert tokenizer.d_vocab == 264
        assert tokenizer.decode([*tokenizer.encode("né"), 256, 263]) == "né"


def test_an_unknown_tokenizer_is_refused_with_what_there_is(file: Path) -> None:
    with pytest.raises(UnknownNameError, match='There is no tokenizer "gpt2"; give bytes, chars:FILE, or the folder'):
        from_nanogpt(file, "gpt2")
