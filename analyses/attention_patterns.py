"""What each head attends to, what it reads, what it writes, and what is lost without it.

Every head is scored on repeated random tokens of several periods, the one at which the run is judged among them; on a
control in which the second copy of that period is re-ordered; and on held-out text (`analyses.attention.readings`).
Beside every score stand its chance level under even attention and the same score at step 0. The weights are read
(`analyses.attention.weights`), every head is watched on the run's corpus (`analyses.attention.behaviour`), and ablated
alone on copying and on text (`analyses.attention.harms`). By what rule a head counts as found is said in
`analyses.attention.result`, and what it takes to be called by a name in `analyses.attention.verdicts`.

Sources: Elhage et al. 2021; Olsson et al. 2022. What it does not show: what several heads do together (head-ablation
does), and along which path a head acts (head-circuits does).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
from jaxtyping import Int
from torch import Tensor

from analyses.attention.behaviour import Behaviour, read_behaviour
from analyses.attention.examples import example_passages
from analyses.attention.figure import draw
from analyses.attention.findings import sentences
from analyses.attention.harms import HeadHarms, measure_head_harms
from analyses.attention.heads import head_table
from analyses.attention.readings import Kind, Reading, read
from analyses.attention.result import (
    Attention,
    Config,
    Example,
    Result,
    claimed_heads,
    found,
    found_heads,
    strongest,
)
from analyses.attention.stimuli import Sequences, Stimulus, decisive, period_of, sequences_for
from analyses.attention.verdicts import verdicts
from analyses.attention.weights import read_weights
from analyses.attention.words import MEASURED, measured_words
from analyses.checkpoints import first_checkpoint, first_checkpoint_file, held_out_file
from analyses.registry import Finding, Passage, Progress
from interp.patterns import pattern_of
from interp.periods import trained_periods
from interp.places import Head, head
from interp.stimuli import ordinary_ids, repeated_tokens
from model.errors import CheckpointError, InputError
from model.lab import Lab

__all__ = [
    "QUESTION",
    "Config",
    "Result",
    "figure",
    "findings",
    "found",
    "found_heads",
    "inputs",
    "more_tables",
    "passages",
    "run",
    "table",
    "verdicts",
]  # fmt: skip

_DRAWN_PERIOD = 31
"""Longest period of the example."""

QUESTION = "What does each head attend to, read and write, and what is lost without it?"


def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Score every head of an opened checkpoint, and of the run's step 0 beside it."""
    _check_causal(subject)
    shown = sequences_for(
        subject, periods=config.periods, n_sequences=config.n_sequences, n_text=config.n_text, seed=config.seed
    )
    first = first_checkpoint(subject)
    total = len(shown) * (1 if first is None else 2)
    steps = iter(range(total))

    def readings(lab: Lab, known: Sequence[Reading] = ()) -> tuple[Reading, ...]:
        done: list[Reading] = []
        for each in shown:
            distances = _distances(known or done) if each.stimulus is Stimulus.TEXT else None
            done.append(_read(lab, each, config, distances, next(steps), total, progress))
        return tuple(done)

    own, trained = readings(subject), trained_periods(subject)
    attention = Attention(
        config=config,
        run=subject.name,
        step=subject.step,
        tokens_seen=subject.tokens_seen,
        trained_periods=(trained.start, trained.stop - 1) if trained else None,
        readings=own,
        at_step_zero=None if first is None else readings(first, own),
    )
    heads = _ablated(attention)
    behaviour, no_behaviour = _behaviour(subject, claimed_heads(attention) or heads, config, progress)
    return Result(
        **{field.name: getattr(attention, field.name) for field in fields(attention)},
        example=_example(subject, own, config.seed),
        harms=_harms(subject, heads, config, progress),
        harms_at_step_zero=None if first is None else _harms(first, heads, config, progress),
        weights=read_weights(subject, seed=config.seed),
        weights_at_step_zero=None if first is None else read_weights(first, seed=config.seed),
        behaviour=behaviour,
        no_behaviour=no_behaviour,
    )


def table(result: Result) -> pd.DataFrame:
    """One row for each head, reading and kind: mean, interval, chance, rank, and the mean at step 0."""
    rows = [row for reading in result.readings for row in _rows(result, reading)]
    return pd.DataFrame(rows)


def more_tables(result: Result) -> dict[str, pd.DataFrame]:
    """The heads, one row each, with their verdicts."""
    return {"heads": head_table(result)}


