from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from model import GPT, FFNKind, Norm, NormKind, Positions
from model.checkpoint import (
    checkpoint_path,
    checkpoint_steps,
    drop_train_state,
    load_checkpoint,
    load_train_state,
    read_manifest,
    save_checkpoint,
    stored_weights,
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
        {"n_kv_heads": 2, "qk_norm": True, "d_head": 6, "d_ff": 20, "init": "xavier"},
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


# --- damage: one clear sentence each, and nothing is loaded ---


@pytest.fixture
def saved(tmp_path: Path, tiny: GPT) -> Path:
    return save_checkpoint(tmp_path, tiny, step=3, tokens_seen=10, train_state=STATE)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    for check in (load_checkpoint, verify_checkpoint):
        with pytest.raises(CheckpointError, match=f"is incomplete: {name} is missing. Use another checkpoint"):
            check(saved)


@pytest.mark.parametrize("name", [*FILES, "train_state.safetensors", "train_state.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_file_cut_short_is_refused(saved: Path, name: str, share: float) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=rf"{name} (was altered or cut short|is not readable JSON)"):
        verify_checkpoint(saved)
    with pytest.raises(CheckpointError, match=name):
        (load_train_state if name.startswith("train") else load_checkpoint)(saved)


@pytest.mark.parametrize("name", [*FILES, "train_state.safetensors", "train_state.json"])
def test_every_changed_bit_is_noticed(saved: Path, name: str) -> None:
    content = bytearray((saved / name).read_bytes())
    for place in range(0, len(content), max(1, len(content) // 40)):
        changed = bytearray(content)
        changed[place] ^= 1
        (saved / name).write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"is damaged|is not readable JSON"):
            verify_checkpoint(saved)


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"seal": 1}', '"text"'])
def test_a_manifest_of_another_kind_is_refused(saved: Path, content: str) -> None:
    (saved / "manifest.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json is not as it was written"):
        load_checkpoint(saved)


def test_a_place_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"There is no checkpoint at .*nowhere"):
        load_checkpoint(tmp_path / "nowhere")


def forged(saved: Path, name: str, content: bytes) -> Path:
    """The checkpoint with one file replaced and a manifest that vouches for it."""
    from model.checkpoint import _sealed
    from model.files import sha256_of

    manifest = read_manifest(saved)
    manifest.files[name] = sha256_of(content)
    (saved / name).write_bytes(content)
    (saved / "manifest.json").write_text(json.dumps(_sealed(manifest)))
    return saved


def test_weights_of_another_model_are_refused(saved: Path, tiny: GPT) -> None:
    weights = {name: tensor.clone() for name, tensor in stored_weights(tiny).items()}
    changes = {
        "it lacks ln_final.w": {n: t for n, t in weights.items() if not n.startswith("ln_final")},
        "it has an unknown weight, lm_head": weights | {"lm_head": torch.zeros(1)},
        r"embed.weight is \[49, 32\], not \[50, 32\]": weights | {"embed.weight": weights["embed.weight"][1:]},
    }
    for sentence, changed in changes.items():
        forged(saved, "model.safetensors", safetensors.torch.save(changed))
        with pytest.raises(CheckpointError, match="holds another model than its config says: .*" + sentence):
            load_checkpoint(saved)


@pytest.mark.parametrize("content", [b"", b"\x08\x00\x00\x00\x00\x00\x00\x00notjson!", b"\x80\x04K\x01."])
def test_a_weights_file_that_is_none_is_refused(saved: Path, content: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"holds no tensors in model\.safetensors"):
        load_checkpoint(forged(saved, "model.safetensors", content))


def test_a_config_of_a_newer_version_is_refused_with_the_unknown_key(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text()) | {"n_experts": 8}
    with pytest.raises(CheckpointError, match=r'cannot be built by this version\. There is no setting ".*n_experts"'):
        load_checkpoint(forged(saved, "config.json", json.dumps(config).encode()))


# --- a full disk, missing rights, a kill: earlier checkpoints are whole, the new one is whole or absent ---


def faults() -> list[tuple[object, str]]:
    return [(os, "fsync"), (Path, "write_bytes"), (Path, "replace"), (Path, "mkdir")]


@pytest.mark.parametrize(("owner", "operation"), faults(), ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize(
    ("code", "sentence"),
    [(errno.ENOSPC, "The disk is full: .*step-00000008 could not be written"), (errno.EACCES, "no right")],
)
def test_a_full_disk_or_missing_rights_cost_nothing_that_was_saved(
    saved: Path, tiny: GPT, monkeypatch: pytest.MonkeyPatch, owner: object, operation: str, code: int, sentence: str
) -> None:
    run = saved.parents[1]

    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    for step in (8, 3):
        with monkeypatch.context() as patch:
            patch.setattr(owner, operation, fail)
            with pytest.raises(CheckpointError, match=sentence.replace("8", str(step))):
                save_checkpoint(run, tiny, step=step, tokens_seen=0)
        assert names_in(run / "checkpoints") == ["step-00000003"]
        assert verify_checkpoint(saved).tokens_seen == 10
    assert save_checkpoint(run, tiny, step=8, tokens_seen=0).exists()


@pytest.mark.parametrize("allowed", range(9))
def test_a_disk_that_fills_up_after_any_number_of_writes_leaves_a_whole_checkpoint(
    saved: Path, tiny: GPT, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    run, real, left = saved.parents[1], os.fsync, iter(range(allowed))

    def fill_up(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    # Five files, the folder, and the folder it is renamed into: seven writes reach the device.
    outcome = nullcontext() if allowed >= 7 else pytest.raises(CheckpointError, match="The disk is full")
    with monkeypatch.context() as patch, outcome:
        patch.setattr(os, "fsync", fill_up)
        save_checkpoint(run, tiny, step=3, tokens_seen=11, train_state=STATE)
    assert verify_checkpoint(saved).tokens_seen == (10 if allowed < 6 else 11)
    assert checkpoint_steps(run) == [3]


KILLED = """
import os, sys, itertools, random, signal, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from model import GPT, GPTConfig
from model.checkpoint import checkpoint_path, checkpoint_steps, load_checkpoint, save_checkpoint, verify_checkpoint
from model.files import clean_leftovers

run = Path(sys.argv[1])
gpt = GPT(GPTConfig(n_layers=1, n_heads=2, d_model=32, n_ctx=8, d_vocab=257))
state = ({"m": torch.zeros(10_000)}, {"step": 1})

def save(step, tokens_seen=0):
    save_checkpoint(run, gpt, step=step, tokens_seen=tokens_seen, train_state=state)

def check(always):
    for step in checkpoint_steps(run):
        verify_checkpoint(checkpoint_path(run, step))
        load_checkpoint(checkpoint_path(run, step))
    clean_leftovers(run / "checkpoints")
    assert always <= set(checkpoint_steps(run)), checkpoint_steps(run)
    left = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]
    assert left == [], left

def die_at(count):
    seen = itertools.count()
    def deadly(real):
        def call(*args, **kwargs):
            if next(seen) == count:
                os._exit(9)
            return real(*args, **kwargs)
        return call
    for name in ("mkdir", "write_bytes", "replace"):
        setattr(Path, name, deadly(getattr(Path, name)))
    for name in ("fsync", "rmdir", "unlink"):
        setattr(os, name, deadly(getattr(os, name)))

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

def dies_at(count, step):
    def work():
        die_at(count)
        save(step, count)
    return os.waitstatus_to_exitcode(os.waitpid(child(work), 0)[1]) != 0

def forever():
    for count in itertools.count():
        save(count % 3, count)

save(0)
save(1)
for step, always in ((1, {0, 1}), (2, {0, 1})):  # one that replaces, one that is new
    for count in itertools.count():
        died = dies_at(count, step)
        check(always)
        if not died:
            break
    print(count)
for trial in range(12):
    pid = child(forever)
    time.sleep(0.02 + 0.05 * random.Random(trial).random())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    check({0, 1, 2})
"""


def test_a_process_killed_at_each_of_its_steps_or_at_any_moment_leaves_whole_checkpoints(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(int(places) > 12 for places in done.stdout.split())  # so many places were tried


def test_what_a_kill_left_is_cleaned_by_the_next_save(saved: Path, tiny: GPT) -> None:
    folder = saved.parent
    shutil.copytree(saved, folder / f"{PARTIAL}step-00000004.{os.getpid()}.0123abcd")
    assert checkpoint_steps(folder.parent) == [3]
    save_checkpoint(folder.parent, tiny, step=5, tokens_seen=0)
    assert names_in(folder) == ["step-00000003", "step-00000005"]


def test_nothing_in_a_checkpoint_is_a_pickle(saved: Path) -> None:
    for path in saved.iterdir():
        assert path.suffix in {".json", ".safetensors"}
        if path.suffix == ".safetensors":
            safetensors.torch.load(path.read_bytes())
        else:
            json.loads(path.read_text())
