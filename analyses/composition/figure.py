"""The picture of how FFN layers' predictions are composed (for `analyses.ffn_composition`).

Layers from left to right in every panel. Above: how many memories are active, how often none of them has the layer's
token, and how often the stream already has the model's. Below: what becomes of the stream's token with the layer's own
update and with one of another prefix, and what the largest sub-updates explain. Blue is the checkpoint, orange step 0,
grey a control.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd

from analyses.composition.result import Result
from analyses.figures import CATEGORIES, QUIET, SEQUENTIAL, caption
from interp.ffn_composed import Case, Counted
from interp.stats import Intervals
from interp.sub_updates import N_DOMINANT

PANEL, HEIGHT = 178, 170
_NOW, _START, _CONTROL = CATEGORIES[0], CATEGORIES[1], "#a8adb6"
CASE_COLOURS = {
    Case.RESIDUAL: "#3c77ad", Case.AGREEMENT: "#a6c1de", Case.COMPOSITION: "#e69f00", Case.FFN: "#d55e00",
    Case.IMPOSSIBLE: "#5f6670",
}  # fmt: skip
"""The stream's token kept in blue, changed in orange; in the order they are stacked, from below."""
WHOSE_TOKEN = {
    Case.RESIDUAL: "stream's (residual)", Case.AGREEMENT: "both say it (agreement)",
    Case.COMPOSITION: "a third (composition)", Case.FFN: "FFN's (ffn)", Case.IMPOSSIBLE: "a third, by the final bias",
}  # fmt: skip
"""Whose token the output's is, in words beside those of the paper."""


def draw(result: Result) -> Any:
    """The whole figure."""
    above = alt.hconcat(active_panel(result), agreement_panel(result), residual_panel(result), spacing=34)
    own, other = breakdown_panel(result), breakdown_panel(result, other=True)
    below = alt.hconcat(own, other, top_k_panel(result), spacing=34).resolve_scale(color="independent")
    facts = caption(n=result.n_prefixes, unit=f"prefixes of {result.text}", seed=result.config.seed, step=result.step)
    intervals = f"95% intervals over {result.n_units} {result.unit}"
    lines = [facts, f"blue: this checkpoint, with {intervals} · orange: step 0 · grey: controls"]
    title = alt.TitleParams(f"How FFN layers of {result.run} compose their predictions", subtitle=lines)
    return alt.vconcat(above, below, spacing=24).resolve_scale(color="independent").properties(title=title)


def active_panel(result: Result) -> Any:
    """The share of memories that are active: median and middle half over prefixes; dashed: the strong ones."""
    now, start = result.now, result.at_step_zero
    rows = [
        {"layer": layer, **dict(zip(("low", "mean", "high"), now.active_quartiles[:, layer].tolist(), strict=True))}
        for layer in range(result.n_layers)
    ]
    layers = [_band(rows, _NOW), *_line(rows, _NOW, "active memories")]
    strong = [{"layer": layer, "mean": float(now.strong_quartiles[1, layer])} for layer in range(result.n_layers)]
    layers += _line(strong, _NOW, "active memories", dashed=True)
    if start is not None:
        before = [{"layer": layer, "mean": float(start.active_quartiles[1, layer])} for layer in range(result.n_layers)]
        layers += _line(before, _START, "active memories")
    return _panel(layers, "Active memories", f"median and quartiles; dashed: above {result.config.strong:g} of largest")


def agreement_panel(result: Result) -> Any:
    """How often no active memory has the layer's token; dashed: no memory at all, grey: permuted values."""
    place = {kind: number for number, kind in enumerate(Counted)}
    own, every = place[Counted.ACTIVE], place[Counted.ALL]
    layers = _shown(result, lambda found: (found.zero_agreement, (own,)), "no memory agrees")
    layers += _line(_rows(result.now.zero_agreement, every), _NOW, "no memory agrees", dashed=True)
    layers += _line(_rows(result.now.zero_agreement_dealt, own), _CONTROL, "no memory agrees")
    return _panel(layers, "No active memory has its token", "dashed: no memory at all; grey: values permuted")


def residual_panel(result: Result) -> Any:
    """How often the stream that an FFN reads has the model's token on top; dashed: the token's probability there."""
    layers = _shown(result, lambda found: (found.residual_agreement, ()), "stream says it already")
    dashed = _rows(result.now.residual_probability)
    layers += _line(dashed, _NOW, "stream says it already", dashed=True)
    return _panel(layers, "The stream has the model's token", "before each FFN; dashed: its probability")


