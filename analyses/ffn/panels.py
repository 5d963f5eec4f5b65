"""The panels of the figure of FFN memories: numbers by layer, beside step 0 and chance (for `analyses.ffn.figure`)."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
from torch import Tensor

from analyses.ffn.result import Result
from analyses.ffn.summary import Summary
from analyses.ffn.tables import Rows, confidence_rows, layer_rows, pattern_rows
from analyses.figures import CATEGORIES, QUIET
from analyses.verdicts import MANY
from interp.pattern_kinds import TriggerPattern
from interp.trigger_deletions import Deletion

THIRD, HEIGHT = 150, 190
NOW, START, CHANCE = CATEGORIES[0], CATEGORIES[1], "#c9ccd3"
_KINDS = {
    TriggerPattern.SUFFIX: "#0b2e57",
    TriggerPattern.LAST_BIGRAM: "#1b5288",
    TriggerPattern.LAST_TOKEN: "#3c77ad",
    TriggerPattern.SEVERAL: "#a6c1de",
    TriggerPattern.POSITION: CATEGORIES[2],
    TriggerPattern.REGION: CATEGORIES[3],
    TriggerPattern.REPEATED_TEXT: CATEGORIES[1],
    TriggerPattern.NONE: "#d4d6db",
    TriggerPattern.FEW: "#eceef1",
}
"""Colours of the kinds in the order of the bars: the longer the shared end, the darker."""
_CUT = {
    Deletion.LAST: (CATEGORIES[0], "last"),
    Deletion.RANDOM: (CATEGORIES[3], "random"),
    Deletion.FIRST: (CATEGORIES[2], "first"),
}


def agreement(result: Result) -> alt.LayerChart:
    """Agreement by layer beside permutations and step 0."""
    rows = [row | {"layer": str(row["layer"])} for row in layer_rows(result) if not math.isnan(row["agreement"])]
    return _agreeing(result, rows, _layer(), ["layer:N"], "value agrees with trigger", "Agreement")


def by_confidence(result: Result) -> alt.LayerChart:
    """Agreement from the least sure values to the surest."""
    rows = [row | {"bin": str(row["bin"] + 1)} for row in confidence_rows(result)]
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy")
    x = alt.X("bin:N", title="tenth of values, surest last", axis=axis, sort=None)
    shown = [alt.Tooltip(f"{name}:Q", format=".3g") for name in ("confidence from", "to")]
    return _agreeing(result, rows, x, shown, "value agrees with trigger", "Agreement by confidence")


def _agreeing(result: Result, rows: Rows, x: alt.X, shown: list[Any], title: str, heading: str) -> alt.LayerChart:
    now = [row for row in rows if row["step"] == result.step]
    y = alt.Y("agreement:Q", title=title, scale=alt.Scale(domainMin=0), axis=alt.Axis(format="%", tickCount=5))
    shown = [*shown, *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("agreement", "low", "high", "chance"))]
    base = alt.Chart(data(now))
    layers = []
    if "chance low" in (now[0] if now else {}):
        layers.append(base.mark_bar(size=_wide(result), color=CHANCE).encode(x=x, y="chance low:Q", y2="chance high:Q"))
    else:
        layers.append(base.mark_tick(size=12, thickness=3, color=CHANCE).encode(x=x, y=alt.Y("chance:Q")))
    start = alt.Chart(data([row for row in rows if row["step"] != result.step]))
    hollow = start.mark_point(filled=False, size=_dot(result) - 5, color=START, strokeWidth=2).encode(x=x, y=y)
    spread = base.mark_rule(color=NOW, strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    points = base.mark_point(filled=True, size=_dot(result), color=NOW, opacity=1).encode(x=x, y=y, tooltip=shown)
    return alt.LayerChart(layer=[*layers, hollow, spread, points], width=THIRD, height=HEIGHT, title=heading)


def shares(result: Result) -> alt.LayerChart:
    """Last-token shares of triggers over memories: middle half and median, beside step 0 and random prefixes."""
    now, initial = result.reading.summary, result.initial
    rows = _spread_rows(result, now.last_token_share, None if initial is None else initial.last_token_share)
    layers = _spreads(result, rows, "triggers ending in one token", alt.Scale(domain=[0, 1]))
    control = alt.Chart(data([{"share": result.random_last_token_share}]))
    layers.append(control.mark_rule(strokeDash=[4, 3], color=QUIET).encode(y="share:Q"))
    return alt.LayerChart(layer=layers, width=THIRD, height=HEIGHT, title="Same last token")


def rates(result: Result) -> alt.LayerChart:
    """Firing rates over memories: middle half and median, beside step 0."""
    now, initial = result.reading.summary, result.initial
    rows = _spread_rows(result, now.firing_rate, None if initial is None else initial.firing_rate)
    return alt.LayerChart(
        layer=_spreads(result, rows, "prefixes it fires on", alt.Scale(domain=[0, 1])),
        width=THIRD,
        height=HEIGHT,
        title="Firing rate",
    )


def kinds(result: Result) -> alt.Chart:
    """How many of a layer's memories are of which kind; step 0 is the left one of two bars, where there is room."""
    both = result.n_layers <= MANY
    order = {kind.value: place for place, kind in enumerate(_KINDS)}
    rows = [
        row
        | {"layer": str(row["layer"]), "when": "now" if row["step"] == result.step else "start"}
        | {"order": order[row["pattern"]], "pattern": row["pattern"].replace("_", " ")}
        for row in pattern_rows(result)
        if row["memories"] and (both or row["step"] == result.step)
    ]
    names = [kind.value.replace("_", " ") for kind in _KINDS]
    legend = alt.Legend(title=None, orient="bottom", columns=2, symbolType="square", symbolSize=70)
    colour = alt.Color("pattern:N", scale=alt.Scale(domain=names, range=list(_KINDS.values())), legend=legend)
    title = "Kinds (left: step 0)" if both else "Kinds"
    bars = (
        alt.Chart(data(rows), width=THIRD, height=HEIGHT, title=title)
        .mark_bar()
        .encode(
            x=_layer(),
            y=alt.Y("memories:Q", stack="normalize", title="memories", axis=alt.Axis(format="%", tickCount=5)),
            order=alt.Order("order:Q"),
            color=colour,
            tooltip=["layer:N", "when:N", "pattern:N", "memories:Q"],
        )
    )
    return bars.encode(xOffset=_when(0.2)) if both else bars


