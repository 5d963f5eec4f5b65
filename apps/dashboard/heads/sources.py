"""The saved results that the Heads page is made of, and Python that opens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyses.attention.kinds import Kind
from analyses.dynamics.result import attention_at
from analyses.heads.score_sources import DYNAMICS
from analyses.heads.scores import HARM, STUDIES
from analyses.results import SavedResult, from_here
from apps.dashboard import data, snippets
from apps.dashboard.data import Run

PATTERNS = "attention-patterns"

ABOUT_HEADS = (PATTERNS, "head-ablation", "head-importance", "self-repair", "head-circuits", "probes")
"""The studies that say something of single heads."""


def saved_of(run: Run, step: int | None, chosen: SavedResult | None = None) -> dict[str, SavedResult]:
    """The newest result of each of them at one checkpoint, by the study's name; of attention-patterns the `chosen` one.

    Without attention-patterns, that of training-dynamics which looked at this checkpoint, if any.
    """
    results = {} if chosen is None else {PATTERNS: chosen}
    found = ((study, data.shelf(run, study).at(step)) for study in ABOUT_HEADS if study not in results)
    results |= {study: saved for study, saved in found if saved is not None}
    if PATTERNS not in results:
        every = reversed(data.shelf(run, DYNAMICS).results)
        newest = next((saved for saved in every if step in saved.result.steps), None)
        results |= {} if newest is None else {DYNAMICS: newest}
    return results


def identity(results: Mapping[str, SavedResult]) -> tuple[str, ...]:
    """What changes with any of the results; they were read a moment ago, so the disk is not asked again."""
    return tuple(f"{saved.path} {saved.provenance.created}" for saved in results.values())


def opened(results: Mapping[str, SavedResult], step: int | None) -> dict[str, Any]:
    """What `analyses.heads.score_sources.scores` reads: the results, of training-dynamics what it holds of `step`."""
    return {study: _at(saved, step) if study == DYNAMICS else saved.result for study, saved in results.items()}


def _at(saved: SavedResult, step: int | None) -> Any:
    return attention_at(saved.result, saved.result.index_of(step))


def study_of(name: str, results: Mapping[str, SavedResult]) -> str:
    """The study whose result holds a score."""
    study = STUDIES.get(name, "attention-patterns")
    if name in set(Kind) and study not in results and DYNAMICS in results:
        return DYNAMICS
    return "attention-patterns" if name == HARM and study not in results else study


AT = "from analyses.dynamics.result import attention_at"
"""What Python needs to import for `read`."""


def read(study: str, saved: str, step: int | None) -> str:
    """Python for what `opened` gives of one study, from the name of an opened result."""
    return f"attention_at({saved}.result, {saved}.result.index_of({step}))" if study == DYNAMICS else f"{saved}.result"


def one(saved: SavedResult, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens one result."""
    return snippets.saved_result(saved, *lines, imports=imports)


def two(saved: SavedResult, other: SavedResult, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens two results, as `saved` and as `other`."""
    opening = f"other = load_result({str(from_here(other.path))!r})"
    return snippets.saved_result(saved, opening, *lines, imports=imports)


def several(results: Mapping[str, SavedResult], step: int | None, *lines: str, imports: Sequence[str] = ()) -> str:
    """Python that opens results as `results`, by the names of their studies; of training-dynamics one step."""
    paths = {study: str(from_here(saved.path)) for study, saved in results.items()}
    at = "" if DYNAMICS not in paths else f"dynamics = load_result({paths[DYNAMICS]!r})\n"
    said = [
        f"    {study!r}: {read(study, 'dynamics' if study == DYNAMICS else f'load_result({path!r})', step)},"
        for study, path in paths.items()
    ]
    opening = ["from analyses.results import load_result", *imports, *([AT] if at else [])]
    return "\n".join([*sorted(set(opening)), "", f"{at}results = {{", *said, "}", *lines]) + "\n"
