from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model import GPT, FFNKind, Norm, NormKind, Positions
from model.checkpoint import (
    checkpoint_path,
    checkpoint_steps,
    drop_train_state,
    load_checkpoint,
    load_train_state,
    save_checkpoint,
    verify_checkpoint,
    weights_sha256,
)
from model.errors import CheckpointError
from model.files import PARTIAL

Make = Callable[..., GPT]
FILES = ["model.safetensors", "config.json", "manifest.json"]
STATE = ({"exp_avg": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(7)}, {"step": 3, "note": "é"})


def same_weights(one: GPT, other: GPT) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return list(first) == list(second) and all(
        torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype for name in first
    )


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- round trips ---


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm", Norm)
def test_every_placement_comes_back_bit_for_bit(tmp_path: Path, make_gpt: Make, tokens: Tensor, norm: Norm, tied: bool):
    gpt = make_gpt(norm=norm, tie_embeddings=tied)
    loaded = load_checkpoint(save_checkpoint(tmp_path, gpt, step=1, tokens_seen=10))
    assert same_weights(gpt, loaded)
    assert loaded.config == gpt.config
    assert torch.equal(loaded(tokens), gpt(tokens))


@pytest.mark.parametrize(
    "choice",
    [
        *({"positions": positions} for positions in Positions),
        *({"ffn": ffn} for ffn in FFNKind),
        *({"norm_kind": kind, "biases": True} for kind in NormKind),
        {"n_kv_heads": 2, "qk_norm": True, "d_head": 6, "d_ff": 20, "init": "xavier", "smeared_keys": True},
        {"attention": "bidirectional", "skip_connections": False, "dropout": 0.1, "norm_eps": 1e-6, "rope_base": 500.0},
    ],
    ids=str,
)
def test_every_other_choice_comes_back_bit_for_bit(tmp_path: Path, make_gpt: Make, tokens: Tensor, choice: dict):
    gpt = make_gpt(**choice)
    loaded = load_checkpoint(save_checkpoint(tmp_path, gpt, step=1, tokens_seen=10))
    assert same_weights(gpt, loaded)
    assert loaded.config == gpt.config
    assert torch.equal(loaded(tokens), gpt(tokens))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_number_format_comes_back(tmp_path: Path, tiny: GPT, tokens: Tensor, dtype: torch.dtype) -> None:
    gpt = tiny.to(dtype)
    loaded = load_checkpoint(save_checkpoint(tmp_path, gpt, step=1, tokens_seen=10))
    assert same_weights(gpt, loaded)
    assert torch.equal(loaded(tokens), gpt(tokens))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_tied_matrix_is_stored_once_and_one_storage_again_after_loading(
    tmp_path: Path, make_gpt: Make, tokens: Tensor, dtype: torch.dtype
) -> None:
    gpt = make_gpt(d_vocab=5000).to(dtype)
    path = save_checkpoint(tmp_path, gpt, step=0, tokens_seen=0)
    n_bytes = gpt.config.n_params * dtype.itemsize
    assert n_bytes < (path / "model.safetensors").stat().st_size < n_bytes + 10_000
    loaded = load_checkpoint(path)
    assert loaded.embed.weight is loaded.unembed.weight
    optimizer = torch.optim.SGD(loaded.parameters(), lr=1.0)
    loaded.train().loss(tokens).backward()
    optimizer.step()
    assert loaded.embed.weight.data_ptr() == loaded.unembed.weight.data_ptr()
    assert not torch.equal(loaded.embed.weight, gpt.embed.weight)


def test_a_loaded_model_is_in_evaluation_mode_and_can_be_trained(tmp_path: Path, tiny: GPT) -> None:
    loaded = load_checkpoint(save_checkpoint(tmp_path, tiny.train(), step=0, tokens_seen=0))
    assert not loaded.training
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in loaded.parameters())


