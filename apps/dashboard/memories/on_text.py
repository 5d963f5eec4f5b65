"""A memory on the text of the sidebar: its coefficient at every token, and which memories write most at one."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from analyses.memories.on_text import coefficient_payload, coefficient_rows, writing_rows
from analyses.memories.tables import Memory
from analyses.results import SavedResult
from analyses.views import View, visible
from apps.dashboard import components, panels, passes, snippets
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel, about_live
from apps.dashboard.state import Selection, memory_name
from interp.live import LiveText
from model.errors import CutawayError


def draw(run: Run, chosen: Selection, memory: Memory, saved: SavedResult | None) -> None:
    """The memory's coefficient at every token of the text of the sidebar, and which memories write most at one."""
    try:
        tokens, source = passes.text(run, chosen)
        values = passes.coefficients(run, chosen, memory[0])[:, memory[1]]
    except CutawayError as error:  # the text or the checkpoint cannot be read; the rest of the page can
        components.damaged(error)
        return
    name, text = memory_name(*memory), f"{chosen.text.value!r}, {chosen.prompt!r}"
    about = about_live(
        run, chosen.step, n=len(tokens), unit="tokens", seed=0 if chosen.text is LiveText.REPEATS else None,
        text=source, prompt=chosen.prompt if chosen.text is LiveText.PROMPT else None,
    )  # fmt: skip
    panel = Panel(
        key="on_text", title=f"{name} on a text", rows=partial(coefficient_rows, tokens, values),
        about=about | {"memory": name},
        python=snippets.opened(
            run, chosen.step, f"tokens, source = live_tokens(lab, {text})",
            f"values = coefficients(lab, {text}, {memory[0]})[:, {memory[1]}]",
            "rows = coefficient_rows(lab.str_tokens(tokens), values)",
            imports=["from analyses.memories.on_text import coefficient_rows",
                     "from interp.live import coefficients, live_tokens"],
        ),
    )  # fmt: skip
    at = chosen.position_in(len(tokens))
    payload = coefficient_payload(tokens, values, at)
    panels.show(View.TOKEN_ROWS, payload, panel)
    pins.offer(title=panel.title, sentences=[f"{source}."], panel=panel, view=View.TOKEN_ROWS, payload=payload)
    components.caption(source, f"{run.name}@{chosen.step}")
    key = f"written_at_{len(tokens)}"
    st.session_state[key] = len(tokens) - 1 if at is None else at
    position = st.selectbox(
        "Memories that write most at", range(len(tokens)), key=key, on_change=_look_at, args=(key,),
        format_func=lambda at: f"{at}  {visible(tokens[at])}", width=260,
    )  # fmt: skip
    panels.table(
        _writing(run, chosen, position, saved, about | {"position": position}, text),
        pick="memory", height="content", alt="Memories that write most there",
    )  # fmt: skip
    components.caption(
        "written: |m| |v|, in stream units", "share: of all that its layer's memories write there", source
    )


def _look_at(key: str) -> None:
    """Choose the position, for the other pages too."""
    st.session_state["token"] = str(st.session_state[key])


def _writing(
    run: Run, chosen: Selection, position: int, saved: SavedResult | None, about: dict[str, Any], text: str
) -> Panel:
    found = passes.writing(run, chosen, position)
    lines = f"found = writing_memories(lab, {text}, {position})"
    imports = [
        "from analyses.memories.on_text import writing_rows",
        "from interp.live_memories import writing_memories",
    ]
    if saved is None:
        python = snippets.opened(run, chosen.step, lines, "rows = writing_rows(found, None)", imports=imports)
    else:
        python = snippets.opened_with(
            saved, run, chosen.step, lines, "rows = writing_rows(found, result)", imports=imports
        )
    rows = partial(writing_rows, found, None if saved is None else saved.result)
    title = f"Memories that write most at position {position}"
    return Panel(key=f"writing-{position}", title=title, rows=rows, about=about, python=python)
