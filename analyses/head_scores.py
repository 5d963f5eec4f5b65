"""Every score that the studies give of every head, in one form: on random tokens and on text, beside step 0.

A *score* has a name, such as `induction`, `harm` or `importance`; each is measured on some kinds of sequence. Whatever
study it comes from, it is a mean with an interval for each head, what chance would give where that is known, and the
same at step 0. So any two can be compared, heads can be ranked by any of them, and one grid draws them all.

What is missing is said in words: a score may not be defined for a model, a study may not have been run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.attention_kinds import Kind
from analyses.attention_readings import Reading
from analyses.attention_result import Attention, found, reading_for
from analyses.attention_words import WORDS
from interp.places import Head, every_head, head
from interp.stats import Intervals
from model.errors import UnknownNameError, closest

RANDOM, TEXT = "random tokens", "text"
"""The two sides of a score; on the first, kinds of attention also have readings by their titles."""

HARM, IMPORTANCE, REPAIRED, WRITTEN, OV = "harm", "importance", "repaired", "written", "ov-copying"
"""The scores that are no kind of attention."""

STUDIES = MappingProxyType({HARM: "head-ablation", IMPORTANCE: "head-importance", REPAIRED: "self-repair"})
"""Where a score comes from; all others from attention-patterns."""

MEANINGS = MappingProxyType(
    {
        Kind.INDUCTION.value: "share of attention on the token after an earlier copy",
        Kind.LATER.value: "share of attention on the token two after the earlier copy",
        Kind.MATCH.value: "share of attention on the token after the earlier copy, wherever it is now",
        Kind.PREFIX_MATCHING.value: "share of attention on the tokens after all earlier copies",
        Kind.DUPLICATE.value: "share of attention on an earlier copy of the token",
        Kind.PREVIOUS.value: "share of attention on the token before",
        Kind.CURRENT.value: "share of attention on the token itself",
        Kind.FIRST.value: "share of attention on position 0",
        Kind.POSITIONAL.value: "share of attention at the head's best fixed distance",
        Kind.LOCAL.value: "share of attention on the last 8 keys, position 0 aside",
        Kind.FAR.value: "share of attention beyond the last 8 keys, position 0 aside",
        Kind.ENTROPY.value: "entropy of attention, 1 is even",
        Kind.DISTANCE.value: "mean distance attended to, in tokens",
        Kind.COPYING.value: "copying: 1 raises only what it attends to, -1 only other tokens",
        OV: "eigenvalue copying score of the OV circuit: near 1 it raises the token that it attends to",
        WRITTEN: "how much it writes at a token of the corpus, in stream units",
        HARM: "loss without the head, replaced by its mean, minus the loss with it, in nats",
        IMPORTANCE: "importance by gradients, in nats",
        REPAIRED: "share of what the head adds to a logit that others make good when it is gone",
    }
)
"""What each score is, in the order in which they are offered: by match, by place, by spread, by weights, by cause."""

SIGNED = frozenset({Kind.COPYING.value, OV, HARM, REPAIRED})
"""Scores that may be negative and mean something by it."""


def score_title(name: str) -> str:
    """What a score is called on its button."""
    titles = {Kind.FIRST.value: "position 0", HARM: "ablation harm", REPAIRED: "self-repair", OV: "OV copying"}
    return titles.get(name, name.replace("_", " "))


@dataclass(frozen=True, kw_only=True)
class HeadScores:
    """One score of every head on one kind of sequence."""

    name: str
    """Key of MEANINGS."""
    on: str
    """The sequences, in words."""
    mean: Float[Tensor, "layer head"]
    """NaN for heads that were not measured."""
    low: Float[Tensor, "layer head"] | None
    """Lower end of each interval; None where the score is read off weights, or is a mean over a fixed corpus."""
    high: Float[Tensor, "layer head"] | None
    step_0: Float[Tensor, "layer head"] | None
    """The same at the run's first checkpoint; None where that was not measured."""
    chance: float | None
    found: Bool[Tensor, "layer head"] | None
    """Heads that count as found by it, or whose harm is told from none; None where it decides nothing."""
    offsets: Int[Tensor, "layer head"] | None = None
    """Positional only: the distance at which each head was measured."""
    facts: tuple[str, ...]
    """n with its unit, interval, and what else the numbers rest on."""

    @property
    def label(self) -> str:
        """What a grid says above it."""
        chance = "" if self.chance is None else f" (chance {self.chance:.2f})"
        return MEANINGS[self.name] + chance

    @property
    def ranks(self) -> Int[Tensor, "layer head"]:
        """Each head's place among all, 1 being the largest; those without a value come last."""
        order = self.mean.flatten().nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)
        return order.argsort().reshape(self.mean.shape) + 1

    def ordered(self) -> list[Head]:
        """Every head that has a value, the largest first."""
        places = every_head(*self.mean.shape)
        return sorted((place for place in places if bool(self.mean[place].isfinite())), key=lambda place: int(
            self.ranks[place]
        ))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Absent:
    """Why there is no such score."""

    why: str
    """In a sentence."""
    study: str | None = None
    """The study that would give it; None where nothing would."""


