"""What the study of FFN memories is asked (for `analyses.ffn_memories`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from analyses.config_rules import SEED, require
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
    text: str = ""
    """A text file, or a glob of several, to read in place of the run's own text; "" for that."""
    n_tokens: int = 131_072
    """Prefixes that are read, at least; the whole split where it holds fewer."""
    n_triggers: int = 25
    """Triggers kept per memory; 25 in Geva et al. 2021."""
    n_negative: int = 10
    """Of those with the most negative coefficients, how many are kept, at most as many."""
    n_sampled: int = 512
    """Prefixes drawn at random at which every memory's coefficient is kept: decile and random examples."""
    n_random: int = 5
    """Of these, how many are shown as random examples."""
    n_shown: int = 10
    """Triggers whose last tokens are stored to be shown."""
    n_context: int = 32
    """How many of their last tokens."""
    n_promoted: int = 10
    """Tokens kept at either end of a value's order."""
    n_permutations: int = 1000
    """Random pairings per layer, at least; more where a claim about one of many layers takes them."""
    n_random_sets: int = 1000
    """Sets of random prefixes that triggers are held against; a pattern must be commoner than in any of them."""
    n_deleted: int = 64
    """Memories per layer whose triggers are cut, at most; fewer where triggers are long, and 0 for none."""
    batch_size: int = 64
    """Windows at a time; fewer where a large model's coefficients would not fit."""
    step_zero: bool = True
    """Whether step 0 of the run is read as well."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", as_enum(Split, self.split, "split"))
        require(self, seed=SEED)
        for name in _AMOUNTS:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not an amount; take at least 1.")
        if self.n_deleted < 0:
            raise ConfigError(f"n_deleted={self.n_deleted} is not an amount; take 0 to cut no triggers, or more.")


_AMOUNTS = (
    "n_tokens", "n_triggers", "n_negative", "n_sampled", "n_random", "n_shown", "n_context", "n_promoted",
    "n_permutations", "n_random_sets", "batch_size",
)  # fmt: skip
