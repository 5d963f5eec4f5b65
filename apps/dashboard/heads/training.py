"""One score of a head over the checkpoints of its run, from training-dynamics, else from attention-patterns."""

from __future__ import annotations

import pandas as pd

from analyses.attention.kinds import Kind
from analyses.heads.scores import MEANINGS, RANDOM, score_title
from analyses.heads.tables import rows_over_steps
from analyses.results import SavedResult, from_here
from analyses.views.over_steps import over_steps_figure
from apps.dashboard import components, data, panels
from apps.dashboard.data import Run
from apps.dashboard.heads import sources
from apps.dashboard.heads.scores import Asked
from apps.dashboard.panels import Panel
from apps.dashboard.state import Selection, head_name
from interp.places import Head
from model.errors import UnknownNameError

STUDY = "training-dynamics"


def draw(asked: Asked, run: Run, chosen: Selection, head: Head) -> None:
    """The line of the score that the grids show."""
    if asked.name not in set(Kind):
        components.caption(
            f"{score_title(asked.name)} is not followed over training; choose a kind of attention above."
        )
        return
    saved = _saved(run, chosen.step)
    if saved is None or not _from_dynamics(saved, asked, run, chosen, head):
        _from_patterns(asked, run, chosen, head)
    if saved is None:
        components.missing(
            "Every checkpoint, on the same sequences, is what training-dynamics looks at; there is no result yet.",
            f"cutaway run {STUDY} {data.spelled(run, run.steps[-1])}",
        )


def _saved(run: Run, step: int | None) -> SavedResult | None:
    """The newest result of training-dynamics that reaches this step, else the newest at all."""
    if STUDY not in data.STUDIES:
        return None
    every = data.shelf(run, STUDY).results
    return next((saved for saved in reversed(every) if step in saved.result.steps), every[-1] if every else None)


def _from_dynamics(saved: SavedResult, asked: Asked, run: Run, chosen: Selection, head: Head) -> bool:
    """Whether the study follows this score, and if so its line."""
    from analyses.dynamics.tables import head_rows

    name, kind = head_name(*head), asked.name
    reading = next((key for key, each in saved.result.readings.items() if kind in each.scores), None)
    if reading is None:
        return False
    try:
        rows = head_rows(saved.result, kind, reading, head)
    except UnknownNameError:
        return False
    told = saved.result.readings[reading]
    panel = Panel(
        key="over_training",
        title=f"{score_title(kind)} of {name} over training",
        rows=lambda: rows,
        about=panels.about_saved(saved, n=told.n_sequences, unit="sequences", head=name, score=kind, on=told.title),
        python=sources.one(
            saved, f"rows = head_rows(result, {kind!r}, {reading!r}, {tuple(head)})",
            imports=["from analyses.dynamics.tables import head_rows"],
        ),
    )  # fmt: skip
    _chart(panel, rows, kind, chosen.step)
    components.provenance(saved, f"n = {told.n_sequences} sequences, the same at every checkpoint", told.title,
                          f"{len(rows)} checkpoints of {run.name}", "band: 95% interval", "dashes: chance")  # fmt: skip
    return True


def _from_patterns(asked: Asked, run: Run, chosen: Selection, head: Head) -> None:
    """The score at every step that has a result of attention-patterns."""
    by_step = {saved.provenance.step: saved for saved in data.shelf(run, "attention-patterns").results}
    results = {step: saved for step, saved in by_step.items() if step is not None}
    name = head_name(*head)
    rows = rows_over_steps({step: saved.result for step, saved in results.items()}, asked.name, RANDOM, head)
    if len(rows) < 2:
        components.caption(
            f"{score_title(asked.name)} of {name} is known at {len(rows)} checkpoint of {run.name} only."
        )
        return
    paths = {step: str(from_here(saved.path)) for step, saved in results.items()}
    python = "\n".join(
        [
            "from analyses.heads.tables import rows_over_steps",
            "from analyses.results import load_result",
            "",
            "results = {",
            *(f"    {step}: load_result({path!r}).result," for step, path in paths.items()),
            "}",
            f"rows = rows_over_steps(results, {asked.name!r}, {RANDOM!r}, {tuple(head)})",
            "",
        ]
    )
    last = results[max(results)]
    measured = asked.ranking
    n = 0 if measured is None else measured.n
    panel = Panel(
        key="over_training",
        title=f"{score_title(asked.name)} of {name} at {len(rows)} checkpoints",
        rows=lambda: rows,
        about=panels.about_saved(last, n=n, unit="sequences", head=name, score=asked.name, steps=sorted(results)),
        python=python,
    )
    _chart(panel, rows, asked.name, chosen.step)
    components.provenance(last, f"n = {n} sequences at each of {len(rows)} checkpoints", "band: 95% interval",
                          "dashes: chance")  # fmt: skip


def _chart(panel: Panel, rows: pd.DataFrame, name: str, step: int | None) -> None:
    figure = over_steps_figure(rows, score_title(name), step=step)
    panels.chart(panel, figure, alt=f"{panel.title}: {MEANINGS[name]}", width="stretch")
