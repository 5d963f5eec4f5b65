"""When a hypothesis was stated: before any number about its places was on the page, after that, or nobody knows.

A hypothesis counts as stated first where this session's own Run measured what was then seen, and nothing about these
places had been shown before: no other outcome, replacement or seed either. Numbers are shared by all sessions
(`jobs`), and what was seen in another one, or before the page was loaded again, is not known here; that is said.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import streamlit as st

from analyses.claims.statement import Stated, Statement
from apps.dashboard import passes
from apps.dashboard.ablation import jobs
from apps.dashboard.ablation.measuring import Question, effect_key
from interp.ablation import Frozen, print_positions

_BEGUN, _SEEN = "_stated_at_run", "_stated_when_seen"
"""In the session: what was stated when Run was pressed, by effect; and when numbers were first shown, by places."""


@dataclass(frozen=True, kw_only=True)
class _First:
    """What was stated when numbers about some places of a checkpoint were first shown in this session."""

    hypothesis: tuple[Hashable, ...]
    """Empty where no bound was."""
    said: str
    """The same in words."""
    put: tuple[str, ...]
    """What was done to the places, in words."""
    is_own: bool
    """Whether they were measured for it, by this session's Run."""


def begun(question: Question, stated: Statement | None) -> None:
    """Run was pressed: unless the numbers are there already, they are measured for what is stated now."""
    if jobs.known(effect_key(question)) is None:
        known = st.session_state.setdefault(_BEGUN, {})
        known[effect_key(question)] = _hypothesis(question, stated), _words(question, stated)


def seen(question: Question, stated: Statement | None) -> None:
    """An effect of these places is shown, with every outcome that was measured."""
    firsts = st.session_state.setdefault(_SEEN, {})
    if _places(question) in firsts:
        return
    own = st.session_state.get(_BEGUN, {}).get(effect_key(question))
    hypothesis, said = own or (_hypothesis(question, stated), _words(question, stated))
    firsts[_places(question)] = _First(
        hypothesis=hypothesis, said=said, put=_put(question), is_own=own is not None
    )  # fmt: skip


def doubt(question: Question, stated: Statement | None) -> str:
    """Why the hypothesis does not count as stated first; empty where it does, and where there is none."""
    first: _First | None = st.session_state.get(_SEEN, {}).get(_places(question))
    if stated is None or first is None:
        return ""
    if first.hypothesis == _hypothesis(question, stated):
        return "" if first.is_own else (
            "not known whether it was stated first: the numbers were there when this session opened the page"
        )  # fmt: skip
    changed = [was for was, now in zip(first.put, _put(question), strict=True) if was != now]
    measured = ", ".join([f"first measured {first.said}", *changed])
    how = measured if first.is_own else "on the page when this session opened it"
    return f"stated after numbers about these places had been seen: they were {how}"


def dated(question: Question, stated: Statement) -> Statement:
    """The hypothesis with when it was stated, as its claim says it; for after an effect was shown."""
    first: _First | None = st.session_state.get(_SEEN, {}).get(_places(question))
    if first is None:
        return stated
    if first.hypothesis != _hypothesis(question, stated):
        return replace(stated, stated=Stated.AFTER)
    return replace(stated, stated=Stated.BEFORE if first.is_own else Stated.UNKNOWN)


def _places(question: Question) -> tuple[Hashable, ...]:
    """Checkpoint and places, in whatever order they are written and whatever is put there."""
    labels = sorted({place.label for place in question.places})
    return (passes.checkpoint_of(question.run, question.step), *labels)


def _hypothesis(question: Question, stated: Statement | None) -> tuple[Hashable, ...]:
    """What may not be changed after the numbers were seen; more sequences, or other ones, are the same hypothesis."""
    if stated is None:
        return ()
    asked = question.asked
    return stated.effect, str(stated.control), question.spelled, asked.metric, *asked.put


def _words(question: Question, stated: Statement | None) -> str:
    if stated is None:
        return "without a bound"
    return f"as {stated.effect} on {question.asked.metric} against {stated.control}"


def _put(question: Question) -> tuple[str, ...]:
    """What is done to the places, each part in words of its own: those that have changed since are said."""
    asked = question.asked
    return (
        f"places {question.spelled}",
        f"replaced by {asked.fill}",
        f"gate {asked.gate or 0}",
        "at all positions" if asked.positions is None else f"at positions {print_positions(asked.positions)}",
        "later patterns held" if asked.frozen is Frozen.PATTERNS else "later patterns not held",
    )
