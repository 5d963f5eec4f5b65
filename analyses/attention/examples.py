"""What heads attend to in text: where each writes most, at other tenths of how much it writes, and anywhere.

The strongest examples alone mislead (Bolukbasi et al. 2021): what a head does at its extremes need not be what it does.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyses.attention.behaviour import Behaviour
from analyses.attention.result import Result
from analyses.attention.verdicts import Verdict, verdicts
from analyses.attention.words import WORDS
from analyses.registry import Passage
from interp.example_rows import ExampleRows

N_HEADS = 4
"""Heads whose examples are shown, at most."""

_SHOWN = (("top", (0, 1, 2), "writes most"), ("deciles", (5, 2), "middling"), ("random", (0, 1), "anywhere"))
"""Kinds of example, which of each, and what they are called."""

_LONGEST = 64
"""Tokens of a passage, at most; the earlier ones are cut off."""


def example_passages(result: Result) -> list[Passage]:
    """Examples of the heads with the strongest claims, shaded by value-weighted attention; none without a corpus."""
    known = result.behaviour
    if known is None:
        return []
    every = {(each.layer, each.head): each for each in verdicts(result)}
    heads = [(int(layer), int(index)) for layer, index in known.shown["top"].heads.tolist()]
    return [
        passage for row, place in enumerate(heads[:N_HEADS]) for passage in _of_head(known, row, _title(every[place]))
    ]


def _title(verdict: Verdict) -> str:
    """The head and its name; one without says what it attends like, and how that stands."""
    if verdict.name is not None or not verdict.kinds:
        return f"{verdict.label}: {verdict.name or verdict.standing.value}"
    return f"{verdict.label} {WORDS[verdict.kinds[0]].attends} ({verdict.standing.value})"


def _of_head(known: Behaviour, row: int, title: str) -> Iterator[Passage]:
    for name, which, what in _SHOWN:
        for example in which:
            passage = _passage(known, known.shown[name], row, example, title, what)
            if passage is not None:
                yield passage


def _passage(known: Behaviour, rows: ExampleRows, row: int, example: int, title: str, what: str) -> Passage | None:
    if example >= rows.tokens.shape[1]:
        return None
    tokens = [token for token in rows.tokens[row, example].tolist() if token >= 0]
    if not tokens:
        return None
    shades = rows.weighted[row, example, : len(tokens)].clamp(min=0)
    shades = shades / shades.sum().clamp(min=1e-30)
    following = int(rows.next_token[row, example])
    return Passage(
        group=title,
        what=what,
        tokens=tuple(known.spelled[str(token)] for token in tokens[-_LONGEST:]),
        shades=tuple(shades.tolist()[-_LONGEST:]),
        after=known.spelled.get(str(following)),
    )
