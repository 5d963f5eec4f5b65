"""The checkpoint that a study lays beside its own: step 0 of the same run, which tells what training did."""

from __future__ import annotations

from pathlib import Path

from model.checkpoint import checkpoint_path
from model.lab import Lab, first_checkpoint
from model.manifest import MANIFEST
from model.training import eval_rows

__all__ = ["first_checkpoint", "first_checkpoint_file", "held_out_file"]


def first_checkpoint_file(lab: Lab) -> Path:
    """What stands for step 0 among a study's inputs, kept or not: its manifest, with the hash of every other file."""
    return checkpoint_path(lab.path, 0) / MANIFEST


def held_out_file(lab: Lab) -> Path:
    """The run's held-out rows (`lab.eval_tokens`), for a study's inputs."""
    return lab.path / eval_rows.FILE_NAME
