"""What is saved of a run: checkpoints, results of every study, logs; how much, since when, and what makes the rest.

Only names, sizes and times of files are read, and of results at the one step that is asked about which weights they
are of, so that it costs nothing however much there is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.registry import STUDIES
from analyses.results import RECORD, from_here
from analyses.shelf import studied_weights, weights_now
from model.checkpoint import CONFIG, checkpoint_path, checkpoint_steps
from model.config import GPTConfig
from model.errors import CutawayError
from model.files import leading_out
from model.lab import imported_from
from model.settings import from_plain

COLUMNS = ["what", "n", "steps", "bytes", "saved", "at this step", "command"]


def inventory_rows(run_dir: Path | str, step: int | None = None) -> pd.DataFrame:
    """One row for each kind of thing a run can have.

    Args:
        run_dir: the run's folder.
        step: the checkpoint for which commands are given, and for which it is said whether there is a result.
    """
    run = Path(run_dir)
    return pd.DataFrame([*_files(run), *(_study(run, study, step) for study in STUDIES)], columns=COLUMNS)


def _files(run: Path) -> Iterator[dict[str, Any]]:
    checkpoints = sorted((run / "checkpoints").glob("step-*"))
    steps = [int(folder.name.removeprefix("step-")) for folder in checkpoints if folder.name[5:].isdigit()]
    yield _row("checkpoints", checkpoints, steps, "", "")
    for what, name, command in (
        ("training log", "metrics.jsonl", ""),
        ("held-out tokens", "eval.safetensors", ""),
        ("report", "report.html", f"cutaway report {shlex.quote(str(from_here(run)))}"),
    ):
        file = run / name
        yield _row(what, [file] if file.exists() else [], [], "", "" if file.exists() else command)


def _study(run: Path, study: str, step: int | None) -> dict[str, Any]:
    found = sorted(record.parent for record in (run / "studies" / study).glob(f"[!.]*/{RECORD}"))
    steps = [step_there for folder in found if (step_there := _at(folder)) is not None]
    here = "" if step is None else _here(run, step, [folder for folder in found if _at(folder) == step])
    at = str(from_here(run)) if step is None else f"{from_here(run)}@{step}"
    return _row(study, found, steps, here, "" if here == "yes" else f"cutaway run {study} {shlex.quote(at)}")


def _at(folder: Path) -> int | None:
    name = folder.name.partition("-")[0]
    return int(name) if name.isdigit() else None


def _here(run: Path, step: int, found: list[Path]) -> str:
    """Whether there is a result of this very checkpoint: the run may have been trained again in place."""
    if not found:
        return "no"
    now, studied = weights_now(run, step), [studied_weights(folder) for folder in found]
    return "yes" if now is None or any(weights in (now, None) for weights in studied) else "of other weights"


def _row(what: str, found: list[Path], steps: list[int], here: str, command: str) -> dict[str, Any]:
    files = [file for path in found for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    newest = max((file.stat().st_mtime for file in files), default=None)
    return {
        "what": what,
        "n": len(found),
        "steps": spans(steps),
        "bytes": sum(file.stat().st_size for file in files if file.is_file()),
        "saved": "" if newest is None else datetime.fromtimestamp(int(newest), UTC).isoformat(),
        "at this step": here,
        "command": command,
    }


RUN_COLUMNS = ["run", "norm", "layers", "heads", "d_model", "parameters", "seed", "checkpoints", "last step", "state"]
WHOLE = ["layers", "heads", "d_model", "parameters", "seed", "last step"]
"""Columns that are whole numbers, or missing."""


def run_rows(root: Path | str) -> pd.DataFrame:
    """One row for each run in a folder of runs, what cannot be opened included.

    Nothing is read of a run that holds a link out of the folder.
    """
    folders = sorted(path for path in Path(root).iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    runs = [path for path in folders if (path / "run.json").is_file() or (path / "checkpoints").is_dir()]
    real = Path(root).resolve()
    inside = [path for path in runs if path.resolve().is_relative_to(real)]
    return pd.DataFrame([_run(path, real) for path in inside], columns=RUN_COLUMNS).astype(
        dict.fromkeys(WHOLE, "Int64")
    )


def _run(path: Path, root: Path) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(RUN_COLUMNS) | {"run": path.name, "norm": "–", "checkpoints": 0}
    try:
        if leading_out(path, root) is not None:
            return row | {"state": "not read: it holds a link out of the folder"}
        settings = json.loads((path / "run.json").read_text("utf-8"))
        steps = checkpoint_steps(path)
        train = settings["config"].get("train")
        seed = train.get("seed") if isinstance(train, dict) else None
        row |= {"seed": seed, "checkpoints": len(steps), "state": "no complete checkpoint yet"}
        if not steps:
            return row
        last = checkpoint_path(path, steps[-1])
        model = from_plain(GPTConfig, json.loads((last / CONFIG).read_text("utf-8")))
    except (CutawayError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return row | {"state": "cannot be opened"}
    damaged = len(list((path / "checkpoints").glob("step-*"))) - len(steps)
    state = "complete" if imported_from(settings) is None else "imported"
    shape = {"layers": model.n_layers, "heads": model.n_heads, "d_model": model.d_model, "parameters": model.n_params}
    state = f"{damaged} checkpoints damaged" if damaged > 0 else state
    return row | shape | {"norm": model.norm.value, "last step": steps[-1], "state": state}


def spans(steps: list[int]) -> str:
    """Steps in a few words: all of a few, the first and the last of many.

    >>> spans([0, 512]), spans([0, 1, 2, 4, 8])
    ('0, 512', '0 to 8')
    """
    every = sorted(set(steps))
    return ", ".join(map(str, every)) if len(every) <= 3 else f"{every[0]} to {every[-1]}"


def in_bytes(n: int) -> str:
    """A size as it is read.

    >>> in_bytes(0), in_bytes(2_300), in_bytes(41_000_000)
    ('–', '2.3 kB', '41 MB')
    """
    if n == 0:
        return "–"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}" if n < 10 * size else f"{n / size:.0f} {unit}"
    return f"{n} B"


def age(saved: str, now: datetime) -> str:
    """How long ago, in one unit.

    >>> age("2026-01-01T00:00:00+00:00", datetime(2026, 1, 3, tzinfo=UTC)), age("", datetime(2026, 1, 3, tzinfo=UTC))
    ('2 days ago', '–')
    """
    if not saved:
        return "–"
    seconds = (now - datetime.fromisoformat(saved)).total_seconds()
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            n = int(seconds // length)
            return f"{n} {unit}{'' if n == 1 else 's'} ago"
    return "just now"
