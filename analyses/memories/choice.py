"""Which saved result of ffn-memories is meant, where a checkpoint has several (for `memories.index.saved_index`).

Results differ in their settings: another text, another split, fewer tokens. Asked for nothing, the one with the study's
own settings is taken, so that a side run never takes its place; else settings say which, as after `cutaway run --set`.
Of several that fit alike the newest is taken, and that is said.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses.ffn.config import Config
from analyses.result_files import RECORD, read_record
from model.dotted import as_typed, dotted
from model.errors import CheckpointError, InputError
from model.run_folders import existing_step
from model.settings import to_plain, with_settings

STUDY = "ffn-memories"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One saved result."""

    folder: Path

    config: Mapping[str, Any]
    """The settings it was made with, as plain data."""

    created: str
    """When: ISO 8601, UTC."""

    seconds: float
    """How long that took."""

    @property
    def unusual(self) -> tuple[str, ...]:
        """The settings that are not the study's own, as they are typed after `--set`."""
        return unusual_settings(self.config)


def unusual_settings(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that are not the study's own, as they are typed after `--set`.

    >>> unusual_settings({"split": "held_out", "seed": 0, "n_tokens": 30000})
    ('n_tokens=30000', 'split=held_out')
    """
    usual = dotted(to_plain(Config()))
    return tuple(f"{name}={as_typed(value)}" for name, value in sorted(config.items()) if usual.get(name) != value)


def chosen_result(run: Path, step: int | None, settings: Sequence[str]) -> tuple[Path, tuple[str, ...]]:
    """The folder of the result that is meant, and what should be known of the choice.

    Args:
        run: the run's folder.
        step: of the checkpoint; None for the run's last.
        settings: which result, as KEY=VALUE; those that are not named may be anything, and best the study's own.

    Raises:
        ConfigError: the study has no such setting.
        InputError: nothing like that is saved; the sentence says what makes it, and what there is.
    """
    wanted = to_plain(with_settings(Config(), settings))
    named = {setting.partition("=")[0].strip() for setting in settings}
    folders = _folders(run)
    step = step if step in folders else existing_step(run, step)
    if step not in folders:
        raise InputError(_not_saved(run, step, settings, folders))
    saved, faults = _read(folders[step])
    fitting = [each for each in saved if all(each.config.get(name, wanted[name]) == wanted[name] for name in named)]
    if not fitting:
        raise InputError(_none_like_that(run, step, settings, saved))
    exact = [each for each in fitting if each.unusual == unusual_settings(wanted)]
    taken = max(exact or fitting, key=lambda each: each.created)
    return taken.folder, (*faults, *_notes(taken, saved, exact or fitting, settings))


def _folders(run: Path) -> dict[int, list[Path]]:
    """The folders of saved results, by step; a folder is called STEP-CONFIGHASH."""
    found: dict[int, list[Path]] = {}
    for record in sorted((run / "studies" / STUDY).glob(f"[0-9]*-*/{RECORD}")):
        found.setdefault(int(record.parent.name.partition("-")[0]), []).append(record.parent)
    return found


def _read(folders: Sequence[Path]) -> tuple[list[Saved], tuple[str, ...]]:
    """What is saved in `folders`, and a sentence for each that is damaged; where all are, that is the error."""
    saved, faults = [], []
    for folder in folders:
        try:
            made = read_record(folder)["provenance"]
        except CheckpointError as fault:
            faults.append(fault)
            continue
        saved.append(Saved(folder=folder, config=made["config"], created=made["created"], seconds=made["seconds"]))
    if not saved:
        raise faults[0]
    return saved, tuple(str(fault) for fault in faults)


def _notes(taken: Saved, saved: Sequence[Saved], fitting: Sequence[Saved], settings: Sequence[str]) -> tuple[str, ...]:
    """Which one was taken, where that is not plain from what was asked, and which others there are."""
    others = [each for each in saved if each is not taken and each.unusual != taken.unusual]
    there = (f"Also saved: {_listed(others)}; --set chooses.",) if others and not settings else ()
    if set(taken.unusual) == set(settings):
        return there
    which = f"the newest of {len(fitting)} that fit" if len(fitting) > 1 else "the only one that fits"
    return (f"This result, {which}, was made with {_flags(taken.unusual)}.", *there)


def _listed(saved: Sequence[Saved]) -> str:
    return "; ".join(dict.fromkeys(_flags(each.unusual) for each in saved))


def _flags(settings: Sequence[str]) -> str:
    return " ".join(f"--set {shlex.quote(setting)}" for setting in settings) or "the study's own settings"


def _command(run: Path, step: int, settings: Sequence[str]) -> str:
    flags = f" {_flags(settings)}" if settings else ""
    return f"`cutaway run {STUDY} {shlex.quote(str(run))}@{step}{flags}`"


def _none_like_that(run: Path, step: int, settings: Sequence[str], saved: Sequence[Saved]) -> str:
    return (
        f"{run.name}@{step} has no saved result with {_flags(settings)}; {_command(run, step, settings)} makes it. "
        f"Saved: {_listed(saved)}."
    )


def _not_saved(run: Path, step: int, settings: Sequence[str], folders: Mapping[int, Sequence[Path]]) -> str:
    made = f"Its memories are not saved yet; {_command(run, step, settings)} reads them once, and saves them."
    there = ""
    if folders:
        other = max(folders)
        seconds = read_record(folders[other][-1])["provenance"]["seconds"]
        there = f" There are those of {run}@{other}, which took {seconds:,.0f} s."
    return f"{run.name}@{step} cannot be searched. {made}{there}"
