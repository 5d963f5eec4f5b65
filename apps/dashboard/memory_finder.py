"""Finding a memory: a search over all of them, and a table in which a click opens one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from analyses.memory_search import MemoryState, Query
from analyses.results import SavedResult
from analyses.views import visible
from apps.dashboard import components, data
from apps.dashboard.memory_rows import KINDS, Memory
from apps.dashboard.state import memory_name
from interp.pattern_kinds import TriggerPattern
from model.errors import CutawayError

LIMIT = 200
"""Memories listed at most: more are better searched than scrolled."""

ANY = ""


def draw(saved: SavedResult) -> list[str]:
    """The search and the memories it finds; the names of those listed, in order."""
    query = _asked(saved.result.n_layers)
    n_memories = saved.result.reading.activity.firing_rate.numel()
    try:
        found = data.memories_found(saved, query, LIMIT)
    except CutawayError as error:  # a memory or a concept that there is not
        components.unasked(error)
        return []
    for note in found.notes:
        components.caption(note)
    if not found.rows:
        components.caption(f"none of {n_memories:,} memories is like that")
        return []
    with st.container(key="memory_table"):
        components.pick_from(_shown(found.rows), "memory", key=f"memory_rows-{query}", alt=f"{found.n} memories found")
    listed = [str(row["memory"]) for row in found.rows]
    many = f"the first {len(listed)} of {found.n:,} found" if found.n > len(listed) else f"{found.n:,} found"
    components.caption(f"{many}, of {n_memories:,} memories", "click a row to open one, or step with J and K")
    return listed


def _shown(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows as a table: of triggers their ends, of tokens every character to be seen."""
    shown = [
        {
            "memory": row["memory"],
            "found in": row["why"],
            "ends in": _end(visible(row["trigger"])),
            "then": visible(row["next"]) if row["next"] else "",
            "promotes": " ".join(map(visible, row["promotes"])),
            "concept": row["concept"] or "",
            "kind": KINDS[TriggerPattern(row["pattern"])],
            "agrees": row["agrees"],
            "fires on": row["firing rate"],
        }
        for row in rows
    ]
    asked = any(row["found in"] for row in shown)
    return pd.DataFrame(shown, columns=None if asked else [name for name in shown[0] if name != "found in"])


def _end(text: str, longest: int = 28) -> str:
    return text if len(text) <= longest else "…" + text[1 - longest :]


def _asked(n_layers: int) -> Query:
    """What is looked for: one text, and what else a memory must be."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        text = st.text_input(
            "Search", key="wanted", live=True, type="search", persist_state="session",
            placeholder="a token, the end of a trigger, or L1M37",
        )  # fmt: skip
        layer = st.selectbox(
            "Layer", [ANY, *map(str, range(n_layers))], key=f"wanted_layer_{n_layers}", width=90,
            format_func=lambda each: each or "any",
        )  # fmt: skip
        kind = st.selectbox(
            "Triggers", [ANY, *TriggerPattern], key="wanted_kind", width=210,
            format_func=lambda each: KINDS[each] if each else "any",
        )  # fmt: skip
        concept = st.text_input("Concept", key="wanted_concept", live=True, placeholder="digits", width=130)
        state = st.selectbox(
            "State", [ANY, *MemoryState], key="wanted_state", width=110, format_func=lambda each: each or "any"
        )
    return Query(
        text=text or "",
        layer=int(layer) if layer else None,
        pattern=TriggerPattern(kind) if kind else None,
        concept=concept or "",
        state=MemoryState(state) if state else None,
    )


def steps(listed: Sequence[str], memory: Memory) -> None:
    """Buttons to the memories before and after this one among those that were found."""
    name = memory_name(*memory)
    at = listed.index(name) if name in listed else -1
    before, after = (listed[at - 1] if at > 0 else None), (listed[at + 1] if at + 1 < len(listed) else None)
    with st.container(horizontal=True, gap="small"):
        for said, key, other in (("Previous", "K", before), ("Next", "J", after)):
            st.button(
                said, key=f"memory_{said.lower()}", shortcut=key, disabled=other is None, on_click=_open, args=(other,)
            )


def _open(name: str) -> None:
    st.session_state["memory"] = name
