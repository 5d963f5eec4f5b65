"""What a run of the bench takes: how many tokens go through the model, and about how long that is on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st
import torch

from analyses.claims.statement import ControlKind, Statement
from apps.dashboard import passes
from apps.dashboard.ablation import jobs
from apps.dashboard.ablation.asking import N_CONTROLS, is_about_copies
from apps.dashboard.ablation.jobs import Told
from apps.dashboard.ablation.measuring import Question, effect_key
from interp.donors import LEAST_DONORS
from interp.matched_places import matched_places
from interp.periods import deciding_period
from interp.places import Intervention
from interp.trials import REFERENCES
from model.checkpoint import checkpoint_steps
from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """Sequences of one kind."""

    n: int
    length: int
    n_reference: int

    def once(self, draws: float) -> float:
        """Tokens of measuring one ablation on them: replacements, the intact run, and the ablated ones."""
        return self.length * (self.n_reference + self.n * (1 + draws))


def told(question: Question, stated: Statement | None) -> str:
    """About how much work a run is, in words; from what passes of this checkpoint take on this machine."""
    n, seconds = tokens(question, stated), _seconds_per_token(question)
    fitted = ", and more for constants that have to be fitted" if question.ablation.takes(Intervention.OPTIMAL) else ""
    return (
        f"reads about {round(n, -3):,.0f} tokens: about {jobs.duration(_OPENING + n * seconds)} on this machine{fitted}"
    )


def learning(question: Question, stated: Statement | None, work: Callable[[Told], Any]) -> Callable[[Told], Any]:
    """The same work; how long it takes is what the next estimate for this checkpoint rests on."""

    def timed(told: Told) -> Any:
        n, begun = tokens(question, stated), time.monotonic()
        found = work(told)
        taken = time.monotonic() - begun - _OPENING
        if taken > _TELLING and not question.ablation.takes(Intervention.OPTIMAL):
            _learnt()[passes.checkpoint_of(question.run, question.step)] = taken / n
        return found

    return timed


def tokens(question: Question, stated: Statement | None) -> float:
    """Tokens that go through the whole model; layers below the first ablated one run once and are shared."""
    lab, ablation = question.lab, question.ablation
    copies, text = _kinds(question, lab)
    on_metric = copies if is_about_copies(question.asked.metric) else text
    n_donors = LEAST_DONORS if ablation.takes(Intervention.RESAMPLE) else 1
    draws = n_donors * (1 - ablation.first_layer / lab.config.n_layers)
    has_start = lab.step != 0 and 0 in checkpoint_steps(lab.path)
    n_sets = len(matched_places(ablation.places, lab.config, limit=N_CONTROLS, seed=question.asked.seed).sets)
    sets = n_sets * on_metric.n * on_metric.length * draws
    once = (copies.once(draws) + text.once(draws)) * (2 if has_start else 1)
    whole = 0.0 if jobs.shown(effect_key(question)) is not None else once
    if stated is None:
        return whole + sets
    control = {
        ControlKind.TEXT: text.once(draws),
        ControlKind.STEP0: on_metric.once(draws),
        ControlKind.MATCHED: sets,
    }
    if whole and stated.control is not ControlKind.MATCHED:
        whole += sets  # those of a control are measured once, and serve both
    return whole + on_metric.once(draws) + control.get(stated.control, 0.0)


def _kinds(question: Question, lab: Lab) -> tuple[_Kind, _Kind]:
    """Repeated tokens, and held-out rows: half of these are there to be measured on."""
    n = question.asked.n
    rows, length = lab.eval_tokens.shape
    means = question.ablation.takes(Intervention.MEAN, Intervention.MEAN_PER_POSITION)
    bos = 0 if lab.tokenizer.bos is None else 1
    of_each = [(n, 2 * deciding_period(lab) + bos), (min(n, rows // 2), length)]
    copies, text = (
        _Kind(n=many, length=long, n_reference=min(many, REFERENCES) if means else 0) for many, long in of_each
    )
    return copies, text


def _seconds_per_token(question: Question) -> float:
    checkpoint = passes.checkpoint_of(question.run, question.step)
    return _learnt().get(checkpoint) or _timed(question.lab, checkpoint)


@st.cache_resource(show_spinner=False)
def _learnt() -> dict[str, float]:
    """Seconds per token of the last run that was long enough to tell, by checkpoint."""
    return {}


@st.cache_resource(max_entries=16, ttl=600, show_spinner=False)
@torch.no_grad()
def _timed(_lab: Lab, checkpoint: str) -> float:
    """Seconds for a token: of a batch as large as those of a run, or, where that is long, of two rows of it.

    For ten minutes: what else the machine has to do changes.
    """
    del checkpoint
    found = 0.0
    for n in (2, 16, 16):  # the first pass may be slow to begin
        rows = _lab.eval_tokens[:n, :64]
        begun = time.perf_counter()
        _lab.gpt(rows)
        taken = time.perf_counter() - begun
        found = taken / rows.numel()
        if taken > _LONG:
            break
    return found


_OPENING = 1.0
"""Seconds for opening step 0, drawing sequences and resampling."""

_LONG = 0.15
"""Seconds of a pass after which no larger one is timed: the page waits for it."""

_TELLING = 10.0
"""Seconds beyond the opening that a run must take for its speed to be worth knowing."""
