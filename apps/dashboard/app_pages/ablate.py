"""Ablate: what every head costs alone, and what a set of places costs together, with interval and control."""

import streamlit as st

from analyses.views import View
from analyses.views.effect import effect_figure, effect_table
from apps.dashboard import components, data, passes, selecting
from apps.dashboard.ablation import harms as head_harms
from apps.dashboard.state import head_name
from interp.outcomes import OUTCOMES
from interp.places import Intervention, print_places
from interp.wording import effect_sentences
from model.errors import InputError

STUDY = "head-ablation"

run, chosen = selecting.run(), selecting.selection()
st.title("Ablate")
components.run_line(run, chosen.step)

st.header("Every head alone")
shelf = data.shelf(run, STUDY)
saved, start = components.on_shelf(STUDY, run, chosen.step, shelf), shelf.at(0)
labels = [place.label for place in chosen.ablate]
if saved is not None:
    result = saved.result
    before = start.result if start is not None and chosen.step != 0 else None
    alone = st.segmented_control(
        "Each head is replaced by its", list(head_harms.INTERVENTIONS), default=Intervention.MEAN, key="alone",
        required=True, persist_state="session",
    )  # fmt: skip
    scale = head_harms.shared_scale(result, alone)
    for column, outcome in zip(st.columns(2, gap="large"), ("copy_loss", "new_token_loss"), strict=True):
        with column:
            grid = head_harms.grid(
                result.single(outcome), None if before is None else before.single(outcome), alone, scale,
                alpha=result.config.alpha, chosen=head_name(*chosen.head) if chosen.head else None, ablated=labels,
            )  # fmt: skip
            components.show(View.HEAD_GRID, grid, key=f"harm_{outcome}")
            n = result.single(outcome).harm.n
            components.caption(
                f"n = {n} sequences", "95% intervals", "small: step 0" if before else "step 0 is not saved"
            )
    components.provenance(saved, f"period {result.period}")
    components.findings(data.findings(saved))
    components.whole_study(saved)

st.header("Places together")
suggested = head_harms.induction_set(saved.result) if saved is not None else ""
if not chosen.ablate:
    above = "shift-click heads above, or write" if saved is not None else "write"
    st.text(f"No place is chosen: {above} places, such as L0H1 or L0.ffn:zero, under Ablate in the sidebar.")
    if suggested:
        st.button(f"Take the induction heads {suggested}", on_click=components.set_ablation, args=(suggested,))
else:
    removals = [kind for kind in Intervention if kind.removes]  # the others want a number, or a second place
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric = st.selectbox("Control on", OUTCOMES, key="metric", width=240)
        other = st.selectbox(
            "Places that name none get", removals, index=removals.index(Intervention.MEAN),
            key="other", width=240,
        )  # fmt: skip
        n = st.select_slider("Sequences", (16, 32, 64, 128), value=64, key="n_sequences", width=180)
    places = print_places(chosen.ablate)
    try:
        effect = passes.effect(run, chosen.step, places, metric, other, n)
    except InputError as error:  # such as a counterfactual on text; what is asked of the text below may still be
        components.unasked(error)
    else:
        components.sentences(effect_sentences(effect))
        components.chart(effect_figure(effect), alt=f"Harm of ablating {places} on every outcome", key="effect")
        components.caption(
            effect.checkpoint, f"n = {effect.harm.n} sequences", f"seed {effect.seed}", "95% bootstrap intervals",
            "grey ticks: matched sets", *effect.sources,
        )  # fmt: skip
        components.table(effect_table(effect), alt="The effect on every outcome")

    st.header("On a text")
    try:
        tokens = passes.token_effects(run, chosen, places, other)
    except InputError as error:
        components.unasked(error)
    else:
        components.show(View.TOKEN_ROWS, head_harms.token_payload(tokens), key="token_harm")
        components.caption(
            f"{run.name}@{chosen.step}", "n = 1 text", f"replacements from {tokens.source}" if tokens.source else None
        )
