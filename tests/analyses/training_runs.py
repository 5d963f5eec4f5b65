"""Runs of hand-made checkpoints in which heads form at known steps (for the tests of training-dynamics)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from model import GPT
from model.checkpoint import save_checkpoint
from model.lab import Lab, open_run
from tests import planted
from tests.planted_run import planted_lab
from tests.unchecked import unchecked

STEPS = (0, 8, 16, 24, 32, 40)
PREVIOUS, INDUCTION = "previous", "induction"


def model_with(*formed: str) -> GPT:
    """The planted induction circuit without what has not formed: such a head attends evenly, and writes nothing."""
    gpt = planted.induction_model()
    with torch.no_grad():
        for name, (layer, head) in ((PREVIOUS, planted.PREVIOUS_HEAD), (INDUCTION, planted.INDUCTION_HEAD)):
            if name not in formed:
                gpt.layers[layer].attn.W_Q[head] = 0.0
                planted.silence(gpt, layer=layer, head=head)
    return gpt


def grown(folder: Path, formed_at: Mapping[str, int], *, steps: tuple[int, ...] = STEPS, n_rows: int = 24) -> Lab:
    """The last checkpoint of a run in whose heads form at the steps of `formed_at`, and stay."""
    with unchecked():
        planted_lab(folder, model_with(), n_rows=n_rows)
        for step in steps:
            there = [name for name, first in formed_at.items() if step >= first]
            save_checkpoint(folder, model_with(*there), step=step, tokens_seen=100 * step)
        return open_run(f"{folder}@{steps[-1]}")
