"""Every score that the studies give of every head, in one form: on random tokens and on text, beside step 0.

A *score* has a name, such as `induction`, `harm` or `importance`; each is measured on some kinds of sequence. Whatever
study it comes from, it is a mean with an interval for each head, what chance would give where that is known, and the
same at step 0. So any two can be compared, heads can be ranked by any of them, and one grid draws them all.

What is missing is said in words: a score may not be defined for a model, a study may not have been run.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.attention.kinds import Kind
from analyses.attention.stimuli import Stimulus
from analyses.attention.words import MEASURED, measured_words
from interp.places import Head, every_head, head
from model.settings import as_enum

RANDOM, TEXT = "random tokens", "text"
"""The two sides of a score; on the first, kinds of attention also have readings by their titles."""

HARM, IMPORTANCE, REPAIRED, WRITTEN, OV = "harm", "importance", "repaired", "written", "ov-copying"
"""The scores that are no kind of attention."""

STUDIES = MappingProxyType({HARM: "head-ablation", IMPORTANCE: "head-importance", REPAIRED: "self-repair"})
"""Where a score comes from; all others from attention-patterns."""

MEANINGS = MappingProxyType(
    {
        **{kind.value: f"share of {measured_words(kind)}" for kind in MEASURED},
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


def meaning_of(name: str, stimulus: Stimulus | str | None = None) -> str:
    """What a score is, on sequences of one kind: in the re-ordered control what is matched by distance is no match."""
    return f"share of {measured_words(Kind(name), stimulus)}" if name in MEASURED else MEANINGS[name]


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
    stimulus: Stimulus | None = None
    """Their kind; None where they are no reading of attention-patterns."""
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
    n: int
    unit: str
    """Of what there are `n`."""
    rests: tuple[str, ...]
    """What else the numbers rest on."""

    def __post_init__(self) -> None:
        if self.stimulus is not None:
            object.__setattr__(self, "stimulus", as_enum(Stimulus, self.stimulus, "stimulus"))

    @property
    def facts(self) -> tuple[str, ...]:
        """What a caption says: n, interval, seed, checkpoint."""
        return (f"n = {self.n:,} {self.unit}", *self.rests)

    @property
    def label(self) -> str:
        """What a grid says above it."""
        chance = "" if self.chance is None else f" (chance {self.chance:.2f})"
        return meaning_of(self.name, self.stimulus) + chance

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


APART = "interval: the ends of the two, one against the other; underlined where they do not overlap"
"""What the interval of a difference between two checkpoints is."""


BY_NUMBER = (
    "heads of two trainings are matched by their numbers alone: H0 of one is not H0 of the other, so a difference of "
    "one head says nothing of what changed"
)
"""What is said wherever the heads of two runs stand side by side, head by head."""


def difference(one: HeadScores, other: HeadScores) -> HeadScores | Absent:
    """The first minus the second, head by head; its interval spans all that the two intervals leave open."""
    if one.mean.shape != other.mean.shape:
        shapes = " and ".join("{} layers of {} heads".format(*each.mean.shape) for each in (one, other))
        return Absent(why=f"There is no difference head by head between {shapes}.")
    low = None if one.low is None or other.high is None else one.low - other.high
    high = None if one.high is None or other.low is None else one.high - other.low
    told = None if low is None or high is None else (low > 0) | (high < 0)
    return HeadScores(
        name=one.name, on=one.on, stimulus=one.stimulus, mean=one.mean - other.mean, low=low, high=high, step_0=None,
        chance=None, found=told, n=one.n, unit=one.unit, rests=(APART, *dict.fromkeys((*one.rests, *other.rests))),
    )  # fmt: skip
