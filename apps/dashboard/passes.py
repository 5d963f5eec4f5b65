"""Forward passes made for a page, remembered by the checkpoint they were made with and by what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st
from jaxtyping import Float
from torch import Tensor

from apps.dashboard import data
from apps.dashboard.data import Run
from apps.dashboard.state import Selection
from interp import live
from interp.live import Basis, Live, LiveText
from interp.places import Head

if TYPE_CHECKING:
    import pandas as pd

    from analyses.heads.text import HeadExamples
    from analyses.results import SavedResult
    from interp.effects import AblationEffect
    from interp.live_memories import WritingMemories
    from interp.token_effects import TokenEffects
    from model.lab import Lab


def look(run: Run, chosen: Selection) -> Live:
    """The selected text in the selected checkpoint, with every head's pattern."""
    return _look(data.lab(run, chosen.step), checkpoint_of(run, chosen.step), chosen.text, chosen.prompt)


def attention(run: Run, chosen: Selection, basis: Basis) -> Float[Tensor, "layer head query key"]:
    """Every head's attention on the selected text, in one basis."""
    return _attention(data.lab(run, chosen.step), checkpoint_of(run, chosen.step), basis, chosen.text, chosen.prompt)


def after_last(run: Run, chosen: Selection) -> str:
    """The token that the selected checkpoint gives most behind the selected text."""
    return _after_last(data.lab(run, chosen.step), checkpoint_of(run, chosen.step), chosen.text, chosen.prompt)


def examples(run: Run, step: int | None, saved: SavedResult, head: Head) -> HeadExamples:
    """The attention rows of a head whose examples a result names but does not hold: the corpus is read again there."""
    return _examples(
        data.lab(run, step), saved, checkpoint_of(run, step), f"{saved.path} {saved.provenance.created}", head
    )


def raised_tokens(run: Run, step: int | None, saved: SavedResult, head: Head) -> pd.DataFrame:
    """Which logits a head's OV circuit raises for the tokens that it attends to most."""
    return _raised_tokens(
        data.lab(run, step), saved, checkpoint_of(run, step), f"{saved.path} {saved.provenance.created}", head
    )


def text(run: Run, chosen: Selection) -> tuple[tuple[str, ...], str]:
    """The tokens of the selected text, and what the text is, in words; nothing is run."""
    return _text(data.lab(run, chosen.step), checkpoint_of(run, chosen.step), chosen.text, chosen.prompt)


def coefficients(run: Run, chosen: Selection, layer: int) -> Float[Tensor, "pos memory"]:
    """The coefficient of every memory of one layer on the selected text."""
    return _coefficients(data.lab(run, chosen.step), checkpoint_of(run, chosen.step), layer, chosen.text, chosen.prompt)


def writing(run: Run, chosen: Selection, position: int) -> WritingMemories:
    """The memories of all layers that write most at one position of the selected text."""
    opened = data.lab(run, chosen.step)
    return _writing(opened, checkpoint_of(run, chosen.step), position, chosen.text, chosen.prompt)


def memory_deletions(run: Run, step: int | None, saved: SavedResult, memory: tuple[int, int]) -> tuple[int, Tensor]:
    """How many of a memory's top triggers could be cut, and its mean falls, as the study has them for its sample."""
    return _memory_deletions(
        data.lab(run, step), saved, checkpoint_of(run, step), f"{saved.path} {saved.provenance.created}", memory
    )


def token_effects(run: Run, chosen: Selection, places: str, intervention: str) -> TokenEffects:
    """What ablating `places` does to each token of the selected text."""
    opened = data.lab(run, chosen.step)
    return _token_effects(opened, checkpoint_of(run, chosen.step), places, intervention, chosen.text, chosen.prompt)


def effect(run: Run, step: int | None, places: str, metric: str, intervention: str, n_sequences: int) -> AblationEffect:
    """What ablating `places` together costs, as the command has it: with matched sets, and with the same at step 0."""
    return _effect(data.lab(run, step), checkpoint_of(run, step), places, metric, intervention, n_sequences)


