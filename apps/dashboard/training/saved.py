"""Which result of training-dynamics a page shows, and what is derived from it, remembered."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from analyses.dynamics.figure import highlighted
from analyses.dynamics.losses import Change, change
from analyses.dynamics.result import CROSSED
from analyses.dynamics.tables import formation_rows
from analyses.results import SavedResult
from apps.dashboard import data
from apps.dashboard.data import Run
from interp.places import Head

STUDY = "training-dynamics"


def saved_for(run: Run, step: int | None) -> SavedResult | None:
    """The result that looked at this step and reaches furthest, the newest of several; None where none looked at it."""
    every = data.shelf(run, STUDY).results
    return next((saved for saved in reversed(every) if step in saved.result.steps), None)


def furthest(run: Run) -> SavedResult | None:
    """The result that reaches furthest, whatever steps it looked at."""
    every = data.shelf(run, STUDY).results
    return every[-1] if every else None


@dataclass(frozen=True, kw_only=True)
class Derived:
    """What takes a moment to be read off a result."""

    change: Change | None
    formation: pd.DataFrame
    top: dict[str, list[Head]]
    """The heads to name, by kind."""


def derived(saved: SavedResult) -> Derived:
    """What formed when in a result."""
    return _derived(saved, *data.identity(saved))


@st.cache_resource(max_entries=8, show_spinner=False)
def _derived(_saved: SavedResult, folder: str, stamp: int) -> Derived:
    del folder, stamp
    result = _saved.result
    return Derived(
        change=change(result),
        formation=formation_rows(result),
        top={kind.value: highlighted(result, kind) for kind in CROSSED if kind.value in result.repeats.scores},
    )
