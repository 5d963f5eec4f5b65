"""The course of training: when copying comes, and what the heads attend to then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, QUIET
from bench.induction_measures import DECIDING
from bench.induction_runs import Found, Kind

NAMES = {
    Kind.TWO: "two layers",
    Kind.ONE: "one layer",
    Kind.SMEARED: "one layer, smeared keys",
}
"""The kinds that are drawn; at a fixed period the loss at another one leaves the scale."""
SERIES = ("copy_loss", "previous", "induction")
TITLES = {
    "copy_loss": "copy loss (nats)",
    "previous": "to the token before",
    "induction": "induction stripe",
}


def figure(found: Sequence[Found]) -> Any:
    """Copy loss, previous-token and induction attention over steps: one line for each run."""
    frame = pd.DataFrame(
        {
            "step": step,
            "model": NAMES[each.kind],
            "run": f"{each.kind.run_name}-{each.seed}",
            **{name: getattr(each.course, name)[index] for name in SERIES},
        }
        for each in found
        if each.kind in NAMES
        for index, step in enumerate(each.course.steps)
    )
    panels = [_panel(frame, name, found[0].ln_vocabulary if name == "copy_loss" else None) for name in SERIES]
    title = alt.TitleParams(
        "When copying comes, and what heads attend to then",
        subtitle=f"Every line is a run. Period {DECIDING} is never trained; attention is that of the strongest head.",
    )
    return alt.vconcat(*panels, title=title).resolve_scale(color="shared")


def _panel(frame: pd.DataFrame, name: str, nothing: float | None) -> Any:
    colour = alt.Color(
        "model:N", title=None, scale=alt.Scale(domain=list(NAMES.values()), range=list(CATEGORIES[: len(NAMES)]))
    )
    domain = alt.Scale(domain=[0, 1]) if nothing is None else alt.Scale(zero=True)
    lines = (
        alt.Chart(frame)
        .mark_line(strokeWidth=1.6, opacity=0.8)
        .encode(
            x=alt.X("step:Q", title="step" if name == SERIES[-1] else None),
            y=alt.Y(f"{name}:Q", title=TITLES[name], scale=domain),
            color=colour,
            detail="run:N",
        )
        .properties(height=150)
    )
    if nothing is None:
        return lines
    levels = pd.DataFrame(
        {"level": [nothing, math.log(DECIDING)], "words": ["ln V: knows nothing", "ln 22: knows the segment"]}
    )
    rules = alt.Chart(levels).mark_rule(strokeDash=[4, 3], color=QUIET).encode(y="level:Q")
    words = (
        alt.Chart(levels)
        .mark_text(align="right", dy=8, color=QUIET, fontSize=10.5, x="width")
        .encode(y="level:Q", text="words:N")
    )
    return alt.layer(lines, rules, words)
