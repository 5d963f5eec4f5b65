"""Whatever stops a run, what was saved stays whole and the run goes on as if nothing had happened."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from model import files
from model.checkpoint import checkpoint_path, checkpoint_steps, load_checkpoint, read_manifest, verify_checkpoint
from model.errors import TrainingError
from model.training import RunConfig, train
from tests.model.training.conftest import lasting_rows, small_run

Small = Callable[..., RunConfig]


def in_a_child(work: Callable[[], Any]) -> int:
    """Do `work` in a process of its own; returns the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:  # nothing of the parent's clean-up may run here
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train_until_killed(out: Path, nth: int) -> None:
    """Train, and be killed outright just before the nth time that something must reach the disk."""
    count = 0

    def sync(_descriptor: int) -> None:
        nonlocal count
        count += 1
        if count == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    files.os.fsync = sync  # type: ignore[assignment]  (in the child only)
    train(small_run(), out, resume=out.exists(), device="cpu")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("nth", [1, 3, 6, 8, 11, 13, 19, 25, 40])
def test_a_run_killed_anywhere_goes_on_and_equals_one_that_was_not(
    small: Small, finished: Path, tmp_path: Path, nth: int
) -> None:
    out = tmp_path / "run"
    assert in_a_child(lambda: train_until_killed(out, nth)) == -signal.SIGKILL
    for step in checkpoint_steps(out):
        verify_checkpoint(checkpoint_path(out, step))
    train(small(), out, resume=True, device="cpu")
    for step in checkpoint_steps(finished):
        of_both = [read_manifest(checkpoint_path(run, step)).weights_sha256 for run in (finished, out)]
        assert of_both[0] == of_both[1]
    assert lasting_rows(out) == lasting_rows(finished)
    assert not [path for path in out.rglob(".*")], "no leftovers"


@pytest.mark.slow
def test_a_process_killed_from_outside_at_any_time_goes_on(small: Small, tmp_path: Path) -> None:
    config = small(steps=600, log_every=20, checkpoint_every=40)
    train(config, tmp_path / "straight", device="cpu")
    out = tmp_path / "run"
    code = (
        "from pathlib import Path; from model.training import train; "
        "from tests.model.training.conftest import small_run; "
        f"train(small_run(steps=600, log_every=20, checkpoint_every=40), Path({str(out)!r}), "
        f"resume=Path({str(out)!r}).exists(), device='cpu')"
    )
    for extra in (0.0, 0.7, 1.9):
        child = subprocess.Popen([sys.executable, "-c", code])
        known = len(checkpoint_steps(out))
        while len(checkpoint_steps(out)) <= known and child.poll() is None:
            time.sleep(0.01)
        time.sleep(extra)
        child.kill()
        child.wait()
    train(config, out, resume=True, device="cpu")
    assert lasting_rows(out) == lasting_rows(tmp_path / "straight")
    of_both = [read_manifest(checkpoint_path(run, 600)).weights_sha256 for run in (out, tmp_path / "straight")]
    assert of_both[0] == of_both[1]


@pytest.mark.parametrize("full_at", [4, 9, 16, 23])
def test_a_full_disk_stops_the_run_in_a_sentence_and_loses_nothing(
    small: Small, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    written, write_bytes = 0, Path.write_bytes

    def write(path: Path, content: bytes) -> int:
        nonlocal written
        written += 1
        if written >= full_at:
            write_bytes(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, content)

    out = tmp_path / "run"
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", write)
        with pytest.raises(TrainingError, match=r"The disk is full: .* Then go on with the same command and --resume"):
            train(small(), out, device="cpu")
    for step in checkpoint_steps(out):
        verify_checkpoint(checkpoint_path(out, step))
    train(small(), out, resume=True, device="cpu")
    assert lasting_rows(out) == lasting_rows(finished)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(
    small: Small, tmp_path: Path
) -> None:
    wild = small(steps=40, optim={"lr": 1e15, "warmup_steps": 0, "clip": None})
    with pytest.raises(TrainingError, match=r"became (nan|inf) at step \d+"):
        train(wild, tmp_path / "run", device="cpu")
    steps = checkpoint_steps(tmp_path / "run")
    assert steps
    for step in steps:
        gpt = load_checkpoint(checkpoint_path(tmp_path / "run", step))
        assert all(parameter.isfinite().all() for parameter in gpt.parameters())
    assert torch.isfinite(torch.tensor([row["loss"] for row in lasting_rows(tmp_path / "run")])).all()
