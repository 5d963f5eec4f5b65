"""The command that checks a checkpoint: audit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from apps.commands.options import Device, Json, Run, Seed
from apps.console import say, stdout

if TYPE_CHECKING:
    from interp.audit import Audit, Check

FAILED = 1
"""Exit status when a check failed."""

VERDICTS = {True: ("passed", "green"), False: ("FAILED", "bold red"), None: ("does not apply", "dim")}


def audit(subject: Run, *, seed: Seed = 0, device: Device = "auto", as_json: Json = False) -> None:
    """Check on a checkpoint's own weights that every hook shows what the model computes.

    Files, weights, every identity of attention, FFN, norms and stream, caching, padding, causality: each with its
    largest error and what rounding explains. Exits with 0 if everything that applies passed, with 1 if a check failed,
    with 2 if the audit could not be made.
    """
    from interp.audit import audit_run

    report = audit_run(subject, device, seed=seed)
    if as_json:
        say(_as_json(subject, report, seed))
    else:
        _tell(report)
    if not report.passed:
        raise typer.Exit(FAILED)


def _tell(report: Audit) -> None:
    """One line per check, then what it comes to."""
    table = Table("check", "largest error", "tolerance", "verdict", "claim", box=None)
    for check in report.checks:
        verdict, style = VERDICTS[check.passed]
        table.add_row(*(Text(cell, style=style if cell == verdict else "") for cell in _row(check, verdict)))
    stdout().print(Text(report.subject))
    stdout().print(Text(f"Run on {report.tokens} in {report.seconds:.1f} s."))
    stdout().print(table)
    for check in report.failed:
        at = f" (largest at {check.where})" if check.where else ""
        stdout().print(Text(f"{check.name}{at}: {check.claim}: this does not hold. {check.reason}."))
    say(report.summary)


def _row(check: Check, verdict: str) -> tuple[str, ...]:
    claim = f"({check.reason})" if check.passed is None else check.claim
    return check.name, _number(check.error), _number(check.tolerance), verdict, claim


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value in (0, 1) or value >= 10 else f"{value:.1e}"


def _as_json(subject: str, report: Audit, seed: int) -> str:
    """Everything as one object; an error that is no finite number is given by its name."""
    checks = [{key: _plain(value) for key, value in asdict(check).items()} for check in report.checks]
    record = {
        "checkpoint": subject,
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