def scores(results: Mapping[str, Any], name: str, on: str = RANDOM) -> HeadScores | Absent:
    """One score of every head, or why there is none.

    Args:
        results: `Result` of each study at hand, by the study's name.
        name: a key of MEANINGS.
        on: RANDOM, TEXT, or for a kind of attention the title of a reading.

    Raises:
        UnknownNameError: if there is no score of that name.
    """
    if name not in MEANINGS:
        raise UnknownNameError(f'there is no score "{name}"; there are {", ".join(MEANINGS)}.{closest(name, MEANINGS)}')
    study = STUDIES.get(name, "attention-patterns")
    result = results.get(study)
    if result is None and name == HARM and "attention-patterns" in results:
        return _tried(results["attention-patterns"], on)
    if result is None:
        return Absent(
            why=f"{score_title(name)} comes from {study}, which has no result at this checkpoint.", study=study
        )
    read: Callable[[Any, str], HeadScores | Absent] | None = _OTHERS.get(name)
    return _kind(result, Kind(name), on) if read is None else read(result, on)


def score_rows(measured: HeadScores) -> pd.DataFrame:
    """The heads by one score, the largest first: rank, mean, interval, chance, step 0."""
    rows = []
    for place in measured.ordered():
        row: dict[str, Any] = {"rank": int(measured.ranks[place]), "head": head(*place).label}
        row |= {} if measured.offsets is None else {"tokens back": int(measured.offsets[place])}
        row |= {"mean": float(measured.mean[place])}
        if measured.low is not None and measured.high is not None:
            row |= {"low": float(measured.low[place]), "high": float(measured.high[place])}
        row |= {} if measured.chance is None else {"chance": measured.chance}
        row |= {} if measured.step_0 is None else {"step 0": float(measured.step_0[place])}
        row |= {} if measured.found is None else {"found": bool(measured.found[place])}
        rows.append(row)
    return pd.DataFrame(rows)


def top_heads(measured: HeadScores, n: int) -> pd.DataFrame:
    """The first `n` heads by one score."""
    return score_rows(measured).head(n)


def two_scores(across: HeadScores, up: HeadScores) -> pd.DataFrame:
    """Two scores of every head that has both, with their intervals: `x` and `y`."""
    rows = []
    for place in every_head(*across.mean.shape):
        row: dict[str, Any] = {"head": head(*place).label, "layer": place[0]}
        for axis, measured in (("x", across), ("y", up)):
            row[axis] = float(measured.mean[place])
            if measured.low is not None and measured.high is not None:
                row[f"{axis}_low"], row[f"{axis}_high"] = float(measured.low[place]), float(measured.high[place])
        rows.append(row)
    told = pd.DataFrame(rows)
    return told.dropna(subset=["x", "y"]).reset_index(drop=True)


