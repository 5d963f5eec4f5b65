"""Tables of what there is: runs, and saved results by study and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from apps.dashboard.data import Run


def runs_table(runs: Sequence[Run]) -> pd.DataFrame:
    """One row for each run, what cannot be opened included."""
    return pd.DataFrame([_row(run) for run in runs])


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