def falls(result: Result) -> alt.LayerChart:
    """How far coefficients fall without a trigger's last, first or a random token: medians and middle halves."""
    now, initial = result.reading.summary, result.initial
    rows = [*_fall_rows(result, now, "now"), *([] if initial is None else _fall_rows(result, initial, "start"))]
    names = [name for _, name in _CUT.values()]
    legend = alt.Legend(title=None, orient="bottom", symbolType="circle", symbolOpacity=1)
    colour = alt.Color("token:N", scale=alt.Scale(domain=names, range=[c for c, _ in _CUT.values()]), legend=legend)
    x = alt.XOffset("token:N", scale=alt.Scale(domain=["first", "random", "last"], paddingOuter=1))
    base = alt.Chart(data([row for row in rows if row["when"] == "now"])).encode(x=_layer(), xOffset=x, color=colour)
    start = alt.Chart(data([row for row in rows if row["when"] == "start"])).encode(x=_layer(), xOffset=x, color=colour)
    scale = alt.Scale(domain=[-0.25, 1.25], clamp=True)
    y = alt.Y("middle:Q", title="fall of the coefficient", scale=scale, axis=alt.Axis(format="%", tickCount=5))
    shown = ["layer:N", "token:N", *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("low", "middle", "high"))]
    return alt.LayerChart(
        layer=[
            base.mark_rule(strokeWidth=min(3.0, _wide(result) / 3), opacity=0.3).encode(
                y=alt.Y("low:Q", scale=scale), y2="high:Q"
            ),
            start.mark_point(filled=False, size=_dot(result) * 0.6, strokeWidth=1.2).encode(y=y),
            base.mark_point(filled=True, size=_dot(result) * 0.65, opacity=1).encode(y=y, tooltip=shown),
        ],
        width=THIRD,
        height=HEIGHT,
        title="Without a token (hollow: step 0)",
    )


def _fall_rows(result: Result, summary: Summary, when: str) -> Rows:
    """Quartiles of falls over a layer's sampled memories."""
    rows: Rows = []
    for layer in range(result.n_layers if summary.deletions is not None else 0):
        for change, (_, name) in _CUT.items():
            assert summary.deletions is not None
            found = summary.deletions.of(change)[layer]
            rows += _quartiles(found[found.isfinite()], {"layer": str(layer), "when": when, "token": name})
    return rows


def _spread_rows(result: Result, now: Tensor, initial: Tensor | None) -> Rows:
    """Quartiles over a layer's living memories, at the checkpoint and at step 0."""
    rows: Rows = []
    for when, values in (("now", now), *([("start", initial)] if initial is not None else [])):
        for layer in range(result.n_layers):
            kept = values[layer][values[layer] > 0]  # dead memories are NaN or 0
            rows += _quartiles(kept, {"layer": str(layer), "when": when})
    return rows


def _quartiles(values: Tensor, named: dict[str, Any]) -> Rows:
    if not len(values):
        return []
    low, middle, high = (float(values.double().quantile(share)) for share in (0.25, 0.5, 0.75))
    return [named | {"low": low, "middle": middle, "high": high}]


def _spreads(result: Result, rows: Rows, title: str, scale: alt.Scale) -> list[alt.Chart]:
    """Rules for the middle half and points for the median, the two steps side by side."""
    when = alt.Scale(domain=["start", "now"], range=[START, NOW])
    base = alt.Chart(data(rows)).encode(
        x=_layer(),
        xOffset=_when(0.6),
        color=alt.Color("when:N", scale=when, legend=None),
    )
    y = alt.Y("middle:Q", title=title, scale=scale, axis=alt.Axis(format="%", tickCount=5))
    shown = ["layer:N", *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("low", "middle", "high"))]
    return [
        base.mark_rule(strokeWidth=min(5.0, _wide(result) / 2), opacity=0.35).encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=_dot(result) - 5, opacity=1).encode(y=y, tooltip=shown),
    ]


def _layer() -> alt.X:
    return alt.X("layer:N", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap="greedy"), sort=None)


def _when(padding: float) -> alt.XOffset:
    """Step 0 on the left, the checkpoint on the right."""
    return alt.XOffset("when:N", scale=alt.Scale(domain=["start", "now"], paddingOuter=padding))


def _wide(result: Result) -> float:
    """Width of a layer's bar."""
    return min(22.0, 0.6 * THIRD / result.n_layers)


def _dot(result: Result) -> int:
    """Size of a point that leaves room for its neighbours."""
    return 60 if result.n_layers <= MANY else 18


def data(rows: Rows) -> alt.InlineData:
    """Rows as a chart takes them."""
    return alt.InlineData(values=rows)
