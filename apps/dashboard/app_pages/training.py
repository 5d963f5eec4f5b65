"""Training dynamics: lines over training above one axis, every head through training, and what formed when."""

import streamlit as st

from apps.dashboard import components, data, panels, selecting, telling
from apps.dashboard.training import STUDY, grid, parts

run, chosen, compared = selecting.run(), selecting.selection(), selecting.compared()
st.title("Training dynamics")
components.run_line(run, chosen.step)
components.caption(data.question(STUDY))

saved = parts.result_to_show(run, chosen.step)
other = parts.other_to_lay_over(compared, run)
if saved is None:
    st.header("Loss")
    parts.logged_curves(run)
else:
    for each in [saved] if other is None else [saved, other]:  # of two runs each says its own
        st.header("What formed when" + ("" if other is None else f" in {components.literal(each.result.run)}"))
        telling.findings(data.findings(each))
    if len(saved.result.steps) > 1:
        st.header("Over training")
        kind, reading = parts.lines(saved, other, run, chosen, compared)
        st.header("Every head through training")
        grid.through_training(saved, chosen, compared, other, run, kind, reading)
        st.header("What was half way up when")
        grid.crossings(saved, other)
    panels.whole_study(saved, n=saved.result.repeats.n_sequences, unit="sequences")