def difference(one: HeadScores, other: HeadScores) -> HeadScores | Absent:
    """The first minus the second, head by head; its interval spans all that the two intervals leave open."""
    if one.mean.shape != other.mean.shape:
        shapes = " and ".join("{} layers of {} heads".format(*each.mean.shape) for each in (one, other))
        return Absent(why=f"There is no difference head by head between {shapes}.")
    low = None if one.low is None or other.high is None else one.low - other.high
    high = None if one.high is None or other.low is None else one.high - other.low
    told = None if low is None or high is None else (low > 0) | (high < 0)
    return HeadScores(
        name=one.name, on=one.on, mean=one.mean - other.mean, low=low, high=high, step_0=None, chance=None, found=told,
        facts=("interval: the ends of the two, one against the other; underlined where they do not overlap",),
    )  # fmt: skip


def where_decided(result: Attention, kind: Kind | str) -> Reading:
    """The reading to show a kind on: where heads are found by it, else the first that has it, else the headline."""
    decides, wanted = reading_for(result, kind), Kind(kind)
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
    return HeadScores(
        name=kind.value,
        on=reading.title,
        mean=measure.intervals.mean,
        low=measure.intervals.low,
        high=measure.intervals.high,
        step_0=None if first is None or kind not in first else first[kind].intervals.mean,
        chance=measure.chance,
        found=found(result, kind) if decides else None,
        offsets=measure.offsets,
        facts=(f"n = {reading.n_sequences} sequences of {reading.n_pos} tokens", *_rests(measure.intervals, result)),
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
    facts = (f"n = {seen.n_queries:,} tokens of the corpus", f"seed {seen.seed}", f"{result.run}@{result.step}")
    return HeadScores(
        name=WRITTEN, on="the corpus", mean=seen.written, low=None, high=None, step_0=None, chance=None, found=None,
        facts=facts,
    )  # fmt: skip


def _ov(result: Any, on: str) -> HeadScores | Absent:
    if on == TEXT:
        return Absent(why="The OV circuit is read off weights: no text takes part.")
    copying, first = result.weights.copying, result.weights_at_step_zero
    if copying is None:
        return Absent(why=result.weights.missing["copying"].reason)
    facts = (f"random heads: mean {copying.null_mean:.2f}, sd {copying.null_sd:.2f} (n = {copying.n_null})",)
    return HeadScores(
        name=OV, on="weights", mean=copying.score, low=None, high=None, chance=copying.null_mean, found=None,
        step_0=None if first is None or first.copying is None else first.copying.score,
        facts=(*facts, f"seed {copying.seed}", f"{result.run}@{result.step}"),
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
        facts=(f"n = {harm.n} sequences", "underlined: Holm-corrected over all heads", *_rests(harm, result)),
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
        facts=(
            f"n = {tried.harm.n} sequences", f"{len(harms.heads)} heads were ablated",
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
        facts=(f"n = {judged.importance.n} sequences", *_rests(judged.importance, result)),
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
        facts=(f"n = {repairs.n_sequences} sequences", floor, *_rests(repairs.numbers.share, result)),
    )  # fmt: skip


def _place(label: str) -> Head:
    layer, _, index = label.removeprefix("L").partition("H")
    return int(layer), int(index)


def _rests(intervals: Intervals, result: Any) -> tuple[str, ...]:
    return f"{intervals.level:.0%} intervals", f"seed {result.config.seed}", f"{result.run}@{result.step}"


_OTHERS: Mapping[str, Callable[[Any, str], HeadScores | Absent]] = MappingProxyType(
    {WRITTEN: _written, OV: _ov, HARM: _harm, IMPORTANCE: _importance, REPAIRED: _repaired}
)
