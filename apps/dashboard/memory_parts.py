"""One memory on the page of FFN memories: its key, its value, what to do with it, and what it does on a text."""

from __future__ import annotations

import streamlit as st

from analyses.results import SavedResult
from analyses.views import View, visible
from analyses.views.memory import activity_figure, value_figure
from apps.dashboard import components, data, memory_examples, memory_rows, passes
from apps.dashboard.data import Run
from apps.dashboard.memory_examples import Choice
from apps.dashboard.memory_rows import Memory
from apps.dashboard.state import Selection, memory_name
from interp.coefficient_bins import histogram_edges
from model.errors import CutawayError

MIN_WIDTH = 400
"""Pixels below which key and value stand below one another."""


def one(saved: SavedResult, run: Run, chosen: Selection, memory: Memory) -> None:
    """A memory in full: its key, and its value beside it."""
    result = saved.result
    with st.container(horizontal=True, gap="xsmall"):
        for word, colour in memory_rows.states(result, memory):
            st.badge(components.literal(word), color=colour)
    components.caption(*memory_rows.facts(result, memory))
    _actions(run, chosen, memory_name(*memory))
    with st.grid(2, min_column_width=MIN_WIDTH, gap=("small", "medium")) as columns:
        with columns.cell():
            _key(saved, memory)
        with columns.cell():
            _value(saved, memory)


def _key(saved: SavedResult, memory: Memory) -> None:
    result = saved.result
    st.subheader("Key: what fires it")
    offered = memory_examples.choices(result)
    choice = st.segmented_control(
        "Prefixes", offered, default=Choice.TOP, format_func=memory_examples.TITLES.__getitem__, key="prefixes",
        required=True, persist_state="session", label_visibility="collapsed",
    )  # fmt: skip
    shown = memory_examples.examples(result, memory, Choice(choice))
    if shown["rows"]:
        components.show(View.TOKEN_ROWS, shown, key="triggers")
        components.caption(memory_examples.EXPLAINED[Choice(choice)])
    else:
        components.caption(memory_examples.ABSENT[Choice(choice)])
    st.subheader("How often, and how strongly")
    activity = result.reading.activity
    figure = activity_figure(
        activity.histogram[*memory],
        activity.negative_histogram[*memory],
        histogram_edges(),
        [float(activity.largest[*memory]) / 10] if activity.alive[*memory] else [],
    )
    alt = f"How many prefixes give {memory_name(*memory)} which coefficient"
    components.chart(figure, alt=alt, key="histogram", width="stretch")
    components.caption(f"n = {result.n_prefixes:,} prefixes", "dashed: a tenth of the largest")


def _value(saved: SavedResult, memory: Memory) -> None:
    result, name = saved.result, memory_name(*memory)
    st.subheader("Value: what it promotes and suppresses")
    tokens, scores, signs = memory_rows.promoted(result, memory)
    figure = value_figure(tokens, scores, marked=signs)
    components.chart(figure, alt=f"Tokens that {name} promotes and suppresses", key="value", width="stretch")
    components.sentences(memory_rows.value_facts(result, memory))


def evidence(saved: SavedResult, memory: Memory) -> None:
    """What the memory's triggers share, and what they lose with a token: beside random prefixes and step 0."""
    result = saved.result
    with st.grid(2, min_column_width=MIN_WIDTH, gap=("small", "medium")) as columns:
        with columns.cell():
            st.subheader("What its triggers share")
            rows = memory_rows.evidence(result, memory)
            components.table(rows, alt="Shares of its triggers, beside random prefixes", height="content")
            components.caption(*memory_rows.evidence_facts(result, memory))
        with columns.cell():
            st.subheader("What a token of a trigger is worth")
            found = memory_rows.falls(result, memory)
            if found is None:
                components.missing("No triggers were cut.", f"{saved.command} --set n_deleted=64")
            else:
                components.table(found[0], alt="Falls of its coefficient without a token", height="content")
                components.caption(found[1])


def _actions(run: Run, chosen: Selection, name: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        listed = name in {place.label for place in chosen.ablate}
        said = f"Take {name} out of the ablation" if listed else f"Add {name} to the ablation"
        st.button(said, key="memory_ablate", on_click=components.toggle_ablation, args=(name,))
        st.page_link("app_pages/ablate.py", label="Ablate", icon=":material/content_cut:", width="content")
        st.code(f"cutaway ablate {data.spelled(run, chosen.step)} {name}:zero", language="bash", width="content")


def on_text(run: Run, chosen: Selection, memory: Memory, saved: SavedResult | None) -> None:
    """The memory's coefficient at every token of the text of the sidebar, and which memories write most at one."""
    try:
        tokens, source = passes.text(run, chosen)
        values = passes.coefficients(run, chosen, memory[0])[:, memory[1]]
    except CutawayError as error:  # the text or the checkpoint cannot be read; the rest of the page can
        components.damaged(error)
        return
    components.show(View.TOKEN_ROWS, memory_examples.on_text(tokens, values), key="on_text")
    components.caption(source, f"{run.name}@{chosen.step}")
    position = st.selectbox(
        "Memories that write most at", range(len(tokens)), index=len(tokens) - 1, key=f"written_at_{len(tokens)}",
        format_func=lambda at: f"{at}  {visible(tokens[at])}", width=260,
    )  # fmt: skip
    rows = memory_rows.writing(passes.writing(run, chosen, position), None if saved is None else saved.result)
    components.pick_from(
        rows, "memory", key=f"writing-{position}", height="content", alt="Memories that write most there"
    )
    components.caption(
        "written: |m| |v|, in stream units", "share: of all that its layer's memories write there", source
    )
