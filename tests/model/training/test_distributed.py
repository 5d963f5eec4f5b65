"""Several processes train the model that one process would have trained."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.checkpoint import checkpoint_path, checkpoint_steps, load_checkpoint, read_manifest
from model.errors import ConfigError
from model.training import RunConfig, train
from model.training.distributed import World
from tests.model.training.conftest import lasting_rows

Small = Callable[..., RunConfig]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def trained_by(n_processes: int, out: Path, config: RunConfig, *, resume: bool = False) -> None:
    """Train in `n_processes` processes that see the environment torchrun would give them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(n_processes):
        child = os.fork()
        if child == 0:  # nothing of the parent's clean-up may run here
            failed = 1
            try:
                os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n_processes), "LOCAL_RANK": str(rank)}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                train(config, out, device="cpu", resume=resume)
                failed = 0
            finally:
                os._exit(failed)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * n_processes


def weights_of(run_dir: Path, step: int) -> dict[str, Tensor]:
    return dict(load_checkpoint(checkpoint_path(run_dir, step)).named_parameters())


def assert_close_runs(one: Path, other: Path) -> None:
    for name, weights in weights_of(one, 12).items():
        torch.testing.assert_close(weights, weights_of(other, 12)[name], rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(lasting_rows(one), lasting_rows(other), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-4)


@needs_fork
def test_two_processes_equal_one_with_twice_the_batch(small: Small, finished: Path, tmp_path: Path) -> None:
    trained_by(2, tmp_path / "two", small())  # 4 sequences a step, 2 in each process
    assert checkpoint_steps(tmp_path / "two") == checkpoint_steps(finished)
    assert_close_runs(tmp_path / "two", finished)


@needs_fork
def test_two_processes_equal_two_micro_batches_bit_for_bit(small: Small, tmp_path: Path) -> None:
    trained_by(2, tmp_path / "two", small())
    train(small(accumulate=2), tmp_path / "one", device="cpu")
    of_both = [read_manifest(checkpoint_path(tmp_path / run, 12)).weights_sha256 for run in ("one", "two")]
    assert of_both[0] == of_both[1]
    assert lasting_rows(tmp_path / "one") == lasting_rows(tmp_path / "two")


@needs_fork
@pytest.mark.parametrize("first", [1, 2])
def test_a_run_goes_on_with_another_number_of_processes(
    small: Small, finished: Path, tmp_path: Path, first: int
) -> None:
    out = tmp_path / "run"
    trained_by(first, out, small(full_states=9))
    for step in (8, 12):
        shutil.rmtree(checkpoint_path(out, step))
    trained_by(3 - first, out, small(full_states=9), resume=True)
    assert_close_runs(out, finished)


def test_one_process_costs_nothing() -> None:
    world, values = World(), torch.ones(2)
    assert world.leads
    assert world.sum(values) is values
    assert world.share_of(7) == 7
    assert not world.any(False, torch.device("cpu"))


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not divide among 2 processes; make it a multiple of 2"):
        World(rank=0, size=2).share_of(3)


@pytest.mark.slow
def test_the_same_under_torchrun(finished: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom model.training import train\n"
        "from tests.model.training.conftest import small_run\n"
        "train(small_run(), Path(sys.argv[1]), device='cpu')\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    subprocess.run([*launch, str(script), str(tmp_path / "two")], check=True, timeout=240, env=environment)
    assert_close_runs(tmp_path / "two", finished)
