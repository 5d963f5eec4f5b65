"""Runs that take a second, and ways to look at what they left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from model.config import GPTConfig
from model.training import DataConfig, OptimConfig, RunConfig, TrainConfig, train

TIMES = {"seconds", "measuring_seconds", "tokens_per_s"}
"""Columns of metrics.jsonl that no two runs share."""


def small_run(
    *, model: Mapping[str, Any] | None = None, optim: Mapping[str, Any] | None = None, **changes: Any
) -> RunConfig:
    """A run of 12 steps of 64 tokens on a little of the standard library."""
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 16, "n_ctx": 16, "d_vocab": 257}
    steps = {
        "steps": 12,
        "batch_size": 4,
        "checkpoint_every": 5,
        "log_every": 3,
        "eval_sequences": 4,
        "probe_sequences": 2,
    }
    return RunConfig(
        model=GPTConfig(**(shape | dict(model or {}))),
        data=DataConfig(stdlib_bytes=60_000, min_period=3, max_period=5),
        optim=OptimConfig(**({"lr": 1e-2, "warmup_steps": 3} | dict(optim or {}))),
        train=TrainConfig(**(steps | changes)),
    )


def lasting_rows(run_dir: Path) -> list[dict[str, Any]]:
    """The rows of metrics without their times."""
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


@pytest.fixture
def small() -> Callable[..., RunConfig]:
    return small_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run, trained to its end; to look at, not to change."""
    out = tmp_path_factory.mktemp("finished") / "run"
    train(small_run(), out, device="cpu")
    return out


@pytest.fixture
def own_copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))