def passages(result: Result) -> list[Passage]:
    """What the heads with the strongest claims attend to in text."""
    return example_passages(result)


def figure(result: Result) -> Any:
    """Every head in every reading, then by every source; the strongest induction head's pattern; who reads whom."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What the scores say, head kind by head kind, denials included."""
    return sentences(result)


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside the checkpoint: step 0 and the held-out rows."""
    return [first_checkpoint_file(subject), held_out_file(subject)]


def _check_causal(lab: Lab) -> None:
    if lab.config.attention.value != "causal":
        raise InputError(
            f"{lab.name} attends in both directions; these scores and their chance levels are for causal attention."
        )


def _distances(readings: Sequence[Reading]) -> Int[Tensor, "layer head"] | None:
    """The distance of each head that the control of the deciding period found, so that text is asked about the same."""
    control = next(each for each in readings if each.stimulus is Stimulus.CONTROL)
    return control[Kind.POSITIONAL].offsets if Kind.POSITIONAL in control else None


def _read(
    lab: Lab,
    sequences: Sequences,
    config: Config,
    distances: Int[Tensor, "layer head"] | None,
    step: int,
    total: int,
    progress: Progress | None,
) -> Reading:
    if progress is not None:
        progress(step, total, f"{sequences.stimulus.value} at step {lab.step}")
    reading = read(
        lab.gpt,
        sequences,
        n_resamples=config.n_resamples,
        level=config.level,
        seed=config.seed,
        distances=distances,
    )
    if progress is not None:
        progress(step + 1, total, "")
    return reading


def _ablated(attention: Attention) -> list[Head]:
    """Every head where they are few; else those with a claim to test, and at least the strongest by induction."""
    most = attention.config.max_ablated
    if len(attention.heads) <= most:
        return attention.heads
    return claimed_heads(attention)[:most] or [strongest(attention.headline, Kind.INDUCTION)]


def _harms(lab: Lab, heads: list[Head], config: Config, progress: Progress | None) -> HeadHarms:
    def counted(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, f"ablating {len(heads)} heads at step {lab.step}")

    return measure_head_harms(
        lab,
        heads,
        n_sequences=config.n_sequences,
        n_resamples=config.n_resamples,
        level=config.level,
        seed=config.seed,
        counted=counted,
    )


def _behaviour(
    lab: Lab, shown: list[Head], config: Config, progress: Progress | None
) -> tuple[Behaviour | None, str | None]:
    """What the heads do on the run's text; or why that cannot be read."""

    def done(n: int, total: int) -> None:
        if progress is not None:
            progress(n, total, "watching every head on the corpus")

    try:
        return read_behaviour(lab, shown, n_tokens=config.n_tokens, seed=config.seed, progress=done), None
    except (InputError, CheckpointError) as error:
        return None, str(error)


def _example(lab: Lab, readings: tuple[Reading, ...], seed: int) -> Example:
    """The strongest induction head on one sequence, short enough to be drawn cell by cell."""
    main, bos = decisive(readings), lab.tokenizer.bos
    period = min(period_of(main), _DRAWN_PERIOD)
    tokens = repeated_tokens(1, period, ordinary_ids(lab.tokenizer), seed=seed, bos=bos)[0]
    layer, index = strongest(main, Kind.INDUCTION)
    return Example(
        layer=layer,
        head=index,
        period=period,
        tokens=tuple(lab.str_tokens(tokens)),
        pattern=pattern_of(lab.gpt, tokens, layer, index),
    )


def _rows(result: Result, reading: Reading) -> Iterator[dict[str, Any]]:
    first = result.first(reading)
    for name, measure in reading.measures.items():
        rank = measure.ranks
        for layer, index in result.heads:
            cell = measure.intervals[layer, index]
            yield {
                "stimulus": reading.stimulus.value, "period": reading.period, "trained": reading.trained,
                "decides": reading is result.headline, "kind": name,
                "measured": measured_words(Kind(name), reading.stimulus) if name in MEASURED else None,
                "head": head(layer, index).label, "layer": layer, "index": index, "mean": cell.mean, "low": cell.low,
                "high": cell.high, "chance": measure.chance, "rank": int(rank[layer, index]), "n": cell.n,
                "step_0": None if first is None else float(first.measures[name].intervals.mean[layer, index]),
            }  # fmt: skip


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("attention-patterns"))
