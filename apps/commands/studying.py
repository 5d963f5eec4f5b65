"""Commands that run studies: run, studies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.options import Device, Json, Settings
from apps.console import remark, say
from apps.progress import bar

if TYPE_CHECKING:
    from analyses.study import SavedResult


MARKS = {True: "●", False: "○", None: "?"}
"""Found; looked for and not found; cannot be told."""


def studies() -> None:
    """List the studies and the question that each one asks."""
    from analyses.study import STUDIES, get_study

    for name in STUDIES:
        say(f"{name:<20} {get_study(name).question}")


def run(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Its name; `cutaway studies` lists them.")],
    subject: Annotated[
        str | None, typer.Argument(metavar="RUN[@STEP|@all]", help="What to study; @all means every checkpoint.")
    ] = None,
    *,
    settings: Settings = [],  # noqa: B006  (typer reads it and never changes it)
    device: Device = "auto",
    as_json: Json = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what is already saved.")] = False,
) -> None:
    """Run a study on a checkpoint, save its result, and say what it found. Processes of torchrun share the work."""
    from analyses.study import run_everywhere
    from model.training.distributed import connected, pick_device

    with connected(pick_device(device)) as world, bar(study) as shown:
        results = run_everywhere(
            study,
            subject,
            settings,
            device=device,
            progress=shown.on_progress,
            reuse=not fresh,
            world=world,
            told=shown.message,
        )
    if not world.leads:
        return
    say(_as_json(results)) if as_json else _tell(results)


def _tell(results: Sequence[SavedResult]) -> None:
    """Findings of each result, what is not known of an imported run, and where the result lies."""
    from analyses.study import untold

    for saved in results:
        for finding in saved.findings():
            first, *rest = finding.lines or (finding.sentence,)
            say("\n    ".join([f"{MARKS[finding.found]} {first}", *rest]))
        for remarked in filter(None, (untold(saved), f"Saved in {saved.path}")):
            remark(remarked)


def _as_json(results: Sequence[SavedResult]) -> str:
    """One object for one result, a list for several."""
    records = [json.loads(saved.to_json()) for saved in results]
    return json.dumps(records[0] if len(records) == 1 else records, indent=1, ensure_ascii=False)
