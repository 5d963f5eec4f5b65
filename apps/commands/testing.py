"""The command that tests written hypotheses: test."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from apps.commands.options import Device, Json
from apps.console import remark, say, stdout
from apps.progress import bar

if TYPE_CHECKING:
    from analyses.hypotheses import Claim, Record, Verdict

REFUTED = 1
"""Exit status when a claim was refuted, be it one that its file expects to be."""

STYLES = {"supported": "green", "refuted": "bold red", "undecided": "yellow"}


def verdicts(
    paths: Annotated[list[Path], typer.Argument(metavar="PATHS", help="TOML files of claims, or folders of them.")],
    *,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN[@STEP]", help="What to test on; else what the files say.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="last|all|N[,N]", help="Which checkpoints; else what the files say.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write all verdicts to one JSON file as well.")
    ] = None,
) -> None:
    """Test written hypotheses on a checkpoint: supported, refuted or undecided, with effect, interval, control and p.

    Exits with 0 if no claim was refuted, with 1 if one was (also one that its file expects to be), with 2 if the claims
    could not be tested. Each verdict is saved under its run, in runs/NAME/claims.
    """
    from analyses.claims.records import as_text
    from analyses.hypotheses import load_claims, verdicts_of_run
    from model.files import write_atomically

    claims, records = load_claims(paths), []
    with bar("test") as shown:
        for name, group in _by_run(claims, run).items():
            records += verdicts_of_run(group, name, step=step, device=device, progress=shown.on_progress)
    if out is not None:
        write_atomically(out, as_text(records))
    if as_json:
        say(as_text(records).rstrip())
    else:
        _tell(records)
    refuted = [record.verdict for record in records if record.verdict.standing.value == "refuted"]
    if refuted and all(verdict.as_expected for verdict in refuted):
        remark("Exit status 1: claims are refuted, as their files expect.")
    if refuted:
        raise typer.Exit(REFUTED)


def _by_run(claims: Sequence[Claim], run: str | None) -> dict[str, list[Claim]]:
    """The claims of each run: the one that was asked for, or else each claim's own."""
    from model.errors import InputError

    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        name = run or claim.stated.run
        if name is None:
            with claim.named():
                raise InputError('no run is named; give --run RUN, or say run = "runs/NAME" in the file.')
        groups.setdefault(name, []).append(claim)
    return groups


def _tell(records: Sequence[Record]) -> None:
    """A table; then each verdict in a sentence, or, of several checkpoints, from where on each claim comes to it."""
    from analyses.claims.wording import since_phrase
    from analyses.hypotheses import sentence

    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.verdict.checkpoint.run, record.verdict.claim), []).append(record)
    stdout().print(_table([record for group in groups.values() for record in group]))
    for group in groups.values():
        if len(group) > 1:
            say(since_phrase([each.verdict for each in group]))
        say(sentence(group[-1].verdict))
    for where in dict.fromkeys(record.verdict.checkpoint.run for record in records):
        remark(f"Verdicts are saved in the claims folder of {where}.")


def _table(records: Sequence[Record]) -> Table:
    """One line for each claim and checkpoint, claim by claim."""
    from analyses.claims.wording import short_control, short_effect, short_p

    table = Table("verdict", "claim", "checkpoint", "effect", "claimed", "p", "control", "n", "its file", box=None)
    for record in records:
        verdict = record.verdict
        found, standing = verdict.measured, verdict.standing.value
        table.add_row(
            Text(standing, style=STYLES[standing]),
            Text(verdict.claim),
            Text(f"{verdict.checkpoint.run}@{verdict.checkpoint.step}"),
            Text(short_effect(verdict)),
            Text(verdict.bound),
            Text(short_p(verdict)),
            Text(short_control(verdict)),
            Text("-" if found is None else str(found.n)),
            Text(_beside_file(verdict)),
        )
    return table


def _beside_file(verdict: Verdict) -> str:
    """How it came out beside what its file says, or in a few words why it did not."""
    if verdict.as_expected is None:
        return textwrap.shorten(verdict.reason, 60, placeholder=" ...")
    return "as expected" if verdict.as_expected else f"expected: {verdict.expected}"
