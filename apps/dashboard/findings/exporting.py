"""The notebook as files, and a notebook from a file: nothing is made before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import urlencode, urlsplit

import streamlit as st

from analyses.claims.shelf import ClaimShelf, verdict_finding
from analyses.notebook.exports import to_csv_archive, to_markdown, to_python
from analyses.notebook.file import MOST_FILE_BYTES
from analyses.notebook.page import Beside, page
from analyses.notebook.pins import Notebook, as_json, from_json
from analyses.registry import get_study
from apps.dashboard import components
from apps.dashboard.data import Run
from apps.dashboard.findings import pins, studies
from model.errors import CutawayError

_IMPORTED = "_pins_imported"


def draw(found: Notebook, run: Run, step: int | None, claims: ClaimShelf) -> None:
    """Every kind of file, and the input for one."""
    box = st.expander("Export and import", key="export", on_change="rerun", icon=":material/ios_share:")
    if not box.open:
        return
    with box:
        _address(run, step)
        _files(found, run, step, claims)
        _import()


def _address(run: Run, step: int | None) -> None:
    token = str(st.session_state.get(pins.NOTES) or "")
    if not token:
        return
    query = urlencode({"run": run.name, "step": "" if step is None else step, "notes": token})
    components.caption("The address of this notebook; whoever has it can read and change the pins:")
    st.code(f"{_base()}/findings?{query}", language=None)


def _base() -> str:
    url = urlsplit(st.context.url or "")
    return f"{url.scheme}://{url.netloc}" if url.scheme and url.netloc else ""


def _files(found: Notebook, run: Run, step: int | None, claims: ClaimShelf) -> None:
    title = f"Findings in {run.name}"
    every = st.checkbox(
        "HTML: with what every study found at this checkpoint, below the pins", key="export_studies",
        help="Without it the page holds the pins, and the verdicts on this run's written claims.",
    )  # fmt: skip
    whole = partial(_page, found, title, run, step, claims, _base(), studied=every)
    with st.container(horizontal=True, gap="xsmall"):
        _file("HTML", whole, "html", "text/html")
        _file("Markdown", partial(_markdown, found, title, claims), "md", "text/markdown")
        _file("JSON", partial(as_json, found), "json", "application/json")
        _file("CSV", partial(to_csv_archive, found), "zip", "application/zip")
        _file("Python", partial(to_python, found), "py", "text/x-python")
    components.caption(
        "HTML: one file that needs no network", "JSON: can be read in again", "CSV: a table for each pin",
        "Python: computes every pin's numbers again",
    )  # fmt: skip


def _file(kind: str, make: Callable[[], str | bytes], ending: str, mime: str) -> None:
    st.download_button(kind, make, f"findings.{ending}", mime, key=f"findings-{ending}", on_click="ignore")


def _page(
    found: Notebook, title: str, run: Run, step: int | None, claims: ClaimShelf, base: str, *, studied: bool
) -> str:
    verdicts = tuple(verdict_finding(record) for record in claims.records)
    beside = [Beside(heading="Verdicts on written claims", findings=verdicts)] if verdicts else []
    for study, result in (studies.saved_at(run, step) if studied else {}).items():
        said = tuple(finding for finding in result.findings() if finding.of_run)
        beside.append(Beside(heading=f"{get_study(study).question} ({run.name}@{step})", findings=said))
    return page(found, title, beside=beside, base=base)


def _markdown(found: Notebook, title: str, claims: ClaimShelf) -> str:
    return to_markdown(found, title, [verdict_finding(record).sentence for record in claims.records])


def _import() -> None:
    st.file_uploader(
        "Add the pins of a notebook (findings.json)", type="json", key="notebook_file", on_change=_read,
        max_upload_size=MOST_FILE_BYTES // 1_000_000,
        help="Pins that are here already stay as they are. Python in a file from elsewhere was written by somebody "
             "else: read it before you run it.",
    )  # fmt: skip
    said, is_fault = st.session_state.pop(_IMPORTED, ("", False))
    if said:
        (st.error if is_fault else st.success)(components.literal(said))


def _read() -> None:
    file = st.session_state.get("notebook_file")
    if file is None:
        return
    try:
        if file.size > MOST_FILE_BYTES:
            raise CutawayError(f"The file has {file.size / 1e6:.0f} MB; at most {MOST_FILE_BYTES / 1e6:.0f} are read.")
        others = from_json(file.getvalue(), file.name)
        if pins.join(others):
            st.session_state[_IMPORTED] = f"{len(others.pins)} pins read from {file.name}.", False
    except CutawayError as error:
        st.session_state[_IMPORTED] = str(error), True
