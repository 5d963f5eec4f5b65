"""Runs and quick settings for tests of the study of FFN memories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analyses import ffn_memories
from analyses.ffn.config import Config
from model import GPT
from model.checkpoint import save_checkpoint
from model.lab import Lab, open_run
from model.settings import to_plain
from model.tokenizer import ByteTokenizer, Tokenizer
from model.training.sources import DataConfig
from tests.conftest import make_gpt_with


@pytest.fixture(autouse=True, scope="module")
def few_replays() -> Iterator[None]:
    """Feed 8 triggers of each layer again, not 32: they are most of what a tiny run costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ffn_memories, "_REPLAYED", 0)
        yield


def quick(**settings: Any) -> Config:
    """The study's config with small samples and few deals, which are enough for what is set by hand."""
    few: dict[str, Any] = {"n_random_sets": 40, "n_deleted": 4, "n_sampled": 64, "n_permutations": 100}
    return Config(**(few | settings))


def sparse(**settings: Any) -> Config:
    """The same with next to no controls and one step, where triggers and values are looked at."""
    few: dict[str, Any] = {"n_random_sets": 2, "n_deleted": 0, "n_sampled": 10, "n_permutations": 2}
    few["step_zero"] = False
    return quick(**(few | settings))


def written_run(
    folder: Path, gpt: GPT, tokenizer: Tokenizer, sources: tuple[str, ...], *, zero: GPT | None = None
) -> Lab:
    """A run on disk with `gpt` at step 8 and, where given, `zero` at step 0."""
    if zero is not None:
        save_checkpoint(folder, zero, step=0, tokens_seen=0)
    save_checkpoint(folder, gpt, step=8, tokens_seen=1024)
    tokenizer.save(folder / "tokenizer.json")
    data = DataConfig(sources=sources, stdlib_bytes=100_000, held_out=0.2)
    (folder / "run.json").write_text(json.dumps({"config": {"data": to_plain(data)}}))
    return open_run(f"{folder}@8")


def python_lab(folder: Path, **config: Any) -> Lab:
    """Random weights large enough to matter, and real text."""
    made: dict[str, Any] = {"d_vocab": 257, "n_ctx": 24, "d_model": 16, "n_heads": 2, "d_ff": 24} | config
    return written_run(folder, make_gpt_with(**made), ByteTokenizer(), ("stdlib",))
