"""How the layer of a memory composes its prediction, by the study ffn-composition."""

from __future__ import annotations

from functools import partial

import streamlit as st

from analyses.composition.by_layer import CASES, MEASURES, case_rows, part_rows, parts, points
from analyses.results import SavedResult
from analyses.views.by_layer import READ_AS, by_layer_figure, parts_figure, point_rows
from apps.dashboard import components, data, panels, snippets, telling
from apps.dashboard.data import Run
from apps.dashboard.panels import Panel, about_saved
from model.errors import NotAdditiveError

STUDY = "ffn-composition"

MIN_WIDTH = 200

LIBRARY = "from analyses.composition.by_layer import"


def draw(run: Run, step: int | None, layer: int) -> None:
    """How every layer's prediction comes about, and the chosen one's in numbers."""
    try:
        if run.model is not None:
            run.model.require_additive_stream("Taking a prediction apart into stream and FFN update")
    except NotAdditiveError as error:  # no command would make it
        components.unasked(error)
        return
    saved = components.on_shelf(STUDY, run, step, data.shelf(run, STUDY))
    if saved is None:
        return
    result = saved.result
    with st.grid(4, min_column_width=MIN_WIDTH, gap="small", vertical_alignment="bottom") as grid:
        for measure in MEASURES:
            found = points(result, measure.name)
            panel = _panel(
                saved, f"composition-{measure.name}", measure.title, partial(point_rows, found),
                f"rows = point_rows(points(result, {measure.name!r}))",
                f"{LIBRARY} points", "from analyses.views.by_layer import point_rows",
            )  # fmt: skip
            panels.small(panel, by_layer_figure(found, measure.title, marked=layer), measure.said)
        with grid.cell(column_span=2):
            title = "whose token comes out"
            rows = partial(part_rows, result)
            panel = _panel(saved, "composition-parts", title, rows, "rows = part_rows(result)", f"{LIBRARY} part_rows")
            said = "The token that comes out of a layer was the stream's, is the FFN update's own, both, or neither's"
            panels.small(panel, parts_figure(parts(result), list(CASES.values()), title), said)
        with grid.cell(column_span=2):
            title, python = f"whose token layer {layer}'s is", f"rows = case_rows(result, {layer})"
            rows = partial(case_rows, result, layer)
            panel = _panel(saved, "composition-cases", title, rows, python, f"{LIBRARY} case_rows")
            panels.table(panel, alt=f"Whose token layer {layer}'s is", height="content")
    units = f"rules: 95% intervals over {result.n_units} {result.unit}"
    components.caption(
        *READ_AS, units, "permuted: a control, the layer's values handed out anew among its memories",
        "other: its update at another prefix",
        None if result.at_step_zero is not None else "step 0 was not read",
    )  # fmt: skip
    components.provenance(saved, f"n = {result.n_prefixes:,} prefixes of {result.config.split} text")
    telling.findings(data.findings(saved))
    panels.whole_study(saved, n=result.n_prefixes, unit="prefixes")


def _panel(saved: SavedResult, key: str, title: str, rows: panels.Rows, python: str, *imports: str) -> Panel:
    result = saved.result
    about = about_saved(saved, n=result.n_prefixes, unit="prefixes", intervals_over=f"{result.n_units} {result.unit}")
    return Panel(
        key=key, title=title, rows=rows, about=about, python=snippets.saved_result(saved, python, imports=imports)
    )
