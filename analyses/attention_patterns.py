"""Which heads attend by what rule, measured where the rule can be told from its look-alikes.

Every head is scored on repeated random tokens of several periods, one of which training never showed; on a control in
which the second copy is re-ordered; and on held-out text. Beside every score stand its chance level under even
attention and the same score at step 0.

A head counts as *found* for induction (or duplicates) if, at a period unseen in training, its score is at least
`threshold` and `times_chance` times chance, and the control shows less than half of it: a head that has learned a
distance keeps its score there. Previous-token, current-token and first-position heads, for which distance is the
point, need `threshold` and an interval above chance.

Sources: Elhage et al. 2021; Olsson et al. 2022. What it does not show: that a head *uses* what it attends to
(head-ablation does).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.attention_readings import BY_CONTENT, Kind, Reading, read
from analyses.attention_stimuli import Sequences, Stimulus, decisive, sequences_for, trained_periods
from analyses.registry import Finding, Progress
from interp.patterns import pattern_of
from interp.stimuli import repeated_tokens
from model.errors import ConfigError, InputError

if TYPE_CHECKING:
    from model.lab import Lab

_DRAWN_PERIOD = 31
"""Longest period of the example."""

QUESTION = "Which heads attend to the previous token, to duplicates, or to what followed an earlier copy?"


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    n_sequences: int = 64
    """Sequences of repeated random tokens for each period."""
    n_text: int = 64
    """Held-out rows of text, at most."""
    periods: tuple[int, ...] = ()
    """Tokens per copy; empty means: one that training showed and up to two that it did not."""
    threshold: float = 0.4
    """Smallest score of a head that counts as found."""
    times_chance: float = 10.0
    """Smallest multiple of chance for duplicate and induction heads."""
    n_resamples: int = 2000
    """Bootstrap resamples."""
    level: float = 0.95
    """Nominal coverage of the intervals."""
    seed: int = 0
    """Draws tokens, orders and resamples."""

    def __post_init__(self) -> None:
        if self.n_sequences < 2 or self.n_text < 2 or self.n_resamples < 100:
            raise ConfigError(
                f"n_sequences={self.n_sequences}, n_text={self.n_text}, n_resamples={self.n_resamples} are too few for "
                "an interval; take at least 2, 2 and 100."
            )


@dataclass(frozen=True, kw_only=True)
class Example:
    """One head's pattern on one sequence."""

    layer: int
    head: int
    period: int
    tokens: tuple[str, ...]
    """The sequence, one printable string per position."""
    pattern: Float[Tensor, "query key"]
    """Rows sum to 1."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the heads of one checkpoint do."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    trained_periods: tuple[int, int] | None
    """Shortest and longest period of the repeats in training; None if there were none."""
    readings: tuple[Reading, ...]
    """Repeats of every period, shortest first; then the control; then text."""
    at_step_zero: tuple[Reading, ...] | None
    """The same readings of the run's first checkpoint; None if this is it, or there is none."""
    example: Example
    """The strongest induction head at the headline period, on one sequence."""

    @property
    def headline(self) -> Reading:
        """The repeats that decide: the longest period that training did not show, else the longest."""
        return decisive(self.readings)

    @property
    def control(self) -> Reading:
        """The headline period with its second copy re-ordered."""
        return next(reading for reading in self.readings if reading.stimulus is Stimulus.CONTROL)

    @property
    def headline_at_step_zero(self) -> Reading | None:
        """The headline reading of the run's first checkpoint."""
        return None if self.at_step_zero is None else self.at_step_zero[self.readings.index(self.headline)]

    @property
    def text(self) -> Reading | None:
        """Held-out text; None if the run keeps fewer than two rows."""
        return next((reading for reading in self.readings if reading.stimulus is Stimulus.TEXT), None)


def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Score every head of an opened checkpoint, and of the run's step 0 beside it."""
    _check_causal(subject)
    shown = sequences_for(
        subject, periods=config.periods, n_sequences=config.n_sequences, n_text=config.n_text, seed=config.seed
    )
    first = _first_checkpoint(subject)
    total = len(shown) * (1 if first is None else 2)
    steps = iter(range(total))

    def readings(lab: Lab) -> tuple[Reading, ...]:
        return tuple(_read(lab, each, config, next(steps), total, progress) for each in shown)

    own = readings(subject)
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        tokens_seen=subject.tokens_seen,
        trained_periods=trained_periods(subject),
        readings=own,
        at_step_zero=None if first is None else readings(first),
        example=_example(subject, own, config.seed),
    )


