"""What a head of each kind is called, and where its attention goes: the same words everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from analyses.attention.kinds import BY_CONTENT, Kind
from analyses.attention.stimuli import Stimulus
from model.settings import as_enum


@dataclass(frozen=True)
class Words:
    """How one kind of head is spoken of."""

    name: str
    """What a head is called that is one by all evidence."""
    where: str
    """Where its attention goes."""
    attends: str
    """What it is said to do by its attention alone."""
    attend: str
    """The same of several."""


def _like(name: str, where: str) -> Words:
    article = "an" if name[0] in "aeiou" else "a"
    return Words(name, where, f"attends like {article} {name}", f"attend like {name}s")


WORDS = MappingProxyType(
    {
        Kind.INDUCTION: _like("induction head", "on the token after the earlier copy"),
        Kind.LATER: _like("two-later head", "on the token two after the earlier copy"),
        Kind.DUPLICATE: _like("duplicate-token head", "on the earlier copy of the token"),
        Kind.PREVIOUS: _like("previous-token head", "on the token before"),
        Kind.CURRENT: _like("current-token head", "on the token itself"),
        Kind.POSITIONAL: Words(
            "positional head",
            "at one distance of two tokens or more",
            "attends at one distance",
            "attend at one distance each",
        ),
        Kind.FIRST: Words(
            "head that rests on position 0", "on position 0", "rests on position 0", "rest on position 0"
        ),
    }
)
"""The kinds that a head can be found for, those that say most of it first."""

MEASURED = MappingProxyType(
    {
        Kind.INDUCTION: "attention on the token after an earlier copy",
        Kind.LATER: "attention on the token two after the earlier copy",
        Kind.MATCH: "attention on the token after the earlier copy, wherever it is now (true match)",
        Kind.PREFIX_MATCHING: "attention on the tokens after all earlier copies",
        Kind.DUPLICATE: "attention on an earlier copy of the token",
        Kind.PREVIOUS: "attention on the token before",
        Kind.CURRENT: "attention on the token itself",
        Kind.FIRST: "attention on position 0",
        Kind.POSITIONAL: "attention at the head's best fixed distance",
        Kind.LOCAL: "attention on the last 8 keys, position 0 aside",
        Kind.FAR: "attention beyond the last 8 keys, position 0 aside",
    }
)
"""The kinds that are shares of attention, and what each is a share on."""

_OLD_DISTANCE = MappingProxyType(
    {
        Kind.INDUCTION: "the token after the earlier copy",
        Kind.LATER: "the token two after the earlier copy",
        Kind.DUPLICATE: "the earlier copy",
    }
)
"""What lay, before the second copy was re-ordered, at the distances that are still measured there."""


def measured_words(kind: Kind | str, stimulus: Stimulus | str | None = None) -> str:
    """What a share of attention is measured on; in the re-ordered control a fixed distance is no match any more.

    >>> measured_words(Kind.INDUCTION, Stimulus.REPEATS)
    'attention on the token after an earlier copy'
    >>> measured_words(Kind.INDUCTION, Stimulus.CONTROL)
    'attention at the old distance, where the token after the earlier copy was before the re-ordering'
    """
    kind = as_enum(Kind, kind, "kind")
    if stimulus is not None and as_enum(Stimulus, stimulus, "stimulus") is Stimulus.CONTROL and kind in BY_CONTENT:
        return f"attention at the old distance, where {_OLD_DISTANCE[kind]} was before the re-ordering"
    return MEASURED[kind]
