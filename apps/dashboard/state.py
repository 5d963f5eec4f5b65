"""The selection: what is being looked at, as one value, and how the page's address spells it.

The address is the permalink and the audit trail at once, so every part of it is short text that a person can write:
`?run=demo&step=512&head=L1H3&memory=L1M37&cell=10.3&ablate=L1H1,L1H3:mean&prompt=...`. What the address says is never
trusted: a part that this model does not have is dropped, with a sentence saying so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from interp.live import LiveText
from interp.places import Place, PlaceKind, parse_place, parse_places, print_places
from interp.resolved_places import resolve_places
from model.config import GPTConfig
from model.errors import CutawayError, InputError, UnknownNameError, closest

Value = TypeVar("Value")

TEXTS = ("head", "memory", "cell", "ablate", "text", "prompt")
"""The parts kept as text; `run` and `step` are chosen from lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What is being looked at; None or empty where nothing was chosen."""

    run: str = ""
    """Name of a run under the root."""

    step: int | None = None
    """Training step of a checkpoint of the run."""

    head: tuple[int, int] | None = None
    """(layer, head)."""

    memory: tuple[int, int] | None = None
    """(layer, FFN neuron)."""

    cell: tuple[int, int] | None = None
    """(query, key) position locked in a pattern."""

    ablate: tuple[Place, ...] = ()
    """Places to ablate, each with its own intervention or none."""

    text: LiveText = LiveText.PROMPT
    """What live forward passes are run on."""

    prompt: str = ""
    """The text that was typed for them."""

    @property
    def spec(self) -> str:
        """The checkpoint as the command line writes it, without the folder."""
        return self.run if self.step is None else f"{self.run}@{self.step}"


def from_query(raw: Mapping[str, str], config: GPTConfig | None = None) -> tuple[Selection, tuple[str, ...]]:
    """Return the selection that `raw` spells, and one sentence for each part that had to be dropped.

    Args:
        raw: parameter names to text; missing and empty mean "not chosen".
        config: the model's shape; without it places are only parsed.
    """
    notices: list[str] = []

    def part(name: str, read: Callable[[str], Value], otherwise: Value) -> Value:
        text = raw.get(name, "").strip()
        try:
            return read(text) if text else otherwise
        except CutawayError as error:
            notices.append(f"{name}: {error}")
            return otherwise

    selection = Selection(
        run=raw.get("run", "").strip(),
        step=part("step", parse_step, None),
        head=part("head", lambda text: _indexed(text, PlaceKind.HEAD, config), None),
        memory=part("memory", lambda text: _indexed(text, PlaceKind.MEMORY, config), None),
        cell=part("cell", lambda text: parse_cell(text, config), None),
        ablate=part("ablate", lambda text: _places(text, config), ()),
        text=part("text", parse_text, LiveText.PROMPT),
        prompt=raw.get("prompt", ""),
    )
    return selection, tuple(notices)


def head_name(layer: int, head: int) -> str:
    """Return a head as it is printed, such as `L1H3`."""
    return f"L{layer}H{head}"


def memory_name(layer: int, memory: int) -> str:
    """Return a memory as it is printed, such as `L1M37`."""
    return f"L{layer}M{memory}"


def parse_text(text: str) -> LiveText:
    """Return the kind of text that `text` names, or raise `UnknownNameError`."""
    if text not in set(LiveText):
        known = ", ".join(LiveText)
        raise UnknownNameError(f'there is no text called "{text}"; there are {known}.{closest(text, LiveText)}')
    return LiveText(text)


def parse_step(text: str) -> int:
    """Return the step that `text` names, or raise `InputError`."""
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{text!r} is not a training step; write a whole number such as 512")
    return int(text)


def parse_cell(text: str, config: GPTConfig | None = None) -> tuple[int, int]:
    """Return the (query, key) that `text` names, or raise `InputError`."""
    query, dot, key = text.partition(".")
    if not dot or not all(part.isascii() and part.isdigit() for part in (query, key)):
        raise InputError(f"{text!r} is not a cell of a pattern; write QUERY.KEY, such as 10.3")
    cell = int(query), int(key)
    if config is not None and max(cell) >= config.n_ctx:
        raise InputError(f"cell {text} lies beyond the context; positions run 0..{config.n_ctx - 1}")
    return cell


def toggled(ablate: str, place: str) -> str:
    """Return the text `ablate` with `place` added, or taken out if it was there.

    >>> toggled("L1H1:zero", "L0H2"), toggled("L0H2,L1H1:zero", "L1H1")
    ('L1H1:zero,L0H2', 'L0H2:zero')
    """
    try:
        places = parse_places(ablate) if ablate.strip() else ()
    except CutawayError:
        places = ()
    wanted = parse_place(place)
    kept = tuple(known for known in places if known.label != wanted.label)
    return print_places(kept if len(kept) < len(places) else (*places, wanted))


def _indexed(text: str, kind: PlaceKind, config: GPTConfig | None) -> tuple[int, int]:
    place = parse_place(text)
    if place.kind is not kind or place.index is None or place.intervention is not None:
        example = "L1H3" if kind is PlaceKind.HEAD else "L1M37"
        raise InputError(f"{text!r} is not one {kind}; write it as {example}")
    _places(text, config)
    return place.layer, place.index


def _places(text: str, config: GPTConfig | None) -> tuple[Place, ...]:
    places = parse_places(text)
    if config is not None:
        resolve_places(places, config)
    return places
