"""Heads: a score of every head, every head in order, and one of them in full: on text, in weights, by what it costs."""

import streamlit as st

from apps.dashboard import components, data, panels, selecting
from apps.dashboard.heads import comparing, detail, layout, lists, sources, verdicts
from apps.dashboard.heads import scores as head_scores
from apps.dashboard.state import head_name

STUDY = "attention-patterns"

LEAST = 400, 590
"""Pixels of each half of the page: all heads on the left, one of them in full on the right, or before their lists."""

run, chosen = selecting.run(), selecting.selection()
other = selecting.compared()
st.title("Heads")
components.run_line(run, chosen.step)
saved = components.on_shelf(STUDY, run, chosen.step, data.shelf(run, STUDY))
results = sources.saved_of(run, chosen.step, saved)
every = [] if saved is None else list(data.verdicts(saved))
asked, grid = None, None
if saved is None and sources.DYNAMICS in results:
    components.caption("Until then: kinds of attention by training-dynamics, which looked at this checkpoint.")
if results:
    asked = head_scores.ask(results)
order = lists.order_of(asked, saved) or lists.labels_of(run)
head = chosen.head or lists.first(order)
verdict = next((each for each in every if (each.layer, each.head) == head), None)
ablated = [place.label for place in chosen.ablate]

first, beside, rest = layout.around("heads", *LEAST)
with first:
    if asked is not None:
        if other is None:
            grid = head_scores.grids(asked, results, chosen.step, head, ablated)
        else:
            comparing.draw(asked, results, other, (chosen.spec, other.spec), head, ablated)
with rest:
    if asked is not None:
        lists.draw(asked, saved, results, head_name(*head))
    if saved is not None and verdict is not None:
        verdicts.card(saved, verdict, grid)
lists.bind(order, head_name(*head))
with beside:
    detail.heading(head, order, chosen, verdict)
    detail.Detail(results=results, run=run, chosen=chosen, head=head, asked=asked, verdict=verdict, other=other).draw()

if saved is not None:
    st.header("What the study found")
    of_heads = {verdict.short for verdict in every}  # these stand with their heads
    components.findings(each for each in data.findings(saved) if each.sentence not in of_heads)
    panels.whole_study(saved, n=saved.result.headline.n_sequences, unit="sequences of random tokens")
