"""Hugging Face folders: ours written and read again, bit for bit, and every way in which one can be wrong."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model import GPT
from model.checkpoint import weights_sha256
from model.errors import CheckpointError, ConfigError, InputError
from model.interop.hf import from_hf, gpt_from_hf_state, hf_state, to_hf
from model.tokenizer import BPETokenizer, ByteTokenizer
from tests.conftest import make_gpt_with
from tests.model.interop import forge
from tests.model.interop.reference import logits_of
from tests.model.interop.variants import EXPORTABLE, GPT2, LLAMA

EACH = pytest.mark.parametrize("variant", EXPORTABLE.values(), ids=EXPORTABLE.keys())
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def written(folder: Path, **variant: Any) -> GPT:
    """A model that stands in `folder` as Hugging Face would have it."""
    gpt = make_gpt_with(**({"embed_std": 0.5} | variant))
    to_hf(gpt, None, folder)
    return gpt


def changed(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """The weights in `folder` after `change`."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)


def configured(folder: Path, **fields: Any) -> None:
    """The config.json in `folder` with other fields."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def foreign(folder: Path) -> None:
    """Take out what says that the model in `folder` was ours."""
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "cutaway"}))


@EACH
def test_the_exported_files_compute_the_same_by_transformers_formulas(
    variant: dict[str, Any], tokens: Tensor, tmp_path: Path
) -> None:
    gpt = written(tmp_path, **variant)
    settings = json.loads((tmp_path / "config.json").read_text())
    torch.testing.assert_close(
        logits_of(load_file(tmp_path / WEIGHTS), settings, tokens), gpt(tokens), atol=1e-5, rtol=0
    )


@EACH
def test_what_was_exported_comes_back_bit_for_bit(variant: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = BPETokenizer.train(forge.TEXT, 280)
    gpt = make_gpt_with(**(variant | {"d_vocab": 280, "init": "gpt2", "embed_std": 0.3}))
    to_hf(gpt, tokenizer, tmp_path / "exported")
    imported = from_hf(tmp_path / "exported")
    assert imported.gpt.config == gpt.config
    assert weights_sha256(imported.gpt) == weights_sha256(gpt)
    assert not imported.gpt.training and imported.notes == ()
    assert isinstance(imported.tokenizer, BPETokenizer)
    assert imported.tokenizer.definition == tokenizer.definition
    assert imported.source == f"the folder {tmp_path / 'exported'}"
    to_hf(imported.gpt, imported.tokenizer, tmp_path / "again")
    for file in (tmp_path / "exported").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_whoever_may_read_the_config_may_read_the_weights(tmp_path: Path) -> None:
    written(tmp_path, **LLAMA)
    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1


@EACH
def test_without_our_entry_the_function_comes_back(variant: dict[str, Any], tokens: Tensor, tmp_path: Path) -> None:
    gpt = written(tmp_path, **variant)
    foreign(tmp_path)
    torch.testing.assert_close(from_hf(tmp_path).gpt(tokens), gpt(tokens), atol=1e-6, rtol=0)


@EACH
def test_names_come_with_the_whole_models_prefix_or_without(
    variant: dict[str, Any], tokens: Tensor, tmp_path: Path
) -> None:
    gpt = written(tmp_path, **variant)

    def bare(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("model.").removeprefix("transformer.")] = tensors.pop(name)

    changed(tmp_path, bare)
    assert weights_sha256(from_hf(tmp_path).gpt) == weights_sha256(gpt)


def test_shards_are_put_together(tmp_path: Path) -> None:
    gpt = written(tmp_path, **LLAMA)
    sharded(tmp_path)
    assert weights_sha256(from_hf(tmp_path).gpt) == weights_sha256(gpt)


def sharded(folder: Path) -> dict[str, str]:
    """The weights in `folder` as two shards and an index."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    places = {name: f"model-{1 + at % 2:05d}-of-00002.safetensors" for at, name in enumerate(sorted(tensors))}
    for shard in set(places.values()):
        save_file({name: tensors[name] for name, place in places.items() if place == shard}, folder / shard)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return places


