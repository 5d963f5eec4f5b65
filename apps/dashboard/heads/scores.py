"""The head grids: any score of every head, on random tokens and on text side by side, beside step 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from analyses.attention.kinds import Kind
from analyses.heads.score_sources import scores, where_decided
from analyses.heads.scores import (
    HARM,
    IMPORTANCE,
    MEANINGS,
    RANDOM,
    REPAIRED,
    SIGNED,
    TEXT,
    Absent,
    HeadScores,
    score_rows,
    score_title,
)
from analyses.results import SavedResult
from analyses.views import Scale, View, head_grid_payload
from analyses.views.payload import Payload
from apps.dashboard import components, data, panels, selecting
from apps.dashboard.asked import Choice, begin, end
from apps.dashboard.data import Run
from apps.dashboard.heads import sources
from apps.dashboard.heads.layout import width_of, wrapping
from apps.dashboard.panels import Panel

KIND = Choice(name="kind", key="kind", options=list(MEANINGS), usual=Kind.INDUCTION.value)

MANY_LAYERS = 32
"""Layers beyond which a grid scrolls in its place."""

HEIGHT = 640
"""Pixels of a grid that scrolls."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The score that the page is about."""

    name: str
    on: str
    """Where it is measured, beside text: RANDOM, or the title of a reading."""
    measured: HeadScores | Absent
    """On random tokens, or where it was asked for."""
    text: HeadScores | Absent

    @property
    def ranking(self) -> HeadScores | None:
        """What heads are put in order by: random tokens first, then text."""
        return next((each for each in (self.measured, self.text) if isinstance(each, HeadScores)), None)


def ask(results: Mapping[str, SavedResult]) -> Asked:
    """Let a score be chosen, and on which random tokens."""
    opened = sources.opened(results, selecting.selection().step)
    kinds = opened.get("attention-patterns", opened.get(sources.DYNAMICS))
    begin(KIND)
    st.pills(
        "Score", list(MEANINGS), format_func=score_title, key=KIND.key, required=True, label_visibility="collapsed",
        on_change=_follow, args=(kinds,),
    )  # fmt: skip
    name = end(KIND)
    on = _pick_reading(kinds, name)
    which = (sources.identity(results), selecting.selection().step, name)
    return Asked(name=name, on=on, measured=_scores(opened, *which, on), text=_scores(opened, *which, TEXT))


@st.cache_resource(max_entries=64, show_spinner=False)
def _scores(
    _opened: Mapping[str, Any], results: tuple[str, ...], step: int | None, name: str, on: str
) -> HeadScores | Absent:
    """One score, remembered by the results at hand: going through heads changes none."""
    del results, step
    return scores(_opened, name, on)


def readings_of(result: Any) -> list[str]:
    """Titles of the sequences on which kinds of attention were scored."""
    return [] if result is None else [each.title for each in result.readings]


def _follow(result: Any) -> None:
    """A kind that the reading at hand lacks is shown where it is decided."""
    name, titles = st.session_state[KIND.key], readings_of(result)
    if name not in set(Kind) or result is None:
        return
    reading = {each.title: each for each in result.readings}.get(str(st.session_state.get("reading")))
    if reading is None or Kind(name) not in reading or st.session_state["reading"] not in titles:
        st.session_state["reading"] = where_decided(result, name).title


def _pick_reading(result: Any, name: str) -> str:
    """On which random tokens a kind of attention is shown; other scores have their own."""
    titles = readings_of(result)
    if name not in set(Kind) or not titles:
        return RANDOM
    choice = Choice(name="on", key="reading", options=titles, usual=where_decided(result, name).title)
    begin(choice)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("random tokens:", width="content")
        st.selectbox("Random tokens", titles, key=choice.key, width=280, label_visibility="collapsed", help=ON)
    return end(choice)


ON = "The sequences of the first grid: a random segment and its copy (the period is its length), or a control."
"""What may be chosen there."""


def grids(
    asked: Asked, results: Mapping[str, SavedResult], step: int | None, head: tuple[int, int], ablated: Sequence[str]
) -> Payload | None:
    """The score on random tokens and on text, on one scale; the first of the grids."""
    every = [each for each in (asked.measured, asked.text) if isinstance(each, HeadScores)]
    scale = scale_of(asked.name, every)
    if not every:
        _absent(asked.measured, results)
        return None
    first: Payload | None = None
    sides = (("grid", asked.measured, asked.on), ("grid_text", asked.text, TEXT))
    columns, weights = wrapping("grids", *[width_of(*every[0].mean.shape)] * 2), weights_of(selecting.run(), step)
    for column, (key, measured, on) in zip(columns, sides, strict=True):
        with column:
            if isinstance(measured, Absent):
                _absent(measured, results)
            else:
                if key == "grid_text" or asked.name not in set(Kind):  # else the input above says it
                    st.header(measured.on)
                panel = panel_of(key, asked.name, on, measured, results, selecting.run(), step)
                grid = payload(measured, scale, chosen=label(head), ablated=ablated)
                first = first or grid
                framed(panel, grid, len(measured.mean))
                components.caption(*rests_on(measured, weights, small(measured)))
    return first


