r"""Search among all memories of a checkpoint: by what they promote, by what fires them, by kind. From the saved result.

What can be asked for (`Query`); a memory has to meet all of it:

* a token that the value promotes or suppresses, among those that are stored (the study's `n_promoted`): every one that
  holds the text, and first those that are the text;
* a text in the triggers, among those whose last tokens are stored (`n_shown`, `n_context`), also across tokens;
* `text`: either of the two, or an address such as L1M37;
* what the triggers have in common (`interp.pattern_kinds`), a concept of the promoted tokens, the layer, the state.

Texts are read as tokens are printed and compared byte by byte, never as a regular expression (`memories.text`). Hits
are ranked by how well they match: how early in the value's order the token stands, in how many triggers the text is and
in how many it reaches the last token; then by confidence. Each says why it matched.

It goes over token ids and bytes, not over rows of text: some hundredths of a second for 46,080 memories. What was not
stored cannot be found: each value promotes every token to some degree, and memories have more triggers than are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from analyses.memories.index import MemoryIndex
from analyses.memories.matches import (
    Match,
    concept_of,
    of_concept,
    of_layer,
    of_promoted,
    of_suppressed,
    of_text,
    of_triggers,
    only,
)
from interp.pattern_kinds import TriggerPattern
from model.errors import InputError
from model.settings import as_enum


class MemoryState(StrEnum):
    """How much a memory fires."""

    ALIVE = "alive"
    """Above zero on at least one prefix."""
    DEAD = "dead"
    """Never away from zero by more than 1e-6."""
    DENSE = "dense"
    """Above zero on more than half of the prefixes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What is looked for. What is left out is not asked; an empty query finds every memory."""

    text: str = ""
    """In a promoted token or in a trigger; or a memory's address."""

    promotes: str = ""
    """In one of the stored promoted tokens."""

    suppresses: str = ""
    """In one of the stored suppressed tokens."""

    trigger: str = ""
    """In the stored end of one of the stored triggers."""

    pattern: TriggerPattern | str | None = None
    """What holds of the triggers."""

    concept: str = ""
    """In the name of the concept that the promoted tokens have in common, such as "digits"."""

    layer: int | None = None

    state: MemoryState | str | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None:
            object.__setattr__(self, "pattern", as_enum(TriggerPattern, self.pattern, "pattern"))
        if self.state is not None:
            object.__setattr__(self, "state", as_enum(MemoryState, self.state, "state"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The memories that meet a query, best first."""

    layer: Int[np.ndarray, " hit"]
    memory: Int[np.ndarray, " hit"]

    relevance: Float[np.ndarray, " hit"]
    """How well each one matches: larger is better; 0 where nothing was asked that has degrees."""

    matches: tuple[Match, ...]
    """What was asked, one by one."""

    notes: tuple[str, ...]
    """What should be known of the search, such as that no token holds the text."""

    def __len__(self) -> int:
        return len(self.layer)

    def why(self, hit: int) -> str:
        """Why a hit matched; empty where nothing was asked."""
        place = int(self.layer[hit]), int(self.memory[hit])
        return "; ".join(filter(None, (match.told(*place) for match in self.matches)))

    def trigger(self, hit: int) -> int:
        """Which of a hit's stored triggers to show: one that meets what was asked, or the strongest."""
        asked = [
            match.trigger[self.layer[hit], self.memory[hit]] for match in self.matches if match.trigger is not None
        ]
        return max(0, int(max(asked, default=0)))


def search(index: MemoryIndex, query: Query) -> Found:
    """The memories that meet `query`, ranked.

    Raises:
        UnknownNameError: a memory, a layer or a concept that this checkpoint does not have.
    """
    matches = tuple(_matches(index, query))
    meets = np.logical_and.reduce([match.meets for match in matches]) if matches else np.ones(index.shape, dtype=bool)
    layer, memory = np.nonzero(meets)
    relevance = sum((match.relevance[layer, memory] for match in matches), start=np.zeros(len(layer)))
    surest = index.array("reading.values.confidence")[layer, memory]
    order = np.lexsort((-surest, ~index.alive[layer, memory], -relevance))
    return Found(
        layer=layer[order],
        memory=memory[order],
        relevance=relevance[order],
        matches=matches,
        notes=tuple(match.note for match in matches if match.note),
    )


def rows(index: MemoryIndex, query: Query, limit: int = 20) -> list[dict[str, Any]]:
    """The best hits as rows of printable text and numbers, each with why it matched."""
    return found_rows(index, search(index, query), limit)


def found_rows(index: MemoryIndex, found: Found, limit: int = 20) -> list[dict[str, Any]]:
    """The best hits of a search that was made, as rows."""
    if limit < 1:
        raise InputError(f"limit={limit} shows nothing; ask for at least 1 row.")
    places = zip(found.layer[:limit].tolist(), found.memory[:limit].tolist(), strict=True)
    return [{"memory": f"L{layer}M{memory}", "why": found.why(hit), **row_of(index, layer, memory, found.trigger(hit))}
            for hit, (layer, memory) in enumerate(places)]  # fmt: skip


def row_of(index: MemoryIndex, layer: int, memory: int, rank: int = 0) -> dict[str, Any]:
    """What a row says of one memory and of its trigger number `rank`; every text in it can be printed."""
    contexts = index.array("reading.triggers.context")[layer, memory]
    followed = int(index.array("reading.triggers.next_token")[layer, memory, rank])
    return {
        "top trigger": index.text(contexts[0]),
        "trigger": index.text(contexts[rank]),
        "rank": rank,
        "next": index.spelled(followed) if followed >= 0 else "",
        "promotes": [index.spelled(token) for token in index.array("reading.values.promoted")[layer, memory, :5]],
        "suppresses": [index.spelled(token) for token in index.array("reading.values.suppressed")[layer, memory, :5]],
        "concept": concept_of(index, layer, memory),
        "pattern": pattern_of(index, layer, memory).value,
        "agrees": bool(index.agrees[layer, memory]),
        "firing rate": float(index.array("reading.activity.firing_rate")[layer, memory]),
    }


def pattern_of(index: MemoryIndex, layer: int, memory: int) -> TriggerPattern:
    """What most of a memory's triggers have in common."""
    return tuple(TriggerPattern)[int(index.array("reading.summary.evidence.kind")[layer, memory])]


def _matches(index: MemoryIndex, query: Query) -> Iterator[Match]:
    """What was asked, one by one; an empty text is not asked."""
    texts = ((query.text, of_text), (query.promotes, of_promoted), (query.suppresses, of_suppressed),
             (query.trigger, of_triggers), (query.concept, of_concept))  # fmt: skip
    yield from (matching(index, text) for text, matching in texts if text)
    if query.pattern is not None:
        yield _of_pattern(index, TriggerPattern(query.pattern))
    if query.layer is not None:
        yield of_layer(index, query.layer)
    if query.state is not None:
        yield _of_state(index, MemoryState(query.state))


def _of_pattern(index: MemoryIndex, pattern: TriggerPattern) -> Match:
    place = list(TriggerPattern).index(pattern)
    holds, kind = (
        index.array("reading.summary.evidence.holds")[..., place],
        index.array("reading.summary.evidence.kind") == place,
    )

    def told(layer: int, memory: int) -> str:
        return "" if kind[layer, memory] else f"{pattern} too"

    return Match(relevance=kind.astype(np.float64), meets=holds | kind, told=told)


def _of_state(index: MemoryIndex, state: MemoryState) -> Match:
    rate = index.array("reading.activity.firing_rate")
    match state:
        case MemoryState.ALIVE:
            return only(index.alive)
        case MemoryState.DENSE:
            return only(rate > 0.5)
        case MemoryState.DEAD:
            return only(index.dead)