def test_a_model_that_is_not_tied_as_its_config_says_is_refused(tmp_path: Path, make_gpt: Make) -> None:
    gpt = make_gpt()
    gpt.unembed.weight = torch.nn.Parameter(gpt.embed.weight.detach().clone())
    with pytest.raises(CheckpointError, match=r"share one matrix \(tie_embeddings\), and the model says otherwise"):
        save_checkpoint(tmp_path, gpt, step=0, tokens_seen=0)
    gpt = make_gpt(tie_embeddings=False)
    gpt.unembed.weight = gpt.embed.weight
    with pytest.raises(CheckpointError, match="do not share one matrix"):
        save_checkpoint(tmp_path, gpt, step=0, tokens_seen=0)


def test_the_manifest_says_what_the_checkpoint_is(tmp_path: Path, tiny: GPT) -> None:
    extra = {"loss": float("nan"), "list": [1, 2], "deep": {"a": None}}
    path = save_checkpoint(tmp_path, tiny, step=12, tokens_seen=345, extra_json=extra)
    manifest = verify_checkpoint(path)
    assert path == checkpoint_path(tmp_path, 12) == tmp_path / "checkpoints" / "step-00000012"
    assert (manifest.step, manifest.tokens_seen) == (12, 345)
    assert manifest.weights_sha256 == weights_sha256(tiny) == weights_sha256(load_checkpoint(path))
    assert manifest.extra["deep"] == extra["deep"]
    assert sorted(manifest.files) == ["config.json", "model.safetensors"]


def test_the_hash_of_the_weights_sees_every_bit_name_and_format(make_gpt: Make) -> None:
    gpt = make_gpt()
    before = weights_sha256(gpt)
    assert before == weights_sha256(make_gpt())
    with torch.no_grad():
        gpt.blocks[1].mlp.out_proj.weight[0, 0] *= 1 + 1e-6
    assert weights_sha256(gpt) != before
    assert weights_sha256(make_gpt().double()) != before
    assert weights_sha256(make_gpt(tie_embeddings=False)) != before


def test_the_training_state_comes_back_and_can_be_dropped(tmp_path: Path, tiny: GPT) -> None:
    path = save_checkpoint(tmp_path, tiny, step=3, tokens_seen=0, train_state=STATE)
    tensors, record = load_train_state(path)
    assert record == STATE[1]
    assert all(torch.equal(tensors[name], STATE[0][name]) for name in STATE[0])
    assert names_in(path) == sorted([*FILES, "train_state.safetensors", "train_state.json"])
    drop_train_state(path)
    drop_train_state(path)
    assert load_train_state(path) is None
    assert names_in(path) == sorted(FILES)
    verify_checkpoint(path)
    assert same_weights(load_checkpoint(path), tiny)


def test_views_and_transposes_in_a_training_state_are_saved_as_what_they_show(tmp_path: Path, tiny: GPT) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    state = {"transposed": whole.T, "row": whole[1], "same": whole}
    tensors, _ = load_train_state(save_checkpoint(tmp_path, tiny, step=0, tokens_seen=0, train_state=(state, {})))
    assert all(torch.equal(tensors[name], state[name]) for name in state)


def test_saving_a_step_again_replaces_it(tmp_path: Path, make_gpt: Make) -> None:
    save_checkpoint(tmp_path, make_gpt(0), step=5, tokens_seen=0, train_state=STATE)
    path = save_checkpoint(tmp_path, make_gpt(1), step=5, tokens_seen=0)
    assert same_weights(load_checkpoint(path), make_gpt(1))
    assert load_train_state(path) is None
    assert names_in(tmp_path / "checkpoints") == ["step-00000005"]


def test_steps_are_listed_in_order_and_only_complete_ones(tmp_path: Path, tiny: GPT) -> None:
    assert checkpoint_steps(tmp_path) == []
    for step in (512, 0, 4, 64, 100_000_000):
        save_checkpoint(tmp_path, tiny, step=step, tokens_seen=0)
    (checkpoint_path(tmp_path, 4) / "manifest.json").unlink()
    (checkpoint_path(tmp_path, 64) / "model.safetensors").unlink()
    (tmp_path / "checkpoints" / "step-8").mkdir()
    (tmp_path / "checkpoints" / f"{PARTIAL}step-00000016.1.0123abcd").mkdir()
    assert checkpoint_steps(tmp_path) == [0, 512, 100_000_000]
