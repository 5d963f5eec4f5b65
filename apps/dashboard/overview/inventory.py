"""Tables of what there is: runs, and what is saved of one."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd

from analyses.inventory import age, in_bytes, inventory_rows, run_rows
from analyses.results import from_here
from apps.dashboard import panels
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


def draw_runs(run: Run, step: int | None) -> None:
    """Every run beside this one, what cannot be opened included."""
    root = run.path.parent
    rows = run_rows(root)
    panel = Panel(
        key="runs",
        title="The runs in this folder",
        rows=lambda: rows,
        about=panels.about_live(run, step, n=len(rows), unit="runs"),
        python="\n".join(
            ["from analyses.inventory import run_rows", "", f"rows = run_rows({str(from_here(root))!r})", ""]
        ),
    )
    panels.table(panel, alt=panel.title, height="content")


def seed_of(run: Run) -> int | None:
    """The training seed as run.json records it."""
    train = run.settings.get("config", {}).get("train", {})
    seed = train.get("seed") if isinstance(train, dict) else None
    return seed if isinstance(seed, int) else None
