"""Runs for the dashboard's tests: trained in seconds, with saved results of every study."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from analyses.study import run_study
from model.presets import get_preset
from model.settings import with_settings
from model.training import train
from tests.unchecked import unchecked
from tests.undrawn import undrawn

STEP = 24
STUDIES = {
    "attention-patterns": ["n_sequences=8", "n_text=4", "n_resamples=100", "n_tokens=2048"],
    "head-ablation": ["n_sequences=8", "n_controls=4"],
    "head-circuits": ["n_sequences=4", "most_patched=4"],
    "head-importance": ["n_sequences=4", "n_reference=8", "n_random=2", "n_controls=2", "fitting.n_steps=2"],
    "self-repair": ["n_sequences=4", "n_paired=2"],
    "ffn-memories": [
        *("n_tokens=2048", "n_triggers=5", "n_shown=3", "n_permutations=20"),
        *("n_random_sets=20", "n_deleted=2", "n_sampled=32"),
    ],
    "ffn-composition": ["n_prefixes=200"],
    "memory-promotion": ["n_memories=2", "n_prompts=4", "n_sets=2", "alpha=0.4", "n_new_tokens=4", "strengths=2.0"],
    "gradient-flow": ["initialization=false", "n_sequences=8", "n_groups=4"],
    "probes": ["tasks=previous-token", "sites=resid_post", "n_train=64", "n_validation=32", "n_test=64"],
    "training-dynamics": ["n_sequences=4", "n_text=4", "n_judged=4", "n_resamples=100"],
}
"""Every study, with settings under which it takes a second."""


def trained(root: Path, name: str, *settings: str) -> Path:
    """A small trained run `name` under `root`."""
    run = root / name
    base = ["data.stdlib_bytes=60000", f"train.steps={STEP}", "train.checkpoint_every=12", "train.log_every=6"]
    train(with_settings(get_preset("tiny"), [*base, *settings]), run)
    return run


@pytest.fixture(scope="session")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run that has everything and one that was only trained; tests must not change it.

    Processes that share out the tests share it: the first one to ask makes it, and the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "whole-runs"
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            unfinished = tmp_path_factory.mktemp("unfinished")
            _make_whole_runs(unfinished)
            unfinished.rename(root)
    return root


def _make_whole_runs(root: Path) -> None:
    with unchecked(), undrawn():
        whole = trained(root, "whole")
        for study, settings in STUDIES.items():
            for step in (0, STEP):
                run_study(study, f"{whole}@{step}", settings)
        trained(root, "bare", "model.norm=post")


@pytest.fixture
def own_runs(whole_runs: Path, tmp_path: Path) -> Path:
    """A copy of those runs to be damaged."""
    return Path(shutil.copytree(whole_runs, tmp_path / "runs"))
