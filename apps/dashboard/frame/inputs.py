"""The inputs of the selection. All are bound to the address, so they are drawn by the entrypoint and on every run.

Run and step always stand in the address, so that it means the same when there are more of them: an input that has a
default leaves it out, so these two have none, and are filled before they are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from apps.dashboard.data import Run
from interp.live import LiveText

PROMPT = "def load(x):\n    return open(x)\n\ndef save(x):\n    return open("
"""The text to begin with: it repeats itself, so that heads which copy have something to copy.

As bytes with a BOS it has 63 tokens, so that the 64 positions of a demo run hold all of it.
"""

SCRUB = "scrub"
"""Key of the slider over the checkpoints. It is not bound: it follows `step`, which is."""

ABLATE_HELP = (
    "Places to ablate, separated by commas: L1H3 a head, L1M37 a memory, L0.attn, L0.ffn, L0 both; after a colon zero, "
    "mean, mean@pos, mean@seq, resample, counterfactual or optimal. Shift-click a head to add it."
)


def pick_run(runs: Sequence[Run]) -> Run:
    """Draw the choice of a run."""
    names = [run.name for run in runs]
    name = _pick_one("Run", names, names[0], key="run")
    return next(run for run in runs if run.name == name)


def pick_step(run: Run) -> int | None:
    """Draw the choice of a checkpoint: a list, its neighbours, and a slider over all; None where there is none."""
    if not run.steps:
        return None
    # The address holds an option as it is shown, so it is shown as it is written there: 1650, not 1,650.
    step = _pick_one("Checkpoint (step)", run.steps, run.steps[-1], key="step")
    if len(run.steps) > 1:
        with st.container(horizontal=True, gap="xsmall", vertical_alignment="bottom", key="scrubber"):
            at = run.steps.index(step)
            st.button("Checkpoint before", key="earlier", icon=":material/chevron_left:", on_click=move,
                      args=(run.steps, -1), disabled=at == 0, help="The checkpoint before, key [")  # fmt: skip
            st.session_state[SCRUB] = step
            st.select_slider(
                "All checkpoints", run.steps, key=SCRUB, on_change=_scrubbed, label_visibility="collapsed",
                format_func=lambda each: f"{each:,}", width="stretch",
            )  # fmt: skip
            st.button("Checkpoint after", key="later", icon=":material/chevron_right:", on_click=move,
                      args=(run.steps, 1), disabled=at == len(run.steps) - 1,
                      help="The checkpoint after, key ]")  # fmt: skip
    return step


def move(steps: Sequence[int], by: int) -> None:
    """Go `by` checkpoints on, as far as there are some: a callback."""
    now = st.session_state.get("step")
    if now in steps:
        st.session_state["step"] = steps[min(len(steps) - 1, max(0, steps.index(now) + by))]


def _scrubbed() -> None:
    st.session_state["step"] = st.session_state[SCRUB]


def pick_other(runs: Sequence[Run], here: str) -> str | None:
    """Draw the choice of a checkpoint to compare with; None where none was chosen.

    Args:
        runs: every run.
        here: name of the run that is shown; its checkpoints come first.
    """
    ordered = sorted(runs, key=lambda run: run.name != here)
    options = [f"{run.name}@{step}" for run in ordered for step in run.steps]
    if st.session_state.get("b") not in (None, *options):
        st.session_state["b"] = None  # it is gone from the disk
    return st.selectbox(
        "Compare with", options, index=None, key="b", bind="query-params", placeholder="another checkpoint",
        help="A checkpoint of this run or another, shown beside this one where a page can. Type to search.",
    )  # fmt: skip


def pick_text(run: Run) -> None:
    """Draw what live passes run on."""
    st.segmented_control(
        "Live passes on", list(LiveText), default=LiveText.PROMPT, key="text", bind="query-params",
        width="stretch", wrap=False,
    )  # fmt: skip
    _pick_prompt(run)


MOST_TYPED = 4000
"""Characters of a prompt that are kept: it stands in the address, and the model reads no more than its context."""

_CUT = "_prompt_cut"
"""(the prompt as it was cut, how long it was): told until something else is typed."""


def _pick_prompt(run: Run) -> None:
    """Draw the prompt. One that is too long, from the keyboard or the address, is cut, and that is told."""
    said = str(st.session_state.get("prompt") or "")
    if len(said) > MOST_TYPED:
        st.session_state[_CUT] = said[:MOST_TYPED], len(said)
        st.session_state["prompt"] = said[:MOST_TYPED]
    cut, length = st.session_state.get(_CUT, ("", 0))
    prompt = st.text_area("Prompt", value=PROMPT, key="prompt", bind="query-params", height=110) or ""
    if len(prompt) > MOST_TYPED:  # the address had it; once drawn, only the next run may write it
        st.rerun()
    if cut and prompt == cut:
        reads = "" if run.model is None else f"; the model reads {run.model.n_ctx:,} tokens at most"
        st.warning(f"The first {MOST_TYPED:,} of {length:,} characters are kept{reads}.", icon=":material/content_cut:")


def pick_places() -> None:
    """Draw the places as text: the audit trail of what was picked, and a way to pick without a pointer."""
    with st.container(horizontal=True, gap="small", key="places"):
        st.text_input("Head", key="head", bind="query-params", placeholder="L1H3", width=96)
        st.text_input("Memory", key="memory", bind="query-params", placeholder="L1M37", width=110)
        st.text_input(
            "Cell", key="cell", bind="query-params", placeholder="query.key", width=110,
            help="Click a cell of a pattern to lock it; Escape releases it.",
        )  # fmt: skip
        st.text_input("Token", key="token", bind="query-params", placeholder="position", width=96)
        st.text_input(
            "Ablate", key="ablate", bind="query-params", placeholder="L1H1,L1H3:mean", help=ABLATE_HELP, width="stretch"
        )


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
