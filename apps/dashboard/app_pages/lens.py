"""Lens: what the stream says after every sublayer, and which parts a logit is the sum of."""

import streamlit as st

from apps.dashboard import components, selecting
from apps.dashboard.lens import attribution, parts, position

run, chosen = selecting.run(), selecting.selection()
st.title("Lens")
components.run_line(run, chosen.step)
looked = parts.read(run, chosen, selecting.compared()) if run.model is not None else None
if looked is not None:
    parts.table(looked)
    position.draw(looked)
    attribution.draw(looked)
    parts.leave()
