"""Overview: did it learn, what was found at this checkpoint, and what is saved."""

import streamlit as st

from analyses import training_curve
from apps.dashboard import components, data, inventory, selecting

run, chosen = selecting.run(), selecting.selection()
st.title("Overview")
components.run_line(run, chosen.step)

left, right = st.columns([5, 4], gap="large")
with left:
    st.header("Did it learn?")
    rows = data.metrics(run)
    if rows and run.model:
        curve = training_curve.figure(rows, d_vocab=run.model.d_vocab, name=run.name)
        components.chart(curve, alt=f"Loss of {run.name} over training tokens", key="curve")
        components.findings(training_curve.findings(rows, d_vocab=run.model.d_vocab, name=run.name))
        components.caption(f"{len(rows):,} logged steps", f"seed {inventory.seed_of(run)}", "metrics.jsonl")
    else:
        components.missing(f"{run.name} has logged nothing.", f"cutaway train tiny --out {run.path} --resume")

    st.header("Runs")
    components.table(inventory.runs_table(data.runs()), alt="The runs under this folder")

with right:
    st.header("What was found at this checkpoint")
    shelves = data.shelves(run)
    for study, shelf in shelves.items():
        saved = shelf.at(chosen.step)
        with st.container(border=True):
            st.subheader(components.literal(data.question(study)))
            if saved is not None:
                components.findings(saved.findings())
                components.provenance(saved)
            else:
                components.missing_result(study, run, chosen.step, shelf)
            for fault in shelf.faults:
                components.damaged(fault)

    st.header("Where to start")
    st.page_link("app_pages/heads.py", label="Which heads copy from earlier text?", icon=":material/grid_on:")
    st.page_link("app_pages/ablate.py", label="What does the model lose without them?", icon=":material/content_cut:")
    st.page_link("app_pages/memories.py", label="What does an FFN memory hold?", icon=":material/key:")
