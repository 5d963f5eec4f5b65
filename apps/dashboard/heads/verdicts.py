"""The verdict on one head: what it is called, what speaks for that, and what it rests on."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from analyses.attention.evidence import Bearing
from analyses.attention.verdicts import Standing, Verdict
from analyses.attention_patterns import Result
from analyses.heads.tables import evidence_rows
from analyses.results import SavedResult
from analyses.views import View
from analyses.views.payload import Payload
from apps.dashboard import components, panels
from apps.dashboard.findings import pins
from apps.dashboard.heads import sources
from apps.dashboard.panels import Panel

COLOURS: dict[Standing, Literal["green", "orange", "blue", "gray"]] = {
    Standing.SUPPORTED: "green",
    Standing.DISPUTED: "orange",
    Standing.ATTENTION: "blue",
    Standing.OPEN: "gray",
    Standing.RESTS: "gray",
    Standing.NONE: "gray",
}
"""The colour of each standing; the word always stands with it."""

MEANINGS = {
    Standing.SUPPORTED: "found by its attention, and ablating it alone costs something; of what was measured, nothing "
    "that decides speaks against it",
    Standing.DISPUTED: "found, and something is lost without it, but its weights or its attention on text disagree",
    Standing.ATTENTION: "found by its attention; that anything is lost without it is not shown",
    Standing.OPEN: "found for no kind, but its intervals cannot rule one out",
    Standing.RESTS: "attends to position 0, and to nothing that was looked for",
    Standing.NONE: "passes no rule by which heads were looked for",
}


def card(saved: SavedResult, verdict: Verdict, grid: Payload | None) -> None:
    """The standing of a head, what it means, and what decides it, a sentence for each source.

    P pins it with its evidence, and with the `grid` of heads as it is drawn.
    """
    standing = verdict.standing
    with st.container(key="verdict", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.header(verdict.label, width="content")
            st.badge(standing.value, color=COLOURS[standing])
        components.caption(MEANINGS[standing])
        for line in verdict.lines:
            st.text(line.removeprefix(f"{verdict.label}: "))
    pins.offer(
        title=f"{verdict.label}: {standing.value}", sentences=sentences(saved, verdict), panel=_panel(saved, verdict),
        view=None if grid is None else View.HEAD_GRID, payload=grid,
    )  # fmt: skip


def sentences(saved: SavedResult, verdict: Verdict) -> list[str]:
    """What a pin says of a head: its verdict, and what that rests on."""
    known, standing = saved.provenance, verdict.standing
    rests = f"{known.run}@{known.step}, seed {known.seed}, {'; '.join(facts(saved.result, verdict))}"
    lines = [line.removeprefix(f"{verdict.label}: ") for line in verdict.lines]
    return [f"{verdict.label}, {standing.value} ({MEANINGS[standing]}): {lines[0]}", *lines[1:], f"Rests on {rests}."]


def _panel(saved: SavedResult, verdict: Verdict) -> Panel:
    """The evidence on a head."""
    place = (verdict.layer, verdict.head)
    n, unit = saved.result.headline.n_sequences, "sequences of random tokens"
    return Panel(
        key="evidence",
        title=f"Evidence on {verdict.label}",
        rows=lambda: evidence_rows(verdict),
        about=panels.about_saved(saved, n=n, unit=unit, head=verdict.label),
        python=sources.one(
            saved, f"rows = evidence_rows(verdict_on(result, {place}))",
            imports=["from analyses.heads.tables import evidence_rows, verdict_on"],
        ),
    )  # fmt: skip


def evidence(saved: SavedResult, verdict: Verdict) -> None:
    """Every item that bears on it, with what was not measured."""
    panels.table(_panel(saved, verdict), alt=f"Evidence on {verdict.label}", height="content", widths=WIDTHS)
    components.caption(FURTHER)
    for said in absent(verdict):
        components.caption(f"? {said}.")
    components.provenance(saved, *facts(saved.result, verdict))


WIDTHS = {
    "bears": 82, "source": 92, "what": 158, "value": 52, "interval": 112, "chance": 56, "z": 46, "p": 60,
    "rank": 60, "step 0": 56,
}  # fmt: skip
"""Pixels of the columns: the first seven fit half a page of 1440."""

FURTHER = "p, rank and step 0 follow to the right in the table; a double click on a cell that is cut shows all of it"


def absent(verdict: Verdict) -> list[str]:
    """What was not measured, and why."""
    return [each.said for each in verdict.evidence if each.bearing is Bearing.ABSENT]


def facts(result: Result, verdict: Verdict) -> tuple[str, ...]:
    """What the evidence rests on."""
    beside = bool(verdict.kinds) and any(not item.bears for item in verdict.evidence)
    seen = None if result.behaviour is None else result.behaviour.seen
    parts = [
        f"n = {result.headline.n_sequences} sequences of random tokens",
        "" if result.text is None else f"{result.text.n_sequences} rows of held-out text",
        "" if seen is None else f"{seen.n_queries:,} tokens of its corpus",
        f"{result.config.level:.0%} bootstrap intervals",
        f"p: Holm over {result.harms.n_tests} tests, the heads that were ablated, on copying and on text",
        "* told beside, cannot decide this name" if beside else "",
    ]
    return tuple(part for part in parts if part)
