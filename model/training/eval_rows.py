"""The held-out rows of a run: fixed before its first step, and the same for every checkpoint and study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from model.errors import CheckpointError
from model.files import read_bytes, write_atomically

FILE_NAME = "eval.safetensors"


@dataclass(frozen=True)
class EvalRows:
    """Rows that training never shows."""

    tokens: Int[Tensor, "row pos"]
    """BOS (where the tokenizer has one), then held-out text; n_ctx tokens."""
    offsets: Int[Tensor, " row"]
    """Offset in the corpus of each row's first text token; -1 for rows of no corpus."""

    def save(self, path: Path) -> None:
        """Write the rows, atomically."""
        write_atomically(path, save({"tokens": self.tokens, "offsets": self.offsets}))

    @classmethod
    def load(cls, path: Path) -> EvalRows:
        """Read what `save` wrote; a missing or damaged file is a `CheckpointError`."""
        content = read_bytes(path, CheckpointError)
        try:
            saved = load(content)
            return cls(tokens=saved["tokens"], offsets=saved["offsets"])
        except (SafetensorError, KeyError):
            raise CheckpointError(f"{path} holds no held-out rows: it is damaged or was cut short.") from None
