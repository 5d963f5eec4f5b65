"""The saved results that the Heads page is made of, and Python that opens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyses.head_scores import HARM, STUDIES
from analyses.results import SavedResult, from_here
from apps.dashboard import data, snippets
from apps.dashboard.data import Run

ABOUT_HEADS = ("attention-patterns", "head-ablation", "head-importance", "self-repair", "head-circuits", "probes")
"""The studies that say something of single heads."""


def saved_of(run: Run, step: int | None) -> dict[str, SavedResult]:
    """The newest result of each of them at one checkpoint, by the study's name."""
    found = ((study, data.shelf(run, study).at(step)) for study in ABOUT_HEADS)
    return {study: saved for study, saved in found if saved is not None}


def study_of(name: str, results: Mapping[str, SavedResult]) -> str:
    """The study whose result holds a score."""
    study = STUDIES.get(name, "attention-patterns")
    return "attention-patterns" if name == HARM and study not in results else study


def one(saved: SavedResult, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens one result."""
    return snippets.saved_result(saved, *lines, imports=imports)


def two(saved: SavedResult, other: SavedResult, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens two results, as `saved` and as `other`."""
    opening = f"other = load_result({str(from_here(other.path))!r})"
    return snippets.saved_result(saved, opening, *lines, imports=imports)


def several(results: Mapping[str, SavedResult], *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens results as `results`, by the names of their studies."""
    paths = {study: str(from_here(saved.path)) for study, saved in results.items()}
    said = [f"    {study!r}: load_result({path!r}).result," for study, path in paths.items()]
    opening = ["from analyses.results import load_result", *imports]
    return "\n".join([*sorted(set(opening)), "", "results = {", *said, "}", *lines]) + "\n"