def test_masks_and_rotation_tables_among_the_weights_are_passed_over(tmp_path: Path) -> None:
    gpt = written(tmp_path / "gpt2", **GPT2, biases=True)
    masks = {f"transformer.h.0.attn.{name}": torch.ones(1, 1, 24, 24).bool() for name in ("bias", "masked_bias")}
    changed(tmp_path / "gpt2", lambda tensors: tensors.update(masks))
    assert weights_sha256(from_hf(tmp_path / "gpt2").gpt) == weights_sha256(gpt)
    gpt = written(tmp_path / "llama", **LLAMA)
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4), "model.rotary_emb.inv_freq": torch.ones(4)}
    changed(tmp_path / "llama", lambda tensors: tensors.update(table))
    assert weights_sha256(from_hf(tmp_path / "llama").gpt) == weights_sha256(gpt)


def test_a_head_beside_a_tied_embedding_must_repeat_it(tmp_path: Path) -> None:
    gpt = written(tmp_path, **LLAMA)
    changed(tmp_path, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    assert weights_sha256(from_hf(tmp_path).gpt) == weights_sha256(gpt)
    changed(tmp_path, lambda tensors: tensors["lm_head.weight"][3, 3].add_(1e-3))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
        from_hf(tmp_path)


WRONG: dict[str, tuple[dict[str, Any], Callable[[dict[str, Tensor]], Any], str]] = {
    "missing": (
        LLAMA,
        lambda t: t.pop("model.layers.1.mlp.up_proj.weight"),
        r"lack model\.layers\.1\.mlp\.up_proj\.weight, ",
    ),
    "two missing": (
        GPT2,
        lambda t: [t.pop("transformer.wpe.weight"), t.pop("transformer.wte.weight")],
        r"lack \S+wpe\.weight and 1 more",
    ),
    "head missing": (
        LLAMA | {"tie_embeddings": False},
        lambda t: t.pop("lm_head.weight"),
        r"lack lm_head\.weight, which the config asks for; if head and embedding are one matrix",
    ),
    "unknown": (
        LLAMA,
        lambda t: t.update({"model.layers.2.x": torch.ones(1)}),
        r"hold model\.layers\.2\.x, which the config does",
    ),
    "a layer more": (LLAMA, lambda t: t.update({"lm_head.bias": torch.ones(1)}), r"hold lm_head\.bias, which"),
    "misshapen": (
        GPT2,
        lambda t: t.update({"transformer.h.1.attn.c_attn.weight": torch.ones(96, 32)}),
        r"h\.1\.attn\.c_attn\.weight is \[96, 32\]; the config asks for \[32, 96\]",
    ),
    "twice": (LLAMA, lambda t: t.update({"norm.weight": torch.ones(32)}), r"hold \S*norm\.weight twice"),
    "quantised": (
        LLAMA,
        lambda t: t.update({"model.norm.weight": torch.ones(32, dtype=torch.int8)}),
        r"model\.norm\.weight is stored as torch\.int8: quantised weights are not read",
    ),
}


@pytest.mark.parametrize(("variant", "spoil", "reason"), WRONG.values(), ids=WRONG.keys())
def test_weights_of_another_model_are_refused_by_name(variant: Any, spoil: Any, reason: str, tmp_path: Path) -> None:
    written(tmp_path, **variant)
    changed(tmp_path, spoil)
    with pytest.raises(CheckpointError, match=reason):
        from_hf(tmp_path)


def test_half_precision_is_widened_exactly_and_said(tmp_path: Path) -> None:
    gpt = written(tmp_path, **LLAMA)
    changed(tmp_path, lambda tensors: tensors.update({name: t.bfloat16() for name, t in tensors.items()}))
    imported = from_hf(tmp_path)
    assert imported.notes[0] == "The weights were stored as bfloat16 and are float32 here."
    assert imported.gpt.dtype == torch.float32
    assert torch.equal(imported.gpt.W_E, gpt.W_E.bfloat16().float())
    assert weights_sha256(from_hf(tmp_path, dtype=torch.bfloat16).gpt) == weights_sha256(gpt.bfloat16())


def test_double_precision_is_kept(tmp_path: Path) -> None:
    gpt = make_gpt_with(**GPT2).double()
    to_hf(gpt, None, tmp_path)
    imported = from_hf(tmp_path)
    assert (weights_sha256(imported.gpt), imported.notes) == (
        weights_sha256(gpt),
        ("There is no tokenizer beside the weights.",),
    )


def test_biases_of_one_sublayer_alone_are_completed_with_zeros(tokens: Tensor, tmp_path: Path) -> None:
    gpt = written(tmp_path, **LLAMA, biases=True)
    foreign(tmp_path)
    for layer in gpt.layers:
        for name in ("gate_proj", "in_proj", "out_proj"):
            torch.nn.init.zeros_(getattr(layer.mlp, name).bias)
    configured(tmp_path, mlp_bias=False)
    changed(tmp_path, lambda t: [t.pop(name) for name in list(t) if "mlp" in name and name.endswith("bias")])
    imported = from_hf(tmp_path)
    assert "Only attention had biases; those of the FFN are zeros here." in imported.notes
    assert torch.equal(imported.gpt(tokens), gpt(tokens))
    changed(tmp_path, lambda t: t.pop("model.layers.0.self_attn.q_proj.bias"))
    with pytest.raises(CheckpointError, match=r"lack model\.layers\.0\.self_attn\.q_proj\.bias"):
        from_hf(tmp_path)


def test_our_entry_is_ignored_with_a_note_where_it_no_longer_holds(tmp_path: Path) -> None:
    gpt = written(tmp_path, **LLAMA)
    configured(tmp_path, rms_norm_eps=1e-3)
    imported = from_hf(tmp_path)
    assert imported.gpt.config.norm_eps == 1e-3 != gpt.config.norm_eps
    assert any("contradicts the rest and was ignored: norm_eps=0.001 (was 1e-05)" in note for note in imported.notes)
    configured(tmp_path, cutaway={"config": {"n_layers": "many"}})
    assert any("could not be read and was ignored" in note for note in from_hf(tmp_path).notes)


def test_biases_that_a_biasless_gpt2_has_learned_elsewhere_are_kept(tokens: Tensor, tmp_path: Path) -> None:
    gpt = written(tmp_path, **GPT2)
    changed(tmp_path, lambda tensors: tensors["transformer.h.0.mlp.c_fc.bias"].add_(0.5))
    imported = from_hf(tmp_path)
    assert imported.gpt.config == gpt.config.varied(biases=True)
    assert imported.notes[0] == "The model was exported without biases and has some now; they were kept."
    settings = json.loads((tmp_path / "config.json").read_text())
    wanted = logits_of(load_file(tmp_path / WEIGHTS), settings, tokens)
    torch.testing.assert_close(imported.gpt(tokens), wanted, atol=1e-5, rtol=0)
    with pytest.raises(
        CheckpointError, match=r"has no biases, and transformer\.h\.0\.mlp\.c_fc\.bias is not \[128\] zeros"
    ):
        gpt_from_hf_state(gpt.config, load_file(tmp_path / WEIGHTS))


def test_a_pickle_is_refused_and_not_opened(tmp_path: Path) -> None:
    written(tmp_path, **LLAMA)
    (tmp_path / WEIGHTS).unlink()
    trace = tmp_path / "opened"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (trace,)

    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match=r"holds its weights as a pickle \(pytorch_model\.bin\).+save_pretrained"):
        from_hf(tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda f: (f / WEIGHTS).unlink(), "holds no weights that can be read"),
        (lambda f: [(f / WEIGHTS).unlink(), (f / "adapter_config.json").touch()], "holds an adapter, not a model"),
        (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:999]), "damaged or was cut short"),
        (lambda f: (f / WEIGHTS).write_bytes(b""), "damaged or was cut short"),
        (lambda f: (f / "config.json").unlink(), r"holds no config\.json"),
        (lambda f: (f / "config.json").write_text("{"), "is not readable JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "not a JSON object"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "defines no tokenizer"),
    ],
)
def test_a_damaged_folder_is_refused_in_a_sentence(spoil: Any, reason: str, tmp_path: Path) -> None:
    written(tmp_path, **LLAMA)
    spoil(tmp_path)
    with pytest.raises(CheckpointError, match=reason):
        from_hf(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda f, p: (f / next(iter(p.values()))).unlink(), "and there is no such file"),
        (lambda f, p: relisted(f, p | {"model.x": next(iter(p.values()))}), "lists model.x in"),
        (lambda f, p: relisted(f, dict(list(p.items())[2:])), "does not list .+ in"),
        (lambda f, p: relisted(f, dict.fromkeys(p, "../outside.safetensors")), "which is not in the folder itself"),
        (lambda f, p: relisted(f, None), "lists no weights"),
    ],
)
def test_a_wrong_index_is_refused_in_a_sentence(spoil: Any, reason: str, tmp_path: Path) -> None:
    written(tmp_path, **LLAMA)
    spoil(tmp_path, sharded(tmp_path))
    with pytest.raises(CheckpointError, match=reason):
        from_hf(tmp_path)


