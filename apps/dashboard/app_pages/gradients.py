"""Norms & gradients: how gradients flow through depth, at initialization and over training."""

import streamlit as st

from apps.dashboard import components, data, selecting

STUDY = "gradient-flow"

run, chosen = selecting.run(), selecting.selection()
st.title("Norms & gradients")
components.run_line(run, chosen.step)
st.caption(components.literal(data.question(STUDY)))

shelf = data.shelf(run, STUDY)
saved = components.on_shelf(STUDY, run, chosen.step, shelf)
if saved is None and shelf.results:
    saved = shelf.results[-1]
    components.caption(f"below: the result at step {saved.provenance.step} instead")
if saved is not None:
    components.findings(data.findings(saved))
    components.chart(saved.figure(), alt=data.question(STUDY), key="gradient-figure")
    components.provenance(saved, data.settings_of(saved))
    components.table(saved.table(), alt="Gradient norms by placement and depth")
