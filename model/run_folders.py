"""Where runs and their checkpoints stand on disk, and which ones a text names; nothing is opened.

RUN/run.json                            the settings, and what else training recorded
RUN/checkpoints/step-00000512/          one checkpoint (`model.checkpoint`)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from model.errors import CheckpointError, UnknownNameError, closest
from model.files import read_json
from model.manifest import read_manifest

RUNS = Path("runs")
"""Where runs are looked for by name, from the working folder."""
RUN = "run.json"
_STEP = re.compile(r"step-(\d{8,})")


def parse_run_spec(spec: str | Path) -> tuple[Path, int | Literal["all"] | None]:
    """The run's folder and the step of `RUN`, `RUN@STEP` or `RUN@all`; the run must exist, the step need not."""
    name, at, step = str(spec).rpartition("@")
    if not at or Path(str(spec)).is_dir():
        return resolve_run(str(spec)), None
    if step != "all" and not step.isdecimal():
        raise UnknownNameError(f'"{step}" in "{spec}" is no step; write a number, as in {name}@512, or {name}@all.')
    return resolve_run(name), step if step == "all" else int(step)


def resolve_run(name: str | Path) -> Path:
    """The folder of a run, from its path or its name under runs/; an unknown one lists those that exist."""
    for path in (Path(name), RUNS / name):
        if (path / RUN).is_file():
            return path
    root = Path(name).parent if Path(name).parent != Path() else RUNS
    names = [path.name for path in list_runs(root)]
    if Path(name).is_dir():
        raise UnknownNameError(f"The folder {name} is no run: it holds no {RUN}.{_listed(names, root)}")
    raise UnknownNameError(f'There is no run "{name}".{closest(Path(name).name, names)}{_listed(names, root)}')


def list_runs(root: str | Path = RUNS) -> list[Path]:
    """The folders of all runs in `root`, by name."""
    root = Path(root)
    return sorted(path.parent for path in root.glob(f"[!.]*/{RUN}")) if root.is_dir() else []


def read_run(path: Path) -> dict[str, Any]:
    """run.json of a run, as a dict; a `CheckpointError` where it is damaged or holds no object."""
    run = read_json(path / RUN, CheckpointError)
    if isinstance(run, dict):
        return run
    raise CheckpointError(f"{path / RUN} is not what training wrote: it holds no settings. Restore it or remove it.")


def imported_from(run: Mapping[str, Any]) -> str | None:
    """What run.json says the model was imported from, in words; None for a run that was trained here."""
    imported = run.get("imported")
    return str(imported.get("source", "elsewhere")) if isinstance(imported, dict) else None


def checkpoint_path(run_dir: Path, step: int) -> Path:
    """Where the checkpoint of a step stands, or would stand."""
    return run_dir / "checkpoints" / f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """The step whose checkpoint stands in `folder`, by its name; None where that is no checkpoint's."""
    match = _STEP.fullmatch(folder.name)
    return None if match is None else int(match[1])


def checkpoint_steps(run_dir: Path) -> list[int]:
    """The steps that have a complete checkpoint, in order; contents are verified only when one is opened."""
    folder = run_dir / "checkpoints"
    found = {path: step_of(path) for path in folder.iterdir()} if folder.is_dir() else {}
    return sorted(step for path, step in found.items() if step is not None and _is_complete(path))


def existing_step(path: Path, step: int | None) -> int:
    """The step of a checkpoint that the run has: `step`, or the last one; an unknown one names the nearest."""
    if step is not None and checkpoint_path(path, step).is_dir():
        return step  # should it be damaged, loading it says how
    steps = checkpoint_steps(path)
    if not steps:
        raise UnknownNameError(f"The run {path} has no whole checkpoint yet; train it first.")
    if step is None:
        return steps[-1]
    nearest = min(steps, key=lambda other: abs(other - step))
    shown = steps if len(steps) <= 16 else [*steps[:4], "...", *steps[-4:]]
    raise UnknownNameError(
        f"The run {path} has no checkpoint at step {step}; the nearest is {path}@{nearest}. "
        f"There are {', '.join(map(str, shown))}."
    )


def _is_complete(path: Path) -> bool:
    """Whether the manifest can be read and every file that it names is there."""
    try:
        manifest = read_manifest(path)
    except CheckpointError:
        return False
    return all((path / name).is_file() for name in manifest.files)


def _listed(names: list[str], root: Path) -> str:
    if not names:
        return f" There are no runs in {root} yet; `cutaway demo` or `cutaway train tiny` makes one."
    return f" Runs in {root}: {', '.join(names)}."
