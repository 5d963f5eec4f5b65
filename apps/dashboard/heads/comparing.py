"""The head grids of two checkpoints: this one, the other, and their difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from analyses.head_score_sources import scores
from analyses.head_scores import RANDOM, STUDIES, TEXT, Absent, HeadScores, difference, score_rows, score_title
from analyses.results import SavedResult
from analyses.views import Scale
from apps.dashboard import components, data, panels
from apps.dashboard.heads import sources
from apps.dashboard.heads.scores import IMPORTS, Asked, framed, label, panel_of, payload, readings_of, scale_of
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared


def draw(
    asked: Asked, results: Mapping[str, SavedResult], other: Compared, names: tuple[str, str], head: tuple[int, int],
    ablated: Sequence[str],
) -> None:  # fmt: skip
    """The score of this checkpoint, of the other, and their difference, the first two on one scale."""
    theirs = sources.saved_of(other.run, other.step)
    opened = {study: saved.result for study, saved in theirs.items()}
    on = asked.on if asked.on in (RANDOM, *readings_of(opened.get("attention-patterns"))) else RANDOM
    for where, ours in ((on, asked.measured), (TEXT, asked.text)):
        measured = scores(opened, asked.name, where)
        if isinstance(ours, Absent):
            components.caption(ours.why)
            continue
        if isinstance(measured, Absent):
            study = measured.study or STUDIES.get(asked.name, "attention-patterns")
            command = f"cutaway run {study} {data.spelled(other.run, other.step)}"
            components.missing(f"{names[1]}: {measured.why}", command)
            continue
        gap = difference(ours, measured)
        st.subheader(ours.on)
        scale = scale_of(asked.name, [ours, measured])
        columns = st.columns(3, gap="medium")
        key = "grid_text" if where == TEXT else "grid"
        shown = ((key, names[0], ours, results), (f"{key}_b", names[1], measured, theirs))
        for column, (at, name, scored, of) in zip(columns, shown, strict=False):
            with column:
                panel = panel_of(at, asked.name, where, scored, of)
                grid = payload(scored, scale, chosen=label(head), ablated=ablated, titled=name)
                framed(panel, grid, len(scored.mean))
                components.caption(*scored.facts)
        with columns[2]:
            _difference(gap, f"{key}_gap", (results, theirs), (asked.name, where), (names, label(head), ablated))


def _difference(
    gap: HeadScores | Absent, key: str, both: tuple[Mapping[str, SavedResult], Mapping[str, SavedResult]],
    what: tuple[str, str], how: tuple[tuple[str, str], str, Sequence[str]],
) -> None:  # fmt: skip
    if isinstance(gap, Absent):
        components.caption(gap.why)
        return
    (name, where), (names, chosen, ablated) = what, how
    largest = float(gap.mean.nan_to_num().abs().max()) or 1.0
    scale = Scale(kind="diverging", low=-largest, high=largest)
    study = sources.study_of(name, both[0])
    rows = Panel(
        key=key,
        title=f"{score_title(name)}, {names[0]} minus {names[1]}",
        rows=lambda: score_rows(gap),
        about=panels.about_saved(both[0][study], n=gap.n, unit=gap.unit, minus=names[1]),
        python=sources.two(
            both[0][study], both[1][study],
            f"one, other = (scores({{{study!r}: each.result}}, {name!r}, {where!r}) for each in (saved, other))",
            "rows = score_rows(difference(one, other))",
            imports=IMPORTS,
        ),
    )  # fmt: skip
    grid = payload(gap, scale, chosen=chosen, ablated=ablated, titled=f"{names[0]} − {names[1]}")
    framed(rows, grid, len(gap.mean))
    components.caption(*gap.facts)
