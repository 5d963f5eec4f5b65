"""What every saved study found at a checkpoint, in short, and the run's report."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from analyses.results import RECORD, SavedResult
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


def report(run: Run) -> None:
    """The run's report, if it was written, and the command that writes it."""
    file = run.path / "report.html"
    command = f"cutaway report {data.spelled(run)}"
    if not file.is_file():
        components.missing(
            f"{run.name} has no report yet: one page of what its studies found, without any script.", command
        )
        return
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    newer = sum(each.stat().st_mtime > file.stat().st_mtime for each in run.path.glob(f"studies/*/*/{RECORD}"))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.download_button(
            "Download report.html", file.read_bytes, f"{run.name}-report.html", "text/html", key="report",
            on_click="ignore", icon=":material/download:",
        )  # fmt: skip
        components.caption(
            f"written {written:%Y-%m-%d %H:%M} UTC", f"{newer} results are newer: write it again" if newer else None
        )
    st.code(command, language="bash")
