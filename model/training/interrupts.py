"""Stopping at a step boundary instead of anywhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from model.errors import TrainingError


class Interrupted(TrainingError):
    """Training was asked to stop; it saved, and can be resumed."""


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a question that the loop asks at step boundaries; a second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # Only the main thread is told of signals.
        return
    asked = threading.Event()

    def ask(number: int, frame: object) -> None:
        del number, frame
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {which: signal.signal(which, ask) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for which, handler in before.items():
            signal.signal(which, signal.SIG_DFL if handler is None else handler)
