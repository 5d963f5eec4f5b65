"""The command that writes down what was found: report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.console import remark, say

if TYPE_CHECKING:
    from analyses.report import Answers, Report
    from analyses.results import SavedResult

Whole = Annotated[str, typer.Argument(metavar="RUN", help="A run: runs/demo, or its name under runs.")]
File = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Where to write; left out, RUN/report.html.", show_default=False),
]


def report(subject: Whole, *, out: File = None) -> None:
    """Write one page of what the studies found in a run, from the results saved with it.

    Nothing is computed: `cutaway run` asks a study, and this shows what it answered. Each study is shown at its last
    checkpoint, with its first for comparison.
    """
    from analyses.report import gathered_from
    from analyses.report_page import write_report
    from model.errors import InputError
    from model.lab import parse_run_spec

    run, step = parse_run_spec(subject)
    if step is not None:
        raise InputError(f"A report is on a whole run, at the steps that its studies were asked of; write {run}.")
    gathered = gathered_from(run)
    remark(f"Drawing {_results(len(gathered.shown))} ...")
    _tell(gathered, write_report(gathered, out or run / "report.html"))


def _tell(report: Report, path: Path) -> None:
    """Where the page is, which results it holds, and which could not be read."""
    from analyses.report import answers

    said = answers(report.results)
    studies = f"{len(said)} {'study' if len(said) == 1 else 'studies'}"
    say(f"Wrote {path}: {_results(len(report.shown))} of {studies}.")
    for study, each in said.items():
        say(f"{study:<20} {_steps(each)}")
    for fault in report.faults:
        remark(fault)


def _steps(said: Answers) -> str:
    """The step that a study is shown at, how many results there are of it, and the step it is compared with."""
    last = _step(said.last[0]) + (f" ({_results(len(said.last))})" if len(said.last) > 1 else "")
    return last if said.first is None else f"{last}, beside {_step(said.first)}"


def _step(saved: SavedResult) -> str:
    return "no run" if saved.provenance.step is None else f"step {saved.provenance.step:,}"


def _results(n: int) -> str:
    return f"{n} result{'' if n == 1 else 's'}"
