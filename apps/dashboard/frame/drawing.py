"""The frame around a page, in the order in which it must be drawn.

The inputs come first, since the page reads them; the bar's place is above them, and the keys come last, since only
then it is known which ones the page answers to. Each stands in a container of its own that is there on every run: an
element whose place changes is made anew in the browser, and forgets what it was doing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from apps.dashboard import components, keys, panels, selecting, telling
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.frame import bar, inputs, menu
from apps.dashboard.frame.sources import text
from model.errors import CutawayError


def draw(page: st.Page, pages: Mapping[str, Sequence[st.Page]], runs: Sequence[Run]) -> None:
    """Draw the frame, and the page inside it.

    Args:
        page: the one that was asked for.
        pages: all of them, by section.
        runs: every run under the root; at least one.
    """
    st.html(f"<style>{text('frame.css')}</style><script>{text('early.js')}</script>", unsafe_allow_javascript=True)
    panels.style()
    telling.style()
    beside = st.sidebar.container(key="menu")
    top = st.container(key=f"{bar.KEY}-place")
    selecting.draw(runs)
    run = selecting.run()
    listed = menu.entries(pages, run.name)
    with beside:
        menu.draw(listed)
    with st.sidebar:
        pins.draw(page.url_path)
    with top:
        bar.draw(page.url_path, [entry for section in listed.values() for entry in section], keys.done())
    bottom = st.container(key=f"{keys.KEY}-place")
    keys.begin()
    keys.bind_everywhere("p", "pin what the page offers to Findings", pins.pin_offered)
    keys.bind_everywhere("[", "the checkpoint before", inputs.move, run.steps, -1)
    keys.bind_everywhere("]", "the checkpoint after", inputs.move, run.steps, 1)
    try:
        if run.barred:
            components.damaged(CutawayError(f"{run.name} is not read: {run.fault}."))
        else:
            components.guarded(page.run)
    finally:  # also where a page fails, or a newer run takes over: what is not drawn in a run is forgotten
        offer = pins.offered()
        menu.remember(page, run.name)
        with bottom:
            keys.mount(page.title, offer.title if offer else None)
    pins.settle()
