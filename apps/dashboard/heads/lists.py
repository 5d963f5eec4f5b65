"""Heads in order: by their standing, by the score that is shown, or by two scores; J and K go through the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from analyses.heads.score_sources import scores
from analyses.heads.scores import MEANINGS, RANDOM, TEXT, Absent, HeadScores, score_rows, score_title, two_scores
from analyses.results import SavedResult
from analyses.views.two_scores import two_scores_figure
from apps.dashboard import components, data, keys, panels, selecting
from apps.dashboard.asked import Choice, begin, end
from apps.dashboard.data import Run
from apps.dashboard.heads import sources, verdicts
from apps.dashboard.heads.scores import IMPORTS, Asked, rests_on, snippet, weights_of
from apps.dashboard.panels import Panel
from interp.places import Head, every_head, parse_place

HEIGHT = 390

ORDERS = {"standing": "By standing", "score": "By this score", "two": "Two scores"}
"""The lists, and their tabs."""

ORDER = Choice(name="order", key="order", options=list(ORDERS.values()), usual=ORDERS["standing"])

TOPS = ("5", "10", "20", "50", "all")
"""How many heads a list may show, as the address spells it; those that are fewer than there are, are offered."""


def draw(asked: Asked | None, patterns: SavedResult | None, results: Mapping[str, SavedResult], head: str) -> None:
    """The lists, one of them open, in which `head` is ticked; `patterns` is what the standing of heads is of."""
    by_standing, by_score, two = st.tabs(list(ORDERS.values()), key=ORDER.key, on_change="rerun")
    end(ORDER)
    if by_standing.open:
        with by_standing:
            _by_standing(patterns, head)
    if asked is not None and asked.ranking is not None and by_score.open:
        with by_score:
            _by_score(asked, asked.ranking, results, head)
    elif by_score.open and asked is not None:
        with by_score:
            components.caption("There is no such score here.")
    if two.open:
        with two:
            _two(results, head)


def order_of(asked: Asked | None, patterns: SavedResult | None) -> list[str]:
    """The labels of the heads in the order of the list that is open: the first is shown until one is chosen."""
    open_list, ranking = begin(ORDER), None if asked is None else asked.ranking
    if ranking is not None and (open_list != ORDERS["standing"] or patterns is None):
        return [f"L{layer}H{index}" for layer, index in ranking.ordered()]
    return [] if patterns is None else [str(label) for label in data.verdict_rows(patterns)["head"]]


def first(order: Sequence[str]) -> Head:
    """The head that is shown until one is chosen."""
    place = parse_place(order[0] if order else "L0H0")
    return place.layer, place.number


def labels_of(run: Run) -> list[str]:
    """Every head of a run, layer by layer."""
    model = run.model
    return [] if model is None else [f"L{layer}H{index}" for layer, index in every_head(model.n_layers, model.n_heads)]


def bind(order: Sequence[str], head: str) -> None:
    """J and K go to the heads after and before the chosen one, X puts it into the ablation or takes it out."""
    keys.bind("j", "next head in the list", _step, list(order), head, 1)
    keys.bind("k", "head before it in the list", _step, list(order), head, -1)
    keys.bind("x", "add the head to the ablation, or take it out", _toggle, head)


def _step(order: Sequence[str], shown: str, by: int) -> None:
    """Several presses may come together: each goes on from where the one before ended."""
    now = str(st.session_state.get("head") or shown)
    at = order.index(now) + by if now in order else 0
    if order:
        choose(order[min(max(at, 0), len(order) - 1)])


def _toggle(shown: str) -> None:
    components.toggle_ablation(str(st.session_state.get("head") or shown))


def choose(label: str) -> None:
    """Select a head; a callback."""
    st.session_state["head"] = label


def _by_standing(saved: SavedResult | None, head: str) -> None:
    if saved is None:
        components.caption("There are no verdicts without a result of attention-patterns.")
        return
    panel = Panel(
        key="head_table",
        title="Every head by its standing",
        rows=lambda: data.verdict_rows(saved),
        about=panels.about_saved(saved, n=saved.result.headline.n_sequences, unit="sequences of random tokens"),
        python=sources.one(
            saved, "rows = verdict_rows(result)", imports=["from analyses.heads.tables import verdict_rows"]
        ),
    )
    rows = data.verdict_rows(saved)
    shown = pd.DataFrame(rows.assign(standing=[[word] for word in rows["standing"]]), columns=list(WIDTHS))
    words = {word.value: colour for word, colour in verdicts.COLOURS.items()}
    panels.table(
        panel, alt="Heads by how well their names are supported", height=HEIGHT, shown=shown, pick="head",
        picked=head, words=words, helps=HELPS, widths=WIDTHS,
    )  # fmt: skip
    components.caption(
        f"{len(rows)} heads, the best supported first",
        f"n = {saved.result.headline.n_sequences} sequences of random tokens", f"seed {saved.provenance.seed}",
        f"{saved.provenance.run}@{saved.provenance.step}", _weights(), CLICK, FURTHER,
    )  # fmt: skip


FURTHER = "copies, z and text harm follow to the right in the table"
CLICK = "click a row, or go with J and K"


def _weights() -> str | None:
    return weights_of(selecting.run(), selecting.selection().step)


HELPS = {
    "standing": "supported: found by its attention, and something is lost without it; disputed: so too, but its "
    "weights or its attention on text disagree; attention only: no loss shown; no kind: passes no rule",
    "attends like": "the kind of attention by which it was found; ? where the intervals leave it open",
    "score": "the score of that kind on random tokens",
    "copies, z": "how far its OV circuit copies, in standard deviations of random heads; below 0 it lowers what it "
    "attends to",
    "copy harm": "nats lost on copied random tokens when the head is replaced by its mean",
    "text harm": "nats lost on held-out text when the head is replaced by its mean",
}
"""What the columns say, for who points at their names."""

WIDTHS = {
    "head": 54, "standing": 100, "attends like": 102, "score": 51, "copy harm": 68, "copies, z": 64, "text harm": 68,
}  # fmt: skip
"""The columns in the order in which they are shown, and their pixels: the first five fit half a page of 1440, and what
does not fit is reached by scrolling."""

SCORE_WIDTHS = {
    "rank": 42, "head": 54, "back": 46, "mean": 54, "low": 54, "high": 54, "found": 50, "step 0": 54,
    "chance": 56,
}  # fmt: skip
"""The same of the list by one score: what is the same in every row comes last."""


SCORE_HELPS = {
    "back": "the distance in tokens at which the head was measured",
    "found": "whether it counts as found by this score; of a harm, whether it is told from none",
    "step 0": "the same at the run's first checkpoint",
    "chance": "what even attention would give",
}


def _by_score(asked: Asked, measured: HeadScores, results: Mapping[str, SavedResult], head: str) -> None:
    """The head finder: the first heads by the score that the grids show."""
    many = len(measured.ordered())
    offered = [top for top in TOPS if top == "all" or int(top) < many]
    choice = Choice(name="top", key="top", options=offered, usual="10" if "10" in offered else "all")
    begin(choice)
    st.segmented_control("Heads shown", offered, key=choice.key, required=True, format_func=_top, width="content",
                         label_visibility="collapsed")  # fmt: skip
    said = end(choice)
    n = measured.mean.numel() if said == "all" else int(said)
    study, step = sources.study_of(asked.name, results), selecting.selection().step
    saved, on = results[study], asked.on if measured is asked.measured else TEXT
    panel = Panel(
        key="ranking",
        title=f"Heads by {score_title(asked.name)}, {measured.on}",
        rows=lambda: score_rows(measured).head(n),
        about=panels.about_step(
            saved, selecting.run(), step, n=measured.n, unit=measured.unit, score=asked.name, on=measured.on
        ),
        python=snippet(study, saved, asked.name, on, step, f"rows = score_rows(measured).head({n})"),
    )
    rows = panel.rows().rename(columns={"tokens back": "back"})
    shown = pd.DataFrame(rows, columns=[column for column in SCORE_WIDTHS if column in rows])
    panels.table(
        panel, alt=panel.title, shown=shown, pick="head", picked=head, height=min(HEIGHT - 48, 38 + 35 * len(rows)),
        widths=SCORE_WIDTHS, helps=SCORE_HELPS,
    )  # fmt: skip
    components.caption(*rests_on(measured, _weights()), CLICK, "what does not fit follows to the right in the table")


def _top(n: str) -> str:
    return "all heads" if n == "all" else f"top {n}"


def _two(results: Mapping[str, SavedResult], head: str) -> None:
    """One score against another: a click on a head selects it."""
    step = selecting.selection().step
    opened = sources.opened(results, step)
    picked: list[tuple[str, str, HeadScores | Absent]] = []
    with st.container(horizontal=True, gap="small"):
        for axis, usual, words in (("x", _FIRST, "Across"), ("y", _SECOND, "Up")):
            choice = Choice(name=axis, key=f"axis_{axis}", options=list(AXES), usual=usual)
            begin(choice)
            st.selectbox(words, list(AXES), key=choice.key, format_func=AXES.__getitem__, label_visibility="collapsed")
            name, _, side = end(choice).partition("@")
            on = TEXT if side == "text" else RANDOM
            picked.append((name, on, scores(opened, name, on)))
    for name, _, measured in picked:
        if isinstance(measured, Absent):
            components.caption(f"{score_title(name)}: {measured.why}")
            return
    (name, on, across), (other, up_on, up) = picked
    assert isinstance(across, HeadScores)
    assert isinstance(up, HeadScores)
    used = {sources.study_of(each, results): results[sources.study_of(each, results)] for each in (name, other)}
    titles = [f"{score_title(each.name)}, {each.on}" for each in (across, up)]
    panel = Panel(
        key="two_scores",
        title=f"{titles[0]}, against {titles[1]}",
        rows=lambda: two_scores(across, up),
        about=panels.about_saved(next(iter(used.values())), n=across.n, unit=across.unit, x=titles[0], y=titles[1]),
        python=sources.several(
            used, step, f"rows = two_scores(scores(results, {name!r}, {on!r}), scores(results, {other!r}, {up_on!r}))",
            imports=IMPORTS,
        ),
    )  # fmt: skip
    _scatter(panel, two_scores_figure(panel.rows(), titles[0], titles[1], chosen=head))
    sides = (f"{side}: {', '.join(each.facts)}" for side, each in (("across", across), ("up", up)))
    components.caption(*sides, _weights(), "bars: intervals", "click a head to choose it")


def _scatter(panel: Panel, figure: Any) -> None:
    """The scatter; a click on a mark selects its head."""

    def picked() -> None:
        chosen = st.session_state[panel.key].selection.get("head") or []
        if chosen:
            choose(str(chosen[0]["head"]))

    panels.chart(panel, figure, alt=panel.title, width="stretch", on_select=picked)


_FIRST, _SECOND = "induction@random", "harm@random"

AXES = {
    f"{name}@{side}": f"{score_title(name)}, {RANDOM if side == 'random' else TEXT}"
    for name in MEANINGS
    for side in ("random", "text")
    if not (name == "written" and side == "random") and not (name == "ov-copying" and side == "text")
}
"""What the axes of the scatter may be, as the address spells it, and in words."""
