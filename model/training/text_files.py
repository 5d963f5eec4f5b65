"""The files that text sources consist of: the standard library's own source, and what a path or a glob names.

Which files these are, and in which order, depends on the files alone. What is hidden stays unread: below a folder that
is named as a source, no file and no folder whose name begins with a dot is looked at, so that a checkout gives its text
and not its history.
"""

from __future__ import annotations

import glob
import hashlib
import os
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from model.errors import InputError, UnknownNameError
from model.files import read_bytes

# Tests, other people's packages, tables of numbers and of text, and a parser that newer Pythons lack.
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "lib2to3", "site-packages", "dist-packages", "__pycache__", "encodings"}
    | {"pydoc_data"}
)
_MACHINE_SPECIFIC = "_sysconfigdata"


@dataclass(frozen=True, slots=True)
class TextFile:
    """One file of a source."""

    path: Path
    name: str
    """Its path inside the source; never an absolute path."""
    text: str


def standard_library(limit: int) -> Iterator[TextFile]:
    """The standard library's source files, up to `limit` bytes.

    Which files is decided by a hash of their names: a spread over the whole library, and the same one everywhere.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(_python_files(root), key=lambda path: hashlib.sha256(_inside(path, root).encode()).digest())
    taken, size = [], 0
    for path in paths:
        content = read_bytes(path, InputError)
        size += len(content)
        if size > limit:
            break
        taken.append((_inside(path, root), path, content.decode(errors="replace")))
    return (TextFile(path, f"stdlib/{name}", text) for name, path, text in sorted(taken))


def matching_files(source: str) -> Iterator[TextFile]:
    """The files of `text:PATH-OR-GLOB`, by path; a file found twice, by way of a link, say, is taken once.

    Of a folder, all files at any depth but the hidden ones. A glob finds what is hidden only where it spells the dot.
    """
    paths = _distinct(_named(Path(source.removeprefix("text:")).expanduser()))
    if not paths:
        raise UnknownNameError(f"The data source {source} matches no file; give a file, a folder, or a quoted glob.")
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return (TextFile(path, _inside(path, root), _decoded(path)) for path in paths)


def _named(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return [file for file in _visible_files(path) if file.is_file()]
    return [file for file in map(Path, glob.glob(str(path), recursive=True)) if file.is_file()]  # noqa: PTH207 (absolute)


def _visible_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder, name) for name in files if not name.startswith("."))


def _distinct(paths: Iterable[Path]) -> list[Path]:
    first: dict[Path, Path] = {}
    for path in sorted(paths):
        first.setdefault(path.resolve(), path)
    return list(first.values())


def _python_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        yield from (
            Path(folder, name) for name in files if name.endswith(".py") and not name.startswith(_MACHINE_SPECIFIC)
        )


def _decoded(path: Path) -> str:
    content = read_bytes(path, InputError)
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise InputError(
            f"{path} is not UTF-8 text (byte 0x{content[fault.start]:02x} at {fault.start}); convert it, or leave it "
            "out."
        ) from None


def _inside(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
