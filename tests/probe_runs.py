"""Runs to probe: the planted induction circuit, or random weights, on many short documents of random letters."""

from __future__ import annotations

import json
import random
from pathlib import Path

from interp.probe_text import Amounts
from model import GPT
from model.checkpoint import save_checkpoint
from model.lab import Lab, open_run
from model.settings import to_plain
from model.tokenizer import ByteTokenizer, CharTokenizer, Tokenizer
from model.training.sources import DataConfig
from tests import planted
from tests.conftest import make_gpt_with

LETTERS = "abcdefghijklmnopqrs"
AMOUNTS = Amounts(train=450, validation=150, test=300)


def letters_lab(
    folder: Path, gpt: GPT | None = None, *, zero: GPT | None = None, n_documents: int = 60, length: int = 400
) -> Lab:
    """The planted circuit (or `gpt`) at step 8, and `zero` at step 0 where it is given.

    Letters are drawn one by one, so that no letter tells anything of another.
    """
    texts = folder / "texts"
    texts.mkdir(parents=True)
    drawn = random.Random(0)
    for index in range(n_documents):
        (texts / f"{index}.txt").write_text("".join(drawn.choices(LETTERS, k=length)))
    gpt = planted.induction_model() if gpt is None else gpt
    return written_run(folder / "run", gpt, CharTokenizer(LETTERS), f"text:{texts}/*.txt", zero=zero)


def code_lab(folder: Path, *, seed: int = 1, zero_seed: int | None = 2, **config: object) -> Lab:
    """Random weights at step 8 and others at step 0, on the standard library."""
    made = {"d_vocab": 257, "n_ctx": 48, "d_model": 32, "n_heads": 4} | config
    zero = None if zero_seed is None else make_gpt_with(zero_seed, **made)
    return written_run(folder / "run", make_gpt_with(seed, **made), ByteTokenizer(), "stdlib", zero=zero)


def written_run(folder: Path, gpt: GPT, tokenizer: Tokenizer, source: str, *, zero: GPT | None = None) -> Lab:
    """A run on disk, a quarter of its text held out."""
    if zero is not None:
        save_checkpoint(folder, zero, step=0, tokens_seen=0)
    save_checkpoint(folder, gpt, step=8, tokens_seen=1024)
    tokenizer.save(folder / "tokenizer.json")
    data = DataConfig(sources=(source,), stdlib_bytes=700_000, held_out=0.25, min_period=3, max_period=10)
    (folder / "run.json").write_text(json.dumps({"config": {"data": to_plain(data)}}))
    return open_run(f"{folder}@8")
