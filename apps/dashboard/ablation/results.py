"""What came of a hypothesis: the verdict, the effect with its interval, and what it is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from analyses.ablation.tables import control_rows
from analyses.claims.bounds import Standing
from analyses.claims.statement import Statement
from analyses.claims.verdicts import Verdict
from analyses.claims.wording import plain_sentence
from analyses.views.ablating import control_figure
from analyses.views.effect import effect_figure, effect_table
from apps.dashboard import components, panels, snippets
from apps.dashboard.ablation import jobs, stating
from apps.dashboard.ablation.asking import CONTROLS
from apps.dashboard.ablation.measuring import Question, Tested
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel
from interp.effects import AblationEffect
from interp.outcomes import COPY_OUTCOMES
from interp.places import PlaceKind
from interp.stats import Interval, smallest_sign_flip_p
from interp.wording import effect_sentences, fine, p_phrase, shared_phrase
from model.errors import CutawayError

LOOK = {
    Standing.SUPPORTED: ("green", ":material/check_circle:"),
    Standing.REFUTED: ("red", ":material/cancel:"),
    Standing.UNDECIDED: ("gray", ":material/help:"),
}

NARROWEST = 450
"""Pixels of a column below which it stands under the other one."""


def show(question: Question, stated: Statement | None, tested: Tested | None, effect: AblationEffect) -> None:
    """Everything that was measured, the verdict first."""
    stating.seen(question, stated)
    stated = None if stated is None else stating.dated(question, stated)
    verdict = None if tested is None else tested.told_as(stated)
    late = stating.doubt(question, stated)
    _verdict(question, stated, verdict, effect, late, "" if tested is None else tested.refused)
    _headline(effect)
    with st.grid(2, min_column_width=NARROWEST, gap=("small", "large")) as columns:
        with columns.cell():
            _outcomes(question, stated, verdict, effect, late)
        with columns.cell():
            _control(question, effect)
    with st.expander("In words, with every number", key="in_words"):
        components.sentences(effect_sentences(effect))
    components.caption(
        effect.checkpoint, *_sequences(effect), f"seed {effect.seed}",
        f"{effect.harm.level:.0%} {effect.harm.method} intervals, by sequence", *effect.sources,
    )  # fmt: skip


def _sequences(effect: AblationEffect) -> list[str]:
    """How many sequences there were of each kind: of held-out text there may be fewer."""
    sizes = {each.name in COPY_OUTCOMES: each.harm.n for each in effect.outcomes}  # in the order of the kinds
    return [f"n = {n} sequences of {kind}" for kind, n in zip(effect.kinds, sizes.values(), strict=True)]


def _verdict(
    question: Question, stated: Statement | None, verdict: Verdict | None, effect: AblationEffect, late: str,
    refused: str,
) -> None:  # fmt: skip
    if stated is None:
        components.caption("No bound was stated, so nothing is decided: this is an exploration, and no test.")
        return
    says = stated.says or f"With {question.spelled} ablated, {stated.effect}."
    if verdict is None and refused:
        components.unasked(CutawayError(f"{stated.effect} cannot be tested so: {refused}"))
        return
    if verdict is None:
        components.caption(f"{stated.effect} has not been tested as it stands now: press Run.")
        return
    colour, icon = LOOK[verdict.standing]
    with st.container(border=True, key="verdict", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge(str(verdict.standing), color=colour, icon=icon)  # type: ignore[arg-type]
            others, tint = beside_others(effect)
            st.badge(components.literal(others), color=tint)  # type: ignore[arg-type]
            st.markdown(f"**{components.literal(says)}**")
        components.caption(f"claimed: {stated.effect}", f"held against: {CONTROLS[stated.control]}", late or None)
        st.text(plain_sentence(verdict))


def beside_others(effect: AblationEffect) -> tuple[str, str]:
    """Whether the ablated set stands out from others of its shape, and a colour: what a verdict never goes without."""
    control = effect.control
    if control.p is None or control.smallest_p is None:
        return "no other set to compare with", "gray"
    n, more = len(control.harm), "gains" if control.gains else "costs"
    kinds = {place.kind for place in effect.ablation.places}
    others = "other heads" if kinds == {PlaceKind.HEAD} else "others"
    told = f"({p_phrase(control.p, control.smallest_p)}, {n} set{'s' if n > 1 else ''})"
    if control.is_beaten:
        return f"{more} more than {others} {told}", "blue"  # green is the verdict's own, which may be refuted
    if control.is_beaten is None and control.is_exceeded:
        return f"{more} most among {others}, too few to decide {told}", "orange"
    return f"not told apart from {others} {told}", "orange"


def _headline(effect: AblationEffect) -> None:
    """The four numbers: the effect, matched sets, step 0, and where nothing can be copied."""
    asked, control = effect.effect, effect.control
    start = effect.at_start(effect.metric)
    with st.grid(4, min_column_width=190, gap="small") as cells:
        with cells.cell():
            p = p_phrase(asked.p, smallest_sign_flip_p(asked.harm.n), ".2g")
            p = "" if effect.metric.endswith("_kl") else f", {p} against no harm"
            kind = f"n = {asked.harm.n}{p}, {_kind(asked.harm)}"
            _number(f"Harm on {effect.metric}", _amount(asked.harm, asked.unit), kind, "effect")
        with cells.cell():
            if control.p is None or control.median is None or control.smallest_p is None:
                _number("Matched random sets", "none", control.note, "control")
            else:
                found = f"{fine(control.median)[0]} {asked.unit}"
                shared = f", {shared}" if (shared := shared_phrase(effect)) else ""
                _number(
                    "Matched random sets, median", found,
                    f"{p_phrase(control.p, control.smallest_p)} of {len(control.harm)} sets{shared}, n = {control.n}",
                    "control",
                )  # fmt: skip
        with cells.cell():
            if start is None:
                _number("The same at step 0", "none", "no step 0 beside this checkpoint", "step0")
            else:
                _number("The same at step 0", _amount(start.harm, start.unit), _of(start.harm), "step0")
        with cells.cell():
            beside = next((each for each in ("new_token_loss", "text_loss") if effect.has(each)), None)
            if beside is None or beside == effect.metric:
                _number("On text", "none", " ".join(effect.notes) or "it is what was measured", "text")
            else:
                found = effect.on(beside)
                _number(f"On text: {beside}", _amount(found.harm, found.unit), _of(found.harm), "text")


def _kind(interval: Interval) -> str:
    """Which interval it is: few sequences take a bias-corrected one."""
    return f"{interval.level:.0%} {interval.method}" if math.isfinite(interval.low) else "no interval"


def _of(interval: Interval) -> str:
    return f"n = {interval.n}, {_kind(interval)}"


def _number(label: str, number: str, rests: str, key: str) -> None:
    with st.container(key=f"headline-{key}", gap="xxsmall"):
        st.caption(components.literal(label))
        st.markdown(f"**{components.literal(number)}**")
        st.caption(components.literal(rests))


def _amount(interval: Any, unit: str) -> str:
    mean, low, high = fine(interval.mean, interval.low, interval.high)
    return f"{mean} [{low}, {high}] {unit}" if math.isfinite(interval.low) else f"{mean} {unit}"


def snippet(question: Question, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that measures the effect again, and then does `lines`."""
    asked = "".join(f", {name}={value!r}" for name, value in question.asked.measured_as.items())
    return snippets.opened(
        question.run, question.step, f"effect = ablate(lab, {question.spelled!r}{asked})", *lines,
        imports=["from interp.effects import ablate", *imports],
    )  # fmt: skip


