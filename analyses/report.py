"""What a report on a run is made of: its record, its metrics, and what the studies answered. The page is `report_page`.

Needs no model: everything is drawn from what is saved with the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses.registry import STUDIES, Finding
from analyses.results import SavedResult
from model.files import write_atomically
from model.lab import imported_from, read_metrics, read_run


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a report is made of; all of it is saved with the run."""

    name: str
    """The run's name."""

    record: dict[str, Any]
    """run.json."""

    metrics: Sequence[dict[str, Any]]
    """The rows of metrics.jsonl."""

    results: Sequence[SavedResult]
    """The results to show; a study's last checkpoint is the one it is about, its first the comparison."""

    @property
    def config(self) -> dict[str, Any]:
        """Model, data, optimizer and training settings, as plain data."""
        return self.record["config"]

    @property
    def imported_from(self) -> str | None:
        """What an imported model was imported from, in words."""
        return imported_from(self.record)


def gathered(run_dir: Path, results: Sequence[SavedResult]) -> Report:
    """A report on a run: its own record and metrics, and `results`."""
    return Report(name=run_dir.name, record=read_run(run_dir), metrics=read_metrics(run_dir), results=list(results))


def write_report(report: Report, path: Path) -> Path:
    """Write the page whole or not at all, and give back where."""
    from analyses.report_page import page

    write_atomically(path, page(report).encode("utf-8"))
    return path


@dataclass(frozen=True)
class Answers:
    """What one study said of a run: at the checkpoint it is about, and at the first one for comparison."""

    last: list[SavedResult]
    """One result per config, all at the last step that was studied."""

    first: SavedResult | None
    """The earliest other checkpoint, if the study ran on several."""

    def findings(self) -> list[Finding]:
        """What is said of the last checkpoint, each sentence once."""
        return list({finding.sentence: finding for saved in self.last for finding in saved.findings()}.values())


def found_in_short(findings: Sequence[Finding]) -> str:
    """How many of the findings about the run affirm, deny, and are not known, in words.

    >>> found_in_short([Finding(sentence="a", found=True), Finding(sentence="b", found=None)])
    'One thing was found, 0 looked for and not found, 1 not measured.'
    """
    own = [finding.found for finding in findings if finding.of_run]
    affirmed, denied, unknown = (own.count(what) for what in (True, False, None))
    opening = {0: "Nothing was found", 1: "One thing was found"}.get(affirmed, f"{affirmed} things were found")
    return f"{opening}, {denied} looked for and not found{f', {unknown} not measured' if unknown else ''}."


def answers(results: Sequence[SavedResult]) -> dict[str, Answers]:
    """Results by study, in the order of `STUDIES`."""
    grouped = {name: [result for result in results if result.study == name] for name in STUDIES}
    return {name: _answers(group) for name, group in grouped.items() if group}


def _answers(results: Sequence[SavedResult]) -> Answers:
    latest = max(_step(result) for result in results)
    earlier = [result for result in results if _step(result) < latest]
    return Answers([r for r in results if _step(r) == latest], min(earlier, key=_step) if earlier else None)


def _step(result: SavedResult) -> int:
    return -1 if result.provenance.step is None else result.provenance.step
