"""Models from other programs, and ours for them: Hugging Face, nanoGPT, GGUF, TransformerLens.

Nothing here is imported by `import model`; whoever exchanges a model imports the format they need.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.gpt import GPT
from model.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A model that another program made, as ours."""

    gpt: GPT
    tokenizer: Tokenizer | None
    """None where the source has no tokenizer beside its weights."""
    source: str
    """What was opened, in words."""
    format: str
    """"llama", "gpt2", "nanogpt" or "gguf"."""
    notes: tuple[str, ...] = ()
    """Sentences on what was adapted, dropped or stripped."""
    step: int | None = None
    """Optimizer steps, where the source says."""


def step_said(value: object) -> int | None:
    """The optimizer steps that a file says lie behind; None where what it says is no whole number above zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
