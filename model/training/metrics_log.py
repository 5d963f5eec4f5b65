"""metrics.jsonl: one line of JSON for each step that was looked at.

A line is written whole and flushed, so that a run can be watched while it trains and a killed one loses at most its
last line. Resuming cuts the file back to the checkpoint and writes on; the rows come out as if nothing had happened,
times excepted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from model.errors import CheckpointError, TrainingError
from model.files import clear_os_errors, read_bytes, write_atomically

FILE_NAME = "metrics.jsonl"


class MetricsLog:
    """The open metrics file of a run, at the end of which rows are added."""

    def __init__(self, run_dir: Path, *, keep_below: int) -> None:
        """Keep the rows of steps below `keep_below`, drop the rest, and go on from there."""
        self._path = run_dir / FILE_NAME
        with clear_os_errors("written", self._path, TrainingError):
            kept = [line for line, row in read_rows(self._path) if row["step"] < keep_below]
            write_atomically(self._path, "".join(line + "\n" for line in kept))
            self._file = self._path.open("a", encoding="utf-8")

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one row; numbers keep seven significant digits. A number that is not finite is a TrainingError."""
        for name, number in _numbers(row):
            if not math.isfinite(number):
                raise TrainingError(
                    f"{name} became {number} at step {row['step']}, so training stopped; what was saved before is "
                    "intact. Train again with a lower optim.lr or a longer optim.warmup_steps."
                )
        line = json.dumps(_rounded(row), allow_nan=False) + "\n"
        with clear_os_errors("written", self._path, TrainingError):
            self._file.write(line)
            self._file.flush()

    def sync(self) -> None:
        """Make what was added survive a power cut; done before each checkpoint, which relies on it."""
        with clear_os_errors("written", self._path, TrainingError):
            os.fsync(self._file.fileno())

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # A full disk was reported when it was met; closing meets it again.
            self._file.close()


def read_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every line of a metrics file that was written to its end, and the row that it says; none where there is no file.

    Raises:
        CheckpointError: a whole line is no row with a step.
    """
    lines = read_bytes(path, CheckpointError).split(b"\n") if path.exists() else [b""]
    # What follows the last line break is unfinished, or nothing.
    return [_read_row(line, number, path) for number, line in enumerate(lines[:-1], start=1)]


def _read_row(line: bytes, number: int, path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = line.decode()
        row = json.loads(text)
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            return text, row
    except ValueError:
        pass  # neither text nor JSON: said below
    raise CheckpointError(
        f"Line {number} of {path} is no row of metrics; the file is damaged there. Remove the line to go on."
    )


def _numbers(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a row by its dotted name."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            yield prefix + key, value


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return value