@st.cache_resource(max_entries=32, show_spinner=False)
def _look(_lab: Lab, checkpoint: str, text: LiveText, prompt: str) -> Live:
    del checkpoint
    return live.look(_lab, text, prompt)


@st.cache_resource(max_entries=32, show_spinner=False)
def _attention(
    _lab: Lab, checkpoint: str, basis: Basis, text: LiveText, prompt: str
) -> Float[Tensor, "layer head query key"]:
    del checkpoint
    return live.attention_in(_lab, basis, text, prompt)


@st.cache_resource(max_entries=32, show_spinner=False)
def _after_last(_lab: Lab, checkpoint: str, text: LiveText, prompt: str) -> str:
    del checkpoint
    return live.after_last(_lab, text, prompt)


@st.cache_resource(max_entries=32, show_spinner="Reading the head's examples in the corpus")
def _examples(_lab: Lab, _saved: SavedResult, checkpoint: str, result: str, head: Head) -> HeadExamples:
    from analyses.heads.text import read_examples

    del checkpoint, result
    return read_examples(_lab, _saved.result.behaviour.seen, head)


@st.cache_resource(max_entries=64, show_spinner=False)
def _raised_tokens(_lab: Lab, _saved: SavedResult, checkpoint: str, result: str, head: Head) -> pd.DataFrame:
    from analyses.heads.text import raised_tokens as measured

    del checkpoint, result
    return measured(_lab, _saved.result.behaviour, head)


@st.cache_resource(max_entries=64, show_spinner=False)
def _text(_lab: Lab, checkpoint: str, text: LiveText, prompt: str) -> tuple[tuple[str, ...], str]:
    del checkpoint
    tokens, source = live.live_tokens(_lab, text, prompt)
    return tuple(_lab.str_tokens(tokens)), source


@st.cache_resource(max_entries=32, show_spinner=False)
def _coefficients(_lab: Lab, checkpoint: str, layer: int, text: LiveText, prompt: str) -> Float[Tensor, "pos memory"]:
    del checkpoint
    return live.coefficients(_lab, text, prompt, layer)


@st.cache_resource(max_entries=64, show_spinner=False)
def _writing(_lab: Lab, checkpoint: str, position: int, text: LiveText, prompt: str) -> WritingMemories:
    from interp.live_memories import writing_memories

    del checkpoint
    return writing_memories(_lab, text, prompt, position)


@st.cache_resource(max_entries=64, show_spinner="Cutting its triggers")
def _memory_deletions(
    _lab: Lab, _saved: SavedResult, checkpoint: str, result: str, memory: tuple[int, int]
) -> tuple[int, Tensor]:
    from analyses.memories.cutting import falls_now

    del checkpoint, result
    return falls_now(_lab, _saved.result, memory)


@st.cache_resource(max_entries=64, show_spinner=False)
def _token_effects(
    _lab: Lab, checkpoint: str, places: str, intervention: str, text: LiveText, prompt: str
) -> TokenEffects:
    from interp.token_effects import token_effects as measured

    del checkpoint
    tokens, _ = live.live_tokens(_lab, text, prompt)
    return measured(_lab, tokens[None], places, intervention=intervention)


@st.cache_resource(max_entries=64, show_spinner="Ablating the places, and the sets that match them")
def _effect(
    _lab: Lab, checkpoint: str, places: str, metric: str, intervention: str, n_sequences: int
) -> AblationEffect:
    from interp.effects import ablate

    del checkpoint
    return ablate(_lab, places, metric=metric, intervention=intervention, n_sequences=n_sequences)


def checkpoint_of(run: Run, step: int | None) -> str:
    """Which checkpoint, and the files it is read from now: other weights, or other held-out text, is another one."""
    if step is None:
        return f"{run.path}@"
    read_from = ",".join(f"{name}:{stamp}" for name, stamp in data.opened_from(run, step))
    return f"{run.path}@{step} {data.manifest(run, step).weights_sha256} {read_from}"
