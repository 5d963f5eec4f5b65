"""The picture of a checkpoint's FFN memories (for `analyses.ffn_memories`).

Above, layer by layer: agreement beside chance and step 0 (and by the confidence of values), firing rates, what triggers
share, and what a coefficient loses with a token. Below, in words: the memories whose values are surest, with what fires
them and what they promote. The panels are in `analyses.ffn.panels`.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from analyses.ffn.panels import NOW, agreement, by_confidence, data, falls, kinds, rates, shares
from analyses.ffn.result import Result
from analyses.ffn.tables import Rows, joined, trigger_text
from analyses.figures import FAINT, INK, QUIET, WIDTH, caption

N_WORDS = 14
"""Memories shown in words."""
N_TRIGGERS, N_TOKENS = 3, 12
"""Triggers shown of each, and how much of their ends."""
_COLUMNS = {"memory": 0, "ends of its top triggers": 58, "then": 392, "promotes": 440}
"""Where each column of words begins, in pixels."""


def drawn(result: Result) -> alt.VConcatChart:
    """The whole figure."""
    values = alt.hconcat(agreement(result), by_confidence(result), rates(result), spacing=86, bounds="flush")
    cut = [] if result.reading.deletions is None else [falls(result)]
    triggers = alt.hconcat(shares(result), kinds(result), *cut, spacing=86, bounds="flush")
    facts = caption(n=result.n_prefixes, unit="prefixes", seed=result.config.seed, step=result.step)
    title = alt.TitleParams(
        f"FFN memories of {result.run} at step {result.step}",
        subtitle=f"{facts} · bars: 95% over memories · grey: 95% of permutations · orange: step 0",
    )
    return (
        alt.vconcat(
            values.resolve_scale(color="independent", xOffset="independent"),
            triggers.resolve_scale(color="independent", xOffset="independent"),
            _words(result),
            spacing=26,
        )
        .resolve_scale(xOffset="independent")
        .properties(title=title)
    )


def word_rows(result: Result) -> Rows:
    """The memories shown in words: per layer those that agree first, then by the confidence of their values."""
    per_layer = max(1, N_WORDS // result.n_layers)
    shown = min(result.n_layers, N_WORDS)
    layers = [place * (result.n_layers - 1) // max(1, shown - 1) for place in range(shown)]  # from first to last
    return [_word_row(result, layer, memory) for layer in layers for memory in _surest(result, layer)[:per_layer]]


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
        "then": _begun(joined(result, [next_token]), 6),
        "promotes": _begun(joined(result, promoted[:6], " "), 30),
        "agrees": next_token == promoted[0],
    }


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
    lines = alt.Chart(data([{"row": i - 0.5} for i in range(len(rows))])).mark_rule(color=FAINT).encode(y=y)
    text = alt.Chart(data(cells)).mark_text(align="left", font="monospace", fontSize=11)
    colour = alt.condition("datum.agrees", alt.value(NOW), alt.value(INK))
    head = alt.Chart(data(heads)).mark_text(align="left", fontSize=11, color=QUIET).encode(x=x, y=y, text="text:N")
    layers = [lines, head, text.encode(x=x, y=y, text="text:N", color=colour)]
    title = "In words: memories that agree (blue) first, then those with the surest values"
    return alt.LayerChart(layer=layers, width=WIDTH, height=height + 18, title=title)


def _cut(text: str, longest: int = 14) -> str:
    return text if len(text) <= longest else "…" + text[-longest + 1 :]


def _begun(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
