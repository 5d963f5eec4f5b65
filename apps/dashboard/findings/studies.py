"""What every saved study found at a checkpoint, in short, and the run's report."""

from __future__ import annotations

import re
from collections.abc import Iterator

import streamlit as st

from analyses.results import SavedResult
from apps.dashboard import components, data, telling
from apps.dashboard.data import Run


def saved_at(run: Run, step: int | None) -> dict[str, SavedResult]:
    """The result of every study that has one at this step."""
    found = {study: shelf.at(step) for study, shelf in data.shelves(run).items()}
    return {study: saved for study, saved in found.items() if saved is not None}


def draw(run: Run, step: int | None) -> None:
    """Findings of every study at this step, and the commands of those that were not asked."""
    box = st.expander("Findings of every study at this checkpoint", key="every-study", on_change="rerun")
    if not box.open:
        return
    with box:
        saved = saved_at(run, step)
        for study, result in saved.items():
            st.subheader(components.literal(data.question(study)), anchor=False)
            telling.findings_in_short(finding for finding in data.findings(result) if finding.of_run)
            components.provenance(result)
        for study in data.shelves(run):
            components.faults(study, run, step, commands=False)
        absent = [study for study in data.shelves(run) if study not in saved]
        if absent:
            commands = [f"cutaway run {study} {data.spelled(run, step)}" for study in absent]
            components.missing(f"Not studied at step {step}: {', '.join(absent)}.", *commands)


def newest_in(report: str) -> str:
    """When the newest result was made that a report shows; empty where it shows none.

    Copying a run gives its files new times in any order, so what they say of themselves is compared.

    >>> newest_in("<p>1.0 s on cpu, 2026-01-02T03:04:05Z; 2.0 s on cpu, 2026-01-03T00:00:00Z</p>")
    '2026-01-03T00:00:00Z'
    """
    return max(CREATED.findall(report), default="")


CREATED = re.compile(r"s on \w+, (\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+]\d\d:\d\d)?)")


def _every(run: Run) -> Iterator[SavedResult]:
    for shelf in data.shelves(run).values():
        for step in shelf.steps:
            yield from shelf.every(step)


def report(run: Run) -> None:
    """The run's report, if it was written, and the command that writes it."""
    file = run.path / "report.html"
    command = f"cutaway report {data.spelled(run)}"
    if not file.is_file():
        components.missing(
            f"{run.name} has no report yet: one page of what its studies found, without any script.", command
        )
        return
    known = newest_in(file.read_text("utf-8", errors="replace"))
    newer = sum(saved.provenance.created > known for saved in _every(run)) if known else 0
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.download_button(
            "Download report.html", file.read_bytes, f"{run.name}-report.html", "text/html", key="report",
            on_click="ignore", icon=":material/download:",
        )  # fmt: skip
        components.caption(
            f"its newest result is of {known[:16].replace('T', ' ')} UTC" if known else None,
            None
            if not newer
            else f"{newer} newer {'result is' if newer == 1 else 'results are'} not in it: write it again",
        )
    st.code(command, language="bash")
