"""Passes of the Lens page, remembered by the checkpoint they were made with and by what was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from analyses.views import lens_table_payload
from analyses.views.payload import Payload
from apps.dashboard import data
from apps.dashboard.data import Run
from apps.dashboard.lens.asked import SHORT, Asked
from apps.dashboard.passes import checkpoint_of
from apps.dashboard.state import Selection
from interp.live import LiveText
from interp.live_lens import LiveAttribution, LiveLens, attribution_on, lens_on
from interp.live_targets import Target
from interp.memory_attribution import MemoryAttribution, memories_towards

if TYPE_CHECKING:
    from model.lab import Lab

N_TOP = 20
"""Tokens of each cell that are kept; the table shows the first of them."""


def lens(run: Run, chosen: Selection, asked: Asked, start: int) -> LiveLens:
    """The selected text at every place, from position `start` on."""
    checkpoint = checkpoint_of(run, chosen.step)
    return _lens(data.lab(run, chosen.step), checkpoint, chosen.text, chosen.prompt, asked.target, asked.word, start)


def table(seen: LiveLens, other: LiveLens | None, asked: Asked, names: tuple[str, str], *wheres: str) -> Payload:
    """The table of a text in one checkpoint or two, without what is locked in it; `wheres` name what was read."""
    return _table(seen, other, asked.target, names, wheres)


def where(run: Run, chosen: Selection, asked: Asked, start: int) -> str:
    """A name for what `lens` reads."""
    checkpoint = checkpoint_of(run, chosen.step)
    return "\0".join((checkpoint, chosen.text, chosen.prompt, asked.target, asked.word, str(start)))


def attribution(run: Run, chosen: Selection, asked: Asked) -> LiveAttribution:
    """The target's logit at every position of the selected text, taken apart."""
    checkpoint = checkpoint_of(run, chosen.step)
    return _attribution(data.lab(run, chosen.step), checkpoint, chosen.text, chosen.prompt, replace(asked, order=""))


def memories(run: Run, chosen: Selection, asked: Asked, layer: int, position: int) -> MemoryAttribution:
    """What each memory of a layer adds to the target's logit at one position."""
    checkpoint = checkpoint_of(run, chosen.step)
    alike = replace(asked, order="", detail="")
    return _memories(data.lab(run, chosen.step), checkpoint, chosen.text, chosen.prompt, alike, layer, position)


def at(chosen: Selection, run: Run, step: int) -> Selection:
    """The same selection in another checkpoint."""
    return replace(chosen, run=run.name, step=step)


@st.cache_resource(max_entries=48, show_spinner="Reading the stream at every place")
def _lens(_lab: Lab, checkpoint: str, text: LiveText, prompt: str, target: str, word: str, start: int) -> LiveLens:
    del checkpoint
    return lens_on(_lab, text, prompt, target=target, word=word, start=start, n_top=N_TOP)


@st.cache_resource(max_entries=16, show_spinner=False)
def _table(
    _seen: LiveLens, _other: LiveLens | None, target: str, names: tuple[str, str], wheres: tuple[str, ...]
) -> Payload:
    del wheres
    short = SHORT[Target(target)]
    return lens_table_payload(
        _seen, target=short, guessed=target == Target.NEXT, other=_other, names=names, begin=at_first(_seen.n_text)
    )


def at_first(n_text: int) -> int:
    """The position that is looked at where none is chosen: the last that a token of the text follows."""
    return max(0, n_text - 2)


@st.cache_resource(max_entries=48, show_spinner=False)
def _attribution(_lab: Lab, checkpoint: str, text: LiveText, prompt: str, asked: Asked) -> LiveAttribution:
    del checkpoint
    return attribution_on(_lab, text, prompt, detail=asked.detail, **asked.compared())


@st.cache_resource(max_entries=96, show_spinner=False)
def _memories(
    _lab: Lab, checkpoint: str, text: LiveText, prompt: str, asked: Asked, layer: int, position: int
) -> MemoryAttribution:
    del checkpoint
    return memories_towards(_lab, text, prompt, layer, position, **asked.compared())
