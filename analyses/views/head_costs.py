"""What one head is worth as a figure: every harm and importance in nats, with intervals, beside step 0."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, QUIET, categorical, themed

ROW = 22


def costs_figure(rows: pd.DataFrame) -> Any:
    """Dots with intervals by outcome and by what stood in the head's place; hollow marks are step 0.

    `rows` are those of `analyses.head_tables.cost_rows` that are in nats; of a harm that two studies measured, the one
    with more sequences is drawn.
    """
    told = rows[rows["unit"] == "nats"].sort_values("n", ascending=False)
    told = told.drop_duplicates(["measure", "on", "instead of it"]).sort_index()
    instead = list(dict.fromkeys(told["instead of it"]))
    y = alt.Y("instead of it:N", sort=instead, title=None, axis=alt.Axis(labelLimit=140))
    x = alt.X("value:Q", title="loss without it minus loss with it; gradient: importance (nats)")
    colour = alt.Color("measure:N", scale=categorical(["harm", "importance"]), legend=None)
    tooltip = ["on", "instead of it", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "low", "high")), "n", "study"]
    base = alt.Chart(told)
    layers = [
        alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(color=QUIET, strokeDash=[4, 3]).encode(x="zero:Q"),
        base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=60).encode(x=x, y=y, color=colour, tooltip=tooltip),
        base.mark_point(filled=False, size=50, color=QUIET, shape="diamond").encode(x="step 0:Q", y=y),
    ]
    data = alt.layer(*layers, data=told).properties(width=300, height=ROW * max(1, len(instead)))
    facets = data.facet(facet=alt.Facet("on:N", title=None, sort=list(dict.fromkeys(told["on"]))), columns=3)
    return themed(facets.resolve_scale(x="independent"))


COLOURS = CATEGORIES[:2]
