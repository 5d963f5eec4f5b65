"""Which results a session sees: those of its own Run, and those that an address says it is the view of.

Numbers are shared by all sessions (`jobs`). One that another session measured, shown before Run, would spoil a
hypothesis that is yet to be stated; so the address of a result names it, and nothing else shows it unasked.
"""

from __future__ import annotations

import hashlib

import streamlit as st

from apps.dashboard.ablation import jobs
from apps.dashboard.ablation.measuring import FURTHER, Question, effect_key

NAME = "result"
"""In the address: the mark of a question, and what more was asked of it, as in 3f9a2c1e.dose.pairs."""


def mark_of(question: Question) -> str:
    """Eight digits of all that an effect depends on, the same in every session; of the hypothesis it holds nothing."""
    asked = question.run.name, question.step, question.spelled, question.asked.how
    return hashlib.sha256(repr(asked).encode("utf-8", "replace")).hexdigest()[:8]


def arrived(question: Question) -> None:
    """Let this session see what its address says that it is the view of."""
    mark, *more = st.query_params.get(NAME, "").split(".")
    if mark == mark_of(question):
        for key in (effect_key(question), *(question.key(what) for what in FURTHER if what in more)):
            jobs.adopt(key)


def write(question: Question | None) -> None:
    """Put into the address which result is shown, after it was drawn; none is where nothing was measured or asked."""
    if question is None or jobs.shown(effect_key(question)) is None:
        st.query_params.pop(NAME, None)
        return
    more = [what for what in FURTHER if jobs.shown(question.key(what)) is not None]
    now = ".".join([mark_of(question), *more])
    if st.query_params.get(NAME) != now:
        st.query_params[NAME] = now
