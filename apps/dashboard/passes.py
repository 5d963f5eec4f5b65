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
from interp.live import Live, LiveText

if TYPE_CHECKING:
    from interp.effects import AblationEffect
    from interp.token_effects import TokenEffects
    from model.lab import Lab


def look(run: Run, chosen: Selection) -> Live:
    """The selected text in the selected checkpoint, with every head's pattern."""
    return _look(data.lab(run, chosen.step), _checkpoint(run, chosen.step), chosen.text, chosen.prompt)


def coefficients(run: Run, chosen: Selection) -> Float[Tensor, "layer pos memory"]:
    """Every memory's coefficient on the selected text."""
    return _coefficients(data.lab(run, chosen.step), _checkpoint(run, chosen.step), chosen.text, chosen.prompt)


def token_effects(run: Run, chosen: Selection, places: str, intervention: str) -> TokenEffects:
    """What ablating `places` does to each token of the selected text."""
    opened = data.lab(run, chosen.step)
    return _token_effects(opened, _checkpoint(run, chosen.step), places, intervention, chosen.text, chosen.prompt)


def effect(run: Run, step: int | None, places: str, metric: str, intervention: str, n_sequences: int) -> AblationEffect:
    """What ablating `places` together costs, with as many matched sets as the command takes."""
    return _effect(data.lab(run, step), _checkpoint(run, step), places, metric, intervention, n_sequences, 100)


def effect_at_step_zero(
    run: Run, step: int | None, places: str, metric: str, intervention: str, n_sequences: int
) -> AblationEffect | None:
    """The same at step 0, with one matched set; None if this is step 0, or it was not kept."""
    if step == 0 or 0 not in run.steps:
        return None
    return _effect(data.lab(run, 0), _checkpoint(run, 0), places, metric, intervention, n_sequences, 1)


@st.cache_resource(max_entries=32, show_spinner=False)
def _look(_lab: Lab, checkpoint: str, text: LiveText, prompt: str) -> Live:
    del checkpoint
    return live.look(_lab, text, prompt)


@st.cache_resource(max_entries=16, show_spinner=False)
def _coefficients(_lab: Lab, checkpoint: str, text: LiveText, prompt: str) -> Float[Tensor, "layer pos memory"]:
    del checkpoint
    return live.coefficients(_lab, text, prompt)


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
    _lab: Lab, checkpoint: str, places: str, metric: str, intervention: str, n_sequences: int, n_controls: int
) -> AblationEffect:
    from interp.effects import ablate

    del checkpoint
    return ablate(
        _lab, places, metric=metric, intervention=intervention, n_sequences=n_sequences, n_controls=n_controls
    )


def _checkpoint(run: Run, step: int | None) -> str:
    """Which checkpoint, and which weights: two runs may begin with the same ones and hold out different text."""
    return f"{run.path}@{step} {'' if step is None else data.manifest(run, step).weights_sha256}"
