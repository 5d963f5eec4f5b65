"""Finding a memory: a search over all of them, and a table in which a click opens one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from analyses.exports import plain
from analyses.ffn_memories import Result
from analyses.memories.matches import address_of
from analyses.memories.search import MemoryState, Query
from analyses.memories.tables import Memory, kind_name
from analyses.results import SavedResult, from_here
from analyses.views import visible
from apps.dashboard import components, data, keys, panels
from apps.dashboard.address import Part, choice_of, restore, write
from apps.dashboard.panels import Panel, about_saved
from apps.dashboard.state import memory_name
from interp.pattern_kinds import TriggerPattern
from interp.places import parse_place
from model.errors import CutawayError

LIMIT = 200
"""Memories listed at most: more are better searched than scrolled."""

FEW, HEIGHT = 5, 230
"""Rows that are shown at once; with more the table scrolls, in so many pixels that the cut row says so."""

ANY = ""

WIDTHS = {"memory": 76, "kind": 104, "fires on": 68, "then": 56, "agrees": 64}
"""Pixels of columns whose content is short: what matters most comes first, where a narrow window shows it."""

HELPS = {
    "kind": "what its top triggers have in common, so what it does at its largest",
    "fires on": "share of prefixes with a coefficient above zero",
    "then": "the token that followed its top trigger",
    "promotes": "the tokens whose logits its value raises most",
    "agrees": "ticked where the token that its value promotes most is the one that followed its top trigger",
}
"""What columns mean, for who points at their names."""


def draw(saved: SavedResult) -> list[str]:
    """The search and the memories it finds; the names of those listed, in order."""
    query = _asked(saved.result)
    n_memories = saved.result.reading.activity.firing_rate.numel()
    try:
        found = data.memories_found(saved, query, LIMIT)
    except CutawayError as error:  # a memory or a concept that there is not
        components.unasked(error)
        return []
    for note in found.notes:
        components.caption(note)
    order = "the best match first" if query.text else "the surest value first, those that never fired last"
    if not found.rows:
        components.caption(f"none of {n_memories:,} memories is like that")
        return []
    panel = Panel(
        key="memory_rows", title="Memories that were found", rows=lambda: pd.DataFrame(found.rows),
        about=about_saved(
            saved, n=found.n, unit="memories found", of=n_memories, prefixes=saved.result.n_prefixes,
            query=_given(query),
        ),
        python=_python(saved, query),
    )  # fmt: skip
    with st.container(key="memory_table"):
        panels.table(
            panel, shown=_shown(found.rows), pick="memory", alt=f"{found.n} memories found", widths=WIDTHS,
            helps=HELPS, height=HEIGHT if len(found.rows) > FEW else "content",
        )  # fmt: skip
    listed = [str(row["memory"]) for row in found.rows]
    many = f"the first {len(listed)} of {found.n:,} found" if found.n > len(listed) else f"{found.n:,} found"
    components.caption(f"{many}, of {n_memories:,} memories", order, "click a row to open one, or step with J and K")
    return listed


def _given(query: Query) -> dict[str, Any]:
    """What is asked for, without what is not."""
    return {name: value for name, value in asdict(query).items() if value not in ("", None)}


def _python(saved: SavedResult, query: Query) -> str:
    words = ", ".join(f"{name}={plain(value)!r}" for name, value in _given(query).items())
    return (
        "from pathlib import Path\n\nimport pandas as pd\n\nfrom analyses.memories.index import read_index\n"
        "from analyses.memories.search import Query, found_rows, search\n\n"
        f"index = read_index(Path({str(from_here(saved.path))!r}))\n"
        f"found = search(index, Query({words}))\nrows = pd.DataFrame(found_rows(index, found, {LIMIT}))\n"
    )


def _shown(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows as a table: of triggers their ends, of tokens every character to be seen."""
    shown = [
        {
            "memory": row["memory"],
            "kind": str(row["pattern"]).replace("_", " "),
            "fires on": f"{row['firing rate']:.1%}",
            "ends in": _end(visible(row["trigger"])),
            "then": visible(row["next"]) if row["next"] else "",
            "promotes": " ".join(map(visible, row["promotes"])),
            "found in": row["why"],
            "concept": row["concept"] or "",
            "agrees": row["agrees"],
        }
        for row in rows
    ]
    asked = any(row["found in"] for row in shown)
    return pd.DataFrame(shown, columns=None if asked else [name for name in shown[0] if name != "found in"])


def _end(text: str, longest: int = 28) -> str:
    return text if len(text) <= longest else "…" + text[1 - longest :]


