"""Several pieces of work at once, each in a process of its own with one thread, and a bar for each.

Small models gain little from a second thread: their matrices are done before it wakes. On a busy machine it costs four
times the time it should save. Two of them side by side, a thread each, take as long as one.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

from apps.progress import Bar, bar, bars

Watched = tuple[int, str, tuple[Any, ...]]
"""Number of a job, which method of its bar is called, and with what."""


@dataclass(frozen=True)
class Job:
    """One piece of work: `work(*arguments, watcher)`, importable by name, its watcher a `Bar` or like one."""

    title: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...]


def all_done(jobs: Sequence[Job], *, workers: int) -> list[Any]:
    """What each job returns, in their order, `workers` of them at a time; with one, here and one after the other.

    The first error ends what has not begun, waits for what has, and is raised.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        return [_here(job) for job in jobs]
    spawn = multiprocessing.get_context("spawn")  # a fork would copy torch's threads in the middle of what they do
    with spawn.Manager() as manager, ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        news: Queue[Watched] = manager.Queue()
        futures = [pool.submit(_there, job, number, news) for number, job in enumerate(jobs)]
        try:
            _watch(futures, news, [job.title for job in jobs])
        finally:
            pool.shutdown(cancel_futures=True)  # on Ctrl-C the others have heard it too, and save
        return [future.result() for future in futures]


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _here(job: Job) -> Any:
    with bar(job.title) as shown:
        return job.work(*job.arguments, shown)


def _there(job: Job, number: int, news: Queue[Watched]) -> Any:
    """In the worker: one thread, and a watcher that reports home."""
    import torch

    torch.set_num_threads(1)
    return job.work(*job.arguments, Reporter(number, news))


def _watch(futures: Sequence[Future[Any]], news: Queue[Watched], titles: Sequence[str]) -> None:
    """Show what the workers report until all have ended, or one has failed."""
    with bars(titles) as shown:
        waiting: set[Future[Any]] = set(futures)
        while waiting:
            ended, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
            _pass_on(news, shown)
            for future in ended:
                future.result()


def _pass_on(news: Queue[Watched], shown: Sequence[Bar]) -> None:
    while True:
        try:
            number, method, arguments = news.get_nowait()
        except Empty:
            return
        getattr(shown[number], method)(*arguments)


class Reporter:
    """What a worker's training or study calls in place of a bar."""

    def __init__(self, number: int, news: Queue[Watched]) -> None:
        self._number = number
        self._news = news

    def on_step(self, step: int, steps: int, row: Mapping[str, Any] | None = None) -> None:
        """Report rows, every tenth step, and the last."""
        if row or step % 10 == 0 or step == steps:
            self._report("on_step", step, steps, row)

    def on_progress(self, done: int, total: int, text: str = "") -> None:
        """Report every call."""
        self._report("on_progress", done, total, text)

    def message(self, text: str) -> None:
        """Report a line."""
        self._report("message", text)

    def _report(self, method: str, *arguments: Any) -> None:
        self._news.put((self._number, method, arguments))
