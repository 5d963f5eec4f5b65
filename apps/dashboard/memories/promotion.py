"""What turning on values of a concept does to what the model writes, by the study memory-promotion."""

from __future__ import annotations

from functools import partial

import streamlit as st

from analyses.promotion.views import turned_on_rows, written_payload, written_rows
from analyses.results import SavedResult
from analyses.views import View
from apps.dashboard import components, data, panels, snippets, telling
from apps.dashboard.data import Run
from apps.dashboard.panels import Panel, about_saved

STUDY = "memory-promotion"


def draw(run: Run, step: int | None) -> None:
    """What was found, the memories that were turned on, and what the model writes with and without them."""
    saved = components.on_shelf(STUDY, run, step, data.shelf(run, STUDY))
    if saved is None:
        return
    result = saved.result
    telling.findings(data.findings(saved))
    with st.grid(2, min_column_width=400, gap=("small", "medium")) as columns:
        with columns.cell():
            st.subheader(f"Turned on for {components.literal(result.concept)}")
            alt = f"Memories that promote {result.concept}"
            panel = _panel(saved, "promoters", alt, partial(turned_on_rows, result), "turned_on_rows")
            panels.table(panel, pick="memory", height="content", alt=alt)
        with columns.cell():
            st.subheader("What it writes, as it is and with them")
            title = f"What it writes with memories of {result.concept} turned on"
            panel = _panel(saved, "written", title, partial(written_rows, result), "written_rows")
            panels.show(View.TOKEN_ROWS, written_payload(result), panel)
    components.provenance(
        saved, f"n = {result.n_prompts} prompts of {result.kind}, {result.n_new_tokens} tokens each",
        f"coefficients: {result.config.strength:g} times their largest", "texts: the first prompts, not chosen ones",
    )  # fmt: skip
    panels.whole_study(saved, n=result.n_prompts, unit=f"prompts of {result.kind}")


def _panel(saved: SavedResult, key: str, title: str, rows: panels.Rows, function: str) -> Panel:
    result = saved.result
    return Panel(
        key=key, title=title, rows=rows,
        about=about_saved(saved, n=result.n_prompts, unit=f"prompts of {result.kind}", strength=result.config.strength),
        python=snippets.saved_result(
            saved, f"rows = {function}(result)", imports=[f"from analyses.promotion.views import {function}"]
        ),
    )  # fmt: skip
