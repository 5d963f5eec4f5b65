"""What the command says, and what it says when something is wrong.

Every foreseeable error becomes one or two sentences on stderr and exit status 2; a traceback means a bug of ours.
Ctrl-C ends with 130, after the work in hand has said how to go on.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

WRONG, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
"""Exit statuses: a user's error; Ctrl-C; the reader of our output went away."""


def stdout() -> Console:
    """Where tables go. Colours appear only on a terminal; elsewhere a line is as long as it is."""
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=1000)


def stderr() -> Console:
    """Where progress, remarks and errors go, so that answers can be piped."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str = "") -> None:
    """One line of the answer, character by character as it is: what a model wrote, or JSON, may hold anything."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # here, so that a reader who went away is noticed inside `sentences`


def remark(text: str) -> None:
    """One line beside the answer."""
    stderr().print(Text(text, style="dim"))


@contextmanager
def sentences() -> Iterator[None]:
    """Turn foreseeable errors inside the block into a sentence and an exit status."""
    try:
        yield
    except KeyboardInterrupt:
        _complain("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again while it exits
        raise typer.Exit(PIPE_CLOSED) from None
    except OSError as error:
        _complain(sentence_of(error))
        raise typer.Exit(WRONG) from None
    except Exception as error:
        if "model.errors" not in sys.modules:
            raise  # none of ours, such as the Exit of --help: no reason to import them, and torch with them
        from model.errors import CutawayError

        if not isinstance(error, CutawayError):
            raise
        _complain(str(error))
        raise typer.Exit(_status_of(error)) from None


def _status_of(error: Exception) -> int:
    if "model.training.loop" not in sys.modules:
        return WRONG  # nothing was trained: no reason to import it, and torch with it
    from model.training.loop import Interrupted

    return INTERRUPTED if isinstance(error, Interrupted) else WRONG


def sentence_of(error: OSError) -> str:
    """An operating system error as a sentence that says what to do.

    >>> sentence_of(OSError(errno.ENOSPC, "No space left on device", "runs/demo/x"))
    'The disk is full: runs/demo/x could not be written. What was complete before is intact; free some space and try
    again.'
    """
    place = f"{error.filename}" if error.filename else "a file"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return (
                f"The disk is full: {place} could not be written. "
                "What was complete before is intact; free some space and try again."
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"No permission for {place}. Give yourself rights to it, or choose another folder with --out."
        case errno.ENOENT:
            return f"There is no {place}. Check the spelling, and that you are in the folder you think."
        case errno.ENOTDIR | errno.EISDIR | errno.EEXIST:
            return f"{place}: {(error.strerror or 'not usable').lower()}. Choose another place."
        case _:
            return f"{place}: {error.strerror or error}."


def _complain(text: str) -> None:
    stderr().print(Text.assemble(("cutaway:", "bold red"), " ", text))
