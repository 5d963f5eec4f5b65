"""What a run and its twin logged: whether they may be compared, maps of layer by step, ends of the model, losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from analyses.gradients import panel_figures as figures
from analyses.gradients.fairness import fairness_rows, unfair
from analyses.gradients.panels import (
    BOTTOM_TO_TOP,
    RMS,
    logged_step,
    loss_frame,
    matrix_kinds,
    matrix_map_frame,
    ratio_frame,
    size_map_frame,
    stream_map_frame,
    stream_slice_frame,
)
from analyses.gradients.runs import TrainingMap
from analyses.gradients.tables import GRADIENT
from apps.dashboard import components, data, panels
from apps.dashboard.address import Part, choice_of, restore, write
from apps.dashboard.findings import pins
from apps.dashboard.gradients.source import Logs, candidates
from apps.dashboard.panels import Panel

PROBE = "held-out sequences"

THIRD, HALF = 230, 270
"""Pixels of figures that stand in threes or twos, at least."""


def fairness(logs: Logs) -> None:
    """Whether they may be compared, in words; the checklist, while it is open."""
    if logs.twin is None:
        _no_twin(logs)
        return
    first, second = (run.path for run in logs.runs)
    rows = _fairness(str(first), str(second), data_stamp(logs))
    wrong = unfair(rows)
    names = f"{logs.run.name} and {logs.twin.name}"
    if wrong:
        st.warning(
            f"{components.literal(names)} differ, or cannot be compared, in: {', '.join(wrong)}.",
            icon=":material/balance:",
        )
    else:
        st.text(f"{names} differ in the placement of the norms and in nothing else that shapes training.")
    box = st.expander(f"What they share: {len(rows)} settings and weights", key="fairness", on_change="rerun",
                      type="compact")  # fmt: skip
    if box.open:
        with box:
            _shared(logs, rows)


def _shared(logs: Logs, rows: pd.DataFrame) -> None:
    """The checklist."""
    assert logs.twin is not None
    panel = logs.panel(
        "fairness", "What the two runs share", lambda: rows, "rows = fairness_rows(*runs)", n=2, unit="runs",
        from_maps=False,
    )  # fmt: skip
    shown = rows.rename(columns={"first": logs.run.name, "second": logs.twin.name})
    panels.table(
        panel, shown=shown, alt="Settings and initial weights that both runs share, or differ in", height="content"
    )
    components.caption("n = 2 runs, one seed each", "read from run.json of both, and from the weights of step 0")


def _no_twin(logs: Logs) -> None:
    run = data.spelled(logs.run)
    others = candidates(logs.run)
    if others:
        named = ", ".join(other.name for other in others)
        said = (
            f"Shown without a twin, though {named} differs in nothing but its norms: choose it under Compare with, or:"
        )
        components.missing(said, f"cutaway run gradient-flow {run} --set twin={data.spelled(others[0])}")
    else:
        said = f"Shown without a twin: no run here is {logs.run.name} with other norms. Train one so, and name it:"
        components.missing(said, f"cutaway run gradient-flow {run} --set twin=RUN")


def maps(logs: Logs, said: tuple[str, ...]) -> None:
    """The stream's gradient, layer by step, of both on one colour scale; P keeps them side by side with `said`."""
    n = int(logs.train("probe_sequences") or 0)
    drawn, panel = _pair(logs, "stream-map", "|dL/dx|", GRADIENT, stream_map_frame, n=n, unit=PROBE)
    components.caption(
        f"n = {n} {PROBE}, the same at every step", _seed(logs), "one colour scale", "dashed: the selected step",
        _steps_logged(logs.maps),
    )  # fmt: skip
    title = f"Gradient of the stream in {_names(logs)}"
    pins.offer(title=title, sentences=said, panel=panel, figure=figures.side_by_side(drawn))


def matrices(logs: Logs) -> None:
    """The gradients of the weights, of one kind of matrix or all."""
    kinds = ["all", *matrix_kinds(logs.maps)]
    usual = "W_out" if "W_out" in kinds else "all"
    part = Part(name="matrix", key="gradient_matrix", read=choice_of(kinds, "matrix"), otherwise=usual)
    for notice in restore([part]):
        st.warning(components.literal(notice), icon=":material/link_off:")
    if st.session_state.get(part.key) not in kinds:
        st.session_state[part.key] = usual
    chosen = str(
        st.segmented_control(
            "Weights", kinds, key=part.key, required=True, label_visibility="collapsed", on_change=write, args=([part],)
        )
    )  # the tab that goes without saying depends on this part of the address, so it is written before the page is drawn
    write([part])
    matrix = "" if chosen == "all" else chosen
    n, unit = _trained_on(logs)
    title = f"|dL/d{matrix or 'W'}|"
    drawn, panel = _pair(logs, "matrix-map", title, GRADIENT, matrix_map_frame, matrix, n=n, unit=unit)
    pins.offer(title=f"{title} in {_names(logs)}", panel=panel, figure=figures.side_by_side(drawn))
    components.caption(f"n = {n} sequences: each step's own batch, before clipping", _seed(logs), "one colour scale")


def sizes(logs: Logs) -> None:
    """The size of the stream, layer by step."""
    n = int(logs.train("probe_sequences") or 0)
    _pair(logs, "size-map", "size of x", RMS, size_map_frame, n=n, unit=PROBE)
    components.caption(
        f"root mean square of x over n = {n} {PROBE}, all positions together (the logs do not tell position 0 apart)",
        _seed(logs), "one colour scale",
    )  # fmt: skip


