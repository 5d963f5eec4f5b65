"""Progress bars with an estimate of the time left, for training and for studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from apps.console import stderr


class _Bars(Progress):
    """Each bar, and below it what is new: beside it a terminal of 80 columns has no room for a sentence."""

    def get_renderables(self) -> Iterator[RenderableType]:
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if task.fields["news"]:
                yield Text(f"  {task.fields['news']}", style="dim", no_wrap=True, overflow="ellipsis")


def _columns() -> Progress:
    """Numbers keep their place; the bar takes what is left of the line."""
    return _Bars(
        TextColumn("{task.description}", style="bold", markup=False, table_column=Column(no_wrap=True, min_width=18)),
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=9, justify="right")),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("left", table_column=Column(no_wrap=True, min_width=4)),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        console=stderr(),
        expand=True,
    )


class Bar:
    """What training and studies call: a bar that shows how far, how long still, and what is new."""

    def __init__(self, bar: Progress, title: str) -> None:
        self._bar = bar
        self._title = title
        self._task: TaskID | None = None
        self._total: int | None = None

    def on_step(self, step: int, steps: int, row: Mapping[str, Any] | None = None) -> None:
        """`row` is a row of metrics.jsonl where one was written at this step."""
        self._show(step, steps, _news(row) if row else None)

    def on_progress(self, done: int, total: int, text: str = "") -> None:
        """What studies and ablations call."""
        self._total = total
        self._show(done, total, text)

    def finish(self) -> None:
        """A study came to its end: what it does after its last step is told by nobody, and no step is open now.

        Training says itself how far it came, which may be short of what was asked.
        """
        if self._total is not None:
            self._show(self._total, self._total, "")

    def message(self, text: str) -> None:
        """A line above the bar."""
        self._bar.console.print(Text(text, style="dim"))

    def _show(self, done: int, total: int, news: str | None) -> None:
        if self._task is None:  # not before there is something to show: an error may come first
            self._task = self._bar.add_task(self._title, total=total, news="")
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)
        if news is not None:
            self._bar.update(self._task, news=news)


@contextmanager
def bar(title: str) -> Iterator[Bar]:
    """A bar for one piece of work."""
    with bars([title]) as (shown,):
        yield shown


@contextmanager
def bars(titles: Sequence[str]) -> Iterator[list[Bar]]:
    """Bars for pieces of work that go on at once, one below the other; each appears when its work begins."""
    shown = _columns()
    try:
        made = [Bar(shown, title) for title in titles]
        yield made
        for each in made:
            each.finish()
    finally:
        shown.stop()


def _news(row: Mapping[str, Any]) -> str:
    """The two numbers one watches.

    >>> _news({"loss": 2.5, "tokens_per_s": 31234.0})
    'loss 2.500 · 31,234 tokens/s'
    """
    parts = [f"loss {row['loss']:.3f}" if row.get("loss") is not None else ""]
    parts += [f"{row['tokens_per_s']:,.0f} tokens/s" if row.get("tokens_per_s") else ""]
    return " · ".join(part for part in parts if part)
