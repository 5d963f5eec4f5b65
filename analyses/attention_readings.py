"""What the heads of one checkpoint do on stated sequences: every score, with its interval and its chance level.

A *reading* is one kind of sequence shown to one checkpoint: repeated random tokens of one period, the same with the
second copy re-ordered, or held-out text. Each reading holds one `Measure` for each kind of score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from torch import Tensor

from analyses.attention_stimuli import Sequences, Stimulus
from interp import scores
from interp.patterns import ScoreFunction, pattern_scores
from interp.stats import Intervals, bootstrap_means
from interp.stimuli import copy_start
from model.settings import as_enum

if TYPE_CHECKING:
    from model import GPT


class Kind(StrEnum):
    """A way to attend, or a property of how a head attends."""

    PREVIOUS = "previous"
    """To the token before."""
    CURRENT = "current"
    """To the token itself."""
    FIRST = "first"
    """To position 0: the BOS, where the tokenizer has one."""
    DUPLICATE = "duplicate"
    """To an earlier copy of the token: in repeats one period back, in text anywhere."""
    INDUCTION = "induction"
    """To the token after an earlier copy: in repeats period - 1 back, in text anywhere."""
    LATER = "later"
    """In repeats: to the token two after the earlier copy, from which a head can copy as well if it knows the token
    before."""
    MATCH = "match"
    """In the re-ordered control: to the token after the earlier copy, wherever that is now."""
    ENTROPY = "entropy"
    """How evenly a head attends: 0 one key, 1 all keys alike."""
    DISTANCE = "distance"
    """How far back a head attends on average, in tokens."""


SHARES = (Kind.PREVIOUS, Kind.CURRENT, Kind.FIRST, Kind.DUPLICATE, Kind.INDUCTION)
"""The kinds that are shares of attention and are measured on every kind of sequence."""

BY_CONTENT = (Kind.DUPLICATE, Kind.INDUCTION, Kind.LATER)
"""The kinds that need a match, which a learned distance can imitate: those the control is for."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One score of every head on one reading."""

    intervals: Intervals
    """Means over sequences with bootstrap intervals, each [layer, head]: shares of attention, or tokens for
    distance."""
    chance: float
    """What even attention over all visible keys would give, on the same rows."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one kind of sequence showed."""

    stimulus: Stimulus
    period: int | None
    """Tokens per copy; None for text."""
    trained: bool | None
    """Whether training showed repeats of this period; None for text."""
    n_sequences: int
    n_pos: int
    """Positions of each sequence, BOS included."""
    measures: dict[str, Measure]
    """By kind; a kind for which fewer than two sequences hold a target is left out."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stimulus", as_enum(Stimulus, self.stimulus, "stimulus"))

    def __getitem__(self, kind: Kind | str) -> Measure:
        """The measure of one kind."""
        return self.measures[as_enum(Kind, kind, "kind").value]

    def __contains__(self, kind: object) -> bool:
        """Whether the kind was measured."""
        return kind in self.measures

    @property
    def title(self) -> str:
        """What the reading is called in figures."""
        if self.stimulus is Stimulus.TEXT:
            return "held-out text"
        if self.stimulus is Stimulus.CONTROL:
            return f"period {self.period}, re-ordered"
        return f"period {self.period}{'' if self.trained else ', unseen'}"


def read(gpt: GPT, sequences: Sequences, *, n_resamples: int, level: float, seed: int, progress: Any = None) -> Reading:
    """Measure every score of every head on `sequences`."""
    repeats = sequences.stimulus is not Stimulus.TEXT
    functions = _on_repeats(sequences) if repeats else _on_text(sequences.bos)
    levels = _chance(sequences)
    found = pattern_scores(gpt, sequences.tokens, functions, progress=progress)
    return Reading(
        stimulus=sequences.stimulus,
        period=sequences.period,
        trained=sequences.trained,
        n_sequences=len(sequences.tokens),
        n_pos=sequences.tokens.shape[1],
        measures={
            name: Measure(intervals=bootstrap_means(kept, n_resamples, seed, level), chance=levels[Kind(name)])
            for name, values in found.items()
            if len(kept := _with_targets(values)) >= 2
        },
    )


def _on_repeats(sequences: Sequences) -> Mapping[str, ScoreFunction]:
    """Scores by fixed distance: the later copies are the rows in which there is something to find."""
    period, bos = _period(sequences), sequences.bos
    start = copy_start(sequences.tokens.shape[1], period) + period
    functions: dict[str, ScoreFunction] = {
        **_everywhere(bos),
        Kind.DUPLICATE: lambda pattern, _: scores.duplicate_stripe(pattern, period, start=start),
        Kind.INDUCTION: lambda pattern, _: scores.induction_stripe(pattern, period, start=start),
    }
    if period > 3:
        functions[Kind.LATER] = lambda pattern, _: scores.stripe(pattern, period - 2, start)
    if sequences.stimulus is Stimulus.CONTROL:
        functions[Kind.MATCH] = lambda pattern, tokens: scores.on_targets(
            pattern, scores.induction_targets(tokens, ignore=bos)
        )
    return {str(kind): function for kind, function in functions.items()}


def _on_text(bos: int | None) -> Mapping[str, ScoreFunction]:
    """Scores by content: a text has no period."""
    return {
        **_everywhere(bos),
        str(Kind.DUPLICATE): lambda pattern, tokens: scores.on_targets(
            pattern, scores.duplicate_targets(tokens, ignore=bos)
        ),
        str(Kind.INDUCTION): lambda pattern, tokens: scores.on_targets(
            pattern, scores.induction_targets(tokens, ignore=bos)
        ),
    }


def _everywhere(bos: int | None) -> dict[str, ScoreFunction]:
    start = _first_row(bos)
    return {
        str(Kind.PREVIOUS): lambda pattern, _: scores.previous_token(pattern, start=start),
        str(Kind.CURRENT): lambda pattern, _: scores.current_token(pattern),
        str(Kind.FIRST): lambda pattern, _: scores.first_position(pattern),
        str(Kind.ENTROPY): lambda pattern, _: scores.entropy(pattern),
        str(Kind.DISTANCE): lambda pattern, _: scores.distance(pattern),
    }


def _first_row(bos: int | None) -> int:
    """The first row whose previous token is a token and not the BOS."""
    return 1 if bos is None else 2


def _chance(sequences: Sequences) -> dict[Kind, float]:
    """What even attention scores, for each kind."""
    tokens, bos = sequences.tokens.cpu(), sequences.bos
    n_pos = tokens.shape[1]
    levels = {
        Kind.PREVIOUS: scores.chance(_first_row(bos), n_pos),
        Kind.CURRENT: scores.chance(1, n_pos),
        Kind.FIRST: scores.chance(1, n_pos),
        Kind.ENTROPY: 1.0,
        Kind.DISTANCE: scores.distance_chance(1, n_pos),
    }
    by_content = _mean_chance(scores.induction_targets(tokens, ignore=bos))
    if sequences.stimulus is Stimulus.TEXT:
        duplicates = _mean_chance(scores.duplicate_targets(tokens, ignore=bos))
        return levels | {Kind.DUPLICATE: duplicates, Kind.INDUCTION: by_content}
    period = _period(sequences)
    later = scores.chance(copy_start(n_pos, period) + period, n_pos)
    return levels | {Kind.DUPLICATE: later, Kind.INDUCTION: later, Kind.LATER: later, Kind.MATCH: by_content}


def _period(sequences: Sequences) -> int:
    if sequences.period is None:
        raise ValueError("repeats have a period")
    return sequences.period


def _mean_chance(targets: Tensor) -> float:
    return float(scores.targets_chance(targets).nanmean())


def _with_targets(values: Tensor) -> Tensor:
    """The sequences in which the score has a target at all."""
    return values[values.flatten(1).isfinite().all(1)]
