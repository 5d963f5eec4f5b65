"""Passes of the Lens page, remembered by the checkpoint they were made with and by what was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from apps.dashboard import data
from apps.dashboard.data import Run
from apps.dashboard.lens.asked import Asked
from apps.dashboard.passes import checkpoint_of
from apps.dashboard.state import Selection
from interp.live import LiveText
from interp.live_lens import LiveAttribution, LiveLens, attribution_on, lens_on
from interp.memory_attribution import MemoryAttribution, memories_towards

if TYPE_CHECKING:
    from model.lab import Lab

N_TOP = 20
"""Tokens of each cell that are kept; the table shows the first of them."""


def lens(run: Run, chosen: Selection, asked: Asked, start: int) -> LiveLens:
    """The selected text at every place, from position `start` on."""
    where = checkpoint_of(run, chosen.step)
    return _lens(data.lab(run, chosen.step), where, chosen.text, chosen.prompt, asked.target, asked.word, start)


def attribution(run: Run, chosen: Selection, asked: Asked) -> LiveAttribution:
    """The target's logit at every position of the selected text, taken apart."""
    where = checkpoint_of(run, chosen.step)
    return _attribution(data.lab(run, chosen.step), where, chosen.text, chosen.prompt, replace(asked, order=""))


def memories(run: Run, chosen: Selection, asked: Asked, layer: int, position: int) -> MemoryAttribution:
    """What each memory of a layer adds to the target's logit at one position."""
    where = checkpoint_of(run, chosen.step)
    alike = replace(asked, order="", detail="")
    return _memories(data.lab(run, chosen.step), where, chosen.text, chosen.prompt, alike, layer, position)


def at(chosen: Selection, run: Run, step: int) -> Selection:
    """The same selection in another checkpoint."""
    return replace(chosen, run=run.name, step=step)


@st.cache_resource(max_entries=48, show_spinner="Reading the stream at every place")
def _lens(_lab: Lab, where: str, text: LiveText, prompt: str, target: str, word: str, start: int) -> LiveLens:
    del where
    return lens_on(_lab, text, prompt, target=target, word=word, start=start, n_top=N_TOP)


@st.cache_resource(max_entries=48, show_spinner=False)
def _attribution(_lab: Lab, where: str, text: LiveText, prompt: str, asked: Asked) -> LiveAttribution:
    del where
    return attribution_on(_lab, text, prompt, detail=asked.detail, **asked.compared())


@st.cache_resource(max_entries=96, show_spinner=False)
def _memories(
    _lab: Lab, where: str, text: LiveText, prompt: str, asked: Asked, layer: int, position: int
) -> MemoryAttribution:
    del where
    return memories_towards(_lab, text, prompt, layer, position, **asked.compared())
