"""Ablate: a hypothesis about some places of the model, stated first, then measured with interval and control."""

from functools import partial

import streamlit as st

from apps.dashboard import components, data, panels, selecting, telling
from apps.dashboard.ablation import (
    asking,
    effort,
    further,
    hypothesis,
    jobs,
    measuring,
    on_text,
    results,
    saving,
    shown,
    singles,
    stating,
)
from apps.dashboard.ablation.measuring import Question
from model.errors import CutawayError

run, chosen = selecting.run(), selecting.selection()
st.title("Ablate")
components.run_line(run, chosen.step)
shelf = data.shelf(run, singles.STUDY)
with st.grid(2, min_column_width=results.NARROWEST, gap=("small", "large")) as columns:
    left, right = columns.cell(), columns.cell()

with right:
    st.header("Every head alone")
    saved = singles.draw(run, chosen, shelf)
with left:
    st.header("Hypothesis")
    hypothesis.places(run, chosen, singles.suggested(saved))
    asked, sent, notices = asking.draw()
    asked = hypothesis.held_against(run, chosen, asked)
    for notice in notices:
        components.unasked(CutawayError(notice))
    stated, is_askable = hypothesis.stated(asked, chosen)

if is_askable:
    question = Question(run=run, step=chosen.step, places=chosen.ablate, asked=asked)
    named = None if stated is None else saving.name_of(stated.says, stated.ablate or "")
    if stated is not None and named is not None:
        stated = asked.statement(chosen.ablate, chosen.step, named)
    opened = question.lab  # a damaged checkpoint is told before anything is asked of it
    key = measuring.bench_key(question, stated)
    of_effect = measuring.effect_key(question)
    shown.arrived(question)
    if sent:
        jobs.begin("bench", key)
        stating.begun(question, stated)
        jobs.adopt(of_effect)
    st.header("Result")
    work = partial(measuring.test, question, stated, saving.file_of(run, named or "claim"))
    is_done = jobs.known(key) is not None and jobs.is_own(of_effect)
    takes = "" if is_done else effort.told(question, stated)
    work = effort.learning(question, stated, work)
    tested = jobs.done("bench", key, work, title=f"With n = {asked.n} it {takes}")
    effect = jobs.shown(of_effect)
    if effect is None:
        jobs.disown(of_effect)  # cancelled, or lost with an older server: what others measure is not shown unasked
        components.caption(
            f"Nothing is measured yet: state what you expect, and press Run. With n = {asked.n} it {takes}."
        )
    else:
        results.show(question, stated, tested, effect)
        if stated is not None and tested is not None and not tested.refused:
            st.subheader("Keep it as a claim")
            saving.draw(run, chosen, asked, stating.dated(question, stated))
        st.header("Ask more of it")
        further.draw(question)
    st.header("On a text")
    on_text.draw(question, chosen)
    shown.write(question)
else:
    shown.write(None)

if saved is not None:
    st.header("What the study of single heads found")
    telling.findings(data.findings(saved))
    panels.whole_study(saved, n=saved.result.single("copy_loss").harm.n, unit="sequences")
