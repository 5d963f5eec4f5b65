"""What is on the disk: runs under the root, their checkpoints, their saved results, their logs.

A cache is keyed by names and by the times of the files it was read from, never by a model; what is opened is shared by
every session, which is safe because edits belong to a call and never to a model. A run can only be one that was found
by listing the root, so no address makes the server read another folder; and a run with a link that leads out of the
root, wherever in it, is not read at all, so no run does either.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from analyses import shelf as shelves_on_disk
from analyses.registry import STUDIES, Finding, get_study
from analyses.results import RECORD, TENSORS, OtherVersion, SavedResult, from_here
from analyses.shelf import OtherWeights, Shelf
from apps.dashboard.launch import ROOT_VARIABLE
from model.checkpoint import CONFIG, MANIFEST, Manifest, checkpoint_path, checkpoint_steps, read_manifest
from model.config import GPTConfig
from model.errors import CheckpointError, CutawayError
from model.files import leading_out
from model.lab import RUN, TOKENIZER, imported_from
from model.settings import from_plain
from model.training import eval_rows

if TYPE_CHECKING:
    import pandas as pd

    from analyses.attention.verdicts import Verdict
    from analyses.memories.index import MemoryIndex
    from analyses.memories.search import Query
    from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run under the root, as far as it can be known without opening a checkpoint."""

    name: str
    path: Path

    steps: tuple[int, ...]
    """Steps of its complete checkpoints."""

    model: GPTConfig | None
    """None where no checkpoint says."""

    settings: dict[str, Any]
    """The content of run.json; empty where it cannot be read."""

    imported_from: str | None = None
    """What the model was imported from, in words."""

    damaged: tuple[str, ...] = ()
    """Folders of checkpoints that are incomplete, or not as they were written."""

    fault: str | None = None
    """Why the run cannot be opened, if it cannot."""

    barred: bool = False
    """Whether nothing of it may be read."""


def root() -> Path:
    """The folder of runs that the launcher was given."""
    return Path(os.environ.get(ROOT_VARIABLE, "runs")).resolve()


def runs() -> tuple[Run, ...]:
    """Every run under the root, damaged ones included, by name."""
    folder = root()
    if not folder.is_dir():
        return ()
    seen = (path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith("."))
    inside = (path for path in seen if path.resolve().is_relative_to(folder))
    return tuple(_run(path) for path in inside if (path / "run.json").is_file() or (path / "checkpoints").is_dir())


def _run(path: Path) -> Run:
    try:
        _require_inside(path)
    except (CutawayError, OSError) as error:
        return Run(name=path.name, path=path, steps=(), model=None, settings={}, fault=str(error), barred=True)
    try:
        settings = _settings(path / "run.json")
        steps = tuple(checkpoint_steps(path))
        model = _model_of(checkpoint_path(path, steps[-1])) if steps else None
        fault = None if steps else "it has no complete checkpoint yet"
    except (CutawayError, OSError, ValueError) as error:
        return Run(name=path.name, path=path, steps=(), model=None, settings={}, fault=str(error))
    whole = {checkpoint_path(path, step).name for step in steps}
    damaged = tuple(sorted({folder.name for folder in (path / "checkpoints").glob("step-*")} - whole))
    return Run(
        name=path.name, path=path, steps=steps, model=model, settings=settings, damaged=damaged, fault=fault,
        imported_from=imported_from(settings),
    )  # fmt: skip


def _require_inside(path: Path) -> None:
    link = leading_out(path, root())
    if link is not None:
        raise CutawayError(
            f"{link.relative_to(root())} is a link that leads out of {root()}, and only what is in that folder is "
            "read: put a copy in its place, or start the dashboard on a folder that holds both"
        )


def _settings(file: Path) -> dict[str, Any]:
    content = _record(file)
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict) or not all(
        isinstance(config.get(part) or {}, dict) for part in ("model", "data", "train", "optim")
    ):
        raise CheckpointError(f"{file} does not describe a run; restore it from a copy, or train the run again")
    return content


