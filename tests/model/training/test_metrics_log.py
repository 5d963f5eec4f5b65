"""metrics.jsonl is readable at any moment and can be cut back to a step."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from model.errors import CheckpointError, TrainingError
from model.training.metrics_log import MetricsLog


def steps_in(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_rows_are_there_as_soon_as_they_are_added(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, keep_below=0) as log:
        for step in range(3):
            log.add({"step": step, "loss": 1 / 3})
            assert steps_in(tmp_path) == list(range(step + 1))
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["loss"] == 0.3333333


def test_resuming_drops_the_rows_from_the_checkpoint_on_and_a_half_written_line(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, keep_below=0) as log:
        for step in (0, 1, 2, 4, 8):
            log.add({"step": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 16, "lo')
    with MetricsLog(tmp_path, keep_below=4) as log:
        log.add({"step": 4})
    assert steps_in(tmp_path) == [0, 1, 2, 4]


@pytest.mark.parametrize(
    "damage",
    [
        b'{"st',
        b"[0]",
        b"7",
        b"null",
        b'{"loss": 1.0}',
        b'{"step": "two"}',
        b'{"step": null}',
        b"\xff\xfe",
        b"\0\0",
        b"",
    ],
)
def test_a_damaged_whole_line_is_named_and_the_file_is_left_as_it_is(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 0}\n' + damage + b'\n{"step": 2}\n')
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"Line 2 of .*metrics\.jsonl is no row of metrics.*Remove the line"):
        MetricsLog(tmp_path, keep_below=2)
    assert path.read_bytes() == before


def test_a_number_that_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with (
        MetricsLog(tmp_path, keep_below=0) as log,
        pytest.raises(TrainingError, match=r"resid_norms\.blocks\.0\.hook_resid_pre became inf at step 7"),
    ):
        log.add({"step": 7, "resid_norms": {"blocks.0.hook_resid_pre": float("inf")}})
    assert steps_in(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetricsLog(tmp_path, keep_below=0)
    with log, Path("/dev/full").open("a") as full, monkeypatch.context() as patch:
        patch.setattr(log, "_file", full)
        with pytest.raises(TrainingError, match=r"The disk is full: .*metrics\.jsonl could not be written"):
            log.add({"step": 0})
        with suppress(OSError):
            full.close()
