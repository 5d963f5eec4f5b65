"""The head grids of two checkpoints: this one, the other, and their difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from analyses.heads.score_sources import scores
from analyses.heads.scores import (
    BY_NUMBER,
    RANDOM,
    STUDIES,
    TEXT,
    Absent,
    HeadScores,
    difference,
    score_rows,
    score_title,
)
from analyses.results import SavedResult
from analyses.views import Scale
from apps.dashboard import components, data, panels, selecting
from apps.dashboard.data import Run
from apps.dashboard.heads import sources
from apps.dashboard.heads.layout import width_of, wrapping
from apps.dashboard.heads.scores import (
    IMPORTS,
    Asked,
    framed,
    grids,
    label,
    panel_of,
    payload,
    readings_of,
    rests_on,
    scale_of,
    small,
    weights_of,
)
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared


def draw(
    asked: Asked, results: Mapping[str, SavedResult], other: Compared, names: tuple[str, str], head: tuple[int, int],
    ablated: Sequence[str],
) -> None:  # fmt: skip
    """The score of this checkpoint, of the other, and their difference, the first two on one scale."""
    theirs = sources.saved_of(other.run, other.step)
    opened = sources.opened(theirs, other.step)
    kinds = opened.get("attention-patterns", opened.get(sources.DYNAMICS))
    on = asked.on if asked.on in (RANDOM, *readings_of(kinds)) else RANDOM
    pairs = [
        (where, ours, scores(opened, asked.name, where)) for where, ours in ((on, asked.measured), (TEXT, asked.text))
    ]
    steps = (selecting.selection().step, other.step)
    lacking = [measured for _, ours, measured in pairs if isinstance(ours, HeadScores) and isinstance(measured, Absent)]
    if lacking:
        grids(asked, results, steps[0], head, ablated)
        study = lacking[0].study or STUDIES.get(asked.name, "attention-patterns")
        command = f"cutaway run {study} {data.spelled(other.run, other.step)}"
        components.faults(study, other.run, other.step, commands=False)
        components.missing(f"{names[1]} cannot stand beside it: {lacking[0].why}", command)
        return
    if (matched := by_number(selecting.run(), other)) is not None:
        components.caption(matched)
    for where, ours, measured in pairs:
        if isinstance(ours, HeadScores) and isinstance(measured, HeadScores):
            weights = (weights_of(selecting.run(), steps[0]), weights_of(other.run, other.step))
            how = (names, label(head), ablated, weights)
            _side_by_side(asked.name, where, (ours, measured), (results, theirs), steps, how)
        elif isinstance(ours, Absent):
            components.caption(ours.why)


def by_number(run: Run, other: Compared | None) -> str | None:
    """That heads of two trainings are matched by number; None of two steps of one training."""
    return f"{run.name} and {other.run.name}: {BY_NUMBER}" if other is not None and other.run.name != run.name else None


How = tuple[tuple[str, str], str, Sequence[str], tuple[str | None, str | None]]
"""The names of the two checkpoints, the chosen head, those to ablate, and both checkpoints' weights in words."""


def _side_by_side(
    name: str, where: str, both: tuple[HeadScores, HeadScores],
    of: tuple[Mapping[str, SavedResult], Mapping[str, SavedResult]], steps: tuple[int | None, int],
    how: How,
) -> None:  # fmt: skip
    """One kind of sequence: this checkpoint, the other, and the difference."""
    names, chosen, ablated, weights = how
    st.header(both[0].on)
    if both[0].on != both[1].on:
        components.caption(f"{names[1]} was measured on other sequences: {both[1].on}")
    scale = scale_of(name, both)
    key = "grid_text" if where == TEXT else "grid"
    columns = wrapping(f"beside-{key}", *[width_of(*both[0].mean.shape, digits=5)] * 3)
    compared = selecting.compared()
    assert compared is not None, "drawn only beside another checkpoint"
    runs = (selecting.run(), compared.run)
    sides = zip((key, f"{key}_b"), names, both, of, runs, steps, weights, strict=True)
    for column, (at, titled, scored, results, run, step, known) in zip(columns, sides, strict=False):
        with column:
            panel = panel_of(at, name, where, scored, results, run, step)
            grid = payload(scored, scale, chosen=chosen, ablated=ablated, titled=titled)
            framed(panel, grid, len(scored.mean))
            components.caption(*rests_on(scored, known, small(scored)))
    with columns[2]:
        _difference(difference(*both), f"{key}_gap", of, steps, (name, where), how)


def _difference(
    gap: HeadScores | Absent, key: str, both: tuple[Mapping[str, SavedResult], Mapping[str, SavedResult]],
    steps: tuple[int | None, int], what: tuple[str, str], how: How,
) -> None:  # fmt: skip
    if isinstance(gap, Absent):
        components.caption(gap.why)
        return
    (name, where), (names, chosen, ablated, weights) = what, how
    largest = float(gap.mean.nan_to_num().abs().max()) or 1.0
    scale = Scale(kind="diverging", low=-largest, high=largest)
    studies = [sources.study_of(name, each) for each in both]
    saved, other = (each[study] for each, study in zip(both, studies, strict=True))
    one, two = (sources.read(*each) for each in zip(studies, ("saved", "other"), steps, strict=True))
    matched = by_number(selecting.run(), selecting.compared())
    rows = Panel(
        key=key,
        title=f"{score_title(name)}, {names[0]} minus {names[1]}",
        rows=lambda: score_rows(gap),
        about=panels.about_step(saved, selecting.run(), steps[0], n=gap.n, unit=gap.unit, minus=names[1],
                                **({} if matched is None else {"heads": matched})),
        python=sources.two(
            saved, other,
            f"one = scores({{{studies[0]!r}: {one}}}, {name!r}, {where!r})",
            f"other = scores({{{studies[1]!r}: {two}}}, {name!r}, {where!r})",
            "rows = score_rows(difference(one, other))",
            imports=[*IMPORTS, *([sources.AT] if sources.DYNAMICS in studies else [])],
        ),
    )  # fmt: skip
    grid = payload(gap, scale, chosen=chosen, ablated=ablated, titled=f"{names[0]} − {names[1]}")
    framed(rows, grid, len(gap.mean))
    components.caption(*rests_on(gap, *weights), matched and "heads matched by number")
