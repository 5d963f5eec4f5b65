"""What an address names and is not there.

The inputs fall back without a word and take it out of the address, so the word is said here, and kept until something
else is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from apps.dashboard.data import Run
from apps.dashboard.state import parse_checkpoint, shortened
from interp.live import LiveText
from model.errors import CutawayError

LISTED = ("run", "step", "text", "b")
"""The parts that are chosen from a list."""

_KEY = "_unknown"


def asked() -> dict[str, str]:
    """What the address says of the parts that are chosen from a list, before their inputs are drawn."""
    return {name: st.query_params.get(name, "") for name in LISTED}


def sentences(said: Mapping[str, str], runs: Sequence[Run], run: Run) -> list[str]:
    """Return one sentence for each part that was asked for in vain, by this address or an earlier one.

    Args:
        said: what `asked` returned.
        runs: every run.
        run: the one that is shown.
    """
    kept: dict[str, tuple[str, object]] = st.session_state.setdefault(_KEY, {})
    found = {"run": _run(said["run"], runs, run), "text": _text(said["text"]), "b": _other(said["b"], runs)}
    found["step"] = None if found["run"] else _step(said["step"], run)
    for name, sentence in found.items():
        if sentence:
            kept[name] = sentence, st.session_state.get(name)
        elif name in kept and kept[name][1] != st.session_state.get(name):
            del kept[name]
    return [kept[name][0] for name in LISTED if name in kept]


def _run(name: str, runs: Sequence[Run], run: Run) -> str | None:
    if not name or name in {each.name for each in runs}:
        return None
    return f'run: there is no run "{shortened(name)}" here; showing {run.name}'


def _step(text: str, run: Run) -> str | None:
    if not text or not run.steps or text in {str(step) for step in run.steps}:
        return None
    return f"step: {run.name} has no checkpoint at step {shortened(text)}; showing step {st.session_state['step']}"


def _text(text: str) -> str | None:
    if not text or text in set(LiveText):
        return None
    return f'text: there is no text called "{shortened(text)}"; there are {", ".join(LiveText)}. Showing the prompt'


def _other(text: str, runs: Sequence[Run]) -> str | None:
    if not text:
        return None
    try:
        name, step = parse_checkpoint(text)
    except CutawayError as error:
        return f"b: {error}"
    if any(run.name == name and step in run.steps for run in runs):
        return None
    return f"b: there is no checkpoint {shortened(text)} here; comparing with nothing"
