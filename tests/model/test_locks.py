"""A lock keeps one other out until its file is closed, and nobody where there are no locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from model import locks
from model.locks import try_lock


def test_a_second_opening_gets_the_lock_when_the_first_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as second:
        with path.open("w") as first:
            assert try_lock(first.fileno())
            assert not try_lock(second.fileno())
        assert try_lock(second.fileno())


def test_a_system_and_a_file_system_without_locks_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "a").open("w") as first, (tmp_path / "a").open("w") as second:
        assert try_lock(first.fileno())
        monkeypatch.setattr(locks.fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError("no locks")))
        assert try_lock(second.fileno())
        monkeypatch.setattr(locks, "fcntl", None)
        assert try_lock(second.fileno())
