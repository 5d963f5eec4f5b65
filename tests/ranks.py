"""Processes played by threads, for what several of them do together without sending tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from analyses.streamed import ShareRead
from model.training.distributed import World


class Meeting(World):
    """Processes played by threads: they wait for each other at a barrier."""

    barrier: threading.Barrier

    def wait(self) -> None:
        self.barrier.wait(timeout=60)


def together(size: int, work: Callable[[World], Any]) -> list[Any]:
    """What `work` returns or raises in each of so many ranks at once."""
    barrier, answers = threading.Barrier(size), [None] * size

    def one(rank: int) -> None:
        world = Meeting(rank=rank, size=size)
        object.__setattr__(world, "barrier", barrier)
        try:
            answers[rank] = work(world)
        except BaseException as error:
            answers[rank] = error
            if not isinstance(error, ShareRead):
                barrier.abort()  # nobody waits for one that has failed

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    return answers
