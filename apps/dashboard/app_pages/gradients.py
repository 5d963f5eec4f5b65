"""Norms & gradients: how gradients flow through depth, at initialization, over training and at the checkpoint."""

import streamlit as st

from apps.dashboard import components, data, panels, selecting, telling
from apps.dashboard.gradients import over_training, studied
from apps.dashboard.gradients.source import logs

STUDY = "gradient-flow"

run, chosen = selecting.run(), selecting.selection()
st.title("Norms & gradients")
components.run_line(run, chosen.step)
st.caption(components.literal(data.question(STUDY)))
if run.fault:
    components.end()

shelf = data.shelf(run, STUDY)
saved = components.on_shelf(STUDY, run, chosen.step, shelf)
if saved is None and shelf.results:
    saved = shelf.results[-1]
    where = "of no run" if saved.provenance.step is None else f"at step {saved.provenance.step:,}"
    components.caption(f"below, what a study adds is from the result {where} instead")
found = () if saved is None else data.findings(saved)
if found:
    st.header("What the study found")
    telling.findings(found)

logged = logs(run, chosen.step, saved)
if logged.maps:
    over_training.fairness(logged)
    st.header("Over training")
    over_training.maps(logged, tuple(each.sentence for each in found if each.of_run))
    over_training.ends(logged)
    over_training.matrices(logged)
    st.header(f"Over depth, at step {chosen.step:,}")
    over_training.at_step(logged)
    over_training.sizes(logged)
    st.header("Did both learn?" if logged.twin else "Did it learn?")
    over_training.losses(logged)
else:
    why = f": it was imported from {run.imported_from}" if run.imported_from else ", so there is no map over training"
    components.missing(f"{run.name} has logged no gradient norms{why}.")

if saved is not None:
    st.header(f"On held-out text, at step {saved.provenance.step:,}" if saved.provenance.run else "On held-out text")
    studied.checkpoint(saved)
    st.header("At initialization")
    studied.initialization(saved)
    panels.whole_study(saved, n=saved.config.n_sequences, unit="held-out sequences")
