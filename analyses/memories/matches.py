"""One thing asked of every memory of an index, and how well each meets it (for `memories.search`, which says what).

A match goes over arrays of all memories. What it says of a single one is put together only for those that are shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from analyses.memories.index import MemoryIndex
from analyses.memories.text import in_tokens, in_triggers, shown
from model.errors import InputError, UnknownNameError, closest

LEVEL = 0.05
"""A concept counts where its corrected p is no larger, as in `interp.token_concepts`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """One thing that was asked for, over all memories."""

    relevance: Float[np.ndarray, "layer memory"]
    """How well each memory meets it, if it does."""

    meets: Bool[np.ndarray, "layer memory"]

    told: Callable[[int, int], str]
    """Says of a memory that meets it how it does; "" where there is nothing to say."""

    trigger: Int[np.ndarray, "layer memory"] | None = None
    """Which stored trigger meets it; -1 where none does. None where it is not about triggers."""

    note: str = ""
    """What explains that nothing meets it."""


def of_text(index: MemoryIndex, text: str) -> Match:
    """A text in a promoted token or in a trigger; or the memory of an address."""
    address = address_of(text)
    if address is not None:
        require_memory(index, *address)
        meets = np.zeros(index.shape, dtype=bool)
        meets[address] = True
        return only(meets, "its address")
    require_no_place(index, text)
    either = tokens, triggers = of_promoted(index, text), of_triggers(index, text)

    def told(layer: int, memory: int) -> str:
        return "; ".join(match.told(layer, memory) for match in either if match.meets[layer, memory])

    return Match(
        relevance=tokens.relevance + triggers.relevance,
        meets=tokens.meets | triggers.meets,
        told=told,
        trigger=triggers.trigger,
    )


def of_promoted(index: MemoryIndex, text: str) -> Match:
    """A text in one of the stored promoted tokens."""
    return _of_tokens(index, "promoted", "promotes", text)


def of_suppressed(index: MemoryIndex, text: str) -> Match:
    """A text in one of the stored suppressed tokens."""
    return _of_tokens(index, "suppressed", "suppresses", text)


def _of_tokens(index: MemoryIndex, field: str, verb: str, text: str) -> Match:
    found, stored = in_tokens(index, field, text), index.array(f"reading.values.{field}")

    def told(layer: int, memory: int) -> str:
        place = int(found.place[layer, memory])
        return f'{verb} "{shown(index.spelled(stored[layer, memory, place]))}" (place {place + 1:,})'

    note = "" if found.any_token else _no_token(index, text)
    return Match(relevance=found.relevance, meets=found.place >= 0, told=told, note=note)


def _no_token(index: MemoryIndex, text: str) -> str:
    longest = max(map(len, index.token_bytes))
    return (
        f'No token of this vocabulary holds "{text}": the longest has {longest} byte{"s" * (longest != 1)}. '
        "A text over several tokens is found in triggers only."
    )


def of_triggers(index: MemoryIndex, text: str) -> Match:
    """A text in the stored end of one of the stored triggers."""
    found = in_triggers(index, text)
    stored = (index.array("reading.triggers.length")[..., : found.n_stored] > 0).sum(axis=-1)

    def told(layer: int, memory: int) -> str:
        n, ending = int(found.n_triggers[layer, memory]), int(found.n_ending[layer, memory])
        return f"in {n} of {stored[layer, memory]} triggers" + (f", up to the last token in {ending}" if ending else "")

    return Match(relevance=found.relevance, meets=found.n_triggers > 0, told=told, trigger=found.best)


def of_concept(index: MemoryIndex, text: str) -> Match:
    """A meaningful concept whose name holds a text, in either case; the more tokens it covers, the better."""
    names = index.plain("reading.values.concepts")
    named = np.array([*(text.lower() in name.lower() for name in names), False])
    if not named.any():
        kinds = sorted(set(names))
        raise UnknownNameError(
            f'No concept of this vocabulary is called "{text}".{closest(text, kinds)} Among the {len(kinds)} are: '
            f"{', '.join(kinds[:12])}."
        )
    concept, covered = index.array("reading.values.concept"), index.array("reading.values.concept_covered")
    p = index.array("reading.values.concept_p")

    def told(layer: int, memory: int) -> str:
        where = layer, memory
        return f"{names[concept[where]]}: {covered[where]} of its top tokens (p = {p[where]:.1g})"

    meets = named[concept] & meaningful(index)
    return Match(relevance=covered / max(1, int(covered.max())), meets=meets, told=told)


def of_layer(index: MemoryIndex, layer: int) -> Match:
    """The memories of one layer."""
    n_layers, n_memories = index.shape
    if not 0 <= layer < n_layers:
        raise UnknownNameError(f"{index.checkpoint} has no layer {layer}; its layers run from 0 to {n_layers - 1}.")
    return only(np.repeat(np.arange(n_layers) == layer, n_memories).reshape(index.shape))


def concept_of(index: MemoryIndex, layer: int, memory: int) -> str | None:
    """The meaningful concept of a value; None where it has none."""
    if not meaningful(index)[layer, memory]:
        return None
    return index.plain("reading.values.concepts")[int(index.array("reading.values.concept")[layer, memory])]


def only(meets: Bool[np.ndarray, "layer memory"], said: str = "") -> Match:
    """A match that has no degrees."""
    return Match(relevance=np.zeros(meets.shape), meets=meets, told=lambda layer, memory: said)


def meaningful(index: MemoryIndex) -> Bool[np.ndarray, "layer memory"]:
    """Which values have a meaningful concept."""
    return (index.array("reading.values.concept") >= 0) & (index.array("reading.values.concept_p") <= LEVEL)


def address_of(text: str) -> tuple[int, int] | None:
    """(layer, memory) of a text such as L1M37 or l1m37; None where it is none.

    >>> address_of(" L1M37 "), address_of("l1m37"), address_of("import")
    ((1, 37), (1, 37), None)
    """
    found = re.fullmatch(r"\s*L(\d{1,9})M(\d{1,9})\s*", text, re.IGNORECASE)
    return (int(found[1]), int(found[2])) if found else None


_NEARLY = re.compile(r"\s*L(\d{1,9})[\s.,_-]*(?:M|memory\s*)(\d{1,9})\b(.*)", re.IGNORECASE | re.DOTALL)
_HEAD = re.compile(r"\s*L\d+H\d+\b.*", re.IGNORECASE | re.DOTALL)


def require_no_place(index: MemoryIndex, text: str) -> None:
    """Refuse what is no address but nearly one: as a text, it would be looked for in vain."""
    search = f'as a text it is looked for with --trigger "{text}"'
    if _HEAD.fullmatch(text):
        raise InputError(f'"{text}" names a head; memories are called such as L1M37, and {search}.')
    nearly = _NEARLY.fullmatch(text)
    if nearly is None:
        return
    address, rest = f"L{nearly[1]}M{nearly[2]}", nearly[3].strip()
    ablated = (
        f", `cutaway ablate {index.spec} {address}{rest} --metric text_loss` intervenes on it"
        if rest[:1] == ":"
        else ""
    )
    raise InputError(f'"{text}" is not quite an address: {address} looks that memory up{ablated}; {search}.')


def require_memory(index: MemoryIndex, layer: int, memory: int) -> None:
    """Refuse an address that this checkpoint does not have."""
    n_layers, n_memories = index.shape
    if layer >= n_layers or memory >= n_memories:
        raise UnknownNameError(
            f"{index.checkpoint} has no memory L{layer}M{memory}: its layers run from 0 to {n_layers - 1}, and in each "
            f"memories from 0 to {n_memories - 1:,}."
        )
