"""Results on disk: written whole or not at all, read without the model.

    runs/NAME/studies/STUDY/STEP-CONFIGHASH/
        result.safetensors                  the tensors
        result.json                         the rest, with provenance and findings
        figure.json figure.svg table.csv    drawn from the result when it was saved, with other tables by their names

A folder is filled under a temporary name and then renamed, so a reader sees a finished result or none. `result.json`
holds the hash of the tensors, so the two cannot be mixed up. Studies of no run live in `runs/_studies`; which results
belong to a run is for `shelf` to say.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from analyses.figures import save_svg, themed
from analyses.records import decode, encode
from analyses.registry import Finding, Passage, Study, get_study
from analyses.result_files import FORMAT, RECORD, REMEDY, TENSORS, read_record, tensor_bytes
from model.dotted import as_typed, dotted
from model.errors import CheckpointError, CutawayError
from model.files import atomic_folder, clean_leftovers, sha256_of
from model.settings import from_plain, to_plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FORMAT", "RECORD", "TENSORS", "OtherVersion", "Provenance", "SavedResult", "from_here", "load_result",
    "read_record", "result_folder", "save_result",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a result comes from: enough to compute it again."""

    study: str
    """The study's name on the command line."""

    run: str | None
    """Name of the run whose checkpoint was studied; None for a study of initialisation."""

    step: int | None
    """Training step of the checkpoint."""

    tokens_seen: int | None
    """Training tokens up to that step."""

    weights_sha256: str | None
    """Hash of the weights that were studied."""

    corpus_sha256: str | None
    """Hash of the corpus the run was trained on."""

    inputs_sha256: str | None
    """Hash of the other files the study read (logs, a twin's), for studies that name them."""

    config: dict[str, Any]
    """The study's config as plain data."""

    config_hash: str
    """Twelve hex digits that name the config; part of the folder's name."""

    seed: int
    """The config's seed."""

    device: str
    """Where the forward passes ran."""

    seconds: float
    """Wall time of the study."""

    created: str
    """When it was saved: ISO 8601, UTC."""

    versions: dict[str, str]
    """Versions of python, torch, numpy and cutaway."""


class OtherVersion(CheckpointError):
    """A result is whole, but its study has other fields by now."""

    def __init__(self, saved: SavedResult, sentence: str) -> None:
        super().__init__(sentence)
        self.saved = saved


@dataclass(frozen=True)
class SavedResult:
    """A result in its folder. What is light is here; the tensors are read when `result` is first asked for."""

    path: Path
    study: str
    provenance: Provenance

    @cached_property
    def result(self) -> Any:
        """The study's `Result`, decoded strictly; `CheckpointError` if its files were altered or are of another day."""
        record = read_record(self.path)
        tensors = _read_tensors(self.path, record)
        try:
            return decode(self._study.result_class, record["result"], tensors)
        except CutawayError as error:
            raise OtherVersion(
                self, f"{self.path} was saved by another version of {self.study}: {error} {REMEDY}"
            ) from None

    @cached_property
    def config(self) -> Any:
        """The study's `Config` as it was run."""
        return from_plain(self._study.config_class, self.provenance.config, where=self.study)

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that are not the study's own, as they would be typed after `--set`."""
        usual = dotted(to_plain(self._study.config_class()))
        asked = dotted(self.provenance.config)
        return tuple(f"{name}={as_typed(value)}" for name, value in asked.items() if usual.get(name) != value)

    @property
    def command(self) -> str:
        """What computes the result again, typed in the folder where this is asked."""
        where = self.provenance
        run = None if where.run is None else f"{from_here(self.path.parents[2])}@{where.step}"
        words = ["cutaway", "run", self.study, *([run] if run else [])]
        words += [word for setting in self.settings for word in ("--set", setting)]
        return shlex.join([*words, "--fresh"])

    def table(self) -> pd.DataFrame:
        """The result as rows."""
        return self._study.table(self.result)

    def more_tables(self) -> Mapping[str, pd.DataFrame]:
        """Its other tables, by name."""
        return self._study.more_tables(self.result)

    def passages(self) -> Sequence[Passage]:
        """Examples in text."""
        return self._study.passages(self.result)

    def figure(self) -> Any:
        """The result as an Altair chart, drawn without the model."""
        return self._study.figure(self.result)

    def findings(self) -> tuple[Finding, ...]:
        """The result in sentences."""
        return tuple(self._study.findings(self.result))

    def to_json(self) -> str:
        """The text of result.json: provenance, findings and every number that is not a tensor."""
        return (self.path / RECORD).read_text(encoding="utf-8")

    @property
    def _study(self) -> Study:
        return get_study(self.study)


def from_here(path: Path) -> Path:
    """A path as it is typed in the working folder: relative to it where it lies inside."""
    return _from(path, Path.cwd())


@lru_cache(maxsize=4096)
def _from(path: Path, here: Path) -> Path:
    """Resolving a path asks the disk about each of its folders, and a page spells some dozens of paths."""
    whole = path.resolve()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole


def result_folder(studies: Path, provenance: Provenance) -> Path:
    """`STUDY/STEP-CONFIGHASH` under a run's `studies` folder; init in place of the step where no run was studied."""
    step = "init" if provenance.step is None else f"{provenance.step:08d}"
    return studies / provenance.study / f"{step}-{provenance.config_hash}"


def save_result(studies: Path, result: Any, provenance: Provenance) -> SavedResult:
    """Write result, record, table and figure to their folder, replacing an older result of the same name at once."""
    study = get_study(provenance.study)
    final = result_folder(studies, provenance)
    clean_leftovers(final.parent)
    with atomic_folder(final) as folder:
        tree, tensors = encode(result)
        packed = save(tensors)
        (folder / TENSORS).write_bytes(packed)
        record = {
            "format": FORMAT,
            "study": study.name,
            "question": study.question,
            "provenance": asdict(provenance),
            "findings": [asdict(finding) for finding in study.findings(result)],
            "tables": {name: _plain_rows(rows) for name, rows in study.more_tables(result).items()},
            "tensors_sha256": sha256_of(packed),
            "result": tree,
        }
        _write_text(folder / RECORD, json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False))
        _write_drawings(folder, study, result)
    return SavedResult(final, study.name, provenance)


def load_result(path: Path | str) -> SavedResult:
    """The result in folder `path`; its record is checked now, its tensors when they are read."""
    path = Path(path)
    record = read_record(path)
    try:
        provenance = from_plain(Provenance, record["provenance"], where="provenance")
    except ValueError as error:
        raise CheckpointError(f"{path / RECORD} has no provenance this version can read: {error} {REMEDY}") from None
    return SavedResult(path, record["study"], provenance)


def _read_tensors(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    try:
        return load(tensor_bytes(path, record))
    except SafetensorError as error:
        raise CheckpointError(f"{path / TENSORS} cannot be read: {error}. {REMEDY}") from None


def _write_drawings(folder: Path, study: Study, result: Any) -> None:
    for name, rows in {"table": study.table(result), **study.more_tables(result)}.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
    chart = study.figure(result)
    _write_text(folder / "figure.json", themed(chart).to_json(indent=None))
    save_svg(chart, folder / "figure.svg")


def _plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as JSON holds it: null where there is no number."""
    return json.loads(str(table.to_json(orient="records")))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8")
