"""Overview: did it learn, what was found at this checkpoint, and what is saved."""

import streamlit as st

from analyses import training_curve
from apps.dashboard import components, data, selecting
from apps.dashboard.overview import inventory

PAGE_OF = {  # the others are drawn here
    "attention-patterns": "heads",
    "head-ablation": "ablate",
    "ffn-memories": "memories",
    "ffn-composition": "memories",
    "memory-promotion": "memories",
    "gradient-flow": "gradients",
}

run, chosen = selecting.run(), selecting.selection()
st.title("Overview")
components.run_line(run, chosen.step)

left, right = st.columns([3, 2], gap="large")
with left:
    st.header("Did it learn?")
    rows = data.metrics(run)
    if rows and run.model:
        curve = training_curve.figure(rows, d_vocab=run.model.d_vocab, name=run.name)
        components.chart(curve, alt=f"Loss of {run.name} over training tokens", key="curve", width="stretch")
        seed = inventory.seed_of(run)
        components.findings(training_curve.findings(rows, d_vocab=run.model.d_vocab, name=run.name, seed=seed))
        components.caption(f"{len(rows):,} logged steps", None if seed is None else f"seed {seed}", "metrics.jsonl")
    elif run.imported_from:
        components.missing(training_curve.untold(run.name, run.imported_from))
    else:
        components.missing(f"{run.name} has logged nothing: there is no metrics.jsonl to draw.")

    st.header("Runs")
    components.table(inventory.runs_table(data.runs()), alt="The runs under this folder")

with right:
    st.header("What was found at this checkpoint")
    for study, shelf in data.shelves(run).items():
        saved = shelf.at(chosen.step)
        with st.container(border=True, gap="xsmall"):
            st.subheader(components.literal(data.question(study)))
            if saved is None:
                components.missing_result(study, run, chosen.step, shelf)
            else:
                components.findings_in_short(finding for finding in data.findings(saved) if finding.of_run)
                components.provenance(saved)
                if study in PAGE_OF:
                    st.page_link(f"app_pages/{PAGE_OF[study]}.py", label="Look closer", icon=":material/arrow_forward:")
                else:
                    components.whole_study(saved)
            components.faults(study, run, chosen.step)
