"""Advisory locks on files, which the system releases when a process ends, however it ends."""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process alone, until it is closed; False where another holds it.

    A system or a file system without such locks keeps nobody out: there the answer is True.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