def relisted(folder: Path, places: dict[str, str] | None) -> None:
    """An index that says something else."""
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


def test_an_export_overwrites_nothing_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "note").touch()
    with pytest.raises(InputError, match="is not an empty folder"):
        to_hf(make_gpt_with(**LLAMA), None, tmp_path / "kept")
    with pytest.raises(InputError, match="tokenizer has 257 tokens and the model 50"):
        to_hf(make_gpt_with(**LLAMA), ByteTokenizer(), tmp_path / "new")
    with pytest.raises(ConfigError, match="ffn=swiglu"):
        to_hf(make_gpt_with(), None, tmp_path / "new")
    untied = make_gpt_with(**LLAMA)
    untied.unembed.weight = torch.nn.Parameter(untied.unembed.weight.detach().clone())
    with pytest.raises(CheckpointError, match="tie_embeddings"):
        to_hf(untied, None, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_an_exported_state_is_a_copy(tmp_path: Path) -> None:
    gpt = make_gpt_with(**LLAMA)
    before = weights_sha256(gpt)
    for tensor in hf_state(gpt).values():
        tensor.zero_()
    assert weights_sha256(gpt) == before


def test_the_trainers_record_says_how_many_steps_lie_behind(tmp_path: Path) -> None:
    written(tmp_path, **LLAMA)
    assert from_hf(tmp_path).step is None
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1200}')
    assert from_hf(tmp_path).step == 1200


# --- names on the hub -------------------------------------------------------------------------------------------------

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub, and no way to it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def test_a_name_is_looked_up_in_the_hubs_cache(hub: Path) -> None:
    repository = hub / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    (repository / "snapshots").mkdir()
    gpt = written(repository / "snapshots" / REVISION, **GPT2)
    imported = from_hf("someone/tiny")
    assert weights_sha256(imported.gpt) == weights_sha256(gpt)
    assert imported.source == f"someone/tiny on the Hugging Face hub (revision {REVISION[:12]})"
    assert imported == replace(imported, format="gpt2")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("someone/other", '"someone/other" is no folder here, and as a model on the hub it is not in the local cache'),
        ("a--b/c", "the hub has no such names"),
        ("runs/demo/checkpoints", "There is no folder runs/demo/checkpoints; give one, or the name"),
        ("/nowhere", "There is no folder /nowhere"),
        ("../above", r"There is no folder \.\./above"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_in_a_sentence(hub: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        from_hf(name)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    with pytest.raises(InputError, match="is a file; give the folder"):
        from_hf(tmp_path / "weights")
