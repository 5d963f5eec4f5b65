"""Where each score of heads comes from: the results of four studies, read into one form (`analyses.heads.scores`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from analyses.attention.kinds import Kind
from analyses.attention.readings import Reading
from analyses.attention.result import Attention, found, reading_for
from analyses.attention.stimuli import Stimulus
from analyses.attention.words import WORDS
from analyses.heads.scores import (
    HARM,
    IMPORTANCE,
    MEANINGS,
    OV,
    RANDOM,
    REPAIRED,
    STUDIES,
    TEXT,
    WRITTEN,
    Absent,
    HeadScores,
    score_title,
)
from interp.places import Head
from interp.stats import Intervals
from model.errors import UnknownNameError, closest
from model.settings import as_enum

DYNAMICS = "training-dynamics"
"""The study that holds kinds of attention at every checkpoint it looked at."""


def scores(results: Mapping[str, Any], name: str, on: str = RANDOM) -> HeadScores | Absent:
    """One score of every head, or why there is none.

    Args:
        results: `Result` of each study at hand, by the study's name; of training-dynamics what it holds of one
            checkpoint (`analyses.dynamics.result.attention_at`), which is asked where attention-patterns is
            not there.
        name: a key of MEANINGS.
        on: RANDOM, TEXT, or for a kind of attention the title of a reading.

    Raises:
        UnknownNameError: if there is no score of that name.
    """
    if name not in MEANINGS:
        raise UnknownNameError(f'there is no score "{name}"; there are {", ".join(MEANINGS)}.{closest(name, MEANINGS)}')
    study = STUDIES.get(name, "attention-patterns")
    result = results.get(study)
    if result is None and name in set(Kind) and DYNAMICS in results:
        return _kind(results[DYNAMICS], Kind(name), on)
    if result is None and name == HARM and "attention-patterns" in results:
        return _tried(results["attention-patterns"], on)
    if result is None:
        return Absent(
            why=f"{score_title(name)} comes from {study}, which has no result at this checkpoint.", study=study
        )
    read: Callable[[Any, str], HeadScores | Absent] | None = _OTHERS.get(name)
    return _kind(result, Kind(name), on) if read is None else read(result, on)


def where_decided(result: Attention, kind: str) -> Reading:
    """The reading to show a kind on: where heads are found by it, else the first that has it, else the headline."""
    decides, wanted = reading_for(result, kind), as_enum(Kind, kind, "kind")
    return decides if wanted in decides else next(
        (each for each in result.readings if wanted in each), result.headline
    )  # fmt: skip


def _kind(result: Attention, kind: Kind, on: str) -> HeadScores | Absent:
    reading = _reading(result, kind, on)
    if reading is None:
        return Absent(why="this run holds out too little text to score heads on it.")
    if kind not in reading:
        return Absent(why=_why_not(result, reading, kind))
    measure, first = reading[kind], result.first(reading)
    decides = kind in WORDS and reading is reading_for(result, kind)
    random = "" if reading.stimulus is Stimulus.TEXT else "random "
    return HeadScores(
        name=kind.value,
        on=reading.title,
        stimulus=reading.stimulus,
        mean=measure.intervals.mean,
        low=measure.intervals.low,
        high=measure.intervals.high,
        step_0=None if first is None or kind not in first else first[kind].intervals.mean,
        chance=measure.chance,
        found=found(result, kind) if decides else None,
        offsets=measure.offsets,
        n=reading.n_sequences,
        unit=f"sequences of {reading.n_pos} {random}tokens",
        rests=_rests(measure.intervals, result),
    )


def _reading(result: Attention, kind: Kind, on: str) -> Reading | None:
    if on == RANDOM:
        return where_decided(result, kind)
    if on == TEXT:
        return result.text
    titles = {each.title: each for each in result.readings}
    if on not in titles:
        raise UnknownNameError(f'there is no reading "{on}"; there are {", ".join(titles)}.')
    return titles[on]


def _why_not(result: Attention, reading: Reading, kind: Kind) -> str:
    """Why a reading lacks a kind, and which have it."""
    title = score_title(kind.value)
    if kind in reading.left_out:
        return f"{title}: {reading.left_out[kind]}"
    having = [each.title for each in result.readings if kind in each]
    if having:
        return f"{title} is not measured on {reading.title}, only on: {'; '.join(having)}."
    known = next((each.left_out[kind] for each in result.readings if kind in each.left_out), None)
    return f"{title}: {known or 'fewer than two sequences of any kind hold what it looks for.'}"


def _written(result: Any, on: str) -> HeadScores | Absent:
    if on != TEXT:
        return Absent(why=f"{score_title(WRITTEN)} is measured on the corpus only.")
    if result.behaviour is None:
        return Absent(why=result.no_behaviour)
    seen = result.behaviour.seen
    rests = (f"seed {seen.seed}", f"{result.run}@{result.step}")
    return HeadScores(
        name=WRITTEN, on="the corpus", mean=seen.written, low=None, high=None, step_0=None, chance=None, found=None,
        n=seen.n_queries, unit="tokens of the corpus", rests=rests,
    )  # fmt: skip


def _ov(result: Any, on: str) -> HeadScores | Absent:
    if on == TEXT:
        return Absent(why="The OV circuit is read off weights: no text takes part.")
    copying, first = result.weights.copying, result.weights_at_step_zero
    if copying is None:
        return Absent(why=result.weights.missing["copying"].reason)
    null = f"random heads: mean {copying.null_mean:.2f}, sd {copying.null_sd:.2f} (n = {copying.n_null})"
    return HeadScores(
        name=OV, on="weights", mean=copying.score, low=None, high=None, chance=copying.null_mean, found=None,
        step_0=None if first is None or first.copying is None else first.copying.score,
        n=1, unit="set of weights", rests=(null, f"seed {copying.seed}", f"{result.run}@{result.step}"),
    )  # fmt: skip


def _harm(result: Any, on: str) -> HeadScores | Absent:
    outcome = "text_loss" if on == TEXT else "copy_loss"
    single = result.single(outcome)
    start = result.at_step_zero
    harm = single.harm
    return HeadScores(
        name=HARM,
        on=single.meaning,
        mean=harm.mean[0],
        low=harm.low[0],
        high=harm.high[0],
        step_0=None if start is None else start.single(outcome).harm.mean[0],
        chance=None,
        found=(single.p[0] < result.config.alpha) & (harm.mean[0].abs() >= result.config.floor),
        n=harm.n,
        unit="sequences",
        rests=("underlined: Holm-corrected over all heads", *_rests(harm, result)),
    )


def _tried(result: Any, on: str) -> HeadScores | Absent:
    """The harm of the heads that attention-patterns ablated: of a large model those with a claim to test."""
    outcome = "text_loss" if on == TEXT else "copy_loss"
    harms, start = result.harms, result.harms_at_step_zero
    tried = harms.outcome(outcome)
    if tried is None:
        return Absent(why="this run holds out too little text to ablate heads on it.")
    cells = {place: at for at, place in enumerate(harms.heads)}
    shape = result.headline[Kind.INDUCTION].intervals.mean.shape

    def spread(values: Tensor) -> Tensor:
        laid = torch.full(shape, torch.nan, dtype=torch.float64)
        for place, at in cells.items():
            laid[place] = values[at]
        return laid

    before = None if start is None else start.outcome(outcome)
    sure = (tried.p < result.config.alpha) & (tried.harm.mean.abs() >= result.config.floor)
    return HeadScores(
        name=HARM, on=tried.meaning, mean=spread(tried.harm.mean), low=spread(tried.harm.low),
        high=spread(tried.harm.high), step_0=None if before is None else spread(before.harm.mean), chance=None,
        found=spread(sure.double()) == 1,
        n=tried.harm.n, unit="sequences",
        rests=(
            f"{len(harms.heads)} heads were ablated",
            "underlined: Holm-corrected over all heads and outcomes", *_rests(tried.harm, result),
        ),
    )  # fmt: skip


def _importance(result: Any, on: str) -> HeadScores | Absent:
    outcome = "text_loss" if on == TEXT else "copy_loss"
    judged = next((each for each in result.judged if each.outcome == outcome), None)
    if judged is None:
        return Absent(why="this run holds out too little text to judge heads by it.")
    start = judged.at_step_zero
    return HeadScores(
        name=IMPORTANCE, on=judged.meaning, mean=judged.importance.mean, low=judged.importance.low,
        high=judged.importance.high, step_0=None if start is None else start.importance, chance=None, found=None,
        n=judged.importance.n, unit="sequences", rests=_rests(judged.importance, result),
    )  # fmt: skip


def _repaired(result: Any, on: str) -> HeadScores | Absent:
    repairs = result.on("top" if on == TEXT else "copied")
    shape = result.discovery.induction.shape
    mean, low, high, first = (torch.full(shape, torch.nan, dtype=torch.float64) for _ in range(4))
    start = None if result.at_step_zero is None else result.at_step_zero.on(repairs.tokens)
    for row in repairs.heads():
        share = repairs.share(row, result.config.floor)
        place = _place(repairs.components[row].label)
        if share is not None:
            mean[place], low[place], high[place] = share.mean, share.low, share.high
        before = None if start is None else start.share(row, result.config.floor)
        first[place] = torch.nan if before is None else before.mean
    floor = f"only heads that add {result.config.floor:g} logits or more by themselves"
    return HeadScores(
        name=REPAIRED, on=repairs.meaning, mean=mean, low=low, high=high, step_0=None if start is None else first,
        chance=None, found=None,
        n=repairs.n_sequences, unit="sequences", rests=(floor, *_rests(repairs.numbers.share, result)),
    )  # fmt: skip


def _place(label: str) -> Head:
    layer, _, index = label.removeprefix("L").partition("H")
    return int(layer), int(index)


def _rests(intervals: Intervals, result: Any) -> tuple[str, ...]:
    return f"{intervals.level:.0%} intervals", f"seed {result.config.seed}", f"{result.run}@{result.step}"


_OTHERS: Mapping[str, Callable[[Any, str], HeadScores | Absent]] = MappingProxyType(
    {WRITTEN: _written, OV: _ov, HARM: _harm, IMPORTANCE: _importance, REPAIRED: _repaired}
)
