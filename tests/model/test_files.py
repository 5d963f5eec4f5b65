from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model.errors import CheckpointError, CutawayError
from model.files import PARTIAL, REPLACED, atomic_folder, clean_leftovers, read_json, write_atomically, write_json


def failing(code: int):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return fail


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_file_holds_what_was_written_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "a.txt", "one")
    write_atomically(tmp_path / "new" / "a.txt", b"two")
    write_atomically(tmp_path / "new" / "b.txt", lambda path: path.write_text("three"))
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == {"a.txt": "two", "b.txt": "three"}


def test_json_comes_back_with_its_order(tmp_path: Path) -> None:
    value = {"b": 1, "a": [None, True, "é"], "c": {"x": 0.1}}
    write_json(tmp_path / "value.json", value)
    read = read_json(tmp_path / "value.json")
    assert read == value
    assert list(read) == ["b", "a", "c"]


@pytest.mark.parametrize("content", ["", "{", '{"a": 1', "\x00\x01"])
def test_damaged_json_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "value.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"value\.json is not readable JSON"):
        read_json(tmp_path / "value.json", CheckpointError)


@pytest.mark.parametrize("operation", ["fsync", "rename"])
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "The disk is full: .* intact; free some space"),
        (errno.EACCES, "no right to do so"),
        (errno.EROFS, "no right to do so"),
        (errno.EIO, "could not be written: "),
    ],
)
def test_a_failed_write_leaves_the_old_content_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, code: int, sentence: str
) -> None:
    write_atomically(tmp_path / "a.txt", "old")
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if operation == "fsync" else (Path, "replace")), failing(code))
        with pytest.raises(CutawayError, match=sentence):
            write_atomically(tmp_path / "a.txt", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_a_folder_where_a_file_stands_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(CutawayError, match="a file stands where a folder is needed"):
        write_atomically(tmp_path / "taken" / "a.txt", "")


def fill_and_interrupt(target: Path) -> None:
    with atomic_folder(target) as folder:
        (folder / "a").write_text("2")
        raise KeyboardInterrupt


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with atomic_folder(target) as folder:
        (folder / "a").write_text("1")
        assert not target.exists()
    with pytest.raises(KeyboardInterrupt):
        fill_and_interrupt(target)
    assert (target / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_replaced_folder_holds_only_the_new_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with atomic_folder(tmp_path / "folder") as folder:
            (folder / name).write_text(name)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_a_killed_writer_left_is_removed_and_what_a_running_one_writes_is_not(tmp_path: Path) -> None:
    dead, alive = dead_pid(), os.getppid()
    (tmp_path / f"{PARTIAL}one.{dead}.0123abcd").mkdir()
    (tmp_path / f"{PARTIAL}two.json.{dead}.0123abcd").write_text("half")
    (tmp_path / f"{PARTIAL}three.{alive}.0123abcd").mkdir()
    (tmp_path / ".gitkeep").write_text("")
    clean_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".gitkeep", f"{PARTIAL}three.{alive}.0123abcd"]


def test_a_folder_that_was_being_replaced_comes_back_unless_the_new_one_is_there(tmp_path: Path) -> None:
    dead = dead_pid()
    for name in ("lost", "kept"):
        aside = tmp_path / f"{REPLACED}{name}.{dead}.0123abcd"
        aside.mkdir()
        (aside / "old").write_text("")
    (tmp_path / "kept").mkdir()
    clean_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "lost"]
    assert (tmp_path / "lost" / "old").exists()
    assert not (tmp_path / "kept" / "old").exists()
