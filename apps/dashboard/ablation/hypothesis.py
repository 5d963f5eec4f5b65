"""The bench of the Ablate page: what is ablated, and the hypothesis about it."""

from __future__ import annotations

import streamlit as st

from analyses.claims.statement import Statement
from analyses.claims.usual import matchable
from analyses.heads.named import named_parts
from apps.dashboard import components, data
from apps.dashboard.ablation import asking
from apps.dashboard.ablation.asking import CONTROLS, Asked
from apps.dashboard.data import Run
from apps.dashboard.state import Selection
from interp.resolved_places import resolve_places
from model.config import GPTConfig
from model.errors import CutawayError, InputError


def places(run: Run, chosen: Selection, suggested: str) -> None:
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
        if run.model is not None:
            _sublayers(run.model)
    if run.model is not None and chosen.ablate:
        _alone(run, chosen, run.model)


def _alone(run: Run, chosen: Selection, config: GPTConfig) -> None:
    """Say, before anything is measured, that nothing can be compared with these places; offer some that have others."""
    resolved = resolve_places(chosen.ablate, config)
    sets = matchable(resolved, config)
    if sets.n_sets:
        return
    st.warning(
        components.literal(f"{sets.why[:1].upper()}{sets.why[1:]}: nothing will tell whether any others cost as much."),
        icon=":material/compare_arrows:",
    )
    saved = data.shelf(run, NAMES).at(chosen.step)
    parts = {} if saved is None else named_parts(data.verdicts(saved), chosen.ablate, config)
    for name, spelled in parts.items():
        others = matchable(resolve_places(spelled, config), config).n_sets
        st.button(
            f"Take those called {name}: {spelled} ({others:,} other sets)", key=f"take-{name}",
            on_click=components.set_ablation, args=(spelled,), help="By the verdicts of attention-patterns.",
        )  # fmt: skip


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


def held_against(run: Run, chosen: Selection, asked: Asked) -> Asked:
    """The hypothesis with a control; where the form left it open, which one, and why, is said."""
    has_start = chosen.step != 0 and 0 in run.steps
    settled, why = asked.held_against(chosen.ablate, run.model, has_start=has_start)
    if why and settled.control is not None:
        components.caption(f"Held against {CONTROLS[settled.control]}: {why}")
    return settled


def stated(asked: Asked, chosen: Selection) -> tuple[Statement | None, bool]:
    """The hypothesis as a claim, and whether it can be asked; why not is said."""
    if asked.unread:
        components.unasked(InputError(asked.unread))
    if asked.unread or not chosen.ablate:
        return None, False
    try:
        return asked.statement(chosen.ablate, chosen.step), True
    except CutawayError as error:
        for line in str(error).splitlines():
            components.unasked(CutawayError(line))
        return None, False


NAMES = "attention-patterns"
"""The study whose verdicts say what a head is called."""

__all__ = ["asking", "held_against", "places", "stated"]
