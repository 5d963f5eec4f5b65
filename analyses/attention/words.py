"""What a head of each kind is called, and where its attention goes: the same words everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from analyses.attention.readings import Kind


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
