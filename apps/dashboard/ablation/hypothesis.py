"""The bench of the Ablate page: what is ablated, and the hypothesis about it."""

from __future__ import annotations

import streamlit as st

from analyses.claims.statement import Statement
from apps.dashboard import components
from apps.dashboard.ablation import asking
from apps.dashboard.ablation.asking import Asked
from apps.dashboard.state import Selection
from model.config import GPTConfig
from model.errors import CutawayError


def places(chosen: Selection, config: GPTConfig | None, suggested: str) -> None:
    """The places that are ablated, each to be taken out; and ways to choose some."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="chosen_places"):
        if chosen.ablate:
            st.text("Ablated together:")
            for place in chosen.ablate:
                st.button(
                    str(place), key=f"drop-{place.label}", on_click=components.toggle_ablation, args=(place.label,),
                    icon=":material/close:", help=f"Take {place.label} out",
                )  # fmt: skip
        else:
            st.text("No place is chosen: shift-click heads in the grid, or write places, such as L0H1 or L0.ffn:zero.")
        spelled = ",".join(place.label for place in chosen.ablate)
        if suggested and suggested != spelled:
            st.button(
                f"Take the induction heads {suggested}", key="take_induction", on_click=components.set_ablation,
                args=(suggested,), help="The set that the study of single heads found on sequences of its own.",
            )  # fmt: skip
        if config is not None:
            _sublayers(config)


def _sublayers(config: GPTConfig) -> None:
    """A whole sublayer, picked from a list."""
    names = [f"L{layer}.{part}" for layer in range(config.n_layers) for part in _parts(config)]
    st.selectbox(
        "Add a sublayer", names, index=None, placeholder="add a sublayer", key="add_sublayer", width=170,
        label_visibility="collapsed", on_change=_add_sublayer,
    )  # fmt: skip


def _parts(config: GPTConfig) -> tuple[str, ...]:
    return ("attn",) if config.ffn == "none" else ("attn", "ffn")


def _add_sublayer() -> None:
    name = st.session_state.get("add_sublayer")
    st.session_state["add_sublayer"] = None
    if name:
        components.toggle_ablation(str(name))


def stated(asked: Asked, chosen: Selection) -> tuple[Statement | None, bool]:
    """The hypothesis as a claim, and whether it can be asked; why not is said."""
    if not chosen.ablate:
        return None, False
    try:
        return asked.statement(chosen.ablate, chosen.step), True
    except CutawayError as error:
        for line in str(error).splitlines():
            components.unasked(CutawayError(line))
        return None, False


__all__ = ["asking", "places", "stated"]
