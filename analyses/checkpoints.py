"""The checkpoint that a study lays beside its own: step 0 of the same run, which tells what training did."""

from __future__ import annotations

from pathlib import Path

from model.checkpoint import checkpoint_path, checkpoint_steps
from model.lab import Lab, open_run
from model.manifest import MANIFEST
from model.training import eval_rows


def first_checkpoint(lab: Lab) -> Lab | None:
    """The same run's step 0, opened on the same device; None where it is not kept, and where `lab` is step 0."""
    if lab.step == 0 or 0 not in checkpoint_steps(lab.path):
        return None
    return open_run(f"{lab.path}@0", device=lab.gpt.device)


def first_checkpoint_file(lab: Lab) -> Path:
    """What stands for step 0 among a study's inputs, kept or not: its manifest, with the hash of every other file."""
    return checkpoint_path(lab.path, 0) / MANIFEST


def held_out_file(lab: Lab) -> Path:
    """The run's held-out rows (`lab.eval_tokens`), for a study's inputs."""
    return lab.path / eval_rows.FILE_NAME
