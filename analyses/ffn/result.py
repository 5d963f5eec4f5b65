"""What the study of FFN memories answers (for `analyses.ffn_memories`, its figure and findings)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from analyses.ffn.config import Config, Split
from analyses.ffn.reading import Reading
from analyses.ffn.summary import Summary

__all__ = ["Config", "Result", "Split"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The memories of one checkpoint, and of step 0 in brief."""

    config: Config

    run: str
    step: int
    norm: str
    ffn: str

    vocabulary: tuple[str, ...]
    """One printable string per token id."""

    n_prefixes: int
    """Prefixes that were read: corpus tokens, each the last of one."""
    n_windows: int
    """Stretches of text they come from."""

    reading: Reading
    """The checkpoint's memories."""

    initial: Summary | None
    """The same run's step 0; None where it is not kept or was not read, and where this is step 0."""

    n_replayed: int
    """Triggers that were fed again, one by one."""
    replay_error: float
    """Largest difference between their coefficients and the stored ones."""

    @property
    def random_last_token_share(self) -> float:
        """What `last_token_share` is for as many random prefixes as triggers are kept."""
        return float(self.reading.evidence.random.level("last_token_share", torch.tensor(self.config.n_triggers)))

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return len(self.reading.summary.layers)

    def spelled(self, tokens: Sequence[int]) -> list[str]:
        """The strings of token ids; those below 0, which stand for nothing, are left out."""
        return [self.vocabulary[token] for token in tokens if token >= 0]
