"""What more can be asked of an ablation, one question at a time, each measured when it is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from analyses.ablation import tables
from analyses.views.ablating import dose_figure, whisker_figure
from apps.dashboard import components, panels, snippets
from apps.dashboard.ablation import jobs, measuring
from apps.dashboard.ablation.measuring import FURTHER, Question
from apps.dashboard.ablation.results import NARROWEST, about
from apps.dashboard.panels import Panel
from interp.interactions import Interactions
from interp.outcomes import get_outcome
from interp.stats import Interval
from interp.token_harms import TokenHarms
from interp.wording import fine

TITLES = {name: title for name, (title, _) in FURTHER.items()}
NOTES = {
    "interventions": "zero, mean and resample on the same sequences",
    "pairs": "does A with B cost more than A plus B? every place alone, every two, and all together",
    "dose": "from intact to wholly replaced in four steps, on the same sequences",
    "tokens": "the harm of every target, by position, by kind of token, and the targets that lose most",
    "heads": "how much of each later head's attention moves, on the measured sequences",
}


def draw(question: Question) -> None:
    """One of the further questions: what was found, or a button that measures it."""
    what = st.segmented_control(
        "Ask more", list(FURTHER), format_func=TITLES.__getitem__, key="further", default="interventions",
        required=True, persist_state="session", label_visibility="collapsed",
    )  # fmt: skip
    if what == "pairs" and len(question.places) < 2:
        components.caption("A pair takes two places: add another.")
        return
    if what == "pairs" and len(question.places) > MANY:
        components.caption(f"{len(question.places)} places have too many pairs; choose at most {MANY}.")
        return
    key, work = measuring.further(question, str(what))
    note = NOTES[str(what)]
    if what == "interventions" and question.ablation.first_layer < question.lab.config.n_layers - 1:
        note += ", and the mean with later patterns held"
    found = jobs.offered(f"Measure: {TITLES[str(what)].lower()}", str(what), key, work, note=note)
    if found is not None:
        SHOWN[str(what)](question, found)


MANY = 10
"""Places of which every two are ablated."""


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A table of one of the questions."""

    key: str
    title: str
    rows: Callable[[], pd.DataFrame]
    n: int
    lines: Sequence[str]
    imports: Sequence[str]

    def panel(self, question: Question) -> Panel:
        """With where it comes from, and the Python that makes it again."""
        python = snippets.opened(question.run, question.step, *self.lines, imports=self.imports)
        return Panel(
            key=self.key, title=self.title, rows=self.rows, about=about(question, self.n), python=python
        )  # fmt: skip


_TABLES = "from analyses.ablation.tables import "


def _bench_lines(question: Question) -> list[str]:
    asked = question.asked
    return [
        measuring.ablation_line(question),
        f"bench, _ = benches_for(lab, ablation, metric={asked.metric!r}, n_sequences={asked.n}, seed={asked.seed})",
    ]


_BENCH = ["from interp.ablation import ablation_of", "from interp.effects import benches_for"]


def _interventions(question: Question, found: Any) -> None:
    asked = question.asked
    how = f"metric={asked.metric!r}, n_sequences={asked.n}, seed={asked.seed}{measuring.keywords(asked.partly)}"
    call = f"side_by_side(lab, {question.spelled!r}, {how})"
    drawn = _Drawn(
        key="side_by_side", title="By what is put there", rows=lambda: tables.side_by_side_rows(found),
        n=found.effects[0].harm.n, lines=[f"found = {call}", "rows = side_by_side_rows(found)"],
        imports=["from interp.side_by_side import side_by_side", f"{_TABLES}side_by_side_rows"],
    )  # fmt: skip
    rows, unit = tables.side_by_side_rows(found), found.effects[0].unit
    figure = jobs.drawn(
        question.key("side_by_side"),
        lambda: whisker_figure(rows, "put there", "harm", f"harm on {asked.metric} ({unit})", tooltip=["p", "n"]),
    )
    panels.chart(drawn.panel(question), figure, alt="The harm under each intervention")
    components.caption(
        found.checkpoint, f"n = {drawn.n} sequences, the same for all", f"seed {found.seed}",
        f"95% {found.effects[0].harm.method} intervals over sequences", *found.notes,
    )  # fmt: skip


def _rests(question: Question, n: int, method: str) -> tuple[str, ...]:
    """What numbers of a question rest on, for the line under their figure."""
    where = f"{question.run.name}@{question.step}"
    return where, f"n = {n} sequences", f"seed {question.asked.seed}", f"95% {method} intervals over sequences"


def _pairs(question: Question, found: Interactions) -> None:
    asked = question.asked
    drawn = _Drawn(
        key="pairs", title="Pairs", rows=lambda: tables.pair_rows(found), n=found.interaction.n,
        lines=[
            *_bench_lines(question), f"trial, row = bench.trial_of({asked.metric!r})",
            f"found = interactions(bench, trial, {list(found.places)!r}, outcome=trial.outcomes[row], "
            f"seed={asked.seed}{measuring.keywords(asked.partly | asked.held)})",
            "rows = pair_rows(found)",
        ],
        imports=[*_BENCH, "from interp.interactions import interactions", f"{_TABLES}pair_rows"],
    )  # fmt: skip
    rows = tables.pair_rows(found)
    named = rows.assign(pair=[f"{one} with {other}" for one, other in zip(rows["first"], rows["second"], strict=True)])
    columns = ["both", "first alone", "second alone", "Holm p"]
    title = f"both together, less each alone ({get_outcome(asked.metric, period=2).unit})"
    figure = jobs.drawn(
        question.key("pairs"),
        lambda: whisker_figure(named, "pair", "interaction", title, tooltip=columns),
    )
    components.sentences([_together(found)])
    panels.chart(drawn.panel(question), figure, alt="What every two places cost beyond the sum of both")
    components.caption(
        "right of the rule: each stands in for the other", "left: one works through the other",
        *_rests(question, drawn.n, found.interaction.method),
    )  # fmt: skip