def breakdown_panel(result: Result, *, other: bool = False) -> Any:
    """What becomes of the stream's token, stacked by layer; with the update of another prefix where asked for."""
    cases = result.now.breakdown_other if other else result.now.breakdown
    shown = [case for case in CASE_COLOURS if case is not Case.IMPOSSIBLE or not result.linear]
    rows = [
        {"layer": layer, "case": case.name.lower(), "token": WHOSE_TOKEN[case], "order": order,
         "share": float(cases.mean[case, layer]),
         "low": float(cases.low[case, layer]), "high": float(cases.high[case, layer])}
        for layer in range(result.n_layers)
        for order, case in enumerate(shown)
    ]  # fmt: skip
    names = [WHOSE_TOKEN[case] for case in shown]
    scale = alt.Scale(domain=names, range=[CASE_COLOURS[case] for case in shown])
    legend = None if other else alt.Legend(orient="bottom", columns=1, title=None)
    bars = (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar()
        .encode(
            x=_x(result.n_layers),
            y=alt.Y("share:Q", stack="zero", title="prefixes", axis=_percents(), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("token:N", scale=scale, legend=legend),
            order=alt.Order("order:Q"),
            tooltip=["layer:O", "case:N", *(alt.Tooltip(f"{end}:Q", format=".1%") for end in ("share", "low", "high"))],
        )
    )
    title = "With another prefix's update" if other else "Where the output's token comes from"
    return _panel([bars], title, "control" if other else "stream's token stays: blue; changes: orange")


def top_k_panel(result: Result) -> Any:
    """R^2 of the k largest sub-updates; dashed: of ten at random."""
    found = result.now.sub_updates
    rows = [
        {"layer": layer, "k": f"{k} largest", "mean": max(0.0, float(found.top.r_squared.mean[place, layer]))}
        for place, k in enumerate(found.ks)
        for layer in range(result.n_layers)
    ]
    names = [f"{k} largest" for k in found.ks]
    colours = [SEQUENTIAL[2 + round(place * 4 / max(1, len(names) - 1))] for place in range(len(names))]
    colour = alt.Color(
        "k:N", scale=alt.Scale(domain=names, range=colours), legend=alt.Legend(orient="bottom", columns=3, title=None)
    )
    base = alt.Chart(pd.DataFrame(rows)).encode(x=_x(result.n_layers), y=_y("R^2 of the update"), color=colour)
    ten = max((place for place, k in enumerate(found.ks) if k <= N_DOMINANT), default=0)
    random = [
        {"layer": layer, "mean": max(0.0, float(found.random.r_squared.mean[ten, layer]))}
        for layer in range(result.n_layers)
    ]
    layers = [base.mark_line(strokeWidth=1.8), base.mark_point(size=26, filled=True, opacity=1)]
    layers += _line(random, _CONTROL, "R^2 of the update", dashed=True)
    return _panel(layers, "What the largest sub-updates explain", f"dashed: {found.ks[ten]} at random")


def _shown(result: Result, of: Any, title: str) -> list[Any]:
    """Step 0 in orange, and the checkpoint in blue with its intervals before it."""
    layers: list[Any] = []
    if result.at_step_zero is not None:
        intervals, place = of(result.at_step_zero)
        layers += _line(_rows(intervals, *place), _START, title)
    intervals, place = of(result.now)
    rows = _rows(intervals, *place)
    return [*layers, _band(rows, _NOW), *_line(rows, _NOW, title)]


def _rows(intervals: Intervals, *place: int) -> list[dict[str, Any]]:
    parts = [each[place].tolist() for each in (intervals.mean, intervals.low, intervals.high)]
    return [
        {"layer": layer, "mean": mean, "low": low, "high": high}
        for layer, (mean, low, high) in enumerate(zip(*parts, strict=True))
        if not math.isnan(mean)
    ]


def _line(rows: list[dict[str, Any]], colour: str, title: str, *, dashed: bool = False) -> list[Any]:
    ends = ["low", "high"] if rows and "low" in rows[0] else []
    tips = ["layer:O", *(alt.Tooltip(f"{end}:Q", format=".1%") for end in ["mean", *ends])]
    base = alt.Chart(pd.DataFrame(rows)).encode(x=_x(len(rows)), y=_y(title), tooltip=tips)
    line = base.mark_line(color=colour, strokeWidth=1.6, strokeDash=[4, 3] if dashed else [1, 0])
    return [line] if dashed else [line, base.mark_point(filled=True, size=26, color=colour, opacity=1)]


def _band(rows: list[dict[str, Any]], colour: str) -> Any:
    base = alt.Chart(pd.DataFrame(rows)).encode(x=_x(len(rows)))
    return base.mark_rule(color=colour, strokeWidth=2.2, opacity=0.5).encode(y=alt.Y("low:Q"), y2="high:Q")


def _x(n_layers: int) -> alt.X:
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100) if n_layers / step <= 9 or step == 100)
    axis = alt.Axis(labelAngle=0, values=list(range(0, n_layers, every)))
    return alt.X("layer:O", title="layer", axis=axis, scale=alt.Scale(padding=0.3))


def _y(title: str) -> alt.Y:
    return alt.Y("mean:Q", title=title, axis=_percents(), scale=alt.Scale(domain=[0, 1]))


def _percents() -> alt.Axis:
    return alt.Axis(format="%", tickCount=5)


def _panel(layers: list[Any], title: str, subtitle: str) -> Any:
    text = alt.TitleParams(title, subtitle=subtitle, fontSize=12, subtitleFontSize=10.5, subtitleColor=QUIET)
    return alt.layer(*layers).properties(width=PANEL, height=HEIGHT, title=text)