def at_step(logs: Logs) -> None:
    """Slices through the maps at the selected step."""
    step = logs.step or 0
    at = ", ".join(f"{each.run}@{logged_step(each, step)}" for each in logs.maps)
    n = int(logs.train("probe_sequences") or 0)
    line = f"rows = stream_slice_frame(maps, {step})"
    both = (
        ("slice-gradient", "Gradient of the stream", GRADIENT, "|dL/dx| (log)"),
        ("slice-size", "Size of the stream", RMS, "root mean square (log)"),
    )
    for column, (key, title, quantity, axis) in zip(components.beside(2, HALF), both, strict=True):
        rows = partial(stream_slice_frame, logs.maps, step)
        panel = logs.panel(key, f"{title} over depth", rows, line, n=n, unit=PROBE)
        figure = figures.places_figure(logs.records(stream_slice_frame, step), quantity, axis)
        with column:
            panels.small(panel, figure, f"{title} from the embedding to the last layer, {at}")
        if quantity == GRADIENT:
            pins.offer(title=f"{panel.title}, {at}", panel=panel, figure=figure)
    components.caption(
        f"n = {n} {PROBE}", _seed(logs), "one seed a run, so no band over seeds", "all positions together"
    )


def ends(logs: Logs) -> None:
    """How the ends of the model compare, over training."""
    kinds = list(dict.fromkeys(row["what"] for row in logs.records(ratio_frame)))
    columns = components.beside(len(kinds), THIRD)
    for number, (column, what) in enumerate(zip(columns, kinds, strict=True)):
        line = f"rows = ratio_frame(maps, {what!r})"
        rows = partial(ratio_frame, logs.maps, what)
        n, unit = _probed(logs) if what == BOTTOM_TO_TOP else _trained_on(logs)
        panel = logs.panel(f"ends-{number}", what, rows, line, n=n, unit=unit)
        with column:
            figure = figures.steps_figure(logs.records(ratio_frame, what), "ratio", "ratio (log)", step=logs.step)
            panels.small(panel, figure, f"at 1 both ends get gradients of one size; n = {n} {unit} at each step")
    components.caption(
        "held-out sequences: the same at every step; training sequences: each step's own batch",
        _steps_logged(logs.maps), _seed(logs), "one seed a run, so no interval over seeds",
    )  # fmt: skip


def losses(logs: Logs) -> None:
    """Losses of both on the same axes."""
    logged = {row["what"] for row in logs.losses()}
    kinds = [what for what in ("held-out text", "training batch", "second copy of random tokens") if what in logged]
    if not kinds:
        components.missing("No loss was logged: there is no metrics.jsonl to draw.")
        return
    for number, (column, what) in enumerate(zip(components.beside(len(kinds), THIRD), kinds, strict=True)):
        rows = partial(loss_frame, *(run.path for run in logs.runs), what=what)
        n = int(logs.train("batch_size" if what == "training batch" else "eval_sequences") or 0)
        line = f"rows = loss_frame(*runs, what={what!r})"
        panel = logs.panel(f"loss-{number}", f"Loss: {what}", rows, line, n=n, unit="sequences", from_maps=False)
        with column:
            figure = figures.steps_figure(logs.losses(what), "loss", "nats per token", log=False, step=logs.step)
            panels.small(panel, figure, f"{what}, n = {n} sequences")
    components.caption(_seed(logs), "one seed a run, so no interval over seeds")


def _pair(
    logs: Logs, key: str, title: str, column: str, frame: Callable[..., pd.DataFrame], *given: str, n: int, unit: str
) -> tuple[list[tuple[str, dict[str, Any]]], Panel]:
    """One map of `frame` for each run, beside one another, on one colour scale; the panel holds both."""
    every = logs.records(frame, *given)
    domain = figures.colour_domain(every, column)
    line = f"rows = {frame.__name__}({', '.join(['maps', *map(repr, given)])})"
    of_both = partial(logs.panel, rows=partial(frame, logs.maps, *given), line=line, n=n, unit=unit)
    drawn = []
    for place, each in zip(components.beside(2, HALF), logs.maps, strict=False):
        own = [row for row in every if row["run"] == each.run]
        name = f"{title}: {each.run} ({each.norm}-norm)"
        figure = figures.map_figure(own, column, domain, step=logs.step)
        with place:
            panels.small(of_both(f"{key}-{each.run}", name), figure, f"{title} by layer and step")
        drawn.append((name, figure))
    return drawn, of_both(key, f"{title} by layer and step")


def _names(logs: Logs) -> str:
    return " and ".join(run.name for run in logs.runs)


def _seed(logs: Logs) -> str:
    seeds = [run.settings["config"]["train"].get("seed") for run in logs.runs]
    return f"seed {seeds[0]}" if len(set(seeds)) == 1 else f"seeds {', '.join(map(str, seeds))}"


def _probed(logs: Logs) -> tuple[int, str]:
    """On how many sequences, and which, the stream's gradients were logged."""
    return int(logs.train("probe_sequences") or 0), PROBE


def _trained_on(logs: Logs) -> tuple[int, str]:
    """The same of the weights' gradients."""
    return int(logs.train("batch_size") or 0) * int(logs.train("accumulate") or 1), "training sequences"


def _steps_logged(maps: list[TrainingMap]) -> str:
    return "; ".join(f"{each.run}: {len(each.steps)} logged steps up to {int(each.steps[-1]):,}" for each in maps)


def data_stamp(logs: Logs) -> int:
    """Changes when the records of the runs do."""
    return sum((run.path / "run.json").stat().st_mtime_ns for run in logs.runs)


@st.cache_data(max_entries=16, show_spinner=False)
def _fairness(first: str, second: str, stamp: int) -> pd.DataFrame:
    del stamp
    return fairness_rows(first, second)
