r"""Where a text occurs among the tokens and triggers of an index, without going through memories one by one.

Of tokens, a text is looked for in each of the vocabulary once, and then in ids. Of triggers, it is looked for in all
stored contexts at once, as bytes in one row (`memories.contexts`), so that a text over several tokens costs no more
than one within; it may not run from one context into the next.

A text is read as tokens are printed (`shown`: `·` or a space, `\n`, `\\`, `\xNN`), and compared byte by byte. Without
capital ASCII letters it is also found where the corpus has capitals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from analyses.memories.index import MemoryIndex
from model.token_bytes import unprinted


@dataclass(frozen=True, kw_only=True, eq=False)
class InTokens:
    """A text among the stored tokens at one end of each value's order."""

    place: Int[np.ndarray, "layer memory"]
    """Where in that order the best token stands that holds it, from 0; -1 where none does."""

    likeness: Int[np.ndarray, "layer memory"]
    """How like the text that token is: 3 where it is the text, 2 where it is but for capitals and white space around
    it, 1 where it holds it; 0 where none does."""

    any_token: bool
    """Whether there is a token in the vocabulary that holds it."""

    @property
    def relevance(self) -> Float[np.ndarray, "layer memory"]:
        """1 / (1 + place), and `likeness` - 1 more, so that a likelier token is always before one that is less so."""
        return np.where(self.place >= 0, self.likeness - 1 + 1 / (1 + np.maximum(self.place, 0)), 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class InTriggers:
    """A text among the stored ends of triggers."""

    n_triggers: Int[np.ndarray, "layer memory"]
    """How many of the memory's stored triggers hold it."""

    n_ending: Int[np.ndarray, "layer memory"]
    """In how many of these it reaches into the last token, the one at which the memory fires."""

    best: Int[np.ndarray, "layer memory"]
    """The strongest trigger in which it does, else the strongest that holds it; -1 where none does."""

    n_stored: int
    """Contexts stored per memory, at most."""

    @property
    def relevance(self) -> Float[np.ndarray, "layer memory"]:
        """Share of the stored contexts that hold it, and share in which it reaches the last token."""
        return (self.n_triggers + self.n_ending) / self.n_stored


def in_tokens(index: MemoryIndex, field: str, text: str) -> InTokens:
    """Where `text` stands in the order of `reading.values.FIELD`: promoted or suppressed."""
    needle, folds = needle_of(text)
    tokens = [raw.lower() for raw in index.token_bytes] if folds else index.token_bytes
    holds = np.array([needle in raw if needle else raw == b"" for raw in tokens])  # BOS alone stands for nothing
    likeness, bare = holds.astype(np.int8), needle.strip()
    for token in np.flatnonzero(holds):
        if index.token_bytes[token] == needle:
            likeness[token] = 3
        elif tokens[token] == needle or (bare != b"" and tokens[token].strip() == bare):
            likeness[token] = 2
    of_stored = likeness[index.array(f"reading.values.{field}")]
    best = of_stored.max(axis=-1)
    place = np.where(best > 0, of_stored.argmax(axis=-1), -1)
    return InTokens(place=place, likeness=best, any_token=bool(holds[:-1].any()))


def in_triggers(index: MemoryIndex, text: str) -> InTriggers:
    """In how many of each memory's stored contexts `text` occurs."""
    needle, folds = needle_of(text)
    shape = index.array("reading.triggers.context").shape[:3]
    holding, ending = (hits.reshape(shape) for hits in index.contexts.hits(needle, folds=folds))
    n_triggers, n_ending = holding.sum(axis=-1), ending.sum(axis=-1)
    best = np.where(n_ending > 0, ending.argmax(axis=-1), holding.argmax(axis=-1))
    return InTriggers(
        n_triggers=n_triggers, n_ending=n_ending, best=np.where(n_triggers > 0, best, -1), n_stored=shape[-1]
    )


def needle_of(text: str) -> tuple[bytes, bool]:
    r"""The bytes that are looked for, and whether capitals count as small letters: where the text itself has none.

    >>> needle_of("self.x"), needle_of("Self"), needle_of(r"\n"), needle_of("·import")
    ((b'self.x', True), (b'Self', False), (b'\n', True), (b' import', True))
    """
    needle = unprinted(text.replace(SPACE, " "))
    return needle, needle == needle.lower()


SPACE = "·"
"""How a space is printed; the character itself, which text seldom holds, is printed as its bytes."""


def shown(text: str) -> str:
    """A printable text with its spaces to be seen, as it can be asked for again."""
    return text.replace(" ", SPACE)
