"""What a saved result adds to the logs: models drawn at initialization, and the checkpoint on held-out text."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from analyses.gradients import panel_figures as figures
from analyses.gradients.panel_figures import Rows, records
from analyses.gradients.panels import (
    checkpoint_frame,
    checkpoint_ratio_frame,
    depth_frame,
    matrix_profile_frame,
    scaling_frame,
    stream_profile_frame,
)
from analyses.gradients.tables import GRADIENT, MEAN_SQUARE
from analyses.results import SavedResult
from apps.dashboard import components, data, panels, snippets
from apps.dashboard.address import Part, choice_of, restore, write
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel, about_saved

LEAST = 360
"""Pixels of a figure with its legend beside it, at least."""


def checkpoint(saved: SavedResult) -> None:
    """Gradients on held-out text, beside those of step 0."""
    found = saved.result.checkpoint
    if found is None:
        components.caption("Nothing was measured at the checkpoint: the run holds too little text out.")
        return
    n, unit = found.n_sequences, "held-out sequences"
    left, right = components.beside(2, LEAST)
    layers, ratios = _records(saved, checkpoint_frame), _records(saved, checkpoint_ratio_frame)
    with left:
        panel = _panel(
            saved,
            "checkpoint-layers",
            "Gradient of the weights over layers",
            checkpoint_frame,
            n=n,
            unit=unit,
        )
        said = f"|dL/dW| by layer at step {found.now.step:,}" + ("" if found.initial is None else "; dashed: step 0")
        panels.small(panel, figures.layers_figure(layers, GRADIENT), said)
    with right:
        panel = _panel(
            saved,
            "checkpoint-ratio",
            "The stream's gradient, bottom over top",
            checkpoint_ratio_frame,
            n=n,
            unit=unit,
        )
        said = f"How much of it arrives at the bottom; rules: 95% intervals over {found.n_groups} groups of sequences"
        figure = figures.ratios_figure(ratios)
        panels.small(panel, figure, said)
    pins.offer(title=panel.title, sentences=[f"{said}."], panel=panel, figure=figure)
    components.provenance(saved, f"n = {n} {unit} in {found.n_groups} groups")


def initialization(saved: SavedResult) -> None:
    """Placements by depths over seeds, on models drawn for it."""
    drawn = saved.result.initialization
    if drawn is None:
        components.missing(
            "This result left out the models drawn at initialization, which are the same for every run.",
            "cutaway run gradient-flow",
        )
        return
    seeds = drawn.profiles[0].n_seeds
    depth = _depth([str(each) for each in drawn.depths])
    looks = (
        ("initial-depth", "What depth does", depth_frame, (), "n_layers", GRADIENT,
         ("layers (log)", "|dL/dW_out|, last layer (log)"), "of one token's loss; "),
        ("initial-square", f"Size of the stream, {depth} layers", stream_profile_frame, (depth,), "layer", MEAN_SQUARE,
         ("layer", "mean square"), ""),
        ("initial-w-out", f"Gradient of W_out, {depth} layers", matrix_profile_frame, (depth,), "layer", GRADIENT,
         ("layer", "|dL/dW_out| (log)"), "of the batch's mean loss; "),
        ("initial-stream", f"Gradient of the stream, {depth} layers", stream_profile_frame, (depth,), "layer", GRADIENT,
         ("layer", "|dL/dx| (log)"), "of the batch's mean loss; "),
    )  # fmt: skip
    columns = components.beside(len(looks), LEAST, in_a_row=2)
    for column, (key, title, frame, given, x, y, titles, of) in zip(columns, looks, strict=True):
        panel = _panel(saved, key, title, frame, *given, n=seeds, unit="seeds")
        figure = figures.seeds_figure(_records(saved, frame, *given), x, y, titles, log=y != MEAN_SQUARE)
        said = f"{of}thin: a seed, thick: the geometric mean"
        with column:
            panels.small(panel, figure, said)
        if key == "initial-depth":
            pins.offer(title=f"{title}, at initialization", sentences=[f"{said}."], panel=panel, figure=figure)
    components.caption(
        f"n = {seeds} seeds from {saved.result.seed}", f"{drawn.n_tokens} random tokens each",
        "models drawn for it, not this run",
        "Xavier weights, embeddings of unit variance",
    )  # fmt: skip
    rows = _panel(saved, "initial-scaling", "Exponents and slopes by placement", scaling_frame, n=seeds, unit="seeds")
    panels.table(
        rows,
        shown=with_ends(rows.rows()),
        alt="Exponents in depth and slopes over layers for each placement, with 95% intervals over seeds",
        height="content",
    )
    components.caption(
        "exponent of the gradient in depth: Xiong et al. 2020, theorem 1, has 0 for post and -1/2 for pre (one token)",
        f"95% intervals over the {seeds} seeds",
    )  # fmt: skip


def with_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Every number together with its interval in one column: in three, the last ones would be cut off."""
    shown = pd.DataFrame(index=rows.index)
    for name in rows.columns:
        ends = [f"{name}, {end}" for end in ("low", "high")]
        if set(ends) <= set(rows.columns):
            three = zip(rows[name], *(rows[end] for end in ends), strict=True)
            shown[name] = [f"{mean:.3g} [{low:.3g}, {high:.3g}]" if mean == mean else "" for mean, low, high in three]
        elif not name.endswith((", low", ", high")):
            shown[name] = rows[name]
    return shown


def _depth(depths: list[str]) -> int:
    part = Part(name="depth", key="gradient_depth", read=choice_of(depths, "depth"), otherwise=depths[-1])
    for notice in restore([part]):
        st.warning(components.literal(notice), icon=":material/link_off:")
    if st.session_state.get(part.key) not in depths:
        st.session_state[part.key] = depths[-1]
    chosen = st.segmented_control(
        "Layers of the drawn models", depths, key=part.key, required=True, on_change=write, args=([part],)
    )  # before the page is drawn: the tab that goes without saying depends on this part of the address
    write([part])
    return int(str(chosen))


def _panel(
    saved: SavedResult, key: str, title: str, frame: Callable[..., pd.DataFrame], *given: int, n: int, unit: str
) -> Panel:
    """A panel whose rows are `frame(result, *given)`, here and in its snippet."""
    called = ", ".join(["result", *map(str, given)])
    return Panel(
        key=key,
        title=title,
        rows=lambda: frame(saved.result, *given),
        about=about_saved(saved, n=n, unit=unit),
        python=snippets.saved_result(
            saved,
            f"rows = {frame.__name__}({called})",
            imports=[f"from analyses.gradients.panels import {frame.__name__}"],
        ),
    )


def _records(saved: SavedResult, frame: Callable[..., pd.DataFrame], *given: int) -> Rows:
    return _remembered(saved, frame, frame.__name__, given, *data.identity(saved))


@st.cache_resource(max_entries=64, show_spinner=False)
def _remembered(
    _saved: SavedResult, _frame: Callable[..., pd.DataFrame], name: str, given: tuple[int, ...], folder: str, stamp: int
) -> Rows:
    del name, folder, stamp
    return records(_frame(_saved.result, *given))
