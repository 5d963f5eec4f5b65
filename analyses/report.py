"""What a report on a run is made of: its record, its metrics, and what the studies answered. The page is `report_page`.

Needs no model: everything is drawn from what is saved with the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses import training_curve
from analyses.registry import STUDIES, Finding
from analyses.results import SavedResult
from analyses.shelf import fault_sentences, of_its_weights, shelf_of_run
from model.errors import CutawayError, InputError
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

    faults: Sequence[str] = ()
    """One sentence for each result that can no longer be read."""

    n_judged: int | None = None
    """Rows of held-out text behind each logged loss; None if not on record."""

    @property
    def config(self) -> dict[str, Any]:
        """Model, data, optimizer and training settings, as plain data."""
        return self.record["config"]

    @property
    def imported_from(self) -> str | None:
        """What an imported model was imported from, in words."""
        return imported_from(self.record)

    @property
    def shown(self) -> list[SavedResult]:
        """The results that the page shows: of each study those of its last checkpoint, and the one before them."""
        return [saved for said in answers(self.results).values() for saved in said.every]


def gathered(run_dir: Path, results: Sequence[SavedResult]) -> Report:
    """A report on a run: its own record and metrics, and of `results` those that can still be read."""
    good, faults = [], []
    for saved in results:
        try:
            saved.result  # noqa: B018  (reading is the point)
            good.append(of_its_weights(saved))
        except CutawayError as error:
            faults.append(error)
    return _report(run_dir, good, fault_sentences(faults))


def gathered_from(run_dir: Path) -> Report:
    """A report on a run with every study's results that are saved for it; `InputError` where there is none to read."""
    shelves = [shelf_of_run(run_dir, study) for study in STUDIES]
    results = [saved for each in shelves for saved in each.results]
    faults = fault_sentences([error for each in shelves for error in each.errors])
    if not results:
        raise InputError(_nothing_saved(run_dir, faults))
    return _report(run_dir, results, faults)


def _report(run_dir: Path, results: Sequence[SavedResult], faults: Sequence[str]) -> Report:
    record, metrics = read_run(run_dir), read_metrics(run_dir)
    return Report(
        name=run_dir.name, record=record, metrics=metrics, results=results, faults=faults,
        n_judged=training_curve.n_judged(run_dir, record),
    )  # fmt: skip


def _nothing_saved(run_dir: Path, faults: Sequence[str]) -> str:
    """Why there is nothing to report, and what makes something."""
    so_far = (
        f"No result saved under {run_dir} can be read ({' '.join(faults)})"
        if faults
        else f"There is nothing to report on {run_dir}: no study of it is saved"
    )
    return f"{so_far}; make one with `cutaway run STUDY {run_dir}`, where STUDY is {', '.join(STUDIES)}."


@dataclass(frozen=True)
class Answers:
    """What one study said of a run: at the checkpoint it is about, and at the first one for comparison."""

    last: list[SavedResult]
    """One result per config, all at the last step that was studied."""

    first: SavedResult | None
    """The earliest other checkpoint, if the study ran on several."""

    @property
    def every(self) -> list[SavedResult]:
        """All of them, the comparison first."""
        return [*([] if self.first is None else [self.first]), *self.last]

    def findings(self) -> list[Finding]:
        """What is said of the last checkpoint, each sentence once."""
        return list({finding.sentence: finding for saved in self.last for finding in saved.findings()}.values())


def found_in_short(findings: Sequence[Finding]) -> str:
    """How many of the findings about the run affirm, deny, and can do neither, in words.

    >>> found_in_short([Finding(sentence="a", found=True), Finding(sentence="b", found=None)])
    'One thing was found, 0 looked for and not found, 1 cannot be told.'
    """
    own = [finding.found for finding in findings if finding.of_run]
    affirmed, denied, open_ = (own.count(what) for what in (True, False, None))
    opening = {0: "Nothing was found", 1: "One thing was found"}.get(affirmed, f"{affirmed} things were found")
    return f"{opening}, {denied} looked for and not found{f', {open_} cannot be told' if open_ else ''}."


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
