"""Written claims on the page: their verdicts at this checkpoint, and the command that tests those without one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from analyses.claims.files import Claim
from analyses.claims.records import Record
from analyses.claims.shelf import FOLDER, ClaimShelf, claim_shelf, verdict_finding, verdict_rows
from analyses.claims.verdict_figure import verdict_figure
from analyses.claims.wording import plain_sentence, since_phrase
from apps.dashboard import components, data, panels
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel
from model.checkpoint import MANIFEST, checkpoint_path

MARKS = {"supported": ":material/check_circle:", "refuted": ":material/cancel:", "undecided": ":material/help:"}


def draw(run: Run, step: int | None) -> ClaimShelf:
    """Every claim with a verdict, then the others."""
    shelf = _shelf(str(run.path), _stamp(run.path, run.steps))
    for fault in shelf.faults:
        st.error(components.literal(fault), icon=":material/error:")
    if not (shelf.records or shelf.claims or shelf.faults):
        components.missing(
            f"No claim was tested on {run.name} yet. Write one under Ablate, or test those of a file:",
            f"cutaway test claims/copying.toml --run {data.spelled(run)}",
        )
        return shelf
    for file, name in shelf.tested:
        _tested(run, shelf.of(file, name), file, step)
    if shelf.records:
        with st.expander("Every verdict", key="every-verdict", on_change="rerun") as box:
            if box.open:
                panels.table(_panel(run, shelf.records), alt="Every verdict on a claim about this run")
    _untested(run, shelf.untested)
    return shelf


def _tested(run: Run, records: tuple[Record, ...], file: str, step: int | None) -> None:
    here = next((record for record in records if record.verdict.checkpoint.step == step), records[-1])
    verdict = here.verdict
    panel = _panel(run, records, file, verdict.claim)
    figure = None if verdict.measured is None else verdict_figure(records)
    title = f"{verdict.claim}: {verdict.standing.value}"
    offer = pins.Offer(panel=panel, title=title, sentences=_said(records, here), figure=figure)
    with st.container(border=True, key=f"claim-{file}-{verdict.claim}", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            mark = f"{MARKS[verdict.standing.value]} **{verdict.standing.value}** at step {verdict.checkpoint.step:,}"
            st.markdown(f"{mark} · {components.literal(verdict.claim)}", width="stretch")
            st.button(
                "Pin", key=f"pin-claim-{file}-{verdict.claim}", type="tertiary", icon=":material/push_pin:",
                on_click=pins.pin_panel, args=(offer,),
            )  # fmt: skip
        words, picture = st.columns([3, 2], gap="medium")
        with words:
            st.text(f"“{verdict.says}”")
            components.sentences(_rests_on(records, here))
            other = None if verdict.checkpoint.step == step else f"not tested at step {step}"
            expected = None if verdict.as_expected in (True, None) else f"expected: {verdict.expected.value}"
            sha = f"{file}.toml ({verdict.file_sha256[:8]})"
            components.caption(sha, expected, other)
        if figure is not None:
            with picture:
                panels.small(panel, figure, "effect beside its bound; rules: the claim's own intervals")


def _rests_on(records: tuple[Record, ...], here: Record) -> list[str]:
    """The same below the verdict, which is not said twice."""
    told = plain_sentence(here.verdict).partition(": ")[2]
    since = [said.replace(here.verdict.claim, "It", 1) for said in _said(records, here)[1:]]
    return [told[:1].upper() + told[1:], *since]


def _said(records: tuple[Record, ...], here: Record) -> tuple[str, ...]:
    since = [since_phrase([record.verdict for record in records])] if len(records) > 1 else []
    return (verdict_finding(here).sentence, *since)


def _untested(run: Run, claims: tuple[Claim, ...]) -> None:
    for file in dict.fromkeys(claim.file for claim in claims):
        names = ", ".join(claim.name for claim in claims if claim.file == file)
        path = f"{data.spelled(run)}/{FOLDER}/{file.name}"
        components.missing(f"Not tested yet ({file.name}): {names}", f"cutaway test {path} --run {data.spelled(run)}")


def _panel(run: Run, records: tuple[Record, ...], file: str = "", claim: str = "") -> Panel:
    imports = "from pathlib import Path\n\nfrom analyses.claims.shelf import claim_shelf, verdict_rows\n"
    which = f"shelf.of({file!r}, {claim!r})" if claim else "shelf.records"
    python = f"{imports}\nshelf = claim_shelf(Path({str(data.from_here(run.path))!r}))\nrows = verdict_rows({which})\n"
    known = records[-1].verdict.checkpoint
    measured = [record.verdict.measured.n for record in records if record.verdict.measured is not None]
    return Panel(
        key=f"verdicts-{file}-{claim}" if claim else "verdicts", title=f"Verdicts on {claim or 'every claim'}",
        rows=partial(verdict_rows, records), python=python,
        about={
            "run": run.name, "step": known.step, "n": max(measured, default=0), "unit": "sequences",
            "seed": records[-1].verdict.seed, "weights_sha256": known.weights_sha256,
        },
    )  # fmt: skip


@st.cache_resource(max_entries=16, show_spinner=False)
def _shelf(path: str, stamp: tuple[tuple[str, int], ...]) -> ClaimShelf:
    del stamp
    return claim_shelf(Path(path))


def _stamp(run: Path, steps: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """The times of claims, of verdicts, and of the checkpoints these are about; a file may go while it is looked at."""
    folder = run / FOLDER
    files = sorted((*folder.glob("*/*/*.json"), *folder.glob("*.toml")))
    manifests = [checkpoint_path(run, step) / MANIFEST for step in steps]
    return tuple((str(file), data.stamp(file)) for file in (*files, *manifests))
