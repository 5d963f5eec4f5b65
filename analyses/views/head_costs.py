"""What one head is worth as a figure: every harm and importance in nats, with intervals, beside step 0."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import QUIET, about_zero, categorical, themed

ROW = 17


def costs_figure(rows: pd.DataFrame) -> Any:
    """Dots with intervals by outcome, a colour for what stood in the head's place; hollow diamonds are step 0.

    `rows` are those of `analyses.heads.tables.cost_rows` that are in nats; of a harm that two studies measured, the one
    with more sequences is drawn.
    """
    told = rows.loc[rows["unit"] == "nats"].sort_values(by="n", ascending=False, kind="stable")
    told = told.drop_duplicates(["measure", "on", "instead of it"]).sort_index()
    told = told.assign(instead=told["instead of it"], first=told["step 0"], on=told["on"].str.removeprefix("loss on "))
    instead, outcomes = list(dict.fromkeys(told["instead"])), list(dict.fromkeys(told["on"]))
    scale, axis = about_zero(min(told["low"].tolist()), max(told["high"].tolist()), linear=0.03)
    x = alt.X("value:Q", scale=scale, axis=axis, title="harm; of the gradient, importance (nats, symlog)")
    y = alt.Y("on:N", sort=outcomes, title=None, axis=alt.Axis(labelLimit=290))
    offset = alt.YOffset("instead:N", sort=instead)
    colour = alt.Color("instead:N", scale=categorical(instead), legend=alt.Legend(title="in its place", orient="top"))
    numbers = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "low", "high", "first")]
    base = alt.Chart(told)
    layers = [
        alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(color=QUIET, strokeDash=[4, 3]).encode(x="zero:Q"),
        base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", y=y, yOffset=offset, color=colour),
        base.mark_point(filled=False, size=45, color=QUIET, shape="diamond").encode(
            x="first:Q", y=y, yOffset=offset
        ),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            x=x, y=y, yOffset=offset, color=colour, tooltip=["on", "instead", "measure", *numbers, "n", "study"]
        ),
    ]  # fmt: skip
    height = ROW * len(instead) * len(outcomes)
    return themed(alt.layer(*layers).properties(height=height))
