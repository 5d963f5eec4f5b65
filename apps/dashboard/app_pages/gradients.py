"""Norms & gradients: how gradients flow through depth, at initialization and over training."""

import streamlit as st

from analyses.registry import get_study
from apps.dashboard import components, data, selecting

STUDY = "gradient-flow"

run, chosen = selecting.run(), selecting.selection()
st.title("Norms & gradients")
components.run_line(run, chosen.step)
st.caption(components.literal(data.question(STUDY)))

shelf = data.shelf(run, STUDY)
saved = shelf.at(chosen.step)
if saved is None:
    components.missing_result(STUDY, run, chosen.step, shelf)
    saved = shelf.results[-1] if shelf.results else None
for fault in shelf.faults:
    components.damaged(fault)
if saved is not None:
    st.header("What was found")
    components.findings(saved.findings())
    st.header("Figure")
    components.chart(saved.figure(), alt=get_study(STUDY).question, key="gradient-figure")
    components.provenance(saved)
    with st.expander("The numbers"):
        components.table(saved.table(), alt="Gradient norms by placement and depth")
