"""Heads: a score of every head, every head in order, and one of them in full: on text, in weights, by what it costs."""

import streamlit as st

from apps.dashboard import components, data, panels, selecting
from apps.dashboard.heads import comparing, detail, lists, sources, verdicts
from apps.dashboard.heads import scores as head_scores
from apps.dashboard.state import head_name

STUDY = "attention-patterns"

run, chosen = selecting.run(), selecting.selection()
other = selecting.compared()
st.title("Heads")
components.run_line(run, chosen.step)
saved = components.on_shelf(STUDY, run, chosen.step, data.shelf(run, STUDY))
results = sources.saved_of(run, chosen.step) | ({} if saved is None else {STUDY: saved})
every = [] if saved is None else list(data.verdicts(saved))
asked = None
head = chosen.head or lists.first(every) or (0, 0)

if results:
    asked = head_scores.ask(results)
    ablated = [place.label for place in chosen.ablate]
    if other is None:
        head_scores.grids(asked, results, head, ablated)
    else:
        comparing.draw(asked, results, other, (chosen.spec, other.spec), head, ablated)
    rows, told = st.columns([11, 9], gap="large")
    with rows:
        order = lists.draw(asked, every, results)
    with told:
        verdict = next((each for each in every if (each.layer, each.head) == head), None)
        if saved is not None and verdict is not None:
            verdicts.card(saved, verdict)
else:
    order, verdict = lists.labels_of(run), None

lists.bind(order, head_name(*head))
detail.heading(head, order, chosen)
detail.Detail(results=results, run=run, chosen=chosen, head=head, asked=asked, verdict=verdict, other=other).draw()

if saved is not None:
    st.header("What the study found")
    of_heads = {verdict.short for verdict in every}  # these stand with their heads
    components.findings(each for each in data.findings(saved) if each.sentence not in of_heads)
    panels.whole_study(saved, n=saved.result.headline.n_sequences, unit="sequences of random tokens")
