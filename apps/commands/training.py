"""Commands that make models: demo and train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apps.commands.options import Device, Out, Seed, Settings
from apps.console import remark, say
from apps.progress import bar


def demo(*, out: Out = None, seed: Seed = 0, device: Device = "auto") -> None:
    """Train a small GPT on Python's standard library, study it, write a report.

    Trains the demo preset and its post-norm twin, runs every study, writes report.html and says what was found.
    What an earlier call has completed is used again.
    """
    from apps.demo import run_demo

    run_demo(out or Path("runs/demo"), seed=seed, device=device)


def train(
    what: Annotated[str, typer.Argument(metavar="PRESET|FILE.toml", help="What to train: demo, tiny, ..., or a file.")],
    *,
    settings: Settings = [],  # noqa: B006  (typer reads it and never changes it)
    out: Out = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last complete checkpoint.")] = False,
) -> None:
    """Train a GPT. Ctrl-C saves at the next step and says how to go on."""
    from apps.recipes import default_folder, recipe
    from model.training.loop import train as train_run

    config = recipe(what, settings)
    folder = out or default_folder(what)
    with bar(folder.name) as shown:
        summary = train_run(config, folder, resume=resume, device=device, progress=shown)
    remark(f"{summary}")
    say(f"Trained {folder}. Next: cutaway run attention-patterns {folder}, or cutaway dashboard {folder.parent}.")
