"""Overview: whether the model learned, what it is, what was found at this checkpoint, and what is saved."""

from functools import partial

import streamlit as st

from apps.dashboard import components, selecting
from apps.dashboard.asked import Choice, tabs
from apps.dashboard.heads.layout import wrapping
from apps.dashboard.overview import card, curve, found, inventory, starts

TABS = ("Runs", "What is saved", "Architecture")
TAB = Choice(name="tab", key="overview_tab", options=TABS, usual=TABS[0])

LEAST = 480, 380
"""Pixels of the curve, and of the facts beside it, below which these stand below it."""


def _architecture() -> None:
    with st.container(horizontal=True, gap="large"):
        with st.container(width=575):
            st.subheader("One layer, with its hook names")
            card.draw(run, chosen.step)
        with st.container(width=400):
            st.subheader("Parameters")
            card.parameters(run, chosen.step)


run, chosen = selecting.run(), selecting.selection()
runs = selecting.runs()
st.title("Overview")
components.run_line(run, chosen.step)
if run.model is None or chosen.step is None:  # a run of which nothing can be asked: the others are listed
    st.header("What there is")
    inventory.draw_runs(run, chosen.step)
    components.end()
starts.draw(run, chosen.step, runs)

left, right = wrapping("learned", *LEAST)
with left:
    st.header("How it learned")
    curve.draw(run, chosen.step, selecting.compared())
with right:
    st.header("The model")
    card.facts(run, chosen.step)

st.header("What was found at this checkpoint")
found.draw(run, chosen.step)

st.header("What there is")
tabs(TAB, {
    "Runs": partial(inventory.draw_runs, run, chosen.step),
    "What is saved": partial(inventory.saved_table, run, chosen.step),
    "Architecture": _architecture,
})  # fmt: skip
