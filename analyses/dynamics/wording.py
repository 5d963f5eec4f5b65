"""Steps, heads and what a sentence rests on, in words (for training-dynamics)."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.dynamics.result import Result
from analyses.verdicts import listed
from interp.crossings import Crossing
from interp.places import Head
from interp.places import head as named
from interp.stats import Interval


def when(crossing: Crossing) -> str:
    """The checkpoints between which it is, and where straight lines between checkpoints have it."""
    return f"{bracket(crossing)} (by straight lines at {steps_of(crossing.at)})"


def bracket(crossing: Crossing) -> str:
    """The checkpoints between which it is."""
    return f"between the checkpoints {crossing.after:,} and {crossing.by:,}"


def steps_of(interval: Interval) -> str:
    """Steps with their interval, whole numbers."""
    return f"{interval.mean:,.0f} [{interval.low:,.0f}, {interval.high:,.0f}]"


def labels_of(heads: Sequence[Head]) -> str:
    """As in "L0H1 and L1H2"."""
    return listed([named(*each).label for each in heads])


def unseen(result: Result) -> str:
    """That the period was not shown in training, where it is on record which ones were."""
    return ", unseen in training" if result.repeats.trained is False and result.trained_periods else ""


def facts(result: Result, *, n: int | None = None, unit: str = "") -> str:
    """What a sentence rests on."""
    reading, config = result.repeats, result.config
    unit = unit or f"sequences of period {reading.period}{unseen(result)}"
    seed = "one training run" if result.training_seed is None else f"one training seed ({result.training_seed})"
    return (
        f"({result.run}@{result.step}, {len(result.steps)} checkpoints, n = {reading.n_sequences if n is None else n} "
        f"{unit}, {config.level:.0%} bootstrap, seed {config.seed}, {seed})"
    )
