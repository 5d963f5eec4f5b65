"""Heads: a verdict on every head with its evidence, its scores, what it does on text, and its pattern on your own."""

import streamlit as st

from apps.dashboard import components, data, selecting
from apps.dashboard.heads import parts as head_parts
from apps.dashboard.state import head_name

STUDY = "attention-patterns"

run, chosen = selecting.run(), selecting.selection()
st.title("Heads")
components.run_line(run, chosen.step)
shelf = data.shelf(run, STUDY)
saved = components.on_shelf(STUDY, run, chosen.step, shelf)
head = chosen.head

if saved is not None:
    head = head_parts.verdicts(saved, head)
    st.header("Scores of every head")
    head_parts.scores(saved.result, head, [place.label for place in chosen.ablate])
    st.header(f"{head_name(*head)} over the corpus")
    head_parts.on_corpus(saved, run, chosen, head)

head = head or (0, 0)
st.header(f"{head_name(*head)} on a text")
head_parts.on_text(run, chosen, head)

if saved is not None:
    st.header("What the study found")
    verdicts = {verdict.short for verdict in data.verdicts(saved)}  # these stand with their heads
    components.findings(each for each in data.findings(saved) if each.sentence not in verdicts)
    components.whole_study(saved)
