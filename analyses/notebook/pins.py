"""A notebook of pins: what was seen on a page, kept as it was seen, in the order its author gave it.

A pin holds its words, its numbers and its drawing, so that it can be read, drawn and exported without the run it is of;
it never changes when the run does. The address it also holds opens the same view as it is today. Everything here is a
pure function of its input; `notebook.file` reads and writes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from analyses.notebook.bounds import (
    MOST_PINS,
    Rows,
    bounded_drawing,
    bounded_rows,
    bounded_words,
    plain_json,
)
from analyses.notebook.reading import read_fields
from model.errors import CheckpointError, InputError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """One thing that was seen."""

    id: str
    """Sixteen hex digits, its own in every notebook."""
    page: str
    """Of the dashboard, as its address names it; empty for the first page."""
    query: dict[str, str]
    """The rest of the address."""
    title: str
    sentences: tuple[str, ...]
    """What was found, with its numbers."""
    note: str
    """What the author wrote to it."""
    about: dict[str, Any]
    """Provenance in plain values."""
    python: str
    """Binds `rows` to the numbers again, with the library only."""
    rows: Rows
    figure: dict[str, Any] | None
    """A Vega-Lite specification with its look, on paper."""
    view: str | None
    """Which of `analyses.views` draws `payload`."""
    payload: dict[str, Any] | None
    cut: tuple[str, ...]
    """What was too large to be kept, a sentence each."""
    created: str
    """ISO 8601, UTC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notebook:
    """Pins in order."""

    pins: tuple[Pin, ...] = ()

    def at(self, pin_id: str) -> int:
        """The place of a pin, or `UnknownNameError`."""
        for place, pin in enumerate(self.pins):
            if pin.id == pin_id:
                return place
        raise UnknownNameError("This pin is no longer in the notebook: it was removed in another tab.")


Change = Callable[[Notebook], Notebook]


def new_pin(
    *,
    page: str,
    query: Mapping[str, str],
    title: str,
    sentences: Sequence[str],
    about: Mapping[str, Any],
    python: str,
    rows: pd.DataFrame,
    figure: Any = None,
    view: str | None = None,
    payload: Mapping[str, Any] | None = None,
    note: str = "",
) -> Pin:
    """A pin of what is seen now; what is too large is cut, and the pin says so.

    Args:
        page: of the dashboard, as its address names it.
        query: the rest of the address.
        title: what the pin is called.
        sentences: what was found, with its numbers.
        about: provenance in plain values.
        python: what computes `rows` again.
        rows: the numbers that are drawn.
        figure: an Altair chart, or Vega-Lite without a look.
        view: which of `analyses.views` draws `payload`, where there is no figure.
        payload: what that view was given.
        note: the author's own words.
    """
    spec = None if figure is None else with_look(figure)
    kept, said = bounded_rows(rows)
    drawn, said_of_figure = bounded_drawing(spec)
    seen, said_of_view = bounded_drawing(payload)
    return Pin(
        id=secrets.token_hex(8), page=page, query={str(name): str(value) for name, value in query.items()},
        title=bounded_words(title, 300), sentences=tuple(bounded_words(each, 4000) for each in sentences[:60]),
        note=bounded_words(note), about=plain_json(about), python=python, rows=kept,
        figure=drawn, view=view if seen is not None else None, payload=seen,
        cut=tuple(each for each in (said, said_of_figure, said_of_view) if each),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def with_look(figure: Any) -> dict[str, Any]:
    """A figure, Altair or Vega-Lite without a look, as Vega-Lite with the project's."""
    from analyses.figures import theme, themed

    return {**figure, "config": theme()} if isinstance(figure, Mapping) else themed(figure).to_dict()


def added(pin: Pin) -> Change:
    """Puts a pin at the end."""
    return restored(pin, MOST_PINS)


def restored(pin: Pin, place: int) -> Change:
    """Puts a pin at a place, as far as there are that many; one that is there already stays where it is."""

    def change(old: Notebook) -> Notebook:
        if any(each.id == pin.id for each in old.pins):
            return old
        if len(old.pins) >= MOST_PINS:
            raise InputError(f"The notebook is full: it holds {MOST_PINS} pins. Export it, and remove some.")
        return Notebook(pins=(*old.pins[:place], pin, *old.pins[place:]))

    return change


def removed(pin_id: str) -> Change:
    """Takes a pin out; one that is gone already stays gone."""
    return lambda old: Notebook(pins=tuple(each for each in old.pins if each.id != pin_id))


def moved(pin_id: str, by: int) -> Change:
    """Moves a pin by so many places, as far as there are that many."""

    def change(old: Notebook) -> Notebook:
        place = old.at(pin_id)
        others = [each for each in old.pins if each.id != pin_id]
        others.insert(max(0, place + by), old.pins[place])
        return Notebook(pins=tuple(others))

    return change


def noted(pin_id: str, note: str, was: str) -> Change:
    """Gives a pin another note. Where somebody wrote another one since it was `was`, both are kept."""

    def change(old: Notebook) -> Notebook:
        place = old.at(pin_id)
        now = old.pins[place].note
        both = note if now in (was, note) else f"{now}\n\n{note}"
        pin = replace(old.pins[place], note=bounded_words(both))
        return Notebook(pins=(*old.pins[:place], pin, *old.pins[place + 1 :]))

    return change


def joined(others: Notebook) -> Change:
    """Adds every pin of another notebook that is not there yet."""

    def change(old: Notebook) -> Notebook:
        for pin in others.pins:
            old = added(pin)(old)
        return old

    return change


def as_json(notebook: Notebook) -> str:
    """The notebook as its file holds it: ASCII, so that no token of a model can be misread or break it."""
    pins = [{field.name: getattr(pin, field.name) for field in fields(Pin)} for pin in notebook.pins]
    plain = [{**pin, "rows": {field.name: getattr(pin["rows"], field.name) for field in fields(Rows)}} for pin in pins]
    return json.dumps({"format": FORMAT, "pins": plain}, allow_nan=False) + "\n"


def from_json(text: str | bytes, called: str) -> Notebook:
    """The notebook in `text`, read strictly; `CheckpointError` says what is wrong with what is `called` so."""
    try:
        return _read(json.loads(text, parse_constant=_no_constant), called)
    except (ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{called} is not readable JSON: it is damaged, or no notebook of pins.") from None


def _read(tree: Any, called: str) -> Notebook:
    if not isinstance(tree, dict) or tree.keys() != {"format", "pins"} or not isinstance(tree["pins"], list):
        raise CheckpointError(f"{called} is no notebook of pins: it has to hold a format and a list of pins.")
    if tree["format"] != FORMAT or isinstance(tree["format"], bool):
        raise CheckpointError(f"{called} is of another format than {FORMAT}, the one that this version reads.")
    if len(tree["pins"]) > MOST_PINS:
        raise CheckpointError(f"{called} holds {len(tree['pins'])} pins, and a notebook holds at most {MOST_PINS}.")
    whole = plain_json(tree["pins"])
    pins = tuple(Pin(**read_fields(each, f"{called}, pin {n}")) for n, each in enumerate(whole, start=1))
    if len({pin.id for pin in pins}) < len(pins):
        raise CheckpointError(f"{called} holds two pins of one id; each has to have its own.")
    return Notebook(pins=pins)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