def rests_on(measured: HeadScores, *more: str | None) -> tuple[str | None, ...]:
    """What the numbers of a score rest on: n, on which sequences, interval, seed, checkpoint; and `more` of it."""
    n, *rests = measured.facts
    return (n, measured.on, *rests, *more)


def small(measured: HeadScores) -> str | None:
    """What is in small print in the cells of a grid."""
    return None if measured.step_0 is None else "small: step 0"


def weights_of(run: Run, step: int | None) -> str | None:
    """The weights of a checkpoint, in words."""
    return None if step is None else f"weights {data.manifest(run, step).weights_sha256[:8]}"


def payload(
    measured: HeadScores, scale: Scale | None, *, chosen: str, ablated: Sequence[str], titled: str = ""
) -> Payload:
    """The grid of one score."""
    bounds = (measured.low, measured.high)
    offsets = measured.offsets
    return head_grid_payload(
        measured.mean,
        f"{titled}: {measured.label}" if titled else measured.label,
        scale=scale,
        interval=None if bounds[0] is None or bounds[1] is None else (bounds[0], bounds[1]),
        before=measured.step_0,
        sure=measured.found,
        chosen=chosen,
        ablated=ablated,
        marks=None if offsets is None else [[f"{n} back" for n in row] for row in offsets.tolist()],
    )


def panel_of(
    key: str, name: str, on: str, measured: HeadScores, results: Mapping[str, SavedResult], run: Run, step: int | None
) -> Panel:
    """What a grid, or a ranking, of one score shows, at a step of a run."""
    study = sources.study_of(name, results)
    saved = results[study]
    return Panel(
        key=key,
        title=f"{score_title(name)} of every head, {measured.on}",
        rows=lambda: score_rows(measured),
        about=panels.about_step(saved, run, step, n=measured.n, unit=measured.unit, score=name, on=measured.on),
        python=snippet(study, saved, name, on, step),
    )


def snippet(
    study: str, saved: SavedResult, name: str, on: str, step: int | None, last: str = "rows = score_rows(measured)"
) -> str:
    """Python that gives one score of a saved result, at one step of it."""
    read = sources.read(study, "saved", step)
    return sources.one(
        saved, f"measured = scores({{{study!r}: {read}}}, {name!r}, {on!r})", last,
        imports=[*IMPORTS, *([sources.AT] if study == sources.DYNAMICS else [])],
    )  # fmt: skip


def scale_of(name: str, every: Sequence[HeadScores]) -> Scale | None:
    """One scale for all grids of a score: shares from 0 to 1, what is signed symmetric about 0."""
    if name in (Kind.COPYING.value, "ov-copying", REPAIRED):
        return Scale(kind="diverging", low=-1.0, high=1.0)
    if name in (Kind.DISTANCE.value, "written", HARM, IMPORTANCE):
        largest = max((float(each.mean.nan_to_num().abs().max()) for each in every), default=1.0) or 1.0
        return Scale(kind="diverging", low=-largest, high=largest) if name in SIGNED else Scale(high=largest)
    return Scale(high=1.0)


IMPORTS = [
    "from analyses.heads.score_sources import scores",
    "from analyses.heads.scores import difference, score_rows, two_scores",
]


def label(head: tuple[int, int]) -> str:
    """As in L1H3."""
    return f"L{head[0]}H{head[1]}"


def framed(panel: Panel, grid: Payload, n_layers: int) -> None:
    """A grid; of a very deep model one that scrolls in its place, which is said."""
    if n_layers > MANY_LAYERS:
        components.caption(f"{n_layers} layers: scroll to see all")
        with st.container(height=HEIGHT, border=False, key=f"scroll-{panel.key}"):
            panels.show(View.HEAD_GRID, grid, panel)
    else:
        panels.show(View.HEAD_GRID, grid, panel)


def _absent(absent: HeadScores | Absent, results: Mapping[str, SavedResult]) -> None:
    """Say why a score is not there, and what makes it where something does."""
    if isinstance(absent, HeadScores):
        return
    if absent.study is None or not results:
        components.caption(absent.why)
        return
    components.missing(
        absent.why, f"cutaway run {absent.study} {data.spelled(selecting.run(), selecting.selection().step)}"
    )
