"""The one selection that all pages share: inputs bound to the address, drawn by the entrypoint, read by every page.

They must be drawn there and nowhere else: an input bound on a page only loses its part of the address when the page
changes. Run and step always stand in the address, so that it means the same when there are more of them: an input that
has a default leaves it out, so these two have none, and are filled before they are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from apps.dashboard import components
from apps.dashboard.data import Run
from apps.dashboard.state import TEXTS, Selection, from_query
from interp.live import LiveText

PROMPT = "def load(path):\n    return open(path)\n\ndef save(path):\n    return open("
"""The text to begin with: it repeats itself, so that heads which copy have something to copy."""

_KEY = "_selection"


def draw(runs: Sequence[Run]) -> None:
    """Draw the inputs in the sidebar, and keep what they say for `selection` and `run`."""
    asked = {name: st.query_params.get(name, "") for name in ("run", "step")}
    with st.sidebar:
        run = _pick_run(runs)
        step = _pick_step(run)
        _pick_places()
        _pick_text()
        raw = {name: str(st.session_state.get(name) or "") for name in TEXTS}
        chosen, notices = from_query({**raw, "run": run.name, "step": "" if step is None else str(step)}, run.model)
        for notice in (*_unknown(asked, runs, run), *notices):
            st.warning(components.literal(notice), icon=":material/link_off:")
    st.session_state[_KEY] = (run, chosen, notices)


def run() -> Run:
    """The run that is selected."""
    return st.session_state[_KEY][0]


def selection() -> Selection:
    """What is selected in it."""
    return st.session_state[_KEY][1]


def notice(name: str) -> str | None:
    """Why the part `name` of the address was dropped, if it was: to be said where the part would be shown."""
    return next(
        (said.removeprefix(f"{name}: ") for said in st.session_state[_KEY][2] if said.startswith(f"{name}: ")), None
    )


def _pick_run(runs: Sequence[Run]) -> Run:
    names = [run.name for run in runs]
    name = _pick_one("Run", names, names[0], key="run")
    return next(run for run in runs if run.name == name)


def _pick_one(label: str, options: Sequence[Any], otherwise: Any, *, key: str) -> Any:
    """One of `options`, in the address whichever it is; `otherwise` until one was chosen."""
    if st.session_state.get(key) not in options:
        if key not in st.session_state and key not in st.query_params:  # not bound yet, so it may be written
            st.query_params[key] = str(otherwise)
        st.session_state[key] = otherwise  # where the address has one, that one wins
    chosen = st.selectbox(
        label, options, index=None, format_func=str, key=key, bind="query-params"
    )  # fmt: skip
    if chosen is None:  # it was cleared, or this is an earlier address that says nothing
        st.rerun()
    return chosen


def _pick_step(run: Run) -> int | None:
    if not run.steps:
        return None
    # The address holds an option as it is shown, so it is shown as it is written there: 1650, not 1,650.
    return _pick_one("Checkpoint (step)", run.steps, run.steps[-1], key="step")


def _pick_places() -> None:
    left, right = st.columns(2, gap="small")
    left.text_input("Head", key="head", bind="query-params", placeholder="L1H3")
    right.text_input("Memory", key="memory", bind="query-params", placeholder="L1M37")
    st.text_input(
        "Ablate", key="ablate", bind="query-params", placeholder="L1H1,L1H3:mean",
        help="Places to ablate, separated by commas: L1H3 a head, L1M37 a memory, L0.attn, L0.ffn, L0 both; after a "
             "colon zero, mean, mean@pos, mean@seq, resample, counterfactual or optimal. Shift-click a head to add it.",
    )  # fmt: skip


def _pick_text() -> None:
    st.segmented_control(
        "Live passes on", list(LiveText), default=LiveText.PROMPT, key="text", bind="query-params",
        width="stretch", wrap=False,
    )  # fmt: skip
    st.text_area("Prompt", value=PROMPT, key="prompt", bind="query-params", height=110)
    st.text_input(
        "Locked cell", key="cell", bind="query-params", placeholder="query.key",
        help="Click a cell of a pattern to lock it; Escape releases it.",
    )  # fmt: skip


def _unknown(asked: dict[str, str], runs: Sequence[Run], run: Run) -> list[str]:
    """What an address names and is not there: the inputs fall back without a word, so the word is said here."""
    notices = []
    if asked["run"] and asked["run"] not in {each.name for each in runs}:
        notices.append(f'there is no run "{asked["run"]}" here; showing {run.name}')
    elif asked["step"] and asked["step"] not in {str(step) for step in run.steps}:
        notices.append(f"{run.name} has no checkpoint at step {asked['step']}; showing the last one")
    if run.damaged:
        notices.append(f"damaged or incomplete, and left out: {', '.join(run.damaged)}")
    return notices
