"""Commands that ask questions of a model: run, studies, ablate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.options import Device, Json, Run, Seed, Settings
from apps.console import remark, say
from apps.progress import bar

if TYPE_CHECKING:
    from analyses.study import SavedResult
    from interp.effects import AblationEffect


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
    """Run a study on a checkpoint, save its result, and say what it found."""
    from analyses.study import run_everywhere

    with bar(study) as shown:
        results = run_everywhere(study, subject, settings, device=device, progress=shown.on_progress, reuse=not fresh)
    say(_as_json(results)) if as_json else _tell(results)


def ablate(
    subject: Run,
    places: Annotated[str, typer.Argument(metavar="PLACES", help="Such as L1H1,L1H3:mean or L0.ffn:zero.")],
    *,
    metric: Annotated[str, typer.Option("--metric", help="The loss to hold against a control.")] = "copy_loss",
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Remove heads, memories or whole sublayers together, and say what it costs, with an interval and a control."""
    from interp.effects import ablate as measured
    from interp.wording import effect_sentences
    from model.lab import open_run

    with bar("ablate") as shown:
        lab = open_run(subject, device)
        effect = measured(lab, places, metric=metric, seed=seed, counted=shown.on_progress)
    say(_record(effect) if as_json else "\n".join(effect_sentences(effect)))


def _record(effect: AblationEffect) -> str:
    """Every number of an effect as one object."""
    from torch import Tensor

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.tolist()
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    return json.dumps(plain(asdict(effect)) | {"harm": asdict(effect.harm)}, indent=1, allow_nan=False)


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
