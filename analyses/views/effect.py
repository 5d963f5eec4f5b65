"""One ablation as a figure: its harm with intervals, and what matched sets cost on the outcome that was asked about."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, QUIET, themed
from interp.effects import AblationEffect

WIDTH = 560
ROW = 34


def effect_figure(effect: AblationEffect) -> Any:
    """Dots are harms with 95% intervals; grey ticks are layer-matched sets; the rule is no effect.

    One axis has one unit: outcomes in another than the metric's stand in the table only.
    """
    unit = effect.effect.unit
    outcomes = [outcome.meaning for outcome in effect.outcomes if outcome.unit == unit]
    y = alt.Y("outcome:N", sort=outcomes, title=None, axis=alt.Axis(labelLimit=260))
    x = alt.X("harm:Q", title=f"harm: how much worse when ablated ({unit})", axis=alt.Axis(tickCount=6))
    measured = alt.Chart(_outcomes(effect)).encode(y=y, tooltip=["outcome", "harm", "low", "high", "p", "n"])
    layers = [
        alt.Chart(pd.DataFrame({"harm": [0.0]})).mark_rule(color=QUIET, strokeDash=[4, 3]).encode(x=x),
        measured.mark_rule(strokeWidth=2, color=CATEGORIES[0]).encode(x=alt.X("low:Q"), x2="high:Q"),
        measured.mark_point(filled=True, size=70, color=CATEGORIES[0]).encode(x=x),
    ]
    if len(effect.control.harm):
        ticks = alt.Chart(_matched(effect)).mark_tick(thickness=1.5, size=18, opacity=0.55, color=QUIET)
        layers.insert(1, ticks.encode(x=x, y=y, tooltip=["harm", "shared"]))
    return themed(alt.layer(*layers).properties(width=WIDTH, height=ROW * len(outcomes)))


def effect_table(effect: AblationEffect) -> pd.DataFrame:
    """One row for each outcome: with and without, harm with its interval, share of what was learned, p, n, step 0."""
    return pd.DataFrame(
        {
            "outcome": outcome.meaning,
            "unit": outcome.unit,
            "clean": outcome.clean,
            "ablated": outcome.ablated,
            "harm": outcome.harm.mean,
            "low": outcome.harm.low,
            "high": outcome.harm.high,
            "share": outcome.share,
            "share low": None if outcome.share_interval is None else outcome.share_interval.low,
            "share high": None if outcome.share_interval is None else outcome.share_interval.high,
            "p": outcome.p,
            "n": outcome.harm.n,
            "step 0": None if start is None else start.harm.mean,
        }
        for outcome in effect.outcomes
        for start in [effect.at_start(outcome.name)]
    )


def _outcomes(effect: AblationEffect) -> pd.DataFrame:
    rows = effect_table(effect).drop(columns=["clean", "ablated", "share", "share low", "share high", "step 0"])
    return rows.loc[rows["unit"] == effect.effect.unit, :]


def _matched(effect: AblationEffect) -> pd.DataFrame:
    control = effect.control
    return pd.DataFrame(
        {"outcome": effect.effect.meaning, "harm": control.harm.tolist(), "shared": control.shared.tolist()}
    )
