"""One memory on the page of FFN memories: its key, its value, what to do with it, and what it does on a text."""

from __future__ import annotations

import streamlit as st

from analyses.ffn_memories import Result
from analyses.ffn_reading import CUT_TRIGGERS
from analyses.memory_card import ablate_command
from analyses.results import SavedResult, from_here
from analyses.views import View, visible
from analyses.views.memory import activity_figure, value_figure
from apps.dashboard import components, passes
from apps.dashboard.data import Run
from apps.dashboard.memories import examples as memory_examples
from apps.dashboard.memories import rows as memory_rows
from apps.dashboard.memories.examples import Choice
from apps.dashboard.memories.rows import Memory
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
    if not result.reading.activity.dead[*memory]:  # without what never fired nothing changes
        _actions(run, chosen, memory)
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
    _factors(result, memory)


def _factors(result: Result, memory: Memory) -> None:
    """The two factors of a coefficient, where the FFN has two."""
    found = memory_rows.factors(result, memory)
    if found is None:
        return
    table, said = found
    st.subheader("Gate and linear factor")
    if table is not None:
        components.table(table, alt="Gate and linear factor where it fires most and least", height="content")
    components.caption("coefficient = silu(gate) x linear", said)


def _value(saved: SavedResult, memory: Memory) -> None:
    result, name = saved.result, memory_name(*memory)
    st.subheader("Value: what it promotes and suppresses")
    tokens, scores, signs = memory_rows.promoted(result, memory)
    figure = value_figure(tokens, scores, marked=signs)
    components.chart(figure, alt=f"Tokens that {name} promotes and suppresses", key="value", width="stretch")
    components.sentences(memory_rows.value_facts(result, memory))


def evidence(saved: SavedResult, run: Run, chosen: Selection, memory: Memory) -> None:
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
            _falls(saved, run, chosen, memory)


def _falls(saved: SavedResult, run: Run, chosen: Selection, memory: Memory) -> None:
    """What its triggers lose with a token; where its own were not cut, they can be."""
    result, name, own = saved.result, memory_name(*memory), None
    able = memory_rows.own_falls(result, memory) is None and bool(result.reading.triggers.present[memory].any())
    cut = st.session_state.setdefault(_CUT, set())
    asked = (str(saved.path), saved.provenance.created, name)
    if able and asked in cut:
        try:
            own = passes.memory_deletions(run, chosen.step, saved, memory)
        except CutawayError as error:
            components.damaged(error)
    found = memory_rows.falls(result, memory, own)
    if found is not None:
        components.table(found[0], alt="Falls of its coefficient without a token", height="content")
        components.caption(found[1], f"top {CUT_TRIGGERS} triggers of each", f"seed {result.config.seed}")
    if own is not None and own[0] == 0:
        components.caption("none of its strongest triggers has three tokens, so none could be cut")
    if able and asked not in cut:
        st.button("Cut its triggers now", key="cut_triggers", on_click=cut.add, args=(asked,))
    if result.reading.deletions is None:
        components.missing("No triggers were cut.", f"{saved.command} --set n_deleted=64")


_CUT = "_cut"
"""Memories whose triggers were asked to be cut, in this session."""


def _actions(run: Run, chosen: Selection, memory: Memory) -> None:
    name = memory_name(*memory)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        listed = name in {place.label for place in chosen.ablate}
        said = f"Take {name} out of the ablation" if listed else f"Add {name} to the ablation"
        st.button(said, key="memory_ablate", on_click=components.toggle_ablation, args=(name,))
        st.page_link("app_pages/ablate.py", label="Ablate", icon=":material/content_cut:", width="content")
    st.code(ablate_command(f"{from_here(run.path)}@{chosen.step}", *memory), language="bash", wrap_lines=True)


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
