"""What a page keeps in the address beside the selection: its search, and which of several results it shows.

These inputs belong to one page, so they cannot be bound (`selecting`): a bound one would lose its part, and add an
entry to the history, when the page changes. They are written by hand instead. What the address says wins where it is
not what the input wrote there: on opening it, and on going back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from model.errors import CutawayError, UnknownNameError

_WRITTEN = "_written"
_NOTICE = "_notice"
_BEFORE = "_before"

SOON = 3.0
"""Seconds in which an address that says what stood there before is one still on its way, not one gone back to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One input and its part of the address."""

    name: str
    """In the address; it stays, since addresses are kept."""

    key: str
    """Of the input."""

    read: Callable[[str], Any]
    """Its value from the text, or a `CutawayError`."""

    otherwise: Any = ""
    """Its value where the address says nothing; the address then leaves it out."""


def restore(parts: Sequence[Part]) -> list[str]:
    """Give inputs the values of the address, before they are drawn; a sentence for each part that cannot be read."""
    for part in parts:
        said = st.query_params.get(part.name, "")
        if said == st.session_state.get(_WRITTEN + part.name, "") and part.key in st.session_state:
            continue  # an input of a page is gone once another page was drawn
        before, when = st.session_state.get(_BEFORE + part.name, ("", 0.0))
        if said == before and part.key in st.session_state and time.monotonic() - when < SOON:
            continue  # the browser sent this before it heard what was written
        st.session_state[_NOTICE + part.name] = ""
        try:
            st.session_state[part.key] = part.read(said) if said else part.otherwise
        except CutawayError as error:
            st.session_state[part.key] = part.otherwise
            st.session_state[_NOTICE + part.name] = f"{part.name}: {error}"
            said = ""
        st.session_state[_WRITTEN + part.name] = said
    return [said for part in parts if (said := st.session_state.get(_NOTICE + part.name))]


def write(parts: Sequence[Part]) -> None:
    """Put what the inputs say into the address, after they were drawn."""
    for part in parts:
        value = st.session_state.get(part.key, part.otherwise)
        now = "" if value is None or value == part.otherwise else str(value)
        if now != st.session_state.get(_WRITTEN + part.name, ""):
            st.session_state[_NOTICE + part.name] = ""  # something else is asked by now
            st.session_state[_BEFORE + part.name] = st.session_state.get(_WRITTEN + part.name, ""), time.monotonic()
        st.session_state[_WRITTEN + part.name] = now
        if now and now != st.query_params.get(part.name):
            st.query_params[part.name] = now
        elif not now and part.name in st.query_params:
            del st.query_params[part.name]


def choice_of(options: Sequence[str], what: str) -> Callable[[str], str]:
    """Reads one of `options`."""

    def read(text: str) -> str:
        if text not in options:
            raise UnknownNameError(f'there is no {what} "{text}"; there are {", ".join(options)}')
        return str(text)

    return read
