"""The figures of the page as specifications, remembered: a click moves a rule, and draws no line anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from analyses.attention.kinds import Kind
from analyses.attention.stimuli import Stimulus
from analyses.dynamics.axis import Time
from analyses.dynamics.lines import heads_figure, losses_figure, score_figure
from analyses.results import SavedResult
from apps.dashboard import data
from apps.dashboard.training.saved import derived
from interp.places import Head

Key = tuple[str, int]


def time_of(saved: SavedResult, other: SavedResult | None, asked: Time) -> Time:
    """The axis as it was asked for, with the stretch in which copying formed, and that of another run."""
    return replace(asked, stretch=_stretch(saved), other_stretch=None if other is None else _stretch(other))


def _stretch(saved: SavedResult) -> tuple[int, int] | None:
    found = derived(saved).change
    return None if found is None else (found.start, found.end)


def losses(saved: SavedResult, other: SavedResult | None, time: Time) -> dict[str, Any]:
    """Losses on copies and on text."""
    return _losses(saved, other, data.identity(saved), _key(other), time)


def icl(saved: SavedResult, other: SavedResult | None, time: Time) -> dict[str, Any]:
    """The in-context-learning score."""
    return _icl(saved, other, data.identity(saved), _key(other), time)


def heads(
    saved: SavedResult, other: SavedResult | None, time: Time, kind: Kind, reading: Stimulus, more: Head | None
) -> dict[str, Any]:
    """One score of every head; `more` is named besides the strongest."""
    return _heads(saved, other, data.identity(saved), _key(other), time, kind, reading, more)


@st.cache_data(max_entries=24, show_spinner=False)
def _losses(
    _saved: SavedResult, _other: SavedResult | None, key: Key, other_key: Key | None, time: Time
) -> dict[str, Any]:
    del key, other_key
    return losses_figure(_saved.result, time, other=_result(_other), height=230).to_dict()


@st.cache_data(max_entries=24, show_spinner=False)
def _icl(
    _saved: SavedResult, _other: SavedResult | None, key: Key, other_key: Key | None, time: Time
) -> dict[str, Any]:
    del key, other_key
    other = _result(_other)
    over = other if other is not None and "icl_score" in other.losses else None
    return score_figure(_saved.result, time, other=over, height=160).to_dict()


@st.cache_data(max_entries=48, show_spinner=False)
def _heads(
    _saved: SavedResult, _other: SavedResult | None, key: Key, other_key: Key | None, time: Time, kind: Kind,
    reading: Stimulus, more: Head | None,
) -> dict[str, Any]:  # fmt: skip
    del key, other_key
    theirs = [] if _other is None else top(_other, kind)[:_BESIDE]
    own = top(_saved, kind)
    return heads_figure(
        _saved.result,
        kind,
        time,
        reading=reading,
        top=_with(own[:_BESIDE] if theirs else own, more),
        other=_result(_other) if theirs else None,
        other_top=theirs,
        height=330,
    ).to_dict()


_BESIDE = 3
"""Heads of each run that are coloured, at most, where two runs are drawn together."""


def top(saved: SavedResult, kind: Kind) -> list[Head]:
    """The heads to name: those that formed, or else the strongest at the last checkpoint."""
    known = derived(saved).top.get(kind.value)
    if known is not None:
        return known
    scores = next(
        reading.scores[kind.value] for reading in saved.result.readings.values() if kind.value in reading.scores
    )
    last = scores.mean[-1]
    order = last.flatten().argsort(descending=True)[:_BESIDE].tolist()
    return [divmod(place, last.shape[1]) for place in order]


def _with(heads_named: Sequence[Head], more: Head | None) -> list[Head]:
    return [*heads_named, *([more] if more is not None and more not in heads_named else [])]


def _result(saved: SavedResult | None) -> Any:
    return None if saved is None else saved.result


def _key(saved: SavedResult | None) -> Key | None:
    return None if saved is None else data.identity(saved)
