"""The picture of a checkpoint's FFN memories (for `analyses.ffn_memories`).

Above, layer by layer: agreement beside chance and step 0, and how triggers and firing rates are spread over memories.
Below, in words: the memories whose values are surest, with what fires them and what they promote.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
from torch import Tensor

from analyses.ffn_result import Result
from analyses.ffn_tables import Rows, joined, layer_rows, trigger_text
from analyses.figures import CATEGORIES, FAINT, INK, QUIET, WIDTH, caption

N_WORDS = 14
"""Memories shown in words."""
N_TRIGGERS, N_TOKENS = 3, 12
"""Triggers shown of each, and how much of their ends."""
THIRD = 150
_NOW, _START, _CHANCE = CATEGORIES[0], CATEGORIES[1], "#c9ccd3"
_COLUMNS = {"memory": 0, "ends of its top triggers": 58, "then": 392, "promotes": 440}
"""Where each column of words begins, in pixels."""


def drawn(result: Result) -> alt.VConcatChart:
    """The whole figure."""
    above = alt.hconcat(_agreement(result), _shares(result), _rates(result), spacing=36)
    facts = caption(n=result.n_prefixes, unit="prefixes", seed=result.config.seed, step=result.step)
    title = alt.TitleParams(
        f"FFN memories of {result.run} at step {result.step}",
        subtitle=f"{facts} · bars: 95% over memories · grey: 95% of permutations · orange: step 0",
    )
    return alt.vconcat(above, _words(result), spacing=26).properties(title=title)


def word_rows(result: Result) -> Rows:
    """The memories shown in words: per layer those that agree first, then by the confidence of their values."""
    per_layer = max(1, N_WORDS // result.n_layers)
    return [
        _word_row(result, layer, memory)
        for layer in range(result.n_layers)
        for memory in _surest(result, layer)[:per_layer]
    ][:N_WORDS]


def _surest(result: Result, layer: int) -> list[int]:
    values, next_tokens = result.reading.values, result.reading.triggers.next_token[layer, :, 0]
    agrees = values.promoted[layer, :, 0] == next_tokens
    confidence = values.confidence[layer]
    alive = [int(memory) for memory in (next_tokens >= 0).nonzero().flatten()]
    return sorted(alive, key=lambda memory: (not agrees[memory], -float(confidence[memory])))


def _word_row(result: Result, layer: int, memory: int) -> dict[str, Any]:
    triggers, values = result.reading.triggers, result.reading.values
    shown = [
        trigger_text(result, layer, memory, rank, N_TOKENS)
        for rank in range(min(N_TRIGGERS, triggers.context.shape[2]))
        if triggers.length[layer, memory, rank] > 0
    ]
    next_token, promoted = int(triggers.next_token[layer, memory, 0]), values.promoted[layer, memory].tolist()
    return {
        "memory": f"L{layer}M{memory}",
        "ends of its top triggers": " | ".join(_cut(text) for text in shown),
        "then": joined(result, [next_token]),
        "promotes": joined(result, promoted[:6], " "),
        "agrees": next_token == promoted[0],
    }


def _agreement(result: Result) -> alt.LayerChart:
    rows = [row | {"layer": str(row["layer"])} for row in layer_rows(result) if not math.isnan(row["agreement"])]
    now = [row for row in rows if row["step"] == result.step]
    x = alt.X("layer:N", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap="greedy"), sort=None)
    y = alt.Y("agreement:Q", title="value agrees with trigger", axis=alt.Axis(format="%", tickCount=5))
    shown = ["layer:N", *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("agreement", "low", "high", "chance"))]
    base = alt.Chart(_data(now))
    chance = base.mark_bar(size=22, color=_CHANCE).encode(x=x, y=alt.Y("chance low:Q"), y2="chance high:Q")
    spread = base.mark_rule(color=_NOW, strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    points = base.mark_point(filled=True, size=60, color=_NOW, opacity=1).encode(x=x, y=y, tooltip=shown)
    start = alt.Chart(_data([row for row in rows if row["step"] != result.step]))
    hollow = start.mark_point(filled=False, size=50, color=_START, strokeWidth=2).encode(x=x, y=y)
    return alt.LayerChart(layer=[chance, hollow, spread, points], width=THIRD, height=190, title="Agreement")


def _shares(result: Result) -> alt.LayerChart:
    """Last-token shares of triggers over memories: middle half and median, beside step 0 and random prefixes."""
    now, initial = result.reading.summary, result.initial
    rows = _spread_rows(result, now.last_token_share, None if initial is None else initial.last_token_share)
    layers = _spreads(rows, "triggers ending in one token", alt.Scale(domain=[0, 1]))
    control = alt.Chart(_data([{"share": result.random_last_token_share}]))
    layers.append(control.mark_rule(strokeDash=[4, 3], color=QUIET).encode(y="share:Q"))
    return alt.LayerChart(layer=layers, width=THIRD, height=190, title="Same last token (dashed: random)")


def _rates(result: Result) -> alt.LayerChart:
    now, initial = result.reading.summary, result.initial
    rows = _spread_rows(result, now.firing_rate, None if initial is None else initial.firing_rate)
    return alt.LayerChart(
        layer=_spreads(rows, "prefixes it fires on", alt.Scale(domain=[0, 1])),
        width=THIRD,
        height=190,
        title="Firing rate",
    )


def _spread_rows(result: Result, now: Tensor, initial: Tensor | None) -> Rows:
    """Quartiles over a layer's living memories, at the checkpoint and at step 0."""
    rows = []
    for when, values in (("now", now), *([("start", initial)] if initial is not None else [])):
        for layer in range(result.n_layers):
            kept = values[layer][values[layer] > 0].double()  # dead memories are NaN or 0
            if len(kept):
                low, middle, high = (float(kept.quantile(share)) for share in (0.25, 0.5, 0.75))
                rows.append({"layer": str(layer), "when": when, "low": low, "middle": middle, "high": high})
    return rows


