"""A hypothesis as a claim file: saved beside the run, or downloaded, with the command that tests it again."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import streamlit as st

from analyses.claims.shelf import FOLDER
from analyses.claims.statement import Stated, Statement
from analyses.claims.writing import claim_text, save_claim
from analyses.results import from_here
from apps.dashboard import components, data
from apps.dashboard.ablation.asking import Asked
from apps.dashboard.data import Run
from apps.dashboard.state import Selection
from model.errors import CutawayError

KEY = "claim_name"


def name_of(says: str, ablate: str) -> str:
    """A name for a claim, from its words or else from its places.

    >>> name_of("Without these heads, copying fails!", "L1H1"), name_of("", "L1H1:zero,L0.ffn")
    ('without-these-heads-copying-fails', 'L1H1-zero-L0-ffn')
    """
    words = re.sub(r"[^A-Za-z0-9]+", "-", says.lower()).strip("-")[:60].strip("-")
    return words or re.sub(r"[^A-Za-z0-9]+", "-", ablate).strip("-")[:60].strip("-") or "claim"


def file_of(run: Run, name: str) -> Path:
    """Where a claim about a run is written: with the run, where its verdicts go too."""
    return run.path / FOLDER / f"{name}.toml"


def draw(run: Run, chosen: Selection, asked: Asked, stated: Statement) -> None:
    """The claim's name, its text, and what saves it."""
    st.text_input(
        "Name", key=KEY, placeholder=name_of(stated.says, stated.ablate or ""), width=420,
        help="Letters, digits, hyphens and underscores: what the file and its verdicts are called.",
    )  # fmt: skip
    name = str(st.session_state.get(KEY) or "").strip() or stated.name
    try:
        named = asked.statement(chosen.ablate, chosen.step, name)
        assert named is not None, "the hypothesis is stated"
        named = replace(named, stated=stated.stated)
        text = claim_text(named)
        same = {claim_text(replace(named, stated=when)) for when in (None, *Stated)}
    except CutawayError as error:
        components.unasked(error)
        return
    file = file_of(run, name)
    shown = from_here(file)
    before = _content(file)
    if before is not None and before in same:
        text = before  # what a file says of when its bound was stated is not changed by looking at it again
    taken = before is not None and before != text
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        replaces = taken and st.checkbox("Replace the claim that is there", key="replace_claim")
        if st.button(
            f"Save to {shown.parent}", key="save_claim", icon=":material/save:", disabled=before == text,
            help="Beside the run, where cutaway test keeps the verdicts of its claims.",
        ):  # fmt: skip
            try:
                save_claim(named, file.parent, replace=bool(replaces))
            except CutawayError as error:
                components.damaged(error)
            else:
                st.rerun()  # what is drawn above says what stood there before
        st.download_button(
            "Download", text, file.name, "application/toml", key="download_claim", icon=":material/download:",
            on_click="ignore",
        )  # fmt: skip
    if before == text:
        components.caption(f"Saved in {shown}. This tests it again, with the same verdict:")
        st.code(command(run, file), language="bash")
    elif taken:
        components.caption(f"{shown} holds another claim: choose another name, or say that it may be replaced.")
    with st.expander("The file", key="claim_file"):
        st.code(text, language="toml")


def command(run: Run, file: Path) -> str:
    """What tests the claim of a file on its run, as it is typed in the folder where the dashboard was started."""
    return f"cutaway test {shlex.quote(str(from_here(file)))} --run {data.spelled(run)}"


def _content(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None if not file.exists() else ""
