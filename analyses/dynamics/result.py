"""What a study of training asks and answers: every score of every head, and the losses, at every checkpoint of a run.

All checkpoints see the same sequences, so that curves are paired. Scores are those of attention-patterns, by the same
functions on the same draws, and a head counts as *found* at a checkpoint by that study's own rule (`attention_at`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from analyses.attention import result as attention_result
from analyses.attention.kinds import Kind
from analyses.attention.readings import Measure, Reading
from analyses.attention.result import Attention
from analyses.attention.stimuli import Stimulus
from analyses.config_rules import SEED, at_least, between, require, within
from interp.places import Head, every_head
from interp.stats import Interval, Intervals
from model.errors import UnknownNameError, closest
from model.settings import as_enum

CROSSED = (Kind.INDUCTION, Kind.PREVIOUS, Kind.DUPLICATE, Kind.LATER, Kind.FIRST)
"""The kinds of which it is told when a head rose; their scores are kept sequence by sequence."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    steps: tuple[int, ...] = ()
    """Checkpoints to look at beside the first and the studied one; empty means every one up to that."""
    period: int | None = None
    """Tokens per copy; None means the period at which the run is judged."""
    n_sequences: int = 64
    """Sequences of repeated random tokens."""
    n_text: int = 64
    """Held-out rows of text on which heads are scored, at most."""
    n_judged: int = 512
    """Held-out rows of text on which losses are measured, at most."""
    threshold: float = 0.4
    """Smallest score of a head that counts as found."""
    margin: float = 0.2
    """How far the interval of a found head lies above chance and above the head's score at step 0, at least."""
    times_chance: float = 10.0
    """Smallest multiple of chance for heads that match content."""
    n_resamples: int = 2000
    """Bootstrap resamples."""
    level: float = 0.95
    """Nominal coverage of the intervals."""
    seed: int = 0
    """Draws tokens, orders and resamples."""

    def __post_init__(self) -> None:
        require(
            self,
            n_sequences=at_least(2),
            n_text=at_least(2),
            n_judged=at_least(2),
            n_resamples=at_least(100),
            steps=at_least(0),
        )
        require(self, threshold=within(0, 1), margin=within(0, 1), times_chance=at_least(0), level=between(0, 1))
        require(self, seed=SEED, period=at_least(2))


@dataclass(frozen=True, kw_only=True)
class OverTraining:
    """One score of every head at every checkpoint."""

    intervals: Intervals
    """Means over sequences with bootstrap intervals, each [step, layer, head]; all checkpoints share the resamples."""
    chance: float
    """What even attention over all visible keys would give."""
    values: Float[Tensor, "step sequence layer head"] | None
    """The score of each sequence, for the kinds of `CROSSED` on repeats; None for others."""

    @property
    def mean(self) -> Float[Tensor, "step layer head"]:
        """The mean over sequences."""
        return self.intervals.mean

    @property
    def low(self) -> Float[Tensor, "step layer head"]:
        """The lower end of the interval."""
        return self.intervals.low

    @property
    def high(self) -> Float[Tensor, "step layer head"]:
        """The upper end of the interval."""
        return self.intervals.high


