"""The pattern of a head on the selected text, with those of all others small; of two checkpoints, if asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st
from torch import Tensor

from analyses.heads.text import pattern_table
from analyses.views import View, attention_payload, visible
from analyses.views.attention import EXACT_SIDE, holds_all
from analyses.views.payload import Payload, live_fields
from apps.dashboard import components, data, panels, passes, snippets
from apps.dashboard.asked import Choice, begin, end
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.heads import bases
from apps.dashboard.heads.comparing import by_number
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared
from apps.dashboard.state import Selection, head_name
from interp.live import Basis
from interp.places import Head
from model.errors import CutawayError, InputError


def draw(run: Run, chosen: Selection, head: Head, other: Compared | None, verdict: Sequence[str]) -> None:
    """The pattern in the units that are chosen; what is locked in it is said in numbers. P pins it with the verdict.

    Args:
        run: whose head.
        chosen: the checkpoint, the text and the locked cell.
        head: layer and index.
        other: the checkpoint to compare with.
        verdict: what is to be said of the head; empty where no study says anything.
    """
    basis = bases.choose(run.model)
    if basis is None:
        return
    try:
        live = passes.look(run, chosen)
    except InputError as error:  # the text cannot be read; the rest of the page can
        components.damaged(error)
        return
    values = passes.attention(run, chosen, basis)
    theirs, names = _other(chosen, basis, other, values, live.tokens)
    lock = chosen.cell if chosen.cell is not None and max(chosen.cell) < len(live.tokens) else None
    n_layers, n_heads, size, _ = values.shape
    shows, strip = _shown(theirs)
    clicked: dict[str, Any] = {"lock": lock, "shows": shows, "strip": strip}  # what a click changes, and is sent apart
    sent = head
    if holds_all(n_layers * n_heads, size, 1 if theirs is None else 2):  # then whichever head is looked at
        sent, clicked["look"] = (0, 0), head[0] * n_heads + head[1]
    if size <= EXACT_SIDE:  # the whole text is sent, whatever is locked
        texts = (passes.checkpoint_of(run, chosen.step), chosen.text.value, chosen.prompt)
        there = "" if theirs is None or other is None else passes.checkpoint_of(other.run, other.step)
        payload = _payload(values, theirs, live.tokens, texts, there, basis, sent, names)
    else:
        payload = _drawn(values, theirs, live.tokens, basis, sent, names, lock)
    asked = f"{chosen.text.value!r}, {chosen.prompt!r}"
    beside: dict[str, Any] = {} if theirs is None or other is None else {
        "compared_with": other.spec, "compared_weights_sha256": data.manifest(other.run, other.step).weights_sha256,
    }  # fmt: skip
    panel = Panel(
        key="attention",
        title=f"Attention of {head_name(*head)} ({bases.TITLES[basis]})",
        rows=lambda: pattern_table(values, live.tokens, head),
        about=panels.about_live(
            run, chosen.step, n=1, unit="text", head=head_name(*head), basis=basis.value, text=live.source,
            prompt=chosen.prompt, **beside,
        ),
        python=snippets.opened(
            run, chosen.step,
            f"tokens = look(lab, {asked}).tokens",
            f"values = attention_in(lab, {basis.value!r}, {asked})",
            f"rows = pattern_table(values, tokens, {tuple(head)})",
            imports=["from analyses.heads.text import pattern_table", "from interp.live import attention_in, look"],
        ),
    )  # fmt: skip
    panels.show(View.ATTENTION, payload, panel, live=clicked)
    locked = _locked(values, theirs, live.tokens, head, lock, basis, names)
    if lock is not None and locked and basis is Basis.SIGNED:
        locked += f", {_signed_for(run, chosen, live.tokens, lock[0])}"
    against = "" if theirs is None else f", compared with {names[1]}"
    seen = f"Drawn: {head_name(*head)} at {run.name}@{chosen.step}{against} on one text of {len(live.tokens)} tokens"
    here = f"{seen}, {live.source}{f'; {locked}' if locked else ''}."
    pins.offer(
        title=panel.title, sentences=[*verdict, here], panel=panel, view=View.ATTENTION,
        payload={**payload, **live_fields(clicked)},
    )  # fmt: skip
    components.caption(locked)
    components.caption(
        live.source, f"{run.name}@{chosen.step}", against.removeprefix(", "),
        "" if theirs is None else by_number(run, other), bases.EXPLAINED[basis],
    )  # fmt: skip


SHOWS = Choice(name="shows", key="shows", options=("a", "b", "difference"), usual="a")
"""Which of two patterns is shown, as the view names them (`analyses/views/static/attention_data.js`); D goes on."""

STRIP = Choice(name="strip", key="strip", options=("to", "by"), usual="to")
"""Whether the tokens are coloured by what the chosen one attends to, or by who attends to it; S changes it."""


def _shown(theirs: Tensor | None) -> tuple[str, str]:
    """What the view was asked to show by D and S, which the address keeps; without another checkpoint only one."""
    begin(SHOWS)
    if theirs is None:
        st.session_state[SHOWS.key] = SHOWS.usual
    begin(STRIP)
    return end(SHOWS), end(STRIP)


@st.cache_resource(max_entries=64, show_spinner=False)
def _payload(
    _values: Tensor, _theirs: Tensor | None, _tokens: Sequence[str], texts: tuple[str, str, str], there: str,
    basis: Basis, head: Head, names: tuple[str, str],
) -> Payload:  # fmt: skip
    """The view, remembered by checkpoint and text; what is locked is sent apart, and so is which head is looked at."""
    del texts, there
    return _drawn(_values, _theirs, _tokens, basis, head, names, None)


def _drawn(
    values: Tensor, theirs: Tensor | None, tokens: Sequence[str], basis: Basis, head: Head, names: tuple[str, str],
    lock: tuple[int, int] | None,
) -> Payload:  # fmt: skip
    both = [values] if theirs is None else [values, theirs]
    compared = {} if theirs is None else {"other": theirs, "names": names}
    scale, label = bases.scale_of(both, basis), bases.UNITS[basis]
    return attention_payload(values, tokens, head=head, lock=lock, scale=scale, label=label, **compared)


def _locked(
    values: Tensor, theirs: Tensor | None, tokens: Sequence[str], head: Head, lock: tuple[int, int] | None,
    basis: Basis, names: tuple[str, str],
) -> str:  # fmt: skip
    """The locked cell in words, as the view reads it out; of two checkpoints both values and their difference."""
    if lock is None or lock[1] > lock[0]:
        return ""
    query, key = lock
    value = float(values[head][query, key])
    said = f"locked: query {query} ‘{visible(tokens[query])}’ → key {key} ‘{visible(tokens[key])}’"
    if theirs is None:
        return f"{said} {value:.3f} {bases.UNITS[basis]}"
    there = float(theirs[head][query, key])
    both = f"{names[0]} {value:.3f}, {names[1]} {there:.3f}, difference {value - there:.3f}"
    return f"{said} {both} {bases.UNITS[basis]}"


def _signed_for(run: Run, chosen: Selection, tokens: Sequence[str], query: int) -> str:
    """The token to whose logit a signed row of one query adds."""
    if query + 1 < len(tokens):
        return f"for the token that follows, ‘{visible(tokens[query + 1])}’ at {query + 1}"
    given = passes.after_last(run, chosen)
    return f"for ‘{visible(given)}’, which {chosen.spec} gives most: nothing follows position {query}"


def _other(
    chosen: Selection, basis: Basis, other: Compared | None, values: Tensor, tokens: Sequence[str]
) -> tuple[Tensor | None, tuple[str, str]]:
    """The same text in the compared checkpoint; where it cannot stand beside it, that is said."""
    if other is None:
        return None, ("", "")
    names = (chosen.spec, other.spec)
    there = replace(chosen, run=other.run.name, step=other.step)
    try:
        if passes.text(other.run, there)[0] != tuple(tokens):
            raise InputError(f"{other.spec} reads this text as other tokens: its patterns cannot stand beside these.")
        theirs = passes.attention(other.run, there, basis)
    except CutawayError as error:
        components.unasked(error)
        return None, names
    if theirs.shape != values.shape:
        components.caption(f"{other.spec} has other heads, so its patterns cannot stand beside these.")
        return None, names
    return theirs, names
