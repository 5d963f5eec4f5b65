"""Heads: scores of every head beside step 0, and any head's pattern on a text of your own."""

import streamlit as st

from analyses.attention_readings import Kind
from analyses.views import View, attention_payload
from apps.dashboard import components, data, head_scores, passes, selecting
from apps.dashboard.state import head_name

STUDY = "attention-patterns"

run, chosen = selecting.run(), selecting.selection()
st.title("Heads")
components.run_line(run, chosen.step)
shelf = data.shelf(run, STUDY)
saved = components.on_shelf(STUDY, run, chosen.step, shelf)
ablated = [place.label for place in chosen.ablate]
head = chosen.head

if saved is not None:
    result = saved.result
    head = head or head_scores.strongest(result, Kind.INDUCTION)
    titles = head_scores.readings(result)
    decisive = result.readings.index(result.headline)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "Score", head_scores.SHOWN, default=Kind.INDUCTION, key="kind", required=True, persist_state="session"
        )
        title = st.selectbox("Measured on", list(titles), index=decisive, key="reading", width=260)
    left, right = st.columns(2, gap="large")
    for column, index, key in ((left, titles[title], "grid"), (right, len(titles) - 1, "grid_text")):
        reading = result.readings[index]
        with column:
            st.subheader(components.literal(reading.title))
            if kind not in reading:
                components.caption("too few sequences hold such a token to measure this score here")
                continue
            grid = head_scores.grid(result, index, kind, chosen=head_name(*head), ablated=ablated)
            components.show(View.HEAD_GRID, grid, key=key)
            small = "small: step 0" if result.at_step_zero else None
            components.caption(f"n = {reading.n_sequences} sequences of {reading.n_pos} tokens", small)
    components.provenance(saved)
    found, ranked = st.columns([3, 2], gap="large")
    with found:
        components.findings(saved.findings())
    with ranked:
        rows = head_scores.ranking(result, titles[title], kind)
        components.table(rows, height=250, alt=f"Heads by {kind} on {title}")

head = head or (0, 0)
st.header(f"{head_name(*head)} on a text")
live = passes.look(run, chosen)
fits = chosen.cell is not None and max(chosen.cell) < len(live.tokens)
lock = chosen.cell if fits else None
components.show(View.ATTENTION, attention_payload(live.pattern, live.tokens, head=head, lock=lock), key="attention")
components.caption(live.source, f"{run.name}@{chosen.step}")
if saved is not None:
    components.whole_study(saved)