@dataclass(frozen=True, kw_only=True)
class ReadingOverTraining:
    """One kind of sequence, shown to every checkpoint."""

    stimulus: Stimulus
    period: int | None
    trained: bool | None
    """Whether training showed repeats of this period; None for text."""
    n_sequences: int
    n_pos: int
    scores: dict[str, OverTraining]
    """By kind."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stimulus", as_enum(Stimulus, self.stimulus, "stimulus"))

    @property
    def title(self) -> str:
        """What it is called in figures."""
        return self.at(0).title

    def at(self, index: int) -> Reading:
        """What it showed at one checkpoint, as attention-patterns has it."""
        return Reading(
            stimulus=self.stimulus,
            period=self.period,
            trained=self.trained,
            n_sequences=self.n_sequences,
            n_pos=self.n_pos,
            measures={
                name: Measure(intervals=_at(each, index), chance=each.chance) for name, each in self.scores.items()
            },
        )


@dataclass(frozen=True, kw_only=True)
class LossOverTraining:
    """One outcome at every checkpoint, in nats."""

    meaning: str
    values: Float[Tensor, "step sequence"]
    """One number for each sequence."""
    intervals: Intervals
    """Means over sequences with bootstrap intervals, each [step]."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the checkpoints of a run showed, on the same sequences."""

    config: Config
    run: str
    step: int
    """The checkpoint that was asked about: the last one looked at."""
    training_seed: int | None
    """The seed that the run was trained with; None where it is not on record."""
    imported_from: str | None
    """What the model was imported from; None for a run that was trained here."""
    steps: tuple[int, ...]
    """The checkpoints, in order."""
    tokens_seen: tuple[int, ...]
    """Training tokens behind each."""
    left_out: tuple[str, ...]
    """A sentence for each checkpoint that could not be read."""
    trained_periods: tuple[int, int] | None
    """Shortest and longest period of the repeats in training; None if there were none."""
    n_distinct: int
    """Tokens that the random segments are drawn from."""
    readings: dict[str, ReadingOverTraining]
    """By stimulus: repeats, control, and text where the run holds some out."""
    losses: dict[str, LossOverTraining]
    """By name: copy_loss, first_copy_loss, copying (first minus second copy), text_loss, icl_score."""
    text_by_position: Intervals | None
    """Loss on held-out text at each target, [step, target], in nats; None where there is no text."""

    @property
    def heads(self) -> list[Head]:
        """Every head as (layer, head), layer by layer."""
        return every_head(*self.repeats.scores[Kind.INDUCTION.value].mean.shape[1:])

    @property
    def repeats(self) -> ReadingOverTraining:
        """Repeated random tokens at the period that decides."""
        return self.readings[Stimulus.REPEATS.value]

    @property
    def starts_at_zero(self) -> bool:
        """Whether step 0 is among the checkpoints."""
        return self.steps[0] == 0

    def index_of(self, step: int) -> int:
        """Which of the checkpoints is that of `step`; refused where it was not looked at."""
        if step not in self.steps:
            raise UnknownNameError(
                f"{self.run} was not looked at at step {step}; there are {', '.join(map(str, self.steps))}."
            )
        return self.steps.index(step)

    def loss_at(self, name: str, index: int) -> Interval:
        """A loss at one checkpoint."""
        return self.losses[name].intervals[index]


def scores_over_training(result: Result, kind: Kind | str, reading: Stimulus | str = Stimulus.REPEATS) -> OverTraining:
    """One score of every head at every checkpoint; refused where it was not measured on these sequences."""
    kind = as_enum(Kind, kind, "kind").value
    where = _named(result.readings, as_enum(Stimulus, reading, "reading").value, "reading").scores
    return _named(where, kind, f"score on {reading}")


def frames(
    result: Result, kind: Kind | str, reading: Stimulus | str = Stimulus.REPEATS
) -> list[tuple[int, Float[Tensor, "layer head"]]]:
    """Each checkpoint's step with the mean score of every head."""
    mean = scores_over_training(result, kind, reading).mean
    return [(step, mean[index]) for index, step in enumerate(result.steps)]


def attention_at(result: Result, index: int) -> Attention:
    """What attention-patterns would hold of one checkpoint, so that its rules can be asked."""
    config = result.config
    return Attention(
        config=attention_result.Config(
            threshold=config.threshold,
            margin=config.margin,
            times_chance=config.times_chance,
            n_resamples=config.n_resamples,
            level=config.level,
            seed=config.seed,
        ),
        run=result.run,
        step=result.steps[index],
        tokens_seen=result.tokens_seen[index],
        trained_periods=result.trained_periods,
        readings=tuple(each.at(index) for each in result.readings.values()),
        at_step_zero=tuple(each.at(0) for each in result.readings.values())
        if result.starts_at_zero and result.steps[index] != 0
        else None,
    )


def _at(score: OverTraining, index: int) -> Intervals:
    known = score.intervals
    return replace(known, mean=known.mean[index], low=known.low[index], high=known.high[index])


def _named(there: Mapping[str, T], name: str, what: str) -> T:
    if name not in there:
        raise UnknownNameError(f'There is no {what} "{name}" here.{closest(name, there)} There are {", ".join(there)}.')
    return there[name]
