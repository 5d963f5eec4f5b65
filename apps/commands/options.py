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
METRICS = (
    "copy_loss", "first_copy_loss", "copy_accuracy", "copy_kl", "copy_logit_difference",
    "text_loss", "new_token_loss", "text_accuracy", "text_kl", "icl_score",
)  # fmt: skip
"""The names of `interp.outcomes.OUTCOMES`, for a help that answers before torch is there; a test holds them equal."""

Metric = Annotated[str, typer.Option("--metric", help=f"What is held against a control: {', '.join(METRICS)}.")]
Run = Annotated[
    str, typer.Argument(metavar="RUN[@STEP]", help="A checkpoint: runs/demo@512, or runs/demo for its last.")
]
