"""What speaks for and against calling a head by a name, each with its value, interval, null, rank and step 0.

Five sources, none of which is enough alone: attention on random tokens (where the rule can be told from its
look-alikes), attention on held-out text, the weights (does it copy what it reads; whose output does it read), behaviour
on a corpus, and ablation. Every item bears *for* the name, *against* it, is *open* (measured, and tells nothing either
way), or is *absent*: not measured, or not defined for this model, with the reason in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from analyses.attention.kinds import Kind
from model.settings import as_enum


class Source(StrEnum):
    """Where an item comes from."""

    ATTENTION = "attention"
    """Random tokens."""
    TEXT = "text"
    """Held-out text."""
    COPYING = "copying"
    """The OV circuit."""
    COMPOSITION = "composition"
    """Which earlier head's output it reads."""
    BEHAVIOUR = "behaviour"
    """A corpus, streamed."""
    ABLATION = "ablation"
    """The head alone replaced by its mean."""


class Bearing(StrEnum):
    """What an item says of the name."""

    FOR = "for"
    AGAINST = "against"
    OPEN = "open"
    """Measured, and tells nothing either way."""
    ABSENT = "absent"
    """Not measured, or not defined for this model."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One item."""

    source: Source
    what: str
    """What was measured, as a column or a row would be called."""
    bearing: Bearing
    said: str
    """The item as part of a sentence; empty where it is not worth one."""
    kind: Kind | None = None
    """The kind of attention it is about; None where it is about the head."""
    bears: bool = True
    """Whether it can decide the name: of a head that copies, what is lost on text cannot, nor can how it attends by
    another kind than that it is named after."""
    decides: bool = True
    """Whether it is among what a verdict rests on, and not only told beside it."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    null: float | None = None
    """Chance, or the mean of the null."""
    z: float | None = None
    """Standard deviations of the null between the value and its mean."""
    p: float | None = None
    rank: int | None = None
    """Place of the head among all heads, 1 the largest."""
    n_heads: int | None = None
    """How many it is ranked among; for an ablation, how many heads were tried."""
    step_0: float | None = None
    """The same at the run's first checkpoint."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", as_enum(Source, self.source, "source"))
        object.__setattr__(self, "bearing", as_enum(Bearing, self.bearing, "bearing"))
        object.__setattr__(self, "kind", None if self.kind is None else as_enum(Kind, self.kind, "kind"))
