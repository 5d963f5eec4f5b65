"""Keys that a page answers to: bound while it is drawn, told in its help, and pressed anywhere but in an input.

A key does what a button beside it does. The browser's half (`frame`) listens; what is bound to Python comes back as
a callback at the next run, and a key that nobody bound reaches the views as a `cutaway-key` event of the document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

RESERVED = frozenset("lp?[]cr")
"""The frame's own keys, and the two that Streamlit keeps."""

_KEY = "_keys"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """What one key does on the page that is shown."""

    key: str
    what: str
    """In the help."""
    callback: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    focus: str = ""
    """Key of the widget whose input it goes to."""


@dataclass
class _Bindings:
    page: dict[str, Bound] = field(default_factory=dict)
    frame: dict[str, Bound] = field(default_factory=dict)


def bind(key: str, what: str, callback: Callable[..., Any], *args: Any) -> None:
    """Call `callback(*args)` when `key` is pressed, before the page is drawn again.

    Raises:
        ValueError: if the key is not one character, or is the frame's.
    """
    _add(Bound(key=key, what=what, callback=callback, args=args))


def browser(key: str, what: str) -> None:
    """Tell in the help of a key that the views answer in the browser, as the event `cutaway-key`."""
    _add(Bound(key=key, what=what))


def focus(key: str, what: str, widget: str) -> None:
    """Put the cursor into the input of the widget with the key `widget`."""
    _add(Bound(key=key, what=what, focus=widget))


def _add(bound: Bound) -> None:
    key = bound.key.lower()
    if len(key) != 1 or key in RESERVED:
        raise ValueError(
            f"{bound.key!r} cannot be bound by a page; take one character that is none of {sorted(RESERVED)}"
        )
    _bindings().page[key] = bound


def _bindings() -> _Bindings:
    return st.session_state.setdefault(_KEY, _Bindings())