def _together(found: Interactions) -> str:
    whole, times = found.together, found.super_additivity
    said = f"All {len(found.places)} together: {_said(whole)}"
    if not math.isfinite(times.low + times.high):
        return f"{said}; the sum of the harms alone may be nothing, so no ratio is told (n = {whole.n})."
    more = "more than" if times.low > 1 else "less than" if times.high < 1 else "not told apart from"
    return f"{said}, {_said(times)} times the sum of the harms alone: {more} what adds up (n = {whole.n})."


def _said(interval: Interval) -> str:
    mean, low, high = fine(interval.mean, interval.low, interval.high)
    return f"{mean} [{low}, {high}]"


def _dose(question: Question, found: Any) -> None:
    drawn = _Drawn(
        key="dose", title="Dose", rows=lambda: tables.dose_rows(found), n=found.harm.n,
        lines=[
            *_bench_lines(question),
            f"found = dose_response(bench, ablation, metric={question.asked.metric!r}, seed={question.asked.seed})",
            "rows = dose_rows(found)",
        ],
        imports=[*_BENCH, "from interp.dose import dose_response", f"{_TABLES}dose_rows"],
    )  # fmt: skip
    figure = jobs.drawn(question.key("dose"), lambda: dose_figure(tables.dose_rows(found), found.unit))
    panels.chart(drawn.panel(question), figure, alt="The harm as less and less stays")
    components.caption(
        "dashed: straight proportion", f"clean {found.meaning}: {fine(found.clean)[0]} {found.unit}",
        *_rests(question, drawn.n, found.harm.method),
    )  # fmt: skip


def _tokens(question: Question, found: TokenHarms) -> None:
    asked = question.asked
    measured = [
        *_bench_lines(question),
        f"found = token_harms(bench, ablation, metric={asked.metric!r}, tokenizer=lab.tokenizer, seed={asked.seed})",
    ]
    imports = [*_BENCH, "from interp.token_harms import token_harms"]
    grouped = _Drawn(
        key="token_groups", title="Where it hurts", rows=lambda: tables.token_group_rows(found), n=found.n_sequences,
        lines=[*measured, "rows = token_group_rows(found)"], imports=[*imports, f"{_TABLES}token_group_rows"],
    )  # fmt: skip
    rows = tables.token_group_rows(found)
    with st.grid(2, min_column_width=NARROWEST, gap=("small", "large")) as columns:
        left, right = columns.cell(), columns.cell()
    with left:
        title, columns = f"harm of such a target ({found.unit})", ["by", "share", "targets"]
        figure = jobs.drawn(
            question.key("groups"),
            lambda: whisker_figure(rows, "group", "harm", title, tooltip=columns, width=360),
        )
        panels.chart(grouped.panel(question), figure, alt="The harm by position, kind and history")
        top = "" if found.top_share is None else f"a tenth of the targets bears {found.top_share:.0%} of all rises"
        components.caption(f"positions: {found.positions}", top or None)
    with right:
        if found.worst:
            worst = _Drawn(
                key="hurt_tokens", title="Targets that lose most", rows=lambda: tables.hurt_rows(found),
                n=found.n_sequences, lines=[*measured, "rows = hurt_rows(found)"],
                imports=[*imports, f"{_TABLES}hurt_rows"],
            )  # fmt: skip
            panels.table(worst.panel(question), alt="The targets that lose most", height="content")
            components.caption("the largest are large by selection: where to look, and no claim")
        else:
            components.caption("No target loses anything.")
    components.caption(
        f"{question.run.name}@{question.step}", f"n = {found.n_sequences} sequences, {found.n_targets:,} targets",
        f"seed {asked.seed}", "95% intervals over sequences", f"the whole: {fine(found.harm)[0]} {found.unit}",
    )  # fmt: skip


def _heads(question: Question, found: Any) -> None:
    if not found.heads:
        components.caption("Nothing attends after the last layer: there are no later heads.")
        return
    drawn = _Drawn(
        key="head_moves", title="Later heads whose attention moves", rows=lambda: tables.move_rows(found),
        n=found.moved[0].n,
        lines=[
            *_bench_lines(question),
            f"found = pattern_moves(bench, ablation, metric={question.asked.metric!r}, seed={question.asked.seed})",
            "rows = move_rows(found)",
        ],
        imports=[*_BENCH, "from interp.pattern_changes import pattern_moves", f"{_TABLES}move_rows"],
    )  # fmt: skip
    rows = tables.move_rows(found).head(LISTED)
    title = "share of its attention that lies elsewhere"
    figure = jobs.drawn(
        question.key("moves"), lambda: whisker_figure(rows, "head", "moved", title, tooltip=["rank", "n"])
    )
    panels.chart(drawn.panel(question), figure, alt="Share of each later head's attention that moves")
    more = f"the first {LISTED} of {len(found.heads)} heads" if len(found.heads) > LISTED else None
    components.caption(
        more, *_rests(question, drawn.n, found.moved[0].method), found.kind,
        "total variation distance, mean over queries",
    )  # fmt: skip


LISTED = 24
"""Heads that are drawn; all are in the table that the panel exports."""

SHOWN: dict[str, Callable[[Question, Any], None]] = {
    "interventions": _interventions,
    "pairs": _pairs,
    "dose": _dose,
    "tokens": _tokens,
    "heads": _heads,
}
