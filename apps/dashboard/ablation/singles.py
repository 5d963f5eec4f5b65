"""Every head alone, by the study that ablated each: two grids to choose heads from, on copying and on text."""

from __future__ import annotations

import streamlit as st

from analyses.ablation.tables import single_rows
from analyses.results import SavedResult
from analyses.shelf import Shelf
from analyses.views import View
from apps.dashboard import components, data, panels, snippets
from apps.dashboard.ablation import harms
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel
from apps.dashboard.state import Selection, head_name
from interp.places import Intervention

STUDY = "head-ablation"
OUTCOMES = {"copy_loss": "on copying", "new_token_loss": "on text, where nothing can be copied"}
DEEP = 8
"""Layers up to which the grids are drawn whole; those of more scroll."""


def draw(run: Run, chosen: Selection, shelf: Shelf) -> SavedResult | None:
    """The grids, or what makes them; the saved result."""
    saved, start = components.on_shelf(STUDY, run, chosen.step, shelf), shelf.at(0)
    if saved is None:
        return None
    result = saved.result
    before = start.result if start is not None and chosen.step != 0 else None
    alone = st.segmented_control(
        "Each head is replaced by its", list(harms.INTERVENTIONS), default=Intervention.MEAN, key="alone",
        required=True, persist_state="session",
    )  # fmt: skip
    deep = run.model is not None and run.model.n_layers > DEEP
    for outcome, title in OUTCOMES.items():
        single = result.single(outcome)
        scale = harms.scale_of(single, alone, result.config.floor)
        grid = harms.grid(
            single, None if before is None else before.single(outcome), alone, scale,
            alpha=result.config.alpha, chosen=head_name(*chosen.head) if chosen.head else None,
            ablated=[place.label for place in chosen.ablate],
        )  # fmt: skip
        panel = Panel(
            key=f"harm_{outcome}",
            title=f"Harm of every head alone, {title}",
            rows=lambda single=single: single_rows(single),
            about=panels.about_saved(saved, n=single.harm.n, unit="sequences", outcome=outcome),
            python=snippets.saved_result(
                saved, f"rows = single_rows(result.single({outcome!r}))",
                imports=["from analyses.ablation.tables import single_rows"],
            ),
        )  # fmt: skip
        with st.container(height=300 if deep else "content", border=False, key=f"singles-{outcome}"):
            panels.show(View.HEAD_GRID, grid, panel)
        if outcome == "copy_loss":  # until something is tested; the test's own offer comes later
            said = [each.sentence for each in data.findings(saved) if each.of_run]
            pins.offer(title=panel.title, sentences=said, panel=panel, view=View.HEAD_GRID, payload=grid)
        components.caption(
            f"n = {single.harm.n} sequences",
            f"95% {single.harm.method} intervals over sequences",
            f"colours to {scale.high:.2g} nats either way: each grid has a scale of its own",
            "small: step 0" if before else "step 0 is not saved",
        )
    components.provenance(saved, f"period {result.period}")
    return saved


def suggested(saved: SavedResult | None) -> str:
    """The induction heads of the study, in the grammar of places; empty where there are none."""
    return "" if saved is None else harms.induction_set(saved.result)