def _record(file: Path) -> Any:
    """What a JSON file of a run holds; what the parser says of a damaged one helps nobody."""
    try:
        return json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        fault = "is missing"
    except ValueError:
        fault = "was altered or cut short: it is no JSON"
    raise CheckpointError(f"{file} {fault}; restore it from a copy, or train the run again")


def _model_of(checkpoint: Path) -> GPTConfig:
    return from_plain(GPTConfig, _record(checkpoint / CONFIG))


def lab(run: Run, step: int | None) -> Lab:
    """The opened checkpoint, verified; `CheckpointError` where it is damaged."""
    if step is None:
        raise CutawayError(f"{run.name} cannot be opened: {run.fault}")
    return _opened(str(run.path), step, opened_from(run, step))


@st.cache_resource(max_entries=4, show_spinner="Opening the checkpoint")
def _opened(path: str, step: int, stamps: tuple[tuple[str, int], ...]) -> Lab:
    from model.lab import open_run

    del stamps
    return open_run(f"{path}@{step}")


def manifest(run: Run, step: int) -> Manifest:
    """What the checkpoint says about itself; a page asks several times, so it is read once each time it was written."""
    folder = checkpoint_path(run.path, step)
    return _manifest(folder, _stamp(folder / MANIFEST))


@lru_cache(maxsize=1024)
def _manifest(folder: Path, stamp: int) -> Manifest:
    del stamp
    return read_manifest(folder)


def spelled(run: Run, step: int | None = None) -> str:
    """The run as it would be typed in the folder where the dashboard was started."""
    path = from_here(run.path)
    return shlex.quote(str(path) if step is None else f"{path}@{step}")


_NEIGHBOURS_KNOWN = 5.0
"""Seconds after which it is looked again whether neighbours hold links; what is read itself is looked at each time."""


def shelf(run: Run, study: str) -> Shelf:
    """What is saved of `study` for `run`; a damaged result costs a sentence, not the others."""

    def read(folder: Path) -> SavedResult:
        home = folder.parents[2]
        if home not in (run.path, root()) and _is_barred(str(home)):
            raise CutawayError(f"{home.name} is not read: it holds a link out of {root()}")
        return _read(folder)

    return shelves_on_disk.shelf(run.path, study, read=read)


