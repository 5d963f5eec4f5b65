"""Tables of what there is: runs, and what is saved of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from analyses.inventory import age, in_bytes, inventory_rows
from analyses.results import from_here
from apps.dashboard import components, panels
from apps.dashboard.data import Run
from apps.dashboard.panels import Panel


def saved_table(run: Run, step: int | None) -> None:
    """What is saved of the run, how much, since when, and the command for what is missing."""
    rows = inventory_rows(run.path, step)
    now = datetime.now(UTC)
    shown = pd.DataFrame(
        {
            "what": rows["what"],
            "n": rows["n"],
            "steps": rows["steps"],
            "size": [in_bytes(int(n)) for n in rows["bytes"]],
            "saved": [age(saved, now) for saved in rows["saved"]],
            "at this step": rows["at this step"],
            "command": rows["command"],
        }
    )
    panel = Panel(
        key="inventory",
        title=f"What is saved of {run.name}",
        rows=lambda: inventory_rows(run.path, step),
        about=panels.about_live(run, step, n=len(rows), unit="kinds of files"),
        python="\n".join(
            [
                "from analyses.inventory import inventory_rows",
                "",
                f"rows = inventory_rows({str(from_here(run.path))!r}, {step})",
                "",
            ]
        ),
    )
    panels.table(panel, alt=panel.title, height="content", shown=shown)


def draw_runs(runs: Sequence[Run]) -> None:
    """Every run, what cannot be opened included."""
    components.table(runs_table(runs), alt="The runs under this folder", height="content")


def runs_table(runs: Sequence[Run]) -> pd.DataFrame:
    """One row for each run, what cannot be opened included."""
    rows = pd.DataFrame([_row(run) for run in runs])
    whole = {name: "Int64" for name in ("layers", "heads", "d_model", "parameters", "seed", "last step")}
    return rows.astype(whole)


def seed_of(run: Run) -> int | None:
    """The training seed as run.json records it."""
    train = run.settings.get("config", {}).get("train", {})
    seed = train.get("seed") if isinstance(train, dict) else None
    return seed if isinstance(seed, int) else None


def _row(run: Run) -> Mapping[str, Any]:
    model = run.model
    return {
        "run": run.name,
        "norm": "–" if model is None else str(model.norm),
        "layers": None if model is None else model.n_layers,
        "heads": None if model is None else model.n_heads,
        "d_model": None if model is None else model.d_model,
        "parameters": None if model is None else model.n_params,
        "seed": seed_of(run),
        "checkpoints": len(run.steps),
        "last step": run.steps[-1] if run.steps else None,
        "state": run.fault or (f"{len(run.damaged)} checkpoints damaged" if run.damaged else _whole(run)),
    }


def _whole(run: Run) -> str:
    return "complete" if run.imported_from is None else "imported"
