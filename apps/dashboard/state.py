"""The selection: what is being looked at, as one value, and how the page's address spells it.

The address is the permalink and the audit trail at once, so every part of it is short text that a person can write:
`?run=demo&step=512&b=demo@0&head=L1H3&memory=L1M37&cell=10.3&token=7&ablate=L1H1,L1H3:mean&prompt=...`. What the
address says is never trusted: a part that this model does not have is dropped, with a sentence saying so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from interp.live import LiveText
from interp.places import Place, PlaceKind, parse_place, parse_places, print_places
from interp.resolved_places import resolve_places
from model.config import GPTConfig
from model.errors import CutawayError, InputError, UnknownNameError, closest

Value = TypeVar("Value")

PLACES = ("head", "memory", "cell", "token", "ablate")
"""What is looked at inside a model; each is a text input of that key, and may be picked in a view."""

TEXTS = (*PLACES, "text", "prompt")
"""The parts kept as text; `run`, `step` and `b` are chosen from lists."""

LONGEST_NUMBER = 9
"""Digits; no model has a part whose number is longer."""


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

    token: int | None = None
    """Position of a token in the text."""

    ablate: tuple[Place, ...] = ()
    """Places to ablate, each with its own intervention or none."""

    text: LiveText = LiveText.PROMPT
    """What live forward passes are run on."""

    prompt: str = ""
    """The text that was typed for them."""

    b: tuple[str, int] | None = None
    """(run, step) of the checkpoint to compare with."""

    @property
    def position(self) -> int | None:
        """The position in the text that was chosen: a token, else the query of the locked cell; else None.

        What a page looks at where nothing was chosen is its own default, and is never called chosen or locked.
        """
        if self.token is not None:
            return self.token
        return None if self.cell is None else self.cell[0]

    def position_in(self, n_tokens: int) -> int | None:
        """The chosen position, if a text of `n_tokens` has it."""
        return self.position if self.position is not None and self.position < n_tokens else None

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
            notices.append(f"{name}: {shortened(str(error), 300)}")
            return otherwise

    selection = Selection(
        run=raw.get("run", "").strip(),
        step=part("step", parse_step, None),
        head=part("head", lambda text: _indexed(text, PlaceKind.HEAD, config), None),
        memory=part("memory", lambda text: _indexed(text, PlaceKind.MEMORY, config), None),
        cell=part("cell", lambda text: parse_cell(text, config), None),
        token=part("token", lambda text: parse_token(text, config), None),
        ablate=part("ablate", lambda text: _places(text, config), ()),
        text=part("text", parse_text, LiveText.PROMPT),
        prompt=raw.get("prompt", ""),
        b=part("b", parse_checkpoint, None),
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
    if not is_number(text):
        raise InputError(f"{shortened(text)!r} is not a training step; write a whole number such as 512")
    return int(text)


def parse_checkpoint(text: str) -> tuple[str, int]:
    """Return the (run, step) that `text` names, or raise `InputError`.

    >>> parse_checkpoint("demo@512")
    ('demo', 512)
    """
    run, at, step = text.rpartition("@")
    if not (at and run and is_number(step)):
        raise InputError(f"{shortened(text)!r} is not a checkpoint; write RUN@STEP, such as demo@512")
    return run, int(step)


def parse_token(text: str, config: GPTConfig | None = None) -> int:
    """Return the position that `text` names, or raise `InputError`."""
    if not is_number(text):
        raise InputError(f"{shortened(text)!r} is not a position in the text; write a whole number such as 7")
    if config is not None and int(text) >= config.n_ctx:
        raise InputError(f"position {text} lies beyond the context; positions run 0..{config.n_ctx - 1}")
    return int(text)


def parse_cell(text: str, config: GPTConfig | None = None) -> tuple[int, int]:
    """Return the (query, key) that `text` names, or raise `InputError`."""
    query, dot, key = text.partition(".")
    if not dot or not all(map(is_number, (query, key))):
        raise InputError(f"{shortened(text)!r} is not a cell of a pattern; write QUERY.KEY, such as 10.3")
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
        places = _places(ablate, None) if ablate.strip() else ()
    except CutawayError:
        places = ()
    wanted = parse_place(place)
    kept = tuple(known for known in places if known.label != wanted.label)
    return print_places(kept if len(kept) < len(places) else (*places, wanted))


def _indexed(text: str, kind: PlaceKind, config: GPTConfig | None) -> tuple[int, int]:
    _require_short_numbers(text)
    place = parse_place(text)
    if place.kind is not kind or place.index is None or place.intervention is not None:
        example = "L1H3" if kind is PlaceKind.HEAD else "L1M37"
        raise InputError(f"{shortened(text)!r} is not one {kind}; write it as {example}")
    _places(text, config)
    return place.layer, place.index


def _places(text: str, config: GPTConfig | None) -> tuple[Place, ...]:
    _require_short_numbers(text)
    places = parse_places(text)
    if config is not None:
        resolve_places(places, config)
    return places


def is_number(text: str) -> bool:
    """Whether `text` is a whole number that is short enough to be read; Python refuses those of thousands of digits.

    >>> is_number("512"), is_number("-1"), is_number("1" * 5000)
    (True, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER


def _require_short_numbers(text: str) -> None:
    """Python refuses to read numbers of thousands of digits, with an error of its own."""
    if re.search(rf"\d{{{LONGEST_NUMBER + 1}}}", text):
        raise InputError(f"{shortened(text)!r} holds a number that no model reaches; write places such as L1H3")


def shortened(text: str, most: int = 60) -> str:
    """Return `text`, cut where it is too long to be repeated in a sentence."""
    return text if len(text) <= most else f"{text[:most]}…"
