"""Pins on the page: each as it was seen, with its note, what opens it as it is today, and its place in the order."""

from __future__ import annotations

import re
from typing import Any

import streamlit as st

from analyses.notebook import pins as notebook
from analyses.notebook.page import drawn_figure
from analyses.notebook.pins import Notebook, Pin
from analyses.notebook.words import address, rests_on, when
from analyses.views import View
from analyses.views.payload import checked
from apps.dashboard import components, panels
from apps.dashboard.charts import darkened
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel

A_PAGE = 20
"""Pins on one page; each has a drawing."""

FEW = 6
"""Rows that are shown of a pin without a drawing."""

WIDE = 440
"""Pixels of a figure, above which it stands below its words: beside them its text would be shrunk."""

_REMOVED = "_pins_removed"
"""What was removed in this tab, with its place, to be put back."""


def draw(found: Notebook) -> None:
    """The pins in their order."""
    _undo()
    if not found.pins:
        with st.container(border=True, key="no-pins"):
            st.text("Nothing is pinned yet.")
            st.caption(
                "Press P on a page, or Pin in the menu of a figure: what you see is kept with its numbers, and its "
                "address opens it again. The first pin makes a notebook, whose name then stands in the address."
            )
        return
    first = _first_of(len(found.pins))
    for place, pin in list(enumerate(found.pins))[first : first + A_PAGE]:
        _one(pin, place, len(found.pins))


def _first_of(n: int) -> int:
    if n <= A_PAGE:
        return 0
    starts = list(range(0, n, A_PAGE))
    label = {start: f"{start + 1}–{min(n, start + A_PAGE)}" for start in starts}
    chosen = st.segmented_control(
        "Pins", starts, default=0, format_func=lambda start: label.get(start, ""), key="pins_from", required=True
    )
    return chosen if chosen in starts else 0


def _one(pin: Pin, place: int, n: int) -> None:
    with st.container(border=True, key=f"pin-{pin.id}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.subheader(components.literal(f"{place + 1}. {pin.title}"), anchor=False)
            _buttons(pin, place, n)
        svg = None if pin.figure is None else _svg(pin.figure, dark=st.context.theme.type == "dark")
        wide = svg is not None and _width(svg) > WIDE
        words, picture = (st.container(), st.container()) if wide else st.columns([3, 2], gap="medium")
        with words:
            components.sentences(pin.sentences)
            components.caption(*rests_on(pin), f"seen {when(pin)}")
            for each in pin.cut:
                components.caption(each)
            _note(pin)
        with picture, st.container(key=f"{panels.FRAME}rows-{pin.id}", gap="xxsmall"):
            _drawing(pin, svg)
            panels.menu(_panel(pin), _offer(pin))


def _buttons(pin: Pin, place: int, n: int) -> None:
    token = str(st.session_state.get(pins.NOTES) or "")
    st.link_button(
        "Open", address(pin, notes=token), key=f"open-{pin.id}", type="tertiary", icon=":material/open_in_new:",
        help="The same view as it is today, in a new tab.",
    )  # fmt: skip
    for name, icon, by, off in (("Up", "arrow_upward", -1, place == 0), ("Down", "arrow_downward", 1, place == n - 1)):
        st.button(
            name, key=f"{name.lower()}-{pin.id}", type="tertiary", icon=f":material/{icon}:", disabled=off,
            on_click=_move, args=(pin, by),
        )  # fmt: skip
    st.button(
        "Remove", key=f"remove-{pin.id}", type="tertiary", icon=":material/delete:", on_click=_remove, args=(pin, place)
    )


def _move(pin: Pin, by: int) -> None:
    pins.change(notebook.moved(pin.id, by))


def _remove(pin: Pin, place: int) -> None:
    if pins.change(notebook.removed(pin.id)):
        st.session_state[_REMOVED] = pin, place


def _undo() -> None:
    if _REMOVED not in st.session_state:
        return
    pin, _ = st.session_state[_REMOVED]
    with st.container(horizontal=True, vertical_alignment="center", key="removed"):
        st.text(f"Removed: {pin.title}")
        st.button("Undo", key="undo", icon=":material/undo:", on_click=_put_back)


def _put_back() -> None:
    pin, place = st.session_state.pop(_REMOVED)
    if not pins.change(notebook.restored(pin, place)):
        st.session_state[_REMOVED] = pin, place


def _note(pin: Pin) -> None:
    """The note as the file holds it, also where another tab has written it since."""
    key, seen = f"note-{pin.id}", f"_note-{pin.id}"
    if key not in st.session_state or st.session_state.get(seen) != pin.note:
        st.session_state[key] = st.session_state[seen] = pin.note
    st.text_area(
        "Note", key=key, height=68, placeholder="What you make of it", on_change=_write_note, args=(pin.id, key, seen)
    )


def _write_note(pin_id: str, key: str, seen: str) -> None:
    pins.change(notebook.noted(pin_id, str(st.session_state[key] or ""), str(st.session_state[seen])))


def _drawing(pin: Pin, svg: str | None) -> None:
    if pin.figure is not None:
        if svg is None:
            components.caption("Its figure cannot be drawn.")
        else:  # as large as it was drawn, where there is room: its text is read then
            st.image(svg, width=_width(svg))
    elif pin.view is not None and pin.payload is not None:
        box = st.expander("The view as it was", key=f"seen-{pin.id}", on_change="rerun")
        if box.open:
            with box:  # nothing is answered to what is picked in it: it is a picture of then
                told = {**pin.payload, "rests_on": list(rests_on(pin))}
                components.MOUNTS[View(pin.view)](key=f"view-{pin.id}", data=checked(told))
    else:
        shown = pin.rows.frame().head(FEW)
        components.table(shown, alt=f"The first numbers of {pin.title}", height="content")


@st.cache_data(max_entries=256, show_spinner=False)
def _svg(figure: dict[str, Any], *, dark: bool) -> str | None:
    """A pinned figure as a picture: nothing in it can act on the page.

    Every session shares what is remembered, so it goes by the whole figure: a file that is imported may hold a pin of
    a known name with another figure.
    """
    return drawn_figure(darkened(figure) if dark else figure)


def _width(svg: str) -> int:
    """Pixels that a figure was drawn for."""
    found = re.search(r'<svg\b[^>]*\swidth="(\d+)', svg)
    return WIDE if found is None else max(1, int(found[1]))


def _panel(pin: Pin) -> Panel:
    return Panel(key=f"rows-{pin.id}", title=pin.title, rows=pin.rows.frame, about=pin.about, python=pin.python)


def _offer(pin: Pin) -> pins.Offer:
    view = None if pin.view is None else View(pin.view)
    return pins.Offer(
        panel=_panel(pin), title=pin.title, sentences=pin.sentences, figure=pin.figure, view=view, payload=pin.payload
    )
