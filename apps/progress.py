"""Progress bars with an estimate of the time left, for training and for studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from apps.console import remark, stderr


def _bar() -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}"),
        console=stderr(),
    )


class TrainingBar:
    """What `model.training.train` calls: a bar that shows step, loss and speed."""

    def __init__(self, bar: Progress, title: str) -> None:
        self._bar = bar
        self._task = bar.add_task(title, total=None, news="")

    def on_step(self, step: int, steps: int, row: Mapping[str, Any] | None = None) -> None:
        """`row` is a row of metrics.jsonl where one was written at this step."""
        self._bar.update(self._task, completed=step, total=steps)
        if row:
            self._bar.update(self._task, news=_news(row))

    def message(self, text: str) -> None:
        """A line above the bar."""
        if self._bar.console.is_terminal:
            self._bar.console.print(text, markup=False)
        else:
            remark(text)


@contextmanager
def training_bar(title: str) -> Iterator[TrainingBar]:
    """A bar for one training run."""
    with _bar() as bar:
        yield TrainingBar(bar, title)


@contextmanager
def study_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar for one study: call it with (done, total, what)."""
    with _bar() as bar:
        task = bar.add_task(title, total=None, news="")
        yield lambda done, total, text="": bar.update(task, completed=done, total=total, news=text)


def _news(row: Mapping[str, Any]) -> str:
    """The two numbers one watches.

    >>> _news({"loss": 2.5, "tokens_per_s": 31234.0})
    'loss 2.500 · 31,234 tokens/s'
    """
    parts = [f"loss {row['loss']:.3f}" if row.get("loss") is not None else ""]
    parts += [f"{row['tokens_per_s']:,.0f} tokens/s" if row.get("tokens_per_s") else ""]
    return " · ".join(part for part in parts if part)
