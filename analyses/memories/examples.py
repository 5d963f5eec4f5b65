"""Pieces of the corpus for one memory: the prefixes that fire it most, those across its range, and any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd
from torch import Tensor

from analyses.ffn.parts import Triggers
from analyses.ffn.result import Result
from analyses.views import TokenRow, token_rows_payload, visible
from analyses.views.payload import Payload
from model.settings import as_enum


class Choice(StrEnum):
    """Which prefixes of the corpus are shown."""

    TOP = "top"
    NEGATIVE = "negative"
    DECILES = "deciles"
    RANDOM = "random"


TITLES = {
    Choice.TOP: "strongest",
    Choice.NEGATIVE: "most negative",
    Choice.DECILES: "across its range",
    Choice.RANDOM: "anywhere",
}

EXPLAINED = {
    Choice.TOP: "the number: the coefficient at the boxed token; these are its extremes, not its habit",
    Choice.NEGATIVE: "the number: the coefficient at the boxed token; below zero the value is written backwards",
    Choice.DECILES: "the numbers: the coefficient, and the share of prefixes with a smaller one; one prefix a tenth",
    Choice.RANDOM: "the same prefixes for every memory; the numbers: the coefficient, and the share with a smaller one",
}


ABSENT = {
    Choice.TOP: "It was never above zero on these prefixes, so it has no trigger.",
    Choice.NEGATIVE: "It was never below zero on these prefixes.",
    Choice.DECILES: "No prefix was sampled.",
    Choice.RANDOM: "No prefix was sampled.",
}
"""Why there is nothing to show."""

Memory = tuple[int, int]
"""(layer, memory)."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One prefix of the corpus, as far as it is stored."""

    tokens: tuple[str, ...]
    """Its end, one printable string per token; the memory's coefficient is that at the last one."""
    start: int
    """Position of the first of them in the prefix."""
    follows: str
    """The token behind the prefix."""
    coefficient: float
    smaller: float | None = None
    """Share of prefixes with a smaller coefficient; None where that is not stored."""

    @property
    def note(self) -> str:
        """What stands in front of it."""
        share = "" if self.smaller is None else f" ({self.smaller:.0%})"
        return f"{self.coefficient:6.2f}{share}  then {visible(self.follows)}"


def has_negative(result: Result) -> bool:
    """Whether any memory is ever below zero: none of ReLU is."""
    return bool(result.reading.negative.present.any())


def choices(result: Result) -> list[Choice]:
    """Which prefixes there are to choose from."""
    return [choice for choice in Choice if choice is not Choice.NEGATIVE or has_negative(result)]


def examples(result: Result, memory: Memory, choice: Choice | str) -> list[Example]:
    """The chosen prefixes; for the triggers the strongest first, across the range from the largest down."""
    reading = result.reading
    match as_enum(Choice, choice, "choice"):
        case Choice.TOP:
            found = _triggers(result, reading.triggers, memory)
        case Choice.NEGATIVE:
            found = _triggers(result, reading.negative, memory)
        case Choice.DECILES:
            found = _deciles(result, memory)
        case Choice.RANDOM:
            found = _random(result, memory)
    return list(found)


def example_rows(result: Result, memory: Memory, choice: Choice | str) -> pd.DataFrame:
    """The chosen prefixes as a table: `position` is that of the last token, where the coefficient is."""
    rows = [
        {
            "coefficient": each.coefficient,
            "smaller": each.smaller,
            "position": each.start + len(each.tokens) - 1,
            "text": "".join(each.tokens),
            "last token": each.tokens[-1],
            "next token": each.follows,
        }
        for each in examples(result, memory, choice)
    ]
    return pd.DataFrame(rows, columns=["coefficient", "smaller", "position", "text", "last token", "next token"])


def example_payload(found: list[Example]) -> Payload:
    """The prefixes as rows of tokens: the last one is boxed, what followed it stands in the note."""
    rows = [
        TokenRow(tokens=each.tokens, note=each.note, boxed=len(each.tokens) - 1, start=each.start) for each in found
    ]
    return token_rows_payload(rows)


def _triggers(result: Result, found: Triggers, memory: Memory) -> Iterator[Example]:
    for rank in range(found.context.shape[2]):
        at = (*memory, rank)
        if found.length[at]:
            yield _example(result, found.context[at], found.length[at], found.next_token[at], found.coefficient[at])


def _deciles(result: Result, memory: Memory) -> Iterator[Example]:
    """From the largest coefficients down; tenths that the sample has no prefix of are left out."""
    found = result.reading.examples
    for decile in reversed(range(found.decile.shape[2])):
        at, example = (*memory, decile), int(found.decile[*memory, decile])
        if example >= 0:
            yield _of_sample(result, example, found.decile_coefficient[at], found.decile_rank[at])


def _random(result: Result, memory: Memory) -> Iterator[Example]:
    found = result.reading.examples
    for example in range(found.random_coefficient.shape[2]):
        at = (*memory, example)
        yield _of_sample(result, example, found.random_coefficient[at], found.random_rank[at])


def _of_sample(result: Result, example: int, coefficient: Tensor, rank: Tensor) -> Example:
    found = result.reading.examples
    context, length, follows = found.context[example], found.length[example], found.next_token[example]
    return _example(result, context, length, follows, coefficient, float(rank))


def _example(
    result: Result, context: Tensor, length: Tensor, follows: Tensor, coefficient: Tensor, smaller: float | None = None
) -> Example:
    tokens = tuple(result.spelled(context.tolist()))
    return Example(
        tokens=tokens,
        start=int(length) - len(tokens),
        follows=result.vocabulary[int(follows)],
        coefficient=float(coefficient),
        smaller=smaller,
    )
