"""One score of one head over training: a line with its interval, chance, and a rule at the step that is shown."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, QUIET, themed

HEIGHT = 240


def over_steps_figure(
    rows: pd.DataFrame, title: str, *, step: int | None = None, ends: tuple[float, float] | None = None
) -> Any:
    """`rows` have step, mean, low, high and chance, one for each checkpoint; steps are drawn as log(1 + step).

    `ends` are what the axis of the score holds, where another figure stands beside this one.
    """
    base = alt.Chart(rows)
    x = alt.X(
        "step:Q", title="training step (log)", scale=alt.Scale(type="symlog", constant=1, nice=False),
        axis=alt.Axis(values=[0, 1, 10, 100, 1_000, 10_000, 100_000], labelExpr="format(datum.value, '~s')"),
    )  # fmt: skip
    scale = alt.Undefined if ends is None else alt.Scale(domain=list(ends), nice=True)
    y = alt.Y("mean:Q", title=title, axis=alt.Axis(tickCount=5), scale=scale)
    numbers = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("mean", "low", "high", "chance") if name in rows]
    layers: list[Any] = []
    if bool(rows["low"].notna().to_numpy().all()):
        layers.append(base.mark_area(opacity=0.25, color=CATEGORIES[0]).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"))
    if bool(rows["chance"].notna().to_numpy().all()):
        layers.append(base.mark_line(strokeDash=[5, 4], color=QUIET, strokeWidth=1.2).encode(x=x, y="chance:Q"))
    layers.append(base.mark_line(color=CATEGORIES[0]).encode(x=x, y=y))
    layers.append(
        base.mark_point(filled=True, size=40, color=CATEGORIES[0]).encode(x=x, y=y, tooltip=["step", *numbers])
    )
    if step is not None:
        layers.append(
            alt.Chart(pd.DataFrame({"step": [step]})).mark_rule(color=CATEGORIES[1], strokeWidth=1.5).encode(x=x)
        )
    return themed(alt.layer(*layers).properties(height=HEIGHT))
