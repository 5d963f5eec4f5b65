"""Work at once: results in order, progress passed on, errors whole."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from apps.parallel import Job, all_done
from model.errors import InputError


def squared(number: int, watcher: Any) -> tuple[int, int]:
    watcher.on_progress(1, 1, "done")
    watcher.on_step(1, 1, {"loss": 1.0})
    return number * number, os.getpid()


def refused(number: int, watcher: Any) -> None:
    raise InputError(f"{number} was refused.")


def test_results_come_in_the_order_of_the_jobs_from_other_processes() -> None:
    done = all_done([Job("square", squared, (number,)) for number in range(4)], workers=2)
    assert [result for result, _ in done] == [0, 1, 4, 9]
    assert os.getpid() not in {process for _, process in done}


def test_with_one_worker_everything_happens_here() -> None:
    done = all_done([Job("square", squared, (number,)) for number in range(2)], workers=1)
    assert {process for _, process in done} == {os.getpid()}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_users_error_comes_back_as_it_was_raised(workers: int) -> None:
    with pytest.raises(InputError, match="7 was refused."):
        all_done([Job("refuse", refused, (7,)), Job("square", squared, (2,))], workers=workers)


def test_the_jobs_of_the_demo_are_found_by_name() -> None:
    from apps.demo import answered, trained

    for work in (answered, trained):
        assert pickle.loads(pickle.dumps(Job("job", work, ()))).work is work
        assert work.__module__ == "apps.demo"


@pytest.mark.slow
def test_the_jobs_of_the_demo_are_done_in_another_process(tmp_path: Path) -> None:
    from apps.demo import answered

    jobs = [Job("study", answered, ("attention-patterns", str(tmp_path / "none"), (), "cpu"))] * 2
    with pytest.raises(LookupError, match="There is no run"):
        all_done(jobs, workers=2)
