"""One memory on the page of FFN memories: its key, its value, and what to do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from analyses.ffn.reading import CUT_TRIGGERS
from analyses.memories.card import ablate_command
from analyses.memories.examples import (
    ABSENT,
    EXPLAINED,
    TITLES,
    Choice,
    choices,
    example_payload,
    example_rows,
    examples,
)
from analyses.memories.tables import (
    KINDS,
    Memory,
    activity_table,
    evidence_rows,
    factor_facts,
    factor_rows,
    fall_facts,
    fall_rows,
    own_falls,
    promoted_rows,
)
from analyses.results import SavedResult, from_here
from analyses.views import View
from analyses.views.memory import activity_figure, value_figure
from apps.dashboard import components, keys, panels, passes, snippets
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.memories import facts, finder, over
from apps.dashboard.panels import Panel, about_saved
from apps.dashboard.selecting import Compared
from apps.dashboard.state import Selection, memory_name
from interp.coefficient_bins import histogram_edges
from model.errors import CutawayError

MemoryRows = Callable[..., Any]
"""From a result of ffn-memories, a memory and what is chosen to a table, which exists where the page asks for it."""

MIN_WIDTH = 400
"""Pixels below which key and value stand below one another."""


def panel_of(saved: SavedResult, memory: Memory, key: str, title: str, rows: MemoryRows, *more: str) -> Panel:
    """A panel about one memory: its table is `rows(result, memory, *more)`, and its Python is that call."""
    result = saved.result
    arguments = ", ".join(["result", *(repr(each) for each in (memory, *more))])
    return Panel(
        key=key, title=title, rows=partial(rows, result, memory, *more),
        about=about_saved(saved, n=result.n_prefixes, unit="prefixes", memory=memory_name(*memory)),
        python=snippets.saved_result(
            saved, f"rows = {rows.__name__}({arguments})", imports=[f"from {rows.__module__} import {rows.__name__}"]
        ),
    )  # fmt: skip


def heading(saved: SavedResult, run: Run, chosen: Selection, memory: Memory, listed: Sequence[str]) -> None:
    """Its name and what can be said of it in a word, the way to its neighbours in the list, and what to do with it."""
    result = saved.result
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="memory_heading"):
        st.header(memory_name(*memory), width="content")
        for word, colour in facts.states(result, memory):
            st.badge(components.literal(word), color=colour)
        finder.steps(listed, memory)
        if not result.reading.activity.dead[*memory]:  # without what never fired nothing changes
            _actions(run, chosen, memory)
    components.caption(*facts.facts(result, memory), *facts.rests_on(result, memory))


def one(saved: SavedResult, run: Run, memory: Memory, other: Compared | None) -> None:
    """A memory's key, and its value beside it; and the one of that name in the model that it is compared with."""
    if other is not None:
        over.beside(saved, run, memory, other)
    with st.grid(2, min_column_width=MIN_WIDTH, gap=("small", "medium")) as columns:
        with columns.cell():
            _key(saved, memory)
        with columns.cell():
            _value(saved, memory)


def _key(saved: SavedResult, memory: Memory) -> None:
    result, name = saved.result, memory_name(*memory)
    st.subheader("Key: what fires it")
    choice = Choice(
        st.segmented_control(
            "Prefixes", choices(result), default=Choice.TOP, format_func=TITLES.__getitem__, key="prefixes",
            required=True, persist_state="session", label_visibility="collapsed",
        )
    )  # fmt: skip
    found = examples(result, memory, choice)
    if found:
        title = f"Prefixes of {name}: {TITLES[choice]}"
        panel = panel_of(saved, memory, "triggers", title, example_rows, choice.value)
        payload = example_payload(found)
        panels.show(View.TOKEN_ROWS, payload, panel)
        kind = KINDS[result.reading.evidence.kind_of(*memory)]
        said = [
            f"{name}: {', '.join((*facts.facts(result, memory), *facts.rests_on(result, memory)))}.",
            *facts.value_facts(result, memory),
        ]
        pins.offer(title=f"{name}: {kind}", sentences=said, panel=panel, view=View.TOKEN_ROWS, payload=payload)
        components.caption(EXPLAINED[choice])
    else:
        components.caption(ABSENT[choice])
    st.subheader("How often, and how strongly")
    activity = result.reading.activity
    figure = activity_figure(
        activity.histogram[*memory],
        activity.negative_histogram[*memory],
        histogram_edges(),
        [float(activity.largest[*memory]) / 10] if activity.alive[*memory] else [],
    )
    title = f"How many prefixes give {name} which coefficient"
    panel = panel_of(saved, memory, "histogram", title, activity_table)
    panels.chart(panel, figure, alt=title, width="stretch")
    components.caption(facts.prefixes(result), "dashed: a tenth of the largest")


