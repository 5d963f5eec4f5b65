"""Findings: what was pinned, what became of written claims, and what every study found here."""

import streamlit as st

from analyses.notebook.pins import Notebook
from apps.dashboard import components, selecting
from apps.dashboard.findings import claims, exporting, pinned, pins, studies
from model.errors import CutawayError, UnknownNameError

run, chosen = selecting.run(), selecting.selection()
st.title("Findings")
components.run_line(run, chosen.step)

st.header("Pinned")
found = Notebook()
try:
    found = pins.kept()
except UnknownNameError as error:  # nothing is damaged: the next pin begins a notebook
    components.unasked(error)
except CutawayError as error:
    components.damaged(error)
pinned.draw(found)
exports = st.container()

st.header("Written claims")
shelf = claims.draw(run, chosen.step)
with exports:
    exporting.draw(found, run, chosen.step, shelf)

st.header("What the studies found")
studies.draw(run, chosen.step)

st.header("The run's report")
studies.report(run)
