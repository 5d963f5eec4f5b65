"""Overview: what the model is, whether it learned, what was found at this checkpoint, and what is saved."""

import streamlit as st

from apps.dashboard import components, selecting
from apps.dashboard.overview import card, curve, found, inventory, starts

run, chosen = selecting.run(), selecting.selection()
runs = selecting.runs()
st.title("Overview")
components.run_line(run, chosen.step)
starts.draw(run, chosen.step, runs)

left, right = st.columns([11, 9], gap="large")
with left:
    st.header("How it learned")
    curve.draw(run, chosen.step, selecting.compared())
with right:
    st.header("The model")
    card.facts(run, chosen.step)

with st.container(horizontal=True, gap="large"):
    with st.container(width=575):
        st.header("One layer, with its hook names")
        card.draw(run, chosen.step)
    with st.container(width=400):
        st.header("Parameters")
        card.parameters(run, chosen.step)
        st.header("Runs")
        inventory.draw_runs(run, chosen.step)

st.header("What was found at this checkpoint")
found.draw(run, chosen.step)

st.header("What is saved")
inventory.saved_table(run, chosen.step)
