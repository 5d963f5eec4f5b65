"""Two scores of every head against each other: a mark for each head, its label beside the ones that stand out."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, QUIET, themed

HEIGHT = 320
LABELLED = 12
"""Heads whose labels are written: the furthest out by either score."""


def two_scores_figure(rows: pd.DataFrame, across: str, up: str, *, chosen: str = "") -> Any:
    """Dots with their intervals; a click on one is the selection `head`.

    Args:
        rows: `analyses.heads.scores.two_scores`.
        across: title of the horizontal axis.
        up: title of the vertical one.
        chosen: the head that is marked, as in `L1H3`.
    """
    x = alt.X("x:Q", title=across, scale=alt.Scale(nice=True, zero=False), axis=alt.Axis(tickCount=6))
    y = alt.Y("y:Q", title=up, scale=alt.Scale(nice=True, zero=False), axis=alt.Axis(tickCount=6))
    far = {*rows.nlargest(LABELLED // 2, "x")["head"], *rows.nlargest(LABELLED // 2, "y")["head"], chosen}
    labels = [head if head in far else "" for head in rows["head"]]
    base = alt.Chart(rows.assign(chosen=rows["head"] == chosen, label=labels))
    fields = ["x", "y", *(name for name in ("x_low", "x_high", "y_low", "y_high") if name in rows)]
    tooltip = ["head", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in fields)]
    layers: list[Any] = []
    if "x_low" in rows:
        layers.append(base.mark_rule(color=QUIET, opacity=0.5).encode(x="x_low:Q", x2="x_high:Q", y=y))
    if "y_low" in rows:
        layers.append(base.mark_rule(color=QUIET, opacity=0.5).encode(x=x, y="y_low:Q", y2="y_high:Q"))
    picked = alt.selection_point(name="head", fields=["head"], on="click", nearest=False, toggle=False)
    layers.append(
        base.mark_point(filled=True, size=90, opacity=0.9)
        .encode(
            x=x,
            y=y,
            tooltip=tooltip,
            color=alt.condition("datum.chosen", alt.value(CATEGORIES[1]), alt.value(CATEGORIES[0])),
        )
        .add_params(picked)
    )
    words = base.mark_text(align="left", dx=7, dy=-6, fontSize=10.5, color=QUIET)
    layers.append(words.encode(x=x, y=y, text="label:N"))
    return themed(alt.layer(*layers).properties(height=HEIGHT))
