"""Files that are written whole or not at all.

Content goes to a temporary name beside its target, is flushed to the device, and is then renamed. A rename within one
file system is atomic (POSIX), so a reader, a kill or a full disk finds the old content or the new, never half of it.
What a kill leaves behind is called `.partial-NAME.PID.TAG`; nothing reads it, and `clean_leftovers` removes it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model.errors import CutawayError

PARTIAL = ".partial-"
"""Prefix of what is still being written."""
REPLACED = ".replaced-"
"""Prefix of a finished folder that a newer one is replacing."""

_LEFTOVER = re.compile(
    rf"(?P<prefix>{re.escape(PARTIAL)}|{re.escape(REPLACED)})(?P<name>.+)\.(?P<pid>\d+)\.[0-9a-f]{{8}}"
)
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def write_atomically(path: Path, content: bytes | str | Callable[[Path], None]) -> None:
    """Make `content` the content of the file `path`, creating its folder where needed.

    A callable is given the temporary path and writes there itself. A full disk, missing rights and the like are a
    `CutawayError` that leaves `path` as it was.
    """
    with clear_os_errors("written", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary_name(PARTIAL, path)
        try:
            _fill(temporary, content)
            flush_to_disk(temporary)
            temporary.replace(path)
            flush_to_disk(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    """Write plain data as indented JSON, atomically; keys keep their order, and NaN is spelled NaN."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, error: type[CutawayError] = CutawayError) -> Any:
    """Plain data from a JSON file; a missing or damaged one is an `error`."""
    content = read_bytes(path, error)
    try:
        return json.loads(content)
    except ValueError:
        raise error(f"{path} is not readable JSON: it is damaged or was cut short. Restore it or remove it.") from None


def read_bytes(path: Path, error: type[CutawayError] = CutawayError) -> bytes:
    """The content of a file; a missing or unreadable one is an `error`."""
    with clear_os_errors("read", path, error):
        return path.read_bytes()


@contextmanager
def atomic_folder(path: Path, error: type[CutawayError] = CutawayError) -> Iterator[Path]:
    """A temporary folder to fill, which becomes `path` at the end of the `with`, or disappears if that raises.

    A folder that already stands at `path` is replaced; for the instant between two renames it waits under another name,
    from which `clean_leftovers` brings it back.
    """
    with clear_os_errors("written", path, error):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary_name(PARTIAL, path)
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.iterdir():
                flush_to_disk(file)
            flush_to_disk(temporary)
            _replace_folder(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def clean_leftovers(folder: Path, error: type[CutawayError] = CutawayError) -> None:
    """Remove what killed writers left in `folder`; a folder that was just being replaced comes back under its name."""
    with clear_os_errors("cleaned", folder, error):
        for leftover in folder.glob(".*"):
            match = _LEFTOVER.fullmatch(leftover.name)
            if match is None or _is_another_running_process(int(match["pid"])):
                continue
            if match["prefix"] == REPLACED and not (folder / match["name"]).exists():
                leftover.replace(folder / match["name"])
            elif leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()


@contextmanager
def clear_os_errors(done: str, path: Path, error: type[CutawayError] = CutawayError) -> Iterator[None]:
    """Turn an `OSError` into one sentence saying what could not be `done` to `path`, why, and what to do."""
    try:
        yield
    except OSError as failure:
        raise error(_sentence(done, path, failure)) from failure


def flush_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, have reached the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(content: bytes) -> str:
    """SHA-256 in hex digits."""
    return hashlib.sha256(content).hexdigest()


def _sentence(done: str, path: Path, failure: OSError) -> str:
    code = failure.errno
    if code in _FULL:
        return f"The disk is full: {path} could not be {done}. What was saved before is intact; free some space."
    if code in _FORBIDDEN:
        return f"{path} could not be {done}: no right to do so. Change its rights or choose another place."
    if code == errno.ENOENT:
        return f"{path} could not be {done}: there is no such file or folder."
    if code in {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}:
        return f"{path} could not be {done}: a file stands where a folder is needed, or a folder where a file is."
    return f"{path} could not be {done}: {failure.strerror or failure}."


def _temporary_name(prefix: str, path: Path) -> Path:
    return path.with_name(f"{prefix}{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")


def _fill(path: Path, content: bytes | str | Callable[[Path], None]) -> None:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _replace_folder(temporary: Path, path: Path) -> None:
    """Rename a finished folder to `path`; one that stands there is set aside first, and put back if that fails."""
    aside = _temporary_name(REPLACED, path)
    if path.exists():
        path.replace(aside)
    try:
        temporary.replace(path)
    except BaseException:
        if aside.exists():
            aside.replace(path)
        raise
    flush_to_disk(path.parent)
    if aside.exists():
        shutil.rmtree(aside)


def _is_another_running_process(pid: int) -> bool:
    """Whether `pid` is a live process and not this one, which is not writing while it cleans."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def leading_out(path: Path, root: Path) -> Path | None:
    """Return the first link that leads out of `root`: `path`, or something below it; None where all stays inside.

    Links to folders inside are followed. A hard link cannot be told from a file.

    Args:
        path: a file or a folder; one that is not there leads nowhere.
        root: the folder in which everything must be.
    """
    inside, seen, waiting = Path(os.path.realpath(root)), set(), [Path(path)]
    if not Path(os.path.realpath(path)).is_relative_to(inside):
        return Path(path)
    while waiting:
        folder = waiting.pop()
        real = os.path.realpath(folder)
        if real in seen or not Path(real).is_dir():
            continue
        seen.add(real)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and not Path(os.path.realpath(entry.path)).is_relative_to(inside):
                    return Path(entry.path)
                if entry.is_dir():
                    waiting.append(Path(entry.path))
    return None
