"""The one selection that all pages share: inputs bound to the address, drawn by the entrypoint, read by every page.

They must be drawn there and nowhere else: an input bound on a page only loses its part of the address when the page
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from apps.dashboard import components
from apps.dashboard.data import Run
from apps.dashboard.frame import inputs, unknown
from apps.dashboard.frame.inputs import PROMPT
from apps.dashboard.state import TEXTS, Selection, from_query

__all__ = ["PROMPT", "Compared", "compared", "draw", "notice", "run", "runs", "selection"]

_KEY = "_selection"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The checkpoint that the shown one is compared with."""

    run: Run
    step: int

    @property
    def spec(self) -> str:
        """As the command line writes it, without the folder.

        >>> from pathlib import Path
        >>> Compared(run=Run(name="demo", path=Path("demo"), steps=(0,), model=None, settings={}), step=0).spec
        'demo@0'
        """
        return f"{self.run.name}@{self.step}"


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    runs: tuple[Run, ...]
    run: Run
    selection: Selection
    compared: Compared | None
    notices: tuple[str, ...]


def draw(runs: Sequence[Run]) -> None:
    """Draw the inputs, and keep what they say for `selection`, `run` and `compared`."""
    asked = unknown.asked()
    with st.sidebar:
        run = inputs.pick_run(runs)
        step = inputs.pick_step(run)
        other = inputs.pick_other(runs, run.name)
        inputs.pick_text(run)
        if run.damaged:
            st.caption(components.literal(f"damaged or incomplete, and left out: {', '.join(run.damaged)}"))
    inputs.pick_places()
    raw = {name: str(st.session_state.get(name) or "") for name in TEXTS}
    said = {"run": run.name, "step": "" if step is None else str(step), "b": other or ""}
    selection, notices = from_query({**raw, **said}, run.model)
    told = unknown.sentences(asked, runs, run)
    if selection.b is not None and selection.b == (run.name, step):
        told.append(f"b: {selection.spec} is what is shown; choose another checkpoint to compare it with")
    for sentence in (*told, *notices):
        st.warning(components.literal(sentence), icon=":material/link_off:")
    st.session_state[_KEY] = _Chosen(
        runs=tuple(runs),
        run=run,
        selection=selection,
        compared=_compared(selection, runs),
        notices=(*told, *notices),
    )


def runs() -> tuple[Run, ...]:
    """Every run there is, as it was found for this drawing of the page: finding them again takes milliseconds."""
    return _chosen().runs


def run() -> Run:
    """The run that is selected."""
    return _chosen().run


def selection() -> Selection:
    """What is selected in it."""
    return _chosen().selection


def compared() -> Compared | None:
    """The other checkpoint, where one was chosen to compare with; never the one that is shown."""
    return _chosen().compared


def notice(name: str) -> str | None:
    """Why the part `name` of the address was dropped, if it was: to be said where the part would be shown."""
    return next(
        (said.removeprefix(f"{name}: ") for said in _chosen().notices if said.startswith(f"{name}: ")), None
    )  # fmt: skip


def _chosen() -> _Chosen:
    return st.session_state[_KEY]


def _compared(selection: Selection, runs: Sequence[Run]) -> Compared | None:
    if selection.b is None or selection.b == (selection.run, selection.step):
        return None
    name, step = selection.b
    return next((Compared(run=run, step=step) for run in runs if run.name == name and step in run.steps), None)
