"""Keys that a page answers to: bound while it is drawn, told in its help, and pressed anywhere but in an input.

A key does what a button beside it does. The browser's half (`frame/static/keys.js`) listens; what is bound to Python
comes back as a callback at the next run, and a key that nobody bound reaches the views as a `cutaway-key` event of the
document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from analyses.views.payload import checked
from apps.dashboard.frame.sources import mounted

RESERVED = frozenset("lpe?[]cr")
"""The frame's own keys, and the two that Streamlit keeps."""

KEY = "keys"
"""Key of the component, and of the container that it stands in."""

_BINDINGS, _DONE = "_bindings", "_keys_done"

MOUNT = mounted("keys", html="<dialog aria-label='Keys'></dialog>\n")


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

    everywhere: bool = False
    """Whether it is the frame's, and the same on every page."""

    @property
    def how(self) -> str:
        """Who answers: python, the input of a widget, or the views in the browser."""
        return "python" if self.callback is not None else "focus" if self.focus else "browser"


@dataclass
class _Bindings:
    keys: dict[str, Bound] = field(default_factory=dict)


def bind(key: str, what: str, callback: Callable[..., Any], *args: Any) -> None:
    """Call `callback(*args)` when `key` is pressed, before the page is drawn again.

    Several presses may come at once, in order; a callback that goes on from where one is asks `st.session_state`.

    Raises:
        ValueError: if the key is not one character, or is the frame's.
    """
    _bind_for_page(Bound(key=key.lower(), what=what, callback=callback, args=args))


def browser(key: str, what: str) -> None:
    """Tell in the help of a key that the views answer in the browser, as the event `cutaway-key`."""
    _bind_for_page(Bound(key=key.lower(), what=what))


def focus(key: str, what: str, widget: str) -> None:
    """Put the cursor into the input of the widget with the key `widget`."""
    _bind_for_page(Bound(key=key.lower(), what=what, focus=widget))


def begin() -> None:
    """Forget what the last page bound; for the entrypoint, before the page is drawn."""
    st.session_state[_BINDINGS] = _Bindings()


def bind_everywhere(key: str, what: str, callback: Callable[..., Any], *args: Any) -> None:
    """Bind one of the frame's keys; for the entrypoint."""
    _bindings()[key] = Bound(key=key, what=what, callback=callback, args=args, everywhere=True)


def mount(page: str, offered: str | None) -> None:
    """Listen; for the entrypoint, after the page was drawn.

    Args:
        page: title of the page, for the help.
        offered: title of what P pins, if the page offers something.
    """
    listed = [
        {"key": each.key, "what": each.what, "how": each.how, "widget": each.focus, "everywhere": each.everywhere}
        for each in _bindings().values()
    ]
    payload = {"page": page, "pin": offered, "keys": listed, "done": done()}
    MOUNT(key=KEY, data=checked(payload), on_pressed_change=_pressed)


def done() -> int:
    """The last press that was answered."""
    return st.session_state.get(_DONE, 0)


def _bind_for_page(bound: Bound) -> None:
    if len(bound.key) != 1 or bound.key in RESERVED:
        taken = " ".join(sorted(RESERVED))
        raise ValueError(f"{bound.key!r} cannot be bound by a page; take one character that is none of {taken}")
    _bindings()[bound.key] = bound


def _bindings() -> dict[str, Bound]:
    return st.session_state.setdefault(_BINDINGS, _Bindings()).keys


def _pressed() -> None:
    """Do what was pressed since the last press that was answered.

    Nothing is known of it where another page was begun meanwhile: the browser sends it again when that one is drawn.
    """
    for press in (st.session_state.get(KEY) or {}).get("pressed") or ():
        if press["id"] <= done():
            continue
        st.session_state[_DONE] = press["id"]
        bound = _bindings().get(press["key"])
        if bound is not None and bound.callback is not None:
            bound.callback(*bound.args)
