"""The command that checks a checkpoint: audit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from apps.commands.options import Device, Json, Run, Seed
from apps.console import say, stdout

if TYPE_CHECKING:
    from interp.audit import Audit, Check

FAILED = 1
"""Exit status when a check failed."""

VERDICTS = {True: ("passed", "green"), False: ("FAILED", "bold red"), None: ("does not apply", "dim")}
WIDTHS = (23, 15, 11)
"""Columns of name, error and tolerance: with the verdict, a line fits a terminal of 80."""

Verbose = Annotated[bool, typer.Option("--verbose", help="Print each check's claim and what else was found.")]


def audit(
    subject: Run, *, seed: Seed = 0, device: Device = "auto", verbose: Verbose = False, as_json: Json = False
) -> None:
    """Check on a checkpoint's own weights that every hook shows what the model computes.

    Files, weights, every identity of attention, FFN, norms and stream, caching, padding, causality: each with its
    largest error and what rounding explains. Exits with 0 if everything that applies passed, with 1 if a check failed,
    with 2 if the audit could not be made.
    """
    from interp.audit import audit_run

    report = audit_run(subject, device, seed=seed)
    if as_json:
        say(_as_json(report, seed))
    else:
        _tell(report, verbose=verbose)
    if not report.passed:
        raise typer.Exit(FAILED)


def _tell(report: Audit, *, verbose: bool) -> None:
    """One line per check; then what does not apply and what failed, in sentences; then what it comes to."""
    console = stdout()
    console.print(Text(report.subject))
    if report.tokens:
        console.print(Text(f"Run on {report.tokens} in {report.seconds:.1f} s."))
    console.print(Text(_columns("check", "largest error", "tolerance") + "verdict", style="bold"))
    for check in report.checks:
        verdict, style = VERDICTS[check.passed]
        console.print(Text(_columns(check.name, _number(check.error), _number(check.tolerance))).append(verdict, style))
        if verbose and check.passed:
            console.print(Text(f"    {check.sentence.removeprefix(f'{check.name}: ')}", style="dim"))
    for reason, names in _skipped(report).items():
        console.print(Text(f"Does not apply: {', '.join(names)} ({reason})."))
    for sentence in _failures(report):
        console.print(Text.assemble(("FAILED ", "bold red"), sentence))
    say(report.summary)


def _columns(*cells: str) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def _skipped(report: Audit) -> dict[str, list[str]]:
    """The checks that do not apply, by their reason."""
    reasons: dict[str, list[str]] = {}
    for check in report.checks:
        if check.passed is None:
            reasons.setdefault(check.reason, []).append(check.name)
    return reasons


def _failures(report: Audit) -> list[str]:
    """A sentence for each failure; one for all that failed only because weights are not numbers."""
    is_finite = all(check.name != "finite weights" for check in report.failed)
    carried = [check for check in report.failed if not is_finite and _is_no_number(check)]
    sentences = [check.sentence for check in report.failed if check not in carried]
    if carried:
        names = ", ".join(check.name for check in carried)
        sentences.append(f"with finite weights, their errors being no numbers: {names}.")
    return sentences


def _is_no_number(check: Check) -> bool:
    return any(value is not None and not math.isfinite(value) for value in (check.error, check.tolerance))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value in (0, 1) or 10 <= value < 1e6 else f"{value:.1e}"


def _as_json(report: Audit, seed: int) -> str:
    """Everything as one object; an error that is no finite number is given by its name."""
    checks = [{key: _plain(value) for key, value in asdict(check).items()} for check in report.checks]
    record = {
        "checkpoint": report.checkpoint,
        "seed": seed,
        "passed": report.passed,
        "summary": report.summary,
        "subject": report.subject,
        "tokens": report.tokens,
        "seconds": round(report.seconds, 3),
        "checks": checks,
    }
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
