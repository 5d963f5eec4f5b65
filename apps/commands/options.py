"""Options that several commands share, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, for example model.norm=post; repeatable."),
]
Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything that is drawn.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where to write.", show_default=False)]
Run = Annotated[
    str, typer.Argument(metavar="RUN[@STEP]", help="A checkpoint: runs/demo@512, or runs/demo for its last.")
]
