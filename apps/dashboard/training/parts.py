"""The parts of the page of training: lines above one axis, the grid through training, and what formed when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from analyses import training_curve
from analyses.attention.kinds import Kind
from analyses.attention.stimuli import Stimulus
from analyses.dynamics.axis import PICKED, Time, looked_at
from analyses.dynamics.lines import OTHER, position_figure
from analyses.dynamics.result import Result
from analyses.dynamics.tables import loss_rows, position_rows, runs_together, score_rows
from analyses.dynamics.wording import unseen
from analyses.heads.scores import meaning_of, score_title
from analyses.results import SavedResult, from_here
from apps.dashboard import components, data, panels, snippets
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared
from apps.dashboard.state import Selection
from apps.dashboard.training import asked, specs
from apps.dashboard.training.saved import STUDY, furthest, saved_for


@dataclass(frozen=True)
class Spelled:
    """What makes the rows of one run, and the same as it is typed."""

    rows_of: Callable[[Result], pd.DataFrame]
    text: str

    @property
    def imports(self) -> str:
        """What it needs of the module of tables."""
        name = next(each for each in ("score_rows", "loss_rows", "formation_rows") if each in self.text)
        return ", ".join(sorted((name, "runs_together")))


TABLES = "from analyses.dynamics.tables import {}"


def result_to_show(run: Run, step: int | None) -> SavedResult | None:
    """The result that is drawn; what is missing, damaged or of another step is said."""
    components.faults(STUDY, run, step)
    saved = saved_for(run, step) or furthest(run)
    if saved is None and len(run.steps) == 1:
        components.missing(f"{run.name} has one checkpoint, so nothing can be seen to form; its heads are on Heads.")
    elif saved is None:
        components.missing(
            f"Every checkpoint on the same sequences is what {STUDY} looks at; there is no result yet.",
            f"cutaway run {STUDY} {data.spelled(run)}",
        )
    elif step not in saved.result.steps:
        reached = f"{len(saved.result.steps)} checkpoints up to step {saved.result.step:,}"
        components.missing(
            f"The result below looked at {reached}, and not at step {step}.",
            f"cutaway run {STUDY} {data.spelled(run)}",
        )
    return saved


def other_to_lay_over(compared: Compared | None, run: Run) -> SavedResult | None:
    """The result of another run to be drawn over this one's; the command where there is none."""
    if compared is None or compared.run.name == run.name:
        return None
    found_there = saved_for(compared.run, compared.step) or furthest(compared.run)
    if found_there is None:
        components.faults(STUDY, compared.run, compared.step, commands=False)
        components.missing(
            f"{compared.run.name} has no result of {STUDY} to be laid over this one.",
            f"cutaway run {STUDY} {data.spelled(compared.run)}",
        )
    return found_there


def logged_curves(run: Run) -> None:
    """What training itself logged, where no study looked at the checkpoints."""
    rows = data.metrics(run)
    if not rows or run.model is None:
        said = training_curve.untold(run.name, run.imported_from) if run.imported_from else None
        components.missing(said or f"{run.name} has logged nothing: there is no metrics.jsonl to draw.")
        return
    folder = str(from_here(run.path))
    panel = Panel(
        key="logged",
        title=f"Loss of {run.name} as training logged it",
        rows=lambda: training_curve.table(rows),
        about=panels.about_live(run, run.steps[-1] if run.steps else None, n=len(rows), unit="logged steps"),
        python="from analyses import training_curve\nfrom model.lab import read_metrics\n\n"
        f"rows = training_curve.table(read_metrics({folder!r}))\n",
    )
    curve = training_curve.figure(rows, d_vocab=run.model.d_vocab, name=run.name)
    panels.chart(panel, curve, alt=panel.title, width="stretch")
    components.caption(f"{len(rows):,} logged steps", "metrics.jsonl", "one batch each; no intervals")


