"""What the heads of one checkpoint do on stated sequences: every score, with its interval and its chance level.

A *reading* is one kind of sequence shown to one checkpoint: repeated random tokens of one period, the same with the
second copy re-ordered, random tokens four times or once, or held-out text. Each reading holds one `Measure` for each
kind of score that means something there. The chance level of a score is what the same function gives on a pattern that
spreads attention evenly over all visible keys, and so holds for the very rows and targets that were scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
from torch import Tensor

from analyses.attention.kinds import BY_CONTENT, SHARES, Kind, chance_levels, functions_on
from analyses.attention.stimuli import Sequences, Stimulus
from interp import scores
from interp.head_copying import copying_chance, copying_function
from interp.patterns import WriteFunction, pattern_scores
from interp.stats import Intervals, bootstrap_means
from model.errors import NotAdditiveError
from model.settings import as_enum

if TYPE_CHECKING:
    from model import GPT

__all__ = ["BY_CONTENT", "SHARES", "Kind", "Measure", "Reading", "read"]

COPYING = Kind.COPYING.value


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One score of every head on one reading."""

    intervals: Intervals
    """Means over sequences with bootstrap intervals, each [layer, head]: shares of attention, tokens for distance, from
    -1 to 1 for copying."""
    chance: float
    """What even attention over all visible keys would give, on the same rows; for copying, what an even write would."""
    offsets: Int[Tensor, "layer head"] | None = None
    """Positional only: the distance at which each head was measured, 1 being the token before."""
    permuted: Float[Tensor, "layer head"] | None = None
    """Copying only: the score were each row's attention spread evenly over the tokens it may see."""

    @property
    def ranks(self) -> Int[Tensor, "layer head"]:
        """Each head's rank among all, 1 being the largest mean."""
        mean = self.intervals.mean
        order = mean.flatten().argsort(descending=True, stable=True)
        return order.argsort().reshape(mean.shape) + 1

    @property
    def n_heads(self) -> int:
        """How many heads are ranked."""
        return self.intervals.mean.numel()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one kind of sequence showed."""

    stimulus: Stimulus
    period: int | None
    """Distinct tokens of a segment; None for text."""
    trained: bool | None
    """Whether training showed repeats of this period; None for what is not repeated."""
    n_sequences: int
    n_pos: int
    """Positions of each sequence, BOS included."""
    measures: dict[str, Measure]
    """By kind; a kind for which fewer than two sequences hold a target is left out."""
    left_out: dict[str, str] = field(default_factory=dict)
    """By kind, why a score is not defined for this model; what merely finds no target is not listed."""

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
        unseen = "" if self.trained else ", unseen"
        return {
            Stimulus.REPEATS: f"period {self.period}{unseen}",
            Stimulus.CONTROL: f"period {self.period}, re-ordered",
            Stimulus.FOUR: f"{self.period} tokens, four times",
            Stimulus.ONCE: f"{self.period} tokens, once",
            Stimulus.TEXT: "held-out text",
        }[self.stimulus]


def read(
    gpt: GPT,
    sequences: Sequences,
    *,
    n_resamples: int,
    level: float,
    seed: int,
    distances: Int[Tensor, "layer head"] | None = None,
    progress: Any = None,
) -> Reading:
    """Measure every score of every head on `sequences`.

    Attention at one distance is measured at `distances`, those that were found elsewhere; without them each head's own
    is chosen on half of the sequences and measured on the other half.
    """
    functions = functions_on(sequences)
    writes, left_out = _writes(gpt, sequences)
    levels = chance_levels(functions, sequences.tokens)
    if writes:
        levels[COPYING] = float(copying_chance(sequences.tokens, bos=sequences.bos).mean())
    found = pattern_scores(gpt, sequences.tokens, functions, writes=writes, progress=progress)

    def intervals(values: Float[Tensor, "sequence layer head"]) -> Intervals:
        return bootstrap_means(values, n_resamples, seed, level)

    measures = {name: _measure(name, values, levels[name], intervals, distances) for name, values in found.items()}
    return Reading(
        stimulus=sequences.stimulus,
        period=sequences.period,
        trained=sequences.trained,
        n_sequences=len(sequences.tokens),
        n_pos=sequences.tokens.shape[1],
        measures={name: measure for name, measure in measures.items() if measure is not None},
        left_out=left_out,
    )


def _writes(gpt: GPT, sequences: Sequences) -> tuple[dict[str, WriteFunction], dict[str, str]]:
    """The copying score where it is asked for; or why this model has none."""
    if sequences.stimulus not in (Stimulus.ONCE, Stimulus.TEXT):
        return {}, {}
    try:
        return {COPYING: copying_function(gpt, bos=sequences.bos)}, {}
    except NotAdditiveError as error:
        return {}, {COPYING: str(error)}


def _measure(
    name: str,
    values: Float[Tensor, "sequence layer head *numbers"],
    chance: float,
    intervals: Callable[[Tensor], Intervals],
    distances: Int[Tensor, "layer head"] | None,
) -> Measure | None:
    """The measure of one kind; None where fewer than two sequences have a target, or reach as far as `distances`."""
    offsets = permuted = None
    if name == Kind.POSITIONAL.value:
        if distances is not None and int(distances.max()) >= values.shape[-1]:
            return None
        offsets, values = scores.best_offsets(values) if distances is None else (distances, _at(values, distances))
    elif name == COPYING:
        permuted, values = values[..., 1].double().mean(0), values[..., 0]
    kept = values[values.flatten(1).isfinite().all(1)]
    if len(kept) < 2:
        return None
    return Measure(intervals=intervals(kept), chance=chance, offsets=offsets, permuted=permuted)


def _at(
    profiles: Float[Tensor, "sequence layer head offset"], distances: Int[Tensor, "layer head"]
) -> Float[Tensor, "sequence layer head"]:
    """Attention at one distance for each head."""
    return profiles.gather(-1, distances.expand(len(profiles), -1, -1)[..., None])[..., 0]
