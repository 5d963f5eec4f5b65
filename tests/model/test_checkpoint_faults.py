from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import safetensors.torch
import torch

from model import GPT
from model.checkpoint import (
    checkpoint_steps,
    load_checkpoint,
    load_train_state,
    save_checkpoint,
    stored_weights,
    verify_checkpoint,
)
from model.errors import CheckpointError
from model.files import PARTIAL, sha256_of
from model.manifest import read_manifest, sealed

FILES = ["model.safetensors", "config.json", "manifest.json"]
STATE = ({"exp_avg": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(7)}, {"step": 3, "note": "é"})


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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
    manifest = read_manifest(saved)
    manifest.files[name] = sha256_of(content)
    (saved / name).write_bytes(content)
    (saved / "manifest.json").write_text(json.dumps(sealed(manifest)))
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