def _factors(saved: SavedResult, memory: Memory) -> None:
    """The two factors of a coefficient, where the FFN has two."""
    said = factor_facts(saved.result, memory)
    if said is None:
        return
    st.subheader("Gate and linear factor")
    if factor_rows(saved.result, memory) is not None:
        title = "Gate and linear factor where it fires most and least"
        panel = panel_of(saved, memory, "factors", title, factor_rows)
        panels.table(panel, alt=title, height="content")
    components.caption("coefficient = silu(gate) x linear", said)


def _value(saved: SavedResult, memory: Memory) -> None:
    result, name = saved.result, memory_name(*memory)
    st.subheader("Value: what it promotes and suppresses")
    rows = promoted_rows(result, memory)
    signs = ["▸" if followed else "" for followed in rows["followed"]]
    title = f"Tokens that {name} promotes and suppresses"
    panel = panel_of(saved, memory, "value", title, promoted_rows)
    panels.chart(
        panel, value_figure(list(rows["token"]), list(rows["score"]), marked=signs), alt=title, width="stretch"
    )
    components.sentences(facts.value_facts(result, memory))


def evidence(saved: SavedResult, run: Run, chosen: Selection, memory: Memory) -> None:
    """What the memory's triggers share, and what they lose with a token: beside random prefixes and step 0."""
    result = saved.result
    with st.grid(2, min_column_width=MIN_WIDTH, gap=("small", "medium")) as columns:
        with columns.cell():
            st.subheader("What its triggers share")
            title = f"What triggers of {memory_name(*memory)} share, beside random prefixes"
            panel = panel_of(saved, memory, "shared", title, evidence_rows)
            panels.table(panel, alt="Shares of its triggers, beside random prefixes", height="content")
            said = facts.evidence_facts(result, memory)
            components.caption(*said)
            pins.offer(title=title, sentences=[f"{memory_name(*memory)}: {', '.join(said)}."], panel=panel)
        with columns.cell():
            st.subheader("What a token of a trigger is worth")
            _falls(saved, run, chosen, memory)
            _factors(saved, memory)


def _falls(saved: SavedResult, run: Run, chosen: Selection, memory: Memory) -> None:
    """What its triggers lose with a token; where its own were not cut, they can be."""
    result, name, own = saved.result, memory_name(*memory), None
    able = own_falls(result, memory) is None and bool(result.reading.triggers.present[memory].any())
    cut = st.session_state.setdefault(_CUT, set())
    asked = (str(saved.path), saved.provenance.created, name)
    if able and asked in cut:
        try:
            own = passes.memory_deletions(run, chosen.step, saved, memory)
        except CutawayError as error:
            components.damaged(error)
    found = fall_rows(result, memory, own)
    if found is not None:
        panel = _falls_panel(saved, run, chosen, memory, found, cut_now=own is not None)
        panels.table(panel, alt="Falls of its coefficient without a token", height="content")
        said = fall_facts(result, memory, own)
        components.caption(said, f"top {CUT_TRIGGERS} triggers of each", f"seed {result.config.seed}")
    if own is not None and own[0] == 0:
        components.caption("none of its strongest triggers has three tokens, so none could be cut")
    if able and asked not in cut:
        st.button("Cut its triggers now", key="cut_triggers", on_click=cut.add, args=(asked,))
    if result.reading.deletions is None:
        components.missing("No triggers were cut.", f"{saved.command} --set n_deleted=64")


_CUT = "_cut"
"""Memories whose triggers were asked to be cut, in this session."""


def _falls_panel(
    saved: SavedResult, run: Run, chosen: Selection, memory: Memory, found: pd.DataFrame, *, cut_now: bool
) -> Panel:
    """The table of falls; where triggers were cut for the page, the snippet cuts them too."""
    title = f"What a token of a trigger of {memory_name(*memory)} is worth"
    panel = panel_of(saved, memory, "falls", title, fall_rows)
    if not cut_now:
        return panel
    python = snippets.opened_with(
        saved, run, chosen.step, f"rows = fall_rows(result, {memory}, falls_now(lab, result, {memory}))",
        imports=["from analyses.memories.tables import fall_rows", "from analyses.memories.cutting import falls_now"],
    )  # fmt: skip
    return replace(panel, python=python, rows=lambda: found)


def _actions(run: Run, chosen: Selection, memory: Memory) -> None:
    name = memory_name(*memory)
    listed = name in {place.label for place in chosen.ablate}
    said = f"Take {name} out of the ablation" if listed else f"Add {name} to the ablation"
    st.button(said, key="memory_ablate", on_click=components.toggle_ablation, args=(name,), type="tertiary",
              icon=":material/check:" if listed else ":material/add:", help="X does the same")  # fmt: skip
    keys.bind("x", f"{name} into the ablation, or out of it", components.toggle_ablation, name)
    st.page_link("app_pages/ablate.py", label="Ablate", icon=":material/content_cut:", width="content")
    with st.popover("As a command", type="tertiary", icon=":material/terminal:"):
        st.code(ablate_command(f"{from_here(run.path)}@{chosen.step}", *memory), language="bash", wrap_lines=True)
