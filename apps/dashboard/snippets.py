"""Python that computes what a panel shows, with the library alone: what "copy Python" copies.

A snippet is typed in the folder where the dashboard was started, or in a notebook there. It binds `rows` last.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyses.results import SavedResult, from_here
from apps.dashboard.data import Run


def saved_result(saved: SavedResult, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens `saved` as `saved` and its numbers as `result`, and then does `lines`."""
    return _joined([_LOAD, *imports], _loaded(saved), lines)


def opened(run: Run, step: int | None, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens a checkpoint as `lab`, and then does `lines`."""
    return _joined([_OPEN, *imports], [_opened(run, step)], lines)


def opened_with(saved: SavedResult, run: Run, step: int | None, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens both."""
    return _joined([_LOAD, _OPEN, *imports], [*_loaded(saved), _opened(run, step)], lines)


_LOAD = "from analyses.results import load_result"
_OPEN = "from model import open_run"


def _loaded(saved: SavedResult) -> list[str]:
    return [f"saved = load_result({str(from_here(saved.path))!r})", "result = saved.result"]


def _opened(run: Run, step: int | None) -> str:
    path = from_here(run.path)
    return f"lab = open_run({str(path if step is None else f'{path}@{step}')!r})"


def _joined(imports: Sequence[str], opening: Sequence[str], lines: Sequence[str]) -> str:
    return "\n".join([*sorted(set(imports)), "", *opening, *lines]) + "\n"
