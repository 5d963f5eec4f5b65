"""Where the seconds of a run went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds of a run over all its sessions, and how many of them went into looking at it."""

    def __init__(self, seconds: float = 0.0, measuring: float = 0.0, saving: float = 0.0) -> None:
        self._started = time.perf_counter() - seconds
        self.measuring = measuring
        self.saving = saving

    @property
    def seconds(self) -> float:
        """All of it."""
        return time.perf_counter() - self._started

    @property
    def training(self) -> float:
        """What was neither measuring nor saving."""
        return self.seconds - self.measuring - self.saving

    @contextmanager
    def aside(self, what: str) -> Iterator[None]:
        """Count the time inside the `with` as "measuring" or "saving"."""
        before = time.perf_counter()
        yield
        setattr(self, what, getattr(self, what) + time.perf_counter() - before)

    def state(self) -> dict[str, float]:
        """Keywords that make a clock which goes on from here."""
        return {"seconds": self.seconds, "measuring": self.measuring, "saving": self.saving}
