"""One score of a head over the checkpoints of its run, from training-dynamics, else from attention-patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analyses.attention.kinds import Kind
from analyses.heads.score_sources import scores
from analyses.heads.scores import RANDOM, HeadScores, meaning_of, score_title
from analyses.heads.tables import rows_over_steps
from analyses.results import SavedResult, from_here
from analyses.views.over_steps import over_steps_figure
from apps.dashboard import components, data, panels
from apps.dashboard.data import Run
from apps.dashboard.heads import sources
from apps.dashboard.heads.comparing import by_number
from apps.dashboard.heads.scores import Asked
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared
from apps.dashboard.state import Selection, head_name
from interp.places import Head
from model.errors import UnknownNameError

STUDY = "training-dynamics"


LEGEND = ("band: 95% interval", "dashes: chance", "rule: the step that is shown")


@dataclass(frozen=True, kw_only=True)
class Line:
    """The score of one head over the checkpoints of one run."""

    panel: Panel
    rows: pd.DataFrame
    saved: SavedResult
    facts: tuple[str | None, ...]
    step: int | None
    """Where the rule stands."""


def draw(asked: Asked, run: Run, chosen: Selection, head: Head, other: Compared | None) -> None:
    """The line of the score that the grids show; where another run is compared with, its line on the same scale."""
    if asked.name not in set(Kind):
        components.caption(
            f"{score_title(asked.name)} is not followed over training; choose a kind of attention above."
        )
        return
    lines = {chosen.spec: _line(asked, run, chosen.step, head, "over_training")}
    if other is not None and other.run.name != run.name:
        lines[other.spec] = _line(asked, other.run, other.step, head, "over_training_b")
    ends = _ends([line.rows for line in lines.values() if line is not None])
    for spec, line in lines.items():
        if len(lines) > 1:
            components.caption(spec)
        if line is None:
            components.caption(f"{score_title(asked.name)} of {head_name(*head)} is known at too few checkpoints.")
        else:
            figure = over_steps_figure(line.rows, score_title(asked.name), step=line.step, ends=ends)
            alt = f"{line.panel.title}: {meaning_of(asked.name)}"
            panels.chart(line.panel, figure, alt=alt, width="stretch")
            components.provenance(line.saved, *line.facts, *LEGEND)
    if len(lines) > 1:
        components.caption(by_number(run, other))
    if _saved(run, chosen.step) is None:
        components.missing(
            "Every checkpoint, on the same sequences, is what training-dynamics looks at; there is no result yet.",
            f"cutaway run {STUDY} {data.spelled(run, run.steps[-1])}",
        )


def _line(asked: Asked, run: Run, step: int | None, head: Head, key: str) -> Line | None:
    """The line of one run; None where fewer than two checkpoints, or no such head, are known."""
    model = run.model
    if model is None or head[0] >= model.n_layers or head[1] >= model.n_heads:
        return None
    saved = _saved(run, step)
    found = None if saved is None else _from_dynamics(saved, asked, run, step, head, key)
    return found or _from_patterns(asked, run, step, head, key)


def _ends(every: Sequence[pd.DataFrame]) -> tuple[float, float] | None:
    """What the axis of several lines holds; None of one alone, which chooses its own."""
    if len(every) < 2:
        return None
    both = pd.concat([rows[["mean", "low", "high", "chance"]] for rows in every]).astype(float)
    return min(0.0, float(both.min().min())), float(both.max().max())


def _saved(run: Run, step: int | None) -> SavedResult | None:
    """The newest result of training-dynamics that reaches this step, else the newest at all."""
    if STUDY not in data.STUDIES:
        return None
    every = data.shelf(run, STUDY).results
    return next((saved for saved in reversed(every) if step in saved.result.steps), every[-1] if every else None)


def _from_dynamics(
    saved: SavedResult, asked: Asked, run: Run, step: int | None, head: Head, key: str
) -> Line | None:  # fmt: skip
    """The line by the study of every checkpoint; None where it does not follow this score."""
    from analyses.dynamics.tables import head_rows

    name, kind = head_name(*head), asked.name
    reading = next((title for title, each in saved.result.readings.items() if kind in each.scores), None)
    if reading is None:
        return None
    try:
        rows = head_rows(saved.result, kind, reading, head)
    except UnknownNameError:
        return None
    told = saved.result.readings[reading]
    panel = Panel(
        key=key,
        title=f"{score_title(kind)} of {name} over training",
        rows=lambda: rows,
        about=panels.about_saved(saved, n=told.n_sequences, unit="sequences", head=name, score=kind, on=told.title),
        python=sources.one(
            saved, f"rows = head_rows(result, {kind!r}, {reading!r}, {tuple(head)})",
            imports=["from analyses.dynamics.tables import head_rows"],
        ),
    )  # fmt: skip
    facts = (f"n = {told.n_sequences} sequences, the same at every checkpoint", told.title,
             f"{len(rows)} checkpoints of {run.name}")  # fmt: skip
    return Line(panel=panel, rows=rows, saved=saved, facts=facts, step=step)


def _from_patterns(asked: Asked, run: Run, step: int | None, head: Head, key: str) -> Line | None:
    """The score at every step that has a result of attention-patterns; None of fewer than two."""
    by_step = {saved.provenance.step: saved for saved in data.shelf(run, "attention-patterns").results}
    results = {at: saved for at, saved in by_step.items() if at is not None}
    name = head_name(*head)
    rows = rows_over_steps({at: saved.result for at, saved in results.items()}, asked.name, RANDOM, head)
    if len(rows) < 2:
        return None
    paths = {at: str(from_here(saved.path)) for at, saved in results.items()}
    python = "\n".join(
        [
            "from analyses.heads.tables import rows_over_steps",
            "from analyses.results import load_result",
            "",
            "results = {",
            *(f"    {at}: load_result({path!r}).result," for at, path in paths.items()),
            "}",
            f"rows = rows_over_steps(results, {asked.name!r}, {RANDOM!r}, {tuple(head)})",
            "",
        ]
    )
    last = results[max(results)]
    measured = scores({"attention-patterns": last.result}, asked.name, RANDOM)  # as each of the rows is
    n, on = (measured.n, measured.on) if isinstance(measured, HeadScores) else (0, None)
    panel = Panel(
        key=key,
        title=f"{score_title(asked.name)} of {name} at {len(rows)} checkpoints",
        rows=lambda: rows,
        about=panels.about_saved(
            last, n=n, unit="sequences", head=name, score=asked.name, on=on, steps=sorted(results)
        ),
        python=python,
    )
    facts = (f"n = {n} sequences at each of {len(rows)} checkpoints", on)
    return Line(panel=panel, rows=rows, saved=last, facts=facts, step=step)