@st.cache_data(max_entries=256, ttl=_NEIGHBOURS_KNOWN, show_spinner=False)
def _is_barred(path: str) -> bool:
    """Whether a neighbour may not be read, as `_run` has it; its results of a pair would be shown with this run's."""
    return leading_out(Path(path), root()) is not None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A saved result that is left out."""

    step: int | None
    """None where it is damaged, or of no run."""
    outdated: bool
    """Whether it is whole, but of another version."""
    of_other_weights: bool
    """Whether it is whole, but the checkpoint holds other weights by now."""
    command: str
    """What makes it again; empty where it is damaged."""
    sentence: str


def faults(shelf: Shelf) -> tuple[Fault, ...]:
    """The results of a study for a run that are left out."""
    return tuple(_fault(error) for error in shelf.errors)


def _fault(error: CutawayError) -> Fault:
    known = error.saved if isinstance(error, OtherVersion | OtherWeights) else None
    return Fault(
        step=None if known is None else known.provenance.step,
        outdated=isinstance(error, OtherVersion),
        of_other_weights=isinstance(error, OtherWeights),
        command="" if known is None else known.command,
        sentence=str(error),
    )


def shelves(run: Run) -> dict[str, Shelf]:
    """What is saved of every study."""
    return {name: shelf(run, name) for name in STUDIES}


def _read(folder: Path) -> SavedResult:
    found = _result(str(folder), _stamp(folder / RECORD) + _stamp(folder / TENSORS))
    if isinstance(found, CutawayError):
        raise found.with_traceback(None)  # it is kept, and would gather the frames of every click
    return found


@st.cache_resource(max_entries=256, show_spinner=False)
def _result(folder: str, stamp: int) -> SavedResult | CutawayError:
    """The result, or why it cannot be read, so that it is not tried again at every click."""
    del stamp
    try:
        _require_inside(Path(folder))
        return shelves_on_disk.whole_result(Path(folder))
    except CutawayError as error:
        return error


def findings(saved: SavedResult) -> tuple[Finding, ...]:
    """The result in sentences; remembered, since some studies weigh every head for them."""
    return _findings(saved, *identity(saved))


def verdicts(saved: SavedResult) -> tuple[Verdict, ...]:
    """What is to be said of every head, by a result of attention-patterns; the study remembers it with the result."""
    from analyses.attention_patterns import verdicts as weighed

    return weighed(saved.result)


def verdict_rows(saved: SavedResult) -> pd.DataFrame:
    """The same as rows, the best supported first; shared, so they are not to be changed."""
    return _verdict_rows(saved, *identity(saved))


@st.cache_resource(max_entries=16, show_spinner=False)
def _verdict_rows(_saved: SavedResult, folder: str, stamp: int) -> pd.DataFrame:
    from analyses.heads.tables import listed

    del folder, stamp
    return listed(verdicts(_saved))


@st.cache_resource(max_entries=64, show_spinner=False)
def _findings(_saved: SavedResult, folder: str, stamp: int) -> tuple[Finding, ...]:
    del folder, stamp
    return _saved.findings()


def head_probes(saved: SavedResult, head: tuple[int, int]) -> pd.DataFrame:
    """What a result of probes reads off a head, and off the heads of its layer."""
    from analyses.heads.tables import probe_rows

    return probe_rows(saved.result, head)


def memory_index(saved: SavedResult) -> MemoryIndex:
    """A result of ffn-memories laid out for searching it."""
    return _memory_index(*identity(saved))


@st.cache_resource(max_entries=4, show_spinner="Laying out the memories for search")
def _memory_index(folder: str, stamp: int) -> MemoryIndex:
    from analyses.memories.index import read_index

    del stamp
    return read_index(Path(folder))


@dataclass(frozen=True, kw_only=True)
class MemoriesFound:
    """The memories that a search found, as far as they are listed."""

    rows: tuple[Mapping[str, Any], ...]
    n: int
    """How many there are."""
    notes: tuple[str, ...]
    """What should be known of the search."""


def memories_found(saved: SavedResult, query: Query, limit: int) -> MemoriesFound:
    """The first `limit` memories that meet the query."""
    return _memories_found(saved, query, limit, *identity(saved))


@st.cache_resource(max_entries=64, show_spinner=False)
def _memories_found(_saved: SavedResult, query: Query, limit: int, folder: str, stamp: int) -> MemoriesFound:
    from analyses.memories.search import found_rows, search

    del folder, stamp
    index = memory_index(_saved)
    found = search(index, query)
    return MemoriesFound(rows=tuple(found_rows(index, found, limit)), n=len(found), notes=found.notes)


def identity(saved: SavedResult) -> tuple[str, int]:
    """What names a result and changes when its files do: what a cache of anything derived from it is keyed by."""
    return str(saved.path), _stamp(saved.path / RECORD) + _stamp(saved.path / TENSORS)


def metrics(run: Run) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    return _metrics(str(run.path), _stamp(run.path / "metrics.jsonl"))


@st.cache_data(max_entries=16, show_spinner=False)
def _metrics(path: str, stamp: int) -> list[dict[str, Any]]:
    from model.lab import read_metrics

    del stamp
    return read_metrics(Path(path))


def settings_of(saved: SavedResult) -> str:
    """The settings of a result that are not the study's own, as they would be typed."""
    return ", ".join(saved.settings) or "usual settings"


def question(study: str) -> str:
    """The one sentence that a study answers."""
    return get_study(study).question


def opened_from(run: Run, step: int) -> tuple[tuple[str, int], ...]:
    """What changes with any file that an opened checkpoint is read from: its own, held-out text, tokenizer, settings.

    A checkpoint whose weights change or vanish is opened, and told, anew; so is what was computed with it.
    """
    shared = [run.path / name for name in (eval_rows.FILE_NAME, TOKENIZER, RUN)]
    files = [*sorted(checkpoint_path(run.path, step).glob("*")), *shared]
    return tuple((file.name, _stamp(file)) for file in files)


def stamp(file: Path) -> int:
    """A number that changes when the file does; for caches of pages."""
    return _stamp(file)


def _stamp(file: Path) -> int:
    """A number that changes when the file does."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
