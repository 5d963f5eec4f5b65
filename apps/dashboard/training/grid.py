"""The head grid through training, and the table of what was half way up when (for the page of training)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analyses.attention.kinds import Kind
from analyses.attention.result import found
from analyses.attention.stimuli import Stimulus
from analyses.dynamics.result import CROSSED, attention_at, scores_over_training
from analyses.dynamics.tables import formation_rows, score_rows
from analyses.heads.scores import meaning_of, score_title
from analyses.results import SavedResult
from analyses.views import Frames, Scale, View, head_grid_payload
from apps.dashboard import components, panels, snippets
from apps.dashboard.data import Run
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared
from apps.dashboard.state import Selection, head_name
from apps.dashboard.training import asked
from apps.dashboard.training.parts import TABLES, Spelled, has, panel_of
from apps.dashboard.training.saved import derived


def through_training(
    saved: SavedResult, chosen: Selection, compared: Compared | None, other: SavedResult | None, run: Run,
    kind: Kind, reading: Stimulus,
) -> None:  # fmt: skip
    """The head grid, to be moved through the checkpoints in the browser; letting go chooses the step."""
    result, score = saved.result, scores_over_training(saved.result, kind, reading)
    at = result.steps.index(chosen.step) if chosen.step in result.steps else len(result.steps) - 1
    step = result.steps[at]
    beside = _beside(saved, compared, other, run, kind, reading)
    same = beside is not None and beside[1].shape == score.mean.shape[1:]
    sure = None
    if kind in CROSSED and reading is Stimulus.REPEATS:
        sure = found(attention_at(result, at), kind)
    payload = head_grid_payload(
        score.mean[at],
        f"{meaning_of(kind.value, reading)}, {result.readings[reading.value].title}",
        scale=Scale() if asked.is_share(kind) else None,
        interval=(score.low[at], score.high[at]),
        sure=sure,
        chosen=None if chosen.head is None else head_name(*chosen.head),
        ablated=[place.label for place in chosen.ablate],
        frames=Frames(steps=result.steps, values=score.mean, low=score.low, high=score.high),
        step=step,
        sparklines=True,
        other=beside[1] if beside is not None and same else None,
        names=(f"{result.run}@{step}", beside[0]) if beside is not None and same else ("A", "B"),
    )
    told = result.readings[reading.value]
    panel = Panel(
        key="training_grid",
        title=f"{score_title(kind.value)} of every head at every checkpoint",
        rows=lambda: score_rows(result, kind, reading),
        about=panels.about_saved(saved, n=told.n_sequences, unit="sequences", kind=kind.value, on=told.title),
        python=snippets.saved_result(
            saved,
            f"rows = score_rows(result, {kind.value!r}, {reading.value!r})",
            imports=[TABLES.format("score_rows")],
        ),
    )
    panels.show(View.HEAD_GRID, payload, panel)
    components.caption(
        f"n = {told.n_sequences} sequences of {told.n_pos} tokens, the same at every checkpoint",
        "95% intervals over sequences",
        None if sure is None else "underlined: found by the rule of attention-patterns",
        "move the slider or play it; letting go chooses the checkpoint for all pages",
    )


def crossings(saved: SavedResult, other: SavedResult | None) -> None:
    """The table of what was half way up when, in one run or in two."""
    n = saved.result.repeats.n_sequences
    call = Spelled(formation_rows, "formation_rows")
    panel = panel_of(saved, other, "formation", "What was half way up when", call, n=n)
    both = [saved] if other is None else [saved, other]
    rows = pd.concat([derived(each).formation.assign(run=each.result.run) for each in both], ignore_index=True)
    panels.table(
        panel, alt="Steps at which scores and losses were half way up", shown=shown_rises(rows), height="content"
    )
    components.caption(
        "half way between its first and its last value; where between the two checkpoints is not known: by straight "
        "lines is a guess, and its interval is over sequences alone",
        "empty where it did not surely rise since the first checkpoint",
        "old_distance: attention at that same distance with the second copy re-ordered, where it is no match any more",
        "text: on held-out text",
    )


def shown_rises(rows: pd.DataFrame) -> pd.DataFrame:
    """The checkpoints between which it was first, since the step by straight lines is no measurement."""
    rose = rows["half_way"].notna().tolist()
    between = [
        f"{after:,.0f} and {by:,.0f}" if there else ""
        for after, by, there in zip(rows["after"], rows["by"], rose, strict=True)
    ]
    guess = [
        f"about {at:,.0f} [{low:,.0f}, {high:,.0f}]" if there else ""
        for at, low, high, there in zip(rows["half_way"], rows["low"], rows["high"], rose, strict=True)
    ]
    whose = {"run": rows["run"]} if len(set(rows["run"])) > 1 else {}
    told = pd.DataFrame(
        {**whose, "what": rows["what"], "head": rows["head"], "half way between": between, "by straight lines": guess}
    )
    return told.join(rows.drop(columns=["run", "what", "head", "half_way", "low", "high", "after", "by"]))


def _beside(
    saved: SavedResult, compared: Compared | None, other: SavedResult | None, run: Run, kind: Kind, reading: Stimulus
) -> tuple[str, Any] | None:
    """The score of every head at the checkpoint that is compared, and its name."""
    if compared is None:
        return None
    there = saved if compared.run.name == run.name else other
    if there is None or compared.step not in there.result.steps or not has(there.result, kind, reading):
        return None
    scores = scores_over_training(there.result, kind, reading)
    return compared.spec, scores.mean[there.result.steps.index(compared.step)]
