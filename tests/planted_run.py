"""A run on disk whose last checkpoint is the planted induction circuit and whose first is random."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from model import GPT
from model.checkpoint import save_checkpoint
from model.lab import Lab, open_run
from model.settings import to_plain
from model.tokenizer import CharTokenizer
from model.training.config import TrainConfig
from model.training.eval_rows import EvalRows
from tests import planted

LETTERS = "abcdefghijklmnopqrs"
"""With BOS as many ids as the planted model has."""

DATA = {"sources": ["stdlib=0.5", "repeats=0.5"], "min_period": 4, "max_period": 12}


def planted_lab(
    folder: Path,
    gpt: GPT | None = None,
    *,
    step: int = 8,
    n_rows: int = 24,
    copy_period: int | None = None,
    is_text: bool = True,
) -> Lab:
    """Open checkpoint `step` (8: the planted circuit, or `gpt`; 0: random weights) of a run written to `folder`.

    `copy_period` is the run's own, if it names one; `is_text=False` makes its held-out rows those of no text.
    """
    last = planted.induction_model() if gpt is None else gpt
    save_checkpoint(folder, GPT(last.config, seed=5), step=0, tokens_seen=0)
    save_checkpoint(folder, last, step=8, tokens_seen=1024)
    tokenizer = CharTokenizer(LETTERS)
    tokenizer.save(folder / "tokenizer.json")
    rows = torch.randint(len(LETTERS), (n_rows, last.config.n_ctx), generator=torch.Generator().manual_seed(3))
    rows[:, 0] = tokenizer.bos or 0
    offsets = torch.arange(n_rows) * last.config.n_ctx if is_text else torch.full((n_rows,), -1)
    EvalRows(tokens=rows, offsets=offsets).save(folder / "eval.safetensors")
    train = to_plain(TrainConfig(steps=8, copy_period=copy_period))
    config = {"model": to_plain(last.config), "data": DATA, "train": train}
    (folder / "run.json").write_text(json.dumps({"config": config}))
    return open_run(f"{folder}@{step}")
