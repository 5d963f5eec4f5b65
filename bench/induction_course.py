"""When copying comes: copy loss and head scores at every checkpoint of a run, and how sudden their change is.

Olsson et al. 2022 (Arguments 1 and 2): the loss falls from a plateau in a short stretch of training, in which
previous-token and induction attention appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.induction_measures import DECIDING, Measured
from model.checkpoint import checkpoint_steps
from model.lab import open_run

WINDOW = 0.2
"""Share of all steps within which the change should fall."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """One number per checkpoint."""

    steps: tuple[int, ...]
    copy_loss: tuple[float, ...]
    """At one unseen period, in nats."""
    previous: tuple[float, ...]
    """The largest attention to the token before of any head of layer 0."""
    induction: tuple[float, ...]
    """The largest induction stripe of any head of the last layer."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The stretch of `WINDOW` of all steps in which copy loss falls most."""

    start: int
    end: int
    """Steps between which it lies."""
    plateau: float
    """Median copy loss over the checkpoints before it, from 5% of the steps on, in nats."""
    final: float
    """Copy loss after the last step, in nats."""
    share: float
    """Loss at its start minus loss at its end, as a share of plateau minus final; may pass 1."""
    previous_at: int | None
    """The first step at which the previous-token score is at half of its maximum; None if it never rises by 0.1."""
    induction_at: int | None
    """The same of the induction score."""

    @property
    def scores_cross_inside(self) -> bool:
        """Whether both scores pass half of their maximum in this stretch."""
        crossings = (self.previous_at, self.induction_at)
        return all(step is not None and self.start <= step <= self.end for step in crossings)


def course_of(run: Path, *, period: int = DECIDING) -> Course:
    """Measure every checkpoint of a run."""
    steps, rows = checkpoint_steps(run), []
    for step in steps:
        measured = Measured(open_run(f"{run}@{step}"), periods=(period,))
        previous, stripe = measured.stripes(period)
        rows.append((measured.copy_loss(period), float(previous[0].max()), float(stripe[-1].max())))
    copy_loss, previous, induction = zip(*rows, strict=True)
    return Course(steps=tuple(steps), copy_loss=copy_loss, previous=previous, induction=induction)


def change_in(course: Course) -> Change:
    """The stretch of the largest fall, and when the scores rise.

    >>> steps = tuple(range(0, 1001, 100))
    >>> loss = (4.2, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 0.2, 0.1, 0.1, 0.1)
    >>> found = change_in(Course(steps=steps, copy_loss=loss, previous=loss[::-1], induction=loss[::-1]))
    >>> found.start, found.end, found.plateau, round(found.share, 2)
    (500, 700, 3.0, 0.97)
    """
    steps, loss = course.steps, course.copy_loss
    width = WINDOW * steps[-1]
    falls = [
        (loss[i] - loss[j], -steps[i], i, j)
        for i in range(len(steps))
        for j in range(i, len(steps))
        if steps[j] - steps[i] <= width and steps[i] >= 0.05 * steps[-1]
    ]
    _, _, first, last = max(falls)
    before = sorted(value for step, value in zip(steps, loss, strict=True) if 0.05 * steps[-1] <= step <= steps[first])
    plateau, final = before[len(before) // 2], loss[-1]
    return Change(
        start=steps[first],
        end=steps[last],
        plateau=plateau,
        final=final,
        share=(loss[first] - loss[last]) / (plateau - final) if plateau != final else 0.0,
        previous_at=_half_way(steps, course.previous),
        induction_at=_half_way(steps, course.induction),
    )


def _half_way(steps: Sequence[int], score: Sequence[float]) -> int | None:
    """The first step at which `score` is half of its maximum or more, after having been below."""
    if max(score) - score[0] < 0.1:
        return None
    half = max(score) / 2
    return next(
        (after for (_, low), (after, high) in pairwise(zip(steps, score, strict=True)) if low < half <= high), None
    )
