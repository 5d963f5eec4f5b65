"""The picture of what probes read (for `analyses.probes`): one panel per task, accuracy by site."""

from __future__ import annotations

import altair as alt

from analyses.figures import CATEGORIES, QUIET, caption
from analyses.probing.findings import token_alone
from analyses.probing.result import Result, TaskResult
from analyses.probing.tables import Rows, site_rows

_NOW, _START, _CONTROL = CATEGORIES[0], CATEGORIES[1], "#8b9099"
_WIDTH, _HEIGHT = 270, 170
_MANY = 16
"""More sites than this are drawn without the ring and the cross of each."""


def drawn(result: Result) -> alt.ConcatChart:
    """The whole figure."""
    rows = site_rows(result)
    panels = [_panel(result, task, [row for row in rows if row["task"] == task.name]) for task in result.tasks]
    facts = caption(
        n=min((task.n_test for task in result.tasks), default=0),
        unit=f"positions or more of {result.units}",
        seed=result.config.seed,
        step=result.step,
    )
    start = "" if result.untrained is None else f" · orange rings: {result.untrained}"
    title = alt.TitleParams(
        f"What a linear probe reads off {result.run} at step {result.step}",
        subtitle=[
            facts,
            f"blue: accuracy, 95% over test units{start} · grey crosses: control task",
            "dashed: the commonest label · dotted: the best from the token alone",
        ],
    )
    return alt.concat(*(panels or [alt.LayerChart(layer=[])]), columns=2, spacing=28).properties(title=title)


def _panel(result: Result, task: TaskResult, rows: Rows) -> alt.LayerChart:
    x = alt.X("site:N", title=None, sort=None, axis=alt.Axis(labelAngle=-40, labelOverlap="greedy"))
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]))
    names = (
        "accuracy",
        "low",
        "high",
        "untrained",
        "control",
        "selectivity",
        "token table",
        "majority",
        "test majority",
    )
    shown = ["site:N", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in names)]
    base = alt.Chart(alt.InlineData(values=rows))
    thin = len(rows) > _MANY
    layers = [
        _level(float(task.majority.mean()), [6, 4]),
        _level(float(token_alone(task).scores.mean()), [1, 3]),
        base.mark_point(shape="cross", size=20 if thin else 45, filled=True, color=_CONTROL, opacity=0.8).encode(
            x=x, y="control:Q"
        ),
        base.mark_rule(color=_NOW, strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=20 if thin else 55, color=_NOW, opacity=1).encode(x=x, y=y, tooltip=shown),
    ]
    if task.untrained is not None:
        ring = base.mark_point(filled=False, size=20 if thin else 50, color=_START, strokeWidth=2)
        layers.insert(3, ring.encode(x=x, y="untrained:Q"))
    return alt.LayerChart(layer=layers, title=task.name, width=_WIDTH, height=_HEIGHT)


def _level(height: float, dashes: list[int]) -> alt.Chart:
    """A line across the panel."""
    data = alt.InlineData(values=[{"level": height}])
    return alt.Chart(data).mark_rule(strokeDash=dashes, color=QUIET, strokeWidth=1.5).encode(y="level:Q")
