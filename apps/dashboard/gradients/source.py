"""Which logs the page shows: the run's, and a twin's, whether it was chosen to compare with or named by the study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from analyses.gradients.panel_figures import Rows, records
from analyses.gradients.panels import logged_maps, loss_frame
from analyses.gradients.runs import TrainingMap, differing_settings, log_files
from analyses.results import SavedResult, from_here
from apps.dashboard import selecting
from apps.dashboard.data import Run
from apps.dashboard.panels import Panel, about_live


@dataclass(frozen=True, kw_only=True)
class Logs:
    """The logs that are shown, and what is said with every number from them."""

    run: Run
    step: int | None
    twin: Run | None

    @property
    def runs(self) -> list[Run]:
        """The run, and its twin."""
        return [self.run] if self.twin is None else [self.run, self.twin]

    @cached_property
    def maps(self) -> list[TrainingMap]:
        """What they logged about gradients; one that logged nothing is left out."""
        return _maps(*self._identity)

    def records(self, frame: Callable[..., pd.DataFrame], *given: Any) -> Rows:
        """The rows of `frame(maps, *given)`, made once while the logs are the same."""
        return _records(self.maps, frame, frame.__name__, given, *self._identity)

    def losses(self, what: str = "") -> Rows:
        """The losses they logged, or one kind of them."""
        return _losses(*self._identity, what)

    @property
    def _identity(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        files = [file for run in self.runs for file in log_files(run.path)]
        stamps = tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)
        return tuple(str(run.path) for run in self.runs), stamps

    def train(self, name: str) -> Any:
        """A setting of the run's training."""
        return self.run.settings["config"]["train"].get(name)

    def panel(
        self,
        key: str,
        title: str,
        rows: Callable[[], pd.DataFrame],
        line: str,
        *,
        n: int,
        unit: str,
        from_maps: bool = True,
    ) -> Panel:
        """A panel of these logs; `line` is Python that makes its rows of `maps`, or of the folders `runs`."""
        names = line.split("(", 1)[0].removeprefix("rows = ")
        folders = ", ".join(repr(str(from_here(run.path))) for run in self.runs)
        module = "analyses.gradients.fairness" if names == "fairness_rows" else "analyses.gradients.panels"
        imports = f"from {module} import {', '.join(sorted({names, *(['logged_maps'] if from_maps else [])}))}"
        opening = f"maps = logged_maps({folders})" if from_maps else f"runs = [{folders}]"
        twin = {} if self.twin is None else {"twin": self.twin.name}
        return Panel(
            key=key,
            title=title,
            rows=rows,
            about=about_live(self.run, self.step, n=n, unit=unit, seed=self.train("seed"), **twin),
            python=f"{imports}\n\n{opening}\n{line}\n",
        )


def logs(run: Run, step: int | None, saved: SavedResult | None) -> Logs:
    """The run's logs, beside those of the run to compare with, else of the study's twin where that is one of ours."""
    return Logs(run=run, step=step, twin=_twin(run, saved))


def _twin(run: Run, saved: SavedResult | None) -> Run | None:
    other = selecting.compared()
    if other is not None and other.run.name != run.name:
        return other.run
    name = None if saved is None or saved.result.pair is None else saved.result.pair.second.run
    return next(
        (each for each in selecting.runs() if each.name == name and each.settings and each.name != run.name), None
    )


def candidates(run: Run) -> list[Run]:
    """The runs beside it that are the same but for the placement of the norms."""
    return [
        each
        for each in selecting.runs()
        if each.settings and each.imported_from is None and run.settings
        and [difference.setting for difference in differing_settings(run.settings, each.settings)] == ["model.norm"]
    ]  # fmt: skip


@st.cache_resource(max_entries=16, show_spinner=False)
def _maps(paths: tuple[str, ...], stamps: tuple[int, ...]) -> list[TrainingMap]:
    del stamps
    return logged_maps(*map(Path, paths))


@st.cache_resource(max_entries=64, show_spinner=False)
def _losses(paths: tuple[str, ...], stamps: tuple[int, ...], what: str) -> Rows:
    del stamps
    return records(loss_frame(*paths, what=what))


@st.cache_resource(max_entries=256, show_spinner=False)
def _records(
    _maps: list[TrainingMap], _frame: Callable[..., pd.DataFrame], name: str, given: tuple[Any, ...],
    paths: tuple[str, ...], stamps: tuple[int, ...],
) -> Rows:  # fmt: skip
    del name, paths, stamps
    return records(_frame(_maps, *given))
