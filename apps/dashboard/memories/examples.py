"""Pieces of text of one memory: the prefixes that fire it, those across its range, and a text of the reader's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from jaxtyping import Float
from torch import Tensor

from analyses.ffn_memories import Result
from analyses.ffn_parts import Triggers
from analyses.views import TokenRow, token_rows_payload, visible
from analyses.views.payload import Payload, fitted
from apps.dashboard.memories.rows import Memory, has_negative


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


def choices(result: Result) -> list[Choice]:
    """Which prefixes there are to choose from."""
    return [choice for choice in Choice if choice is not Choice.NEGATIVE or has_negative(result)]


def examples(result: Result, memory: Memory, choice: Choice) -> Payload:
    """The ends of the chosen prefixes; the last token is boxed, what followed it stands in the note."""
    reading = result.reading
    match choice:
        case Choice.TOP:
            rows = _triggers(result, reading.triggers, memory)
        case Choice.NEGATIVE:
            rows = _triggers(result, reading.negative, memory)
        case Choice.DECILES:
            rows = _deciles(result, memory)
        case Choice.RANDOM:
            rows = _random(result, memory)
    return token_rows_payload(list(rows))


def _triggers(result: Result, found: Triggers, memory: Memory) -> Iterator[TokenRow]:
    for rank in range(found.context.shape[2]):
        length = int(found.length[*memory, rank])
        if length:
            numbers = f"{float(found.coefficient[*memory, rank]):6.2f}"
            yield _row(result, found.context[*memory, rank], length, int(found.next_token[*memory, rank]), numbers)


def _deciles(result: Result, memory: Memory) -> Iterator[TokenRow]:
    """From the largest coefficients down; tenths that the sample has no prefix of are left out."""
    found = result.reading.examples
    for decile in reversed(range(found.decile.shape[2])):
        example = int(found.decile[*memory, decile])
        if example >= 0:
            numbers = _ranked(found.decile_coefficient[*memory, decile], found.decile_rank[*memory, decile])
            yield _example(result, example, numbers)


def _random(result: Result, memory: Memory) -> Iterator[TokenRow]:
    found = result.reading.examples
    for example in range(found.random_coefficient.shape[2]):
        numbers = _ranked(found.random_coefficient[*memory, example], found.random_rank[*memory, example])
        yield _example(result, example, numbers)


def _ranked(coefficient: Tensor, rank: Tensor) -> str:
    return f"{float(coefficient):6.2f} ({float(rank):.0%})"


def _example(result: Result, example: int, numbers: str) -> TokenRow:
    found = result.reading.examples
    return _row(result, found.context[example], int(found.length[example]), int(found.next_token[example]), numbers)


def _row(result: Result, context: Tensor, length: int, follows: int, numbers: str) -> TokenRow:
    tokens = result.spelled(context.tolist())
    note = f"{numbers}  then {visible(result.vocabulary[follows])}"
    return TokenRow(tokens=tokens, note=note, boxed=len(tokens) - 1, start=length - len(tokens))


def on_text(tokens: Sequence[str], coefficients: Float[Tensor, " pos"]) -> Payload:
    """A text whose tokens are coloured by the memory's coefficient there."""
    values = coefficients.tolist()
    row = TokenRow(tokens=tokens, values=values, note=f"largest {max(values):.2f}")
    return token_rows_payload([row], "coefficient", scale=fitted(coefficients, "diverging"), hint="point at a token")
