"""The three units in which attention is told: what they are called, their scales, and where one is not defined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st
import torch
from torch import Tensor

from analyses.views import Scale
from analyses.views.payload import fitted
from apps.dashboard import components, keys
from apps.dashboard.asked import Choice, begin, end
from interp.live import Basis
from model.config import GPTConfig
from model.errors import NotAdditiveError

TITLES = {Basis.RAW: "raw", Basis.WEIGHTED: "value-weighted", Basis.SIGNED: "signed, as logits"}

UNITS = {Basis.RAW: "attention", Basis.WEIGHTED: "stream units", Basis.SIGNED: "logits"}

EXPLAINED = {
    Basis.RAW: "the share of attention; a query's shares sum to 1",
    Basis.WEIGHTED: "attention times the length of what the key sends, |v W_O|, in stream units; rows are not "
    "normalised",
    Basis.SIGNED: "what each key adds to the logit of the token that follows (behind the last, of the one that the "
    "model gives most), less the mean logit over the vocabulary, with the norms' scales held",
}

CHOICE = Choice(name="basis", key="basis", options=list(Basis), usual=Basis.RAW)


def choose(model: GPTConfig | None) -> Basis | None:
    """Let a basis be chosen; where it is not defined for this model that is said, and None is returned."""
    begin(CHOICE)
    reason = undefined(model)
    defined = [basis for basis in Basis if reason is None or basis is not Basis.SIGNED]
    keys.bind("v", "raw, value-weighted, signed", _cycle, defined)
    st.segmented_control(
        "Attention", list(Basis), format_func=TITLES.__getitem__, key=CHOICE.key, required=True,
        label_visibility="collapsed", help="V goes through them",
    )  # fmt: skip
    basis = Basis(end(CHOICE))
    if reason is not None:
        components.caption(f"{TITLES[Basis.SIGNED]}: not defined here. {reason}")
    return None if basis is Basis.SIGNED and reason is not None else basis


def _cycle(defined: Sequence[Basis]) -> None:
    now = Basis(st.session_state.get(CHOICE.key) or Basis.RAW)
    st.session_state[CHOICE.key] = defined[(defined.index(now) + 1) % len(defined)] if now in defined else Basis.RAW


def undefined(model: GPTConfig | None) -> str | None:
    """Why signed contributions are not defined for this model, in a sentence; None where they are."""
    if model is None:
        return None
    try:
        model.require_additive_stream("A contribution to a logit")
    except NotAdditiveError as error:
        return str(error).split(". ")[0] + "."
    return None


def scale_of(values: Iterable[Tensor], basis: Basis) -> Scale:
    """Shares from 0 to 1; otherwise up to the largest value, symmetric about 0 where it is signed."""
    if basis is Basis.RAW:
        return Scale()
    every = torch.cat([each.flatten() for each in values])
    return fitted(every, "diverging" if basis is Basis.SIGNED else "sequential")
