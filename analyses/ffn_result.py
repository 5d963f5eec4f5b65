"""What the study of FFN memories is asked and answers (for `analyses.ffn_memories`, its figure and findings)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from analyses.config_rules import SEED, require
from analyses.ffn_reading import Reading, Summary
from model.errors import ConfigError
from model.settings import as_enum


class Split(StrEnum):
    """Which documents are read."""

    TRAIN = "train"
    """Those that the run was trained on, as in Geva et al. 2021."""
    HELD_OUT = "held_out"
    """Those that it never saw."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """How much is read, and how much is kept."""

    seed: int = 0
    """Draws the windows, the permutations and the controls."""
    split: Split = Split.TRAIN
    n_tokens: int = 131_072
    """Prefixes that are read, at least; the whole split where it holds fewer."""
    n_triggers: int = 25
    """Triggers kept per memory; 25 in Geva et al. 2021."""
    n_shown: int = 10
    """Triggers whose last tokens are stored to be shown."""
    n_context: int = 32
    """How many of their last tokens."""
    n_promoted: int = 10
    """Tokens kept at either end of a value's order."""
    n_permutations: int = 1000
    """Random pairings per layer, at least; more where a claim about one of many layers takes them."""
    batch_size: int = 64
    """Windows at a time; fewer where a large model's coefficients would not fit."""
    step_zero: bool = True
    """Whether step 0 of the run is read as well."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", as_enum(Split, self.split, "split"))
        require(self, seed=SEED)
        sizes = ("n_tokens", "n_triggers", "n_shown", "n_context", "n_promoted", "n_permutations", "batch_size")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not an amount; take at least 1.")


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

    random_last_token_share: float
    """What `last_token_share` is for random prefixes in place of triggers."""

    n_replayed: int
    """Triggers that were fed again, one by one."""
    replay_error: float
    """Largest difference between their coefficients and the stored ones."""

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return len(self.reading.summary.layers)

    def spelled(self, tokens: Sequence[int]) -> list[str]:
        """The strings of token ids; those below 0, which stand for nothing, are left out."""
        return [self.vocabulary[token] for token in tokens if token >= 0]