def lines(
    saved: SavedResult, other: SavedResult | None, run: Run, chosen: Selection, compared: Compared | None
) -> tuple[Kind, Stimulus]:
    """Losses, the in-context-learning score and one score of every head, above one another; a click picks a step."""
    result = saved.result
    time = specs.time_of(saved, other, asked.axis())
    beside = compared.step if compared is not None and compared.run.name == run.name else None
    on_copies = f"n = {result.repeats.n_sequences} sequences of period {result.repeats.period}{unseen(result)}"

    st.subheader("Loss")
    losses = panel_of(
        saved, other, "losses", "Losses over training", Spelled(loss_rows, "loss_rows"), n=result.repeats.n_sequences
    )
    _draw(losses, specs.losses(saved, other, time), result, time, chosen.step, beside)
    text = result.losses.get("text_loss")
    components.caption(
        on_copies, None if text is None else f"text: n = {text.intervals.n} held-out rows", "bands: 95% over sequences",
        *_rests_on(saved, other),
    )  # fmt: skip

    if "icl_score" in result.losses:
        st.subheader("In-context learning on text")
        icl = panel_of(saved, other, "icl", "In-context-learning score over training", Spelled(loss_rows, "loss_rows"),
                     n=result.losses["icl_score"].intervals.n, unit="held-out rows")  # fmt: skip
        _draw(icl, specs.icl(saved, other, time), result, time, chosen.step, beside)
        components.caption("late minus early loss in a row of text: below 0, more context helps",
                           f"n = {result.losses['icl_score'].intervals.n} held-out rows",
                           *_rests_on(saved, other))  # fmt: skip

        _by_position(saved, chosen.step)

    st.subheader("Every head")
    kind, reading = asked.score(result)
    told = result.readings[reading.value]
    call = Spelled(
        lambda each: score_rows(each, kind, reading),
        f"lambda each: score_rows(each, {kind.value!r}, {reading.value!r})",
    )
    title = f"{score_title(kind.value)} of every head over training"
    over = other if other is not None and has(other.result, kind, reading) else None
    panel = panel_of(saved, over, "head_lines", title, call, n=told.n_sequences,
                   kind=kind.value, on=told.title)  # fmt: skip
    spec = specs.heads(saved, over, time, kind, reading, chosen.head)
    _draw(panel, spec, result, time, chosen.step, beside)
    components.caption(
        f"{meaning_of(kind.value, reading)}, on {told.title}",
        f"n = {told.n_sequences} sequences of {told.n_pos} tokens",
        "points: checkpoints",
        "bands: 95% over sequences",
        _formed("shaded", result, time.stretch),
        None if other is None else _formed("outlined", other.result, time.other_stretch),
        "click a figure to choose a checkpoint",
    )
    if other is not None and over is None:
        components.caption(f"{other.result.run} was not measured on these sequences, and is not drawn over them.")
    components.provenance(saved, f"one training seed ({result.training_seed})", data.settings_of(saved))
    if other is not None:
        shown = other.result.readings.get(reading.value)
        components.provenance(other, f"dashed, {OTHER}: {other.result.run}", None if shown is None else shown.title)
    first = next((each for each in data.findings(saved) if each.found), None)
    pins.offer(title=title, sentences=() if first is None else (first.sentence,), panel=panel, figure=spec)
    return kind, reading


def _formed(drawn: str, result: Result, stretch: tuple[int, int] | None) -> str | None:
    """Which stretch of a figure is whose."""
    if stretch is None:
        return None
    return f"{drawn}: where copying formed in {result.run}, steps {stretch[0]:,} to {stretch[1]:,}"


def _rests_on(saved: SavedResult, other: SavedResult | None) -> list[str]:
    """Runs, checkpoints and seeds behind the lines of a figure."""
    seen = [(each.result, "" if each is saved else "dashed: ") for each in (saved, other) if each is not None]
    return [
        *(
            f"{drawn}{result.run}, {len(result.steps)} checkpoints up to step {result.step:,}"
            + ("" if result.training_seed is None else f", training seed {result.training_seed}")
            for result, drawn in seen
        ),
        f"seed {saved.result.config.seed}",
    ]


def _by_position(saved: SavedResult, step: int | None) -> None:
    """The whole curve that the score is two points of, drawn while it is open."""
    box = st.expander("Loss at every position of a row of text", key="by_position", on_change="rerun")
    if not box.open:
        return
    result: Result = saved.result
    wanted = {result.steps[0], step, result.steps[-1]}
    shown = tuple(each for each in result.steps if each in wanted)
    panel = Panel(
        key="positions",
        title="Loss on text by position",
        rows=lambda: position_rows(result),
        about=panels.about_saved(saved, n=result.losses["text_loss"].intervals.n, unit="held-out rows"),
        python=snippets.saved_result(saved, "rows = position_rows(result)", imports=[TABLES.format("position_rows")]),
    )
    with box:
        panels.chart(panel, position_figure(result, shown), alt=panel.title, width="stretch")
        components.caption(f"n = {result.losses['text_loss'].intervals.n} held-out rows", "bands: 95% over rows",
                           *_rests_on(saved, None))  # fmt: skip


def panel_of(
    saved: SavedResult, other: SavedResult | None, key: str, title: str, call: Spelled, *, n: int,
    unit: str = "sequences", **more: Any,
) -> Panel:  # fmt: skip
    """A panel whose rows are those of one run, or of two under one another."""
    several = [saved.result, *([] if other is None else [other.result])]
    lines_of = [f"rows = runs_together([result], {call.text})"]
    if other is not None:
        lines_of = [f"other = load_result({str(from_here(other.path))!r}).result"]
        lines_of += [f"rows = runs_together([result, other], {call.text})"]
    kind, on = more.get("kind"), more.get("on")
    return Panel(
        key=key,
        title=title,
        rows=lambda: runs_together(several, call.rows_of),
        about=panels.about_saved(saved, n=n, unit=unit, **({} if kind is None else {"kind": kind, "on": on})),
        python=snippets.saved_result(saved, *lines_of, imports=[TABLES.format(call.imports)]),
    )


def _draw(panel: Panel, spec: dict[str, Any], result: Result, time: Time, step: int | None, beside: int | None) -> None:
    """A figure with a rule at the step; a click on it picks the nearest checkpoint."""

    def picked() -> None:
        chosen = st.session_state[panel.key].selection.get(PICKED) or []
        if chosen:
            st.session_state["step"] = int(chosen[-1]["step"])
            st.session_state[_NTH] = st.session_state.get(_NTH, 0) + 1

    shown = looked_at(spec, result, time, step=step, beside=beside, nth=st.session_state.get(_NTH, 0))
    panels.chart(panel, shown, alt=f"{panel.title} of {result.run}", width="stretch", on_select=picked)


_NTH = "_training_picks"
"""How many checkpoints were picked in figures."""


def has(result: Result, kind: Kind, reading: Stimulus) -> bool:
    """Whether a score was measured on these sequences."""
    return reading.value in result.readings and kind.value in result.readings[reading.value].scores
