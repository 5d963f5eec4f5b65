"""Pinning what is seen: a page offers, key P or a button pins, and the notebook stands in the address as `notes=`.

The notebook belongs to whoever has the address, and to nobody else: it is made at a user's first pin, under a name that
nobody can guess. An address that names a notebook that is not here never makes one of that name, so nobody can be led
to write into a notebook whose name somebody else has chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import streamlit as st

from analyses.notebook import file as notebook_file
from analyses.notebook import pins as notebook
from analyses.notebook.pins import Change, Notebook, Pin
from apps.dashboard import components, data
from apps.dashboard.state import TEXTS
from model.errors import CutawayError, InputError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "NOTES",
    "Offer",
    "Pin",
    "change",
    "draw",
    "join",
    "kept",
    "offer",
    "offered",
    "pin",
    "pin_of",
    "pin_offered",
    "pin_panel",
    "settle",
]

NOTES = "notes"
"""The part of the address, and the key of its input."""

_OFFER, _PAGE, _TOLD = "_pins_offer", "_pins_page", "_pins_told"
_ASKED, _DRAWN = "_pins_asked", "_pins_drawn"
"""The page whose offer is to be pinned, True until that is known; the page that was drawn to its end."""

_BOUND = ("run", "step", *TEXTS, "b")


class Shown(Protocol):
    """What a pin needs of a panel."""

    @property
    def title(self) -> str: ...
    @property
    def rows(self) -> Callable[[], pd.DataFrame]: ...
    @property
    def about(self) -> Mapping[str, Any]: ...
    @property
    def python(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What would be pinned, as it is drawn now."""

    panel: Shown
    title: str
    sentences: tuple[str, ...]
    figure: Any = None
    view: str | None = None
    payload: Mapping[str, Any] | None = None


def draw(page: str) -> None:
    """Draw the notebook's bound input, for the entrypoint only; say what came of the last pin.

    Here P pins, and not when it is pressed: the page may be another by now, or not have come to what it offers. Then it
    waits until the page is drawn (`settle`).

    Args:
        page: the `url_path` of the page that is about to be drawn.
    """
    asked = st.session_state.pop(_ASKED, None)
    if asked not in (None, True, page):
        st.session_state[_TOLD] = "Nothing was pinned: the page was left before it was there. Press P again.", True
    elif asked is not None and st.session_state.get(_DRAWN) == page:
        _pin_found()
    elif asked is not None:
        st.session_state[_ASKED] = page
    st.session_state[_DRAWN] = None
    st.session_state[_PAGE] = page
    st.session_state.pop(_OFFER, None)
    st.text_input(
        "Notebook", key=NOTES, bind="query-params", placeholder="made at the first pin",
        help="The name of your notebook of pins. It is part of the address: whoever has it can read and change the "
             "pins, and nobody else. Keep the address to come back to them.",
    )  # fmt: skip
    told, is_fault = st.session_state.pop(_TOLD, ("", False))
    if told and is_fault:
        st.warning(components.literal(told), icon=":material/push_pin:")
    elif told:
        st.toast(components.literal(told), icon=":material/push_pin:")


def offer(
    *,
    title: str,
    panel: Shown,
    sentences: Sequence[str] = (),
    figure: Any = None,
    view: str | None = None,
    payload: Mapping[str, Any] | None = None,
) -> None:
    """Say what key P pins on this page; the last offer wins. Nothing is computed before it is pinned."""
    st.session_state[_OFFER] = Offer(
        panel=panel, title=title, sentences=tuple(sentences), figure=figure, view=view, payload=payload
    )


def offered() -> Offer | None:
    """What key P would pin."""
    return st.session_state.get(_OFFER)


def pin_offered() -> None:
    """Pin what the page offers, as soon as it does: a callback for key P and for buttons."""
    st.session_state[_ASKED] = True


def settle() -> None:
    """Say that the page is drawn: what was asked for while it was not is pinned now; for the entrypoint, at its end."""
    st.session_state[_DRAWN] = st.session_state.get(_PAGE)
    if _ASKED in st.session_state:
        st.rerun()  # a pin writes the address, which cannot be done below its input


def _pin_found() -> None:
    found = offered()
    if found is None:
        st.session_state[_TOLD] = "There is nothing to pin on this page: pin a panel from its menu.", True
        return
    pin_panel(found)


def pin_panel(shown: Offer) -> None:
    """Pin a panel as it is drawn: a callback for its menu."""
    try:
        made = pin_of(shown)
    except CutawayError as error:
        st.session_state[_TOLD] = str(error), True
        return
    pin(made)


def pin_of(shown: Offer, note: str = "") -> Pin:
    """What is seen as a pin, with the address of this moment."""
    return notebook.new_pin(
        page=str(st.session_state.get(_PAGE, "")), query=_address(), title=shown.title, sentences=shown.sentences,
        about=shown.panel.about, python=shown.panel.python, rows=shown.panel.rows(), figure=shown.figure,
        view=shown.view, payload=shown.payload, note=note,
    )  # fmt: skip


def pin(made: Pin) -> None:
    """Put a pin into this user's notebook; the first one makes the notebook. A callback: it writes the address."""
    if _changed(notebook.added(made), begin=True):
        st.session_state[_TOLD] = f"Pinned to Findings: {made.title}", False


def change(how: Change) -> bool:
    """Change this user's notebook, and whether that could be done; a callback."""
    return _changed(how, begin=False)


def join(others: Notebook) -> bool:
    """Add the pins of another notebook to this user's; a callback."""
    return _changed(notebook.joined(others), begin=True)


def kept() -> Notebook:
    """This user's notebook, empty where there is none yet.

    Raises:
        CutawayError: it is damaged, or its name is none; the sentence is for the user.
    """
    token = str(st.session_state.get(NOTES) or "").strip()
    if not token:
        return Notebook()
    path = notebook_file.notebook_path(data.root(), token)
    return _loaded(str(path), _stamp(path))


@st.cache_resource(max_entries=32, show_spinner=False)
def _loaded(path: str, stamp: tuple[int, int]) -> Notebook:
    del stamp
    return notebook_file.load(Path(path))


def _changed(how: Change, *, begin: bool) -> bool:
    try:
        notebook_file.change(_own_path(begin=begin), how)
    except CutawayError as error:
        st.session_state[_TOLD] = str(error), True
        return False
    return True


def _own_path(*, begin: bool) -> Path:
    """The file of this user's notebook; where there is none yet, one is made if that is asked."""
    token = str(st.session_state.get(NOTES) or "").strip()
    try:
        path = notebook_file.notebook_path(data.root(), token)
        known = path.exists()
    except InputError:
        if token and not begin:
            raise
        path, known = None, False
    if path is not None and known:
        return path
    if not begin:
        raise UnknownNameError("There is no notebook to change; it may have been removed from the folder of runs.")
    token = notebook_file.new_token()
    path = notebook_file.notebook_path(data.root(), token)
    notebook_file.begin(path)
    st.session_state[NOTES] = token
    return path


def _address() -> dict[str, str]:
    """The address of this moment without the notebook: a pin may be passed on, its notebook is its author's."""
    said = {name: st.query_params[name] for name in st.query_params if name != NOTES}
    for name in _BOUND:
        if name in st.session_state:
            said[name] = str(st.session_state[name] or "")
    return {name: value for name, value in said.items() if value}


def _stamp(path: Path) -> tuple[int, int]:
    try:
        seen = path.stat()
    except OSError:
        return 0, 0
    return seen.st_mtime_ns, seen.st_size