def _parts(n_layers: int) -> dict[str, Part]:
    """The inputs of the search by their names in the address."""
    reads: dict[str, tuple[str, Callable[[str], str]]] = {
        "find": ("wanted", str),
        "layer": (f"wanted_layer_{n_layers}", choice_of([*map(str, range(n_layers))], "layer")),
        "pattern": ("wanted_kind", choice_of(list(TriggerPattern), "pattern")),
        "concept": ("wanted_concept", str),
        "state": ("wanted_state", choice_of(list(MemoryState), "state of a memory")),
    }
    return {name: Part(name=name, key=key, read=read) for name, (key, read) in reads.items()}


def searched_in(result: Result) -> Memory | None:
    """The memory whose address stands in the search, if one does and there is such a one."""
    address = address_of(str(st.session_state.get("wanted") or ""))
    n_layers, n_memories = result.reading.activity.firing_rate.shape
    return address if address is not None and address[0] < n_layers and address[1] < n_memories else None


def _asked(result: Result) -> Query:
    """What is looked for: one text, and what else a memory must be."""
    n_layers = result.n_layers
    parts, searched = _parts(n_layers), partial(_searched, result)
    for notice in restore(list(parts.values())):
        st.warning(components.literal(notice), icon=":material/link_off:")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        text = st.text_input(
            "Search", key="wanted", live=True, type="search", on_change=_open_address, args=(result,),
            placeholder="a token, the end of a trigger, or L1M37",
        )  # fmt: skip
        layer = st.selectbox(
            "Layer", [ANY, *map(str, range(n_layers))], key=parts["layer"].key, width=90, on_change=searched,
            format_func=lambda each: each or "any",
        )  # fmt: skip
        kind = st.selectbox(
            "Pattern of its triggers", [ANY, *TriggerPattern], key="wanted_kind", width=250, on_change=searched,
            format_func=lambda each: kind_name(TriggerPattern(each)) if each else "any",
        )  # fmt: skip
        concept = st.text_input(
            "Concept", key="wanted_concept", live=True, placeholder="digits", width=130, on_change=searched
        )
        state = st.selectbox(
            "State", [ANY, *MemoryState], key="wanted_state", width=110, on_change=searched,
            format_func=lambda each: each or "any",
        )  # fmt: skip
    write(list(parts.values()))
    keys.focus("/", "search the memories", "wanted")
    return Query(
        text=text or "",
        layer=int(layer) if layer else None,
        pattern=TriggerPattern(kind) if kind else None,
        concept=concept or "",
        state=MemoryState(state) if state else None,
    )


def _open_address(result: Result) -> None:
    """Open the memory whose address was typed; of one that there is not the search says so."""
    address = searched_in(result)
    if address is not None:
        _open(memory_name(*address))
    else:
        _searched(result)


def _searched(result: Result) -> None:
    """Let go of the memory that was chosen before this search, so that the best hit is open until one is chosen.

    A search for a memory by its name opens that one, or, where there is none, leaves the open one open; so does a
    search that is emptied.
    """
    if _is_asked(result) and address_of(str(st.session_state.get("wanted") or "")) is None:
        st.session_state["memory"] = ""


def _is_asked(result: Result) -> bool:
    return any(st.session_state.get(part.key) for part in _parts(result.n_layers).values())


def best(listed: Sequence[str], result: Result) -> Memory | None:
    """The best hit of a search; None where nothing is searched for, or nothing was found."""
    place = parse_place(listed[0]) if listed and _is_asked(result) else None
    return None if place is None or place.index is None else (place.layer, place.index)


def steps(listed: Sequence[str], memory: Memory) -> None:
    """Buttons and keys to the memories before and after this one among those that were found."""
    shown, names = memory_name(*memory), list(listed)
    for said, key, way in (("Previous", "K", -1), ("Next", "J", 1)):
        st.button(
            said, key=f"memory_{said.lower()}", disabled=_beside(names, shown, way) is None, on_click=_step,
            args=(names, shown, way), type="tertiary", help=f"{key} does the same",
        )  # fmt: skip
        keys.bind(key, f"{said.lower()} memory of the list", _step, names, shown, way)


def _step(listed: Sequence[str], shown: str, way: int) -> None:
    """Open the next one of those listed; several presses may come before the page is drawn again."""
    other = _beside(listed, str(st.session_state.get("memory") or shown), way)
    if other is not None:
        _open(other)


def _beside(listed: Sequence[str], name: str, way: int) -> str | None:
    """The one after `name`, or before it; of a name that is not listed the first is the next one."""
    at = listed.index(name) + way if name in listed else (0 if way > 0 else -1)
    return listed[at] if 0 <= at < len(listed) else None


def _open(name: str) -> None:
    st.session_state["memory"] = name
