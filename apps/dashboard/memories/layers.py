"""The layers of a result of ffn-memories at a glance: one small figure for each quantity, and a table of all."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from analyses.ffn.by_layer import CONFIDENCE, CONFIDENCE_SAID, MEASURES, by_confidence, kind_rows, kinds, points
from analyses.ffn.tables import layer_rows
from analyses.ffn_memories import Result
from analyses.memories.tables import KINDS, kind_name
from analyses.results import SavedResult
from analyses.views.by_layer import READ_AS, by_layer_figure, parts_figure, point_rows
from apps.dashboard import components, panels, snippets
from apps.dashboard.panels import Panel, about_saved

MIN_WIDTH = 200
"""Pixels below which a figure moves to the next line."""

POINTS = "from analyses.views.by_layer import point_rows"


def draw(saved: SavedResult, marked: int | None) -> None:
    """Every panel, how to read them, where they come from, and the same numbers as a table."""
    result = saved.result
    about = about_saved(saved, n=result.n_prefixes, unit="prefixes", windows=result.n_windows)
    with st.grid(4, min_column_width=MIN_WIDTH, gap="small", vertical_alignment="bottom") as grid:
        for measure in MEASURES:
            found = points(result, measure.name)
            panel = Panel(
                key=f"layers-{measure.name}", title=measure.title, rows=partial(point_rows, found), about=about,
                python=snippets.saved_result(
                    saved, f"rows = point_rows(points(result, {measure.name!r}))",
                    imports=["from analyses.ffn.by_layer import points", POINTS],
                ),
            )  # fmt: skip
            panels.small(panel, by_layer_figure(found, measure.title, marked=marked), measure.said)
        with grid.cell(column_span=2):
            _kinds(saved, about)
        with grid.cell(column_span=2):
            _confidence(saved, about)
    components.caption(*READ_AS, *rests_on(result), without_step_zero(result))
    components.provenance(
        saved, f"n = {result.n_prefixes:,} prefixes of {result.config.split} text in {result.n_windows:,} windows"
    )
    box = st.expander("Layers as a table", key="layers-table", on_change="rerun", type="compact")
    if box.open:
        with box:
            panel = Panel(
                key="layers", title="The memories of each layer", rows=lambda: pd.DataFrame(layer_rows(result)),
                about=about,
                python=snippets.saved_result(
                    saved, "rows = pd.DataFrame(layer_rows(result))",
                    imports=["import pandas as pd", "from analyses.ffn.tables import layer_rows"],
                ),
            )  # fmt: skip
            panels.table(panel, alt="Agreement, triggers and activity by layer, beside step 0")


def _kinds(saved: SavedResult, about: dict[str, Any]) -> None:
    result, title = saved.result, "what triggers share"
    shares = kinds(result)
    there = {kind for _, kind, _ in shares}
    python = snippets.saved_result(
        saved, "rows = kind_rows(result)", imports=["from analyses.ffn.by_layer import kind_rows"]
    )
    panel = Panel(key="layers-kinds", title=title, rows=partial(kind_rows, result), about=about, python=python)
    said = ", ".join(kind_name(kind) for kind in KINDS if kind.value in there)
    panels.small(panel, parts_figure(shares, [kind.value for kind in KINDS], title), said)


def _confidence(saved: SavedResult, about: dict[str, Any]) -> None:
    title, found = "agreement by how sure values are", list(by_confidence(saved.result))
    python = snippets.saved_result(
        saved, "rows = point_rows(by_confidence(result))",
        imports=["from analyses.ffn.by_layer import by_confidence", POINTS],
    )  # fmt: skip
    panel = Panel(
        key="layers-confidence", title=title, rows=partial(point_rows, found), about=about | {"layer": CONFIDENCE},
        python=python,
    )  # fmt: skip
    panels.small(panel, by_layer_figure(found, title, axis=CONFIDENCE), CONFIDENCE_SAID)


def rests_on(result: Result) -> tuple[str, str]:
    """What the intervals are over, and how many of these there are; and what the grey ones are."""
    summary = result.reading.summary
    layers, cut = summary.layers, [each.last_beats_first for each in summary.layers]
    over = [
        f"that ever fired (n = {_span(each.agreement.n for each in layers)})",
        f"all for concepts (n = {_span(each.concepts.n for each in layers)})",
        *([f"a sample for cut triggers (n = {_span(each.n for each in cut if each is not None)})"] if any(cut) else []),
        f"tenths of those of all layers (n = {_span(each.agreement.n for each in summary.confidence)})",
    ]
    by_layer = _span(each.agreement.n_permutations for each in layers)
    by_tenth = _span(each.agreement.n_permutations for each in summary.confidence)
    directions = _span(each.concepts.n_random for each in layers)
    return (
        f"rules: 95% intervals over the memories of a layer {', '.join(over)}",
        f"grey rules: 95% of {by_layer} permutations of next tokens by layer, of {by_tenth} by tenth; "
        f"for concepts, intervals over {directions} random directions",
    )


def _span(counts: Iterable[int]) -> str:
    """One number, or from the least to the most."""
    every = sorted(counts)
    if not every:
        return "0"
    return f"{every[0]:,}" if every[0] == every[-1] else f"{every[0]:,} to {every[-1]:,}"


def without_step_zero(result: Result) -> str | None:
    """Why there is nothing beside the checkpoint, if there is not."""
    if result.initial is not None:
        return None
    return "this is step 0" if result.step == 0 else "step 0 of this run was not read, so nothing stands beside"