def table(result: Result) -> pd.DataFrame:
    """One row for each head, reading and kind: mean, interval, chance, rank, and the mean at step 0."""
    rows = [row for index in range(len(result.readings)) for row in _rows(result, index)]
    return pd.DataFrame(rows)


def figure(result: Result) -> Any:
    """Every head in every reading on one colour scale; the strongest induction head's pattern; the ranking."""
    from analyses.attention_figure import draw

    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What the scores say, head kind by head kind, denials included."""
    from analyses.attention_findings import sentences

    return sentences(result)


def found(result: Result, kind: Kind) -> Bool[Tensor, "layer head"]:
    """Which heads count as found for `kind`, by the rule at the head of this module."""
    measure, config = result.headline[kind], result.config
    mean = measure.intervals.mean
    if kind not in BY_CONTENT:
        return (mean >= config.threshold) & (measure.intervals.low > measure.chance)
    if result.headline.trained:
        return torch.zeros_like(mean, dtype=torch.bool)
    enough = (mean >= config.threshold) & (mean >= config.times_chance * measure.chance)
    return enough & (result.control[kind].intervals.mean < mean / 2)


def found_heads(result: Result, kind: Kind) -> list[tuple[int, int]]:
    """The found heads as (layer, head), strongest first."""
    mean = result.headline[kind].intervals.mean
    heads = [(int(layer), int(head)) for layer, head in found(result, kind).nonzero().tolist()]
    return sorted(heads, key=lambda place: -float(mean[place]))


def _check_causal(lab: Lab) -> None:
    if lab.config.attention.value != "causal":
        raise InputError(
            f"{lab.name} attends in both directions; these scores and their chance levels are for causal attention."
        )


def _first_checkpoint(lab: Lab) -> Lab | None:
    """The run at step 0, unless that is what is being studied."""
    from model.checkpoint import checkpoint_steps
    from model.lab import open_run

    if lab.step == 0 or 0 not in checkpoint_steps(lab.path):
        return None
    return open_run(f"{lab.path}@0", device=lab.gpt.device)


def _read(lab: Lab, sequences: Sequences, config: Config, step: int, total: int, progress: Progress | None) -> Reading:
    if progress is not None:
        progress(step, total, f"{sequences.stimulus.value} at step {lab.step}")
    reading = read(lab.gpt, sequences, n_resamples=config.n_resamples, level=config.level, seed=config.seed)
    if progress is not None:
        progress(step + 1, total, "")
    return reading


def _example(lab: Lab, readings: tuple[Reading, ...], seed: int) -> Example:
    """The strongest induction head on one sequence, short enough to be drawn cell by cell."""
    main, bos = decisive(readings), lab.tokenizer.bos
    period = min(main.period or 0, _DRAWN_PERIOD)
    tokens = repeated_tokens(1, period, lab.config.d_vocab, seed=seed, bos=bos)[0]
    mean = main[Kind.INDUCTION].intervals.mean
    layer, head = divmod(int(mean.argmax()), mean.shape[1])
    return Example(
        layer=layer,
        head=head,
        period=period,
        tokens=tuple(lab.str_tokens(tokens)),
        pattern=pattern_of(lab.gpt, tokens, layer, head),
    )


def _rows(result: Result, index: int) -> Iterator[dict[str, Any]]:
    reading = result.readings[index]
    first = None if result.at_step_zero is None else result.at_step_zero[index]
    for name, measure in reading.measures.items():
        mean = measure.intervals.mean
        rank = mean.flatten().argsort(descending=True).argsort().reshape(mean.shape) + 1
        for layer, head in torch.cartesian_prod(*map(torch.arange, mean.shape)).tolist():
            cell = measure.intervals[layer, head]
            yield {
                "stimulus": reading.stimulus.value, "period": reading.period, "trained": reading.trained, "kind": name,
                "head": f"L{layer}H{head}", "layer": layer, "index": head, "mean": cell.mean, "low": cell.low,
                "high": cell.high, "chance": measure.chance, "rank": int(rank[layer, head]), "n": cell.n,
                "step_0": None if first is None else float(first.measures[name].intervals.mean[layer, head]),
            }  # fmt: skip


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("attention-patterns"))
