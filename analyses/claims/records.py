"""Verdicts on disk: `runs/NAME/claims/FILE/CLAIM/STEP.json`, each written whole or not at all, read back strictly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses.claims.verdicts import Verdict
from analyses.claims.wording import sentence
from analyses.records import decode, encode
from model.errors import CheckpointError
from model.files import read_json, write_atomically

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Record:
    """A verdict with what it takes to get it again."""

    verdict: Verdict
    statement: dict[str, Any]
    """The claim's keys, those that the file leaves out as they were taken."""
    together: tuple[str, ...]
    """The claims tested together, by name."""
    device: str
    seconds: float
    """Of all claims tested together."""
    created: str
    """ISO 8601, UTC."""
    versions: dict[str, str]


def plain(record: Record) -> dict[str, Any]:
    """The record as JSON holds it, with its sentence."""
    tree, tensors = encode(record)
    assert not tensors, "a verdict holds no tensors"
    return {"format": FORMAT, "sentence": sentence(record.verdict), **tree}


def as_text(records: Sequence[Record]) -> str:
    """Several records as one JSON list."""
    return json.dumps([plain(each) for each in records], indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def save_record(run_dir: Path, record: Record) -> Path:
    """Write the record under its run, in place of an older one of the same claim and step."""
    verdict = record.verdict
    folder = run_dir / "claims" / Path(verdict.file).stem / verdict.claim
    path = folder / f"{verdict.checkpoint.step:08d}.json"
    write_atomically(path, json.dumps(plain(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def load_record(path: Path) -> Record:
    """The record in a file; `CheckpointError` where it is damaged or of another format."""
    tree = read_json(path, CheckpointError)
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no verdict of format {FORMAT}; test the claim again.")
    if isinstance(tree.get("verdict"), dict):
        tree["verdict"].setdefault("stated", None)  # from before claims said when they were stated
    return decode(Record, {key: value for key, value in tree.items() if key not in ("format", "sentence")}, {})