def _spreads(rows: Rows, title: str, scale: alt.Scale) -> list[alt.Chart]:
    """Rules for the middle half and points for the median, the two steps side by side."""
    when = alt.Scale(domain=["start", "now"], range=[_START, _NOW])
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("layer:N", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap="greedy"), sort=None),
        xOffset=alt.XOffset("when:N", sort=["start", "now"], scale=alt.Scale(paddingOuter=0.6)),
        color=alt.Color("when:N", scale=when, legend=None),
    )
    y = alt.Y("middle:Q", title=title, scale=scale, axis=alt.Axis(format="%", tickCount=5))
    shown = ["layer:N", *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("low", "middle", "high"))]
    return [
        base.mark_rule(strokeWidth=5, opacity=0.35).encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=55, opacity=1).encode(y=y, tooltip=shown),
    ]


def _words(result: Result) -> alt.LayerChart:
    """A table drawn as text: what can be read is the point of a memory."""
    rows = word_rows(result)
    height = 18 * max(1, len(rows))
    cells = [
        {"row": i, "x": x, "text": row[name], "agrees": row["agrees"]}
        for i, row in enumerate(rows)
        for name, x in _COLUMNS.items()
    ]
    heads = [{"row": -1, "x": x, "text": name} for name, x in _COLUMNS.items()]
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, WIDTH], nice=False), axis=None)
    y = alt.Y("row:Q", scale=alt.Scale(domain=[len(rows) - 0.5, -1.5], nice=False), axis=None)
    lines = alt.Chart(_data([{"row": i - 0.5} for i in range(len(rows))])).mark_rule(color=FAINT).encode(y=y)
    text = alt.Chart(_data(cells)).mark_text(align="left", font="monospace", fontSize=11)
    colour = alt.condition("datum.agrees", alt.value(_NOW), alt.value(INK))
    head = alt.Chart(_data(heads)).mark_text(align="left", fontSize=11, color=QUIET).encode(x=x, y=y, text="text:N")
    layers = [lines, head, text.encode(x=x, y=y, text="text:N", color=colour)]
    title = "In words: memories that agree (blue) first, then those with the surest values"
    return alt.LayerChart(layer=layers, width=WIDTH, height=height + 18, title=title)


def _cut(text: str, longest: int = 14) -> str:
    return text if len(text) <= longest else "…" + text[-longest + 1 :]


def _data(rows: Rows) -> alt.InlineData:
    return alt.InlineData(values=rows)
