"""Notebooks on disk: `ROOT/_notes/TOKEN.json`, each written whole or not at all.

The token is the key: drawn at random, too long to be guessed. Whoever has it can read and change the notebook, as with
an address that is passed on. Several tabs may change one notebook at once: every change is small, and is made
to what the file holds at that moment, under a lock beside the file (on systems without POSIX locks only the rereading
is left). So pins of two tabs are both there, a pin removed in one stays removed, and two notes on one pin are both
kept. A file that cannot be read is told and never written to.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analyses.notebook.pins import Change, Notebook, as_json, from_json
from model.errors import CheckpointError, CutawayError, InputError, UnknownNameError
from model.files import clear_os_errors, read_bytes, write_atomically
from model.locks import try_lock

FOLDER = "_notes"
MOST_FILE_BYTES = 64_000_000
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32}")
_PATIENCE = 10.0
"""Seconds to wait for another tab's change; one takes milliseconds."""


def new_token() -> str:
    """A name for a notebook that nobody can guess: 192 random bits."""
    return secrets.token_urlsafe(24)


def notebook_path(root: Path, token: str) -> Path:
    """Where the notebook of this token lies; `InputError` where `token` is none.

    Nothing else than a token becomes part of a path, and the folder has to lie in `root` itself.
    """
    if not _TOKEN.fullmatch(token):
        raise InputError("this is not the name of a notebook; take it from the address where the pins were made")
    path = root / FOLDER / f"{token}.json"
    if path.resolve() != root.resolve() / FOLDER / path.name:
        raise InputError(f"{FOLDER} or a notebook in it is a link to somewhere else; notebooks lie in {root} itself")
    return path


def load(path: Path) -> Notebook:
    """The notebook in a file; `UnknownNameError` where there is none, `CheckpointError` where it is damaged."""
    if not path.exists():
        raise UnknownNameError("There is no notebook of this name here; the next pin begins a new one.")
    with clear_os_errors("read", path):
        size = path.stat().st_size
    if size > MOST_FILE_BYTES:
        raise CheckpointError(f"The notebook is {size / 1e6:.0f} MB, and at most {MOST_FILE_BYTES / 1e6:.0f} are read.")
    return from_json(read_bytes(path, CheckpointError), "The notebook")


def begin(path: Path) -> None:
    """Make an empty notebook."""
    write_atomically(path, as_json(Notebook()))


def change(path: Path, how: Change) -> Notebook:
    """Change the notebook in a file, as it is at this moment, and give back what it is now."""
    with _locked(path.with_suffix(".lock")):
        old = load(path)
        new = how(old)
        if new != old:
            text = as_json(new)
            if len(text) > MOST_FILE_BYTES:
                raise InputError("The notebook would be too large. Export it, and remove some pins.")
            write_atomically(path, text)
    return new


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with clear_os_errors("opened", path):
        no_link = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | no_link, 0o600)
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)  # and with it the lock goes


def _wait_for(descriptor: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise CutawayError("The notebook is being written by another tab; try again.")
        time.sleep(0.01)