def about(question: Question, n: int, **more: Any) -> dict[str, Any]:
    """What numbers of an ablation rest on."""
    how = {"ablation": question.spelled, **question.asked.measured_as, **more}
    return panels.about_live(question.run, question.step, n=n, unit="sequences", **how)


def _outcomes(
    question: Question, stated: Statement | None, verdict: Verdict | None, effect: AblationEffect, late: str
) -> None:
    st.subheader("Every outcome")
    claimed: dict[str, Any] = {} if stated is None else {
        "hypothesis": stated.says, "claimed": stated.effect, "held_against": str(stated.control),
        "verdict": None if verdict is None else str(verdict.standing), "stated": late or "before it was measured",
    }  # fmt: skip
    panel = Panel(
        key="effect",
        title=f"Harm of ablating {question.spelled}",
        rows=lambda: effect_table(effect),
        about=about(question, effect.harm.n, **{k: v for k, v in claimed.items() if v is not None}),
        python=snippet(
            question, "rows = effect_table(effect)", imports=["from analyses.views.effect import effect_table"]
        ),
    )
    figure = jobs.drawn(question.key("outcomes"), partial(effect_figure, effect))
    panels.chart(panel, figure, alt=f"Harm of ablating {question.spelled} on every outcome", width="stretch")
    components.caption("dots: harm with its interval", "grey ticks: matched sets", "right of the rule: worse")
    with st.expander("As a table", key="effect_numbers", on_change="rerun") as box:
        if box.open:
            panels.table(replace(panel, key="effect_rows"), alt="The effect on every outcome")
    said = [] if verdict is None else [f"{plain_sentence(verdict)} Beside others: {beside_others(effect)[0]}."]
    said += [f"({late})"] if late and verdict is not None else []
    words = (stated.says if stated is not None else "") or f"{question.spelled} ablated"
    pins.offer(title=words, sentences=[*said, *effect_sentences(effect)], panel=panel, figure=figure)
    with st.container(horizontal=True):
        st.button("Pin to findings", key="pin_effect", icon=":material/push_pin:", on_click=pins.pin_offered)


def _control(question: Question, effect: AblationEffect) -> None:
    st.subheader("Against matched random sets")
    control = effect.control
    if control.p is None or control.smallest_p is None:
        components.caption(control.note[:1].upper() + control.note[1:] + ".")
        return
    panel = Panel(
        key="matched",
        title="Matched random sets",
        rows=partial(control_rows, effect),
        about=about(question, control.n or effect.harm.n, n_sets=len(control.harm), p=control.p),
        python=snippet(
            question, "rows = control_rows(effect)", imports=["from analyses.ablation.tables import control_rows"]
        ),
    )
    figure = jobs.drawn(question.key("matched"), partial(control_figure, effect))
    panels.chart(panel, figure, alt="Where the ablated set lies among matched random sets", width="stretch")
    p = p_phrase(control.p, control.smallest_p)
    more = f"{'gain' if control.gains else 'cost'} at least as much, this one counted"
    few = "" if control.is_beaten is not None else f"; {len(control.harm)} sets are too few to decide at 0.05"
    components.caption(f"diamond: {question.spelled}", control.note, f"{p}: the share of sets that {more}{few}")
