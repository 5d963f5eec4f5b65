"""An imported run for tests of whatever opens runs: a tiny nanoGPT over the characters of a text."""

from __future__ import annotations

from pathlib import Path

from model.interop.exchange import import_model
from tests.model.interop.nano import Nano, saved

TEXT = "the quick brown fox jumps over the lazy dog.\n" * 60


def nano_file(folder: Path, *, n_ctx: int = 24) -> Path:
    """`ckpt.pt` of a model of TEXT's characters, and the text as `input.txt` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.txt").write_text(TEXT, encoding="utf-8")
    return saved(Nano(bias=True, vocab_size=len(set(TEXT)), block_size=n_ctx), folder / "ckpt.pt")


def imported_run(root: Path, name: str = "nano") -> Path:
    """The run `name` under `root`, imported."""
    file = nano_file(root.parent / "source")
    return import_model(file, root / name, tokenizer=f"chars:{file.parent / 'input.txt'}")
