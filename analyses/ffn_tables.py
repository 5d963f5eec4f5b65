"""FFN memories as rows of text and numbers (for `analyses.ffn_memories`)."""

from __future__ import annotations

from typing import Any

from analyses.ffn_result import Result
from analyses.views.payload import visible

Rows = list[dict[str, Any]]


def memory_rows(result: Result) -> Rows:
    """Per memory: how it fires, its top trigger's end and what followed, the ends of its value's order of promotion."""
    shape = result.reading.activity.firing_rate.shape
    return [_memory_row(result, layer, memory) for layer in range(shape[0]) for memory in range(shape[1])]


def layer_rows(result: Result) -> Rows:
    """Per layer and step (the checkpoint's, and 0): agreement with its interval, chance, triggers and activity."""
    both = {result.step: result.reading.summary} | ({0: result.initial} if result.initial is not None else {})
    return [
        {
            "step": step,
            "layer": each.layer,
            "memories": each.n_memories,
            "dead": each.n_dead,
            "agreement": each.agreement.share,
            "low": each.agreement.low,
            "high": each.agreement.high,
            "chance": each.agreement.chance,
            "chance low": each.agreement.chance_low,
            "chance high": each.agreement.chance_high,
            "p": each.agreement.p,
            "lift": each.agreement.lift,
            "precision": each.precision.share,
            "median rank": each.median_rank,
            "chance rank": each.chance_rank,
            "last-token share": each.last_token_share,
            "firing rate": each.firing_rate,
            "strong rate": each.strong_rate,
        }
        for step, summary in sorted(both.items())
        for each in summary.layers
    ]


def trigger_text(result: Result, layer: int, memory: int, rank: int, n_tokens: int | None = None) -> str:
    """The end of one trigger, every character visible; at most `n_tokens` tokens of what is stored."""
    tokens = result.reading.triggers.context[layer, memory, rank].tolist()
    return joined(result, tokens if n_tokens is None else tokens[-n_tokens:])


def joined(result: Result, tokens: list[int], separator: str = "") -> str:
    """Tokens as text in which every character can be seen."""
    return separator.join(visible(token) for token in result.spelled(tokens))


def _memory_row(result: Result, layer: int, memory: int) -> dict[str, Any]:
    triggers, values, activity = result.reading.triggers, result.reading.values, result.reading.activity
    next_token, promoted = int(triggers.next_token[layer, memory, 0]), values.promoted[layer, memory].tolist()
    alive = next_token >= 0
    return {
        "memory": f"L{layer}M{memory}",
        "layer": layer,
        "index": memory,
        "firing rate": float(activity.firing_rate[layer, memory]),
        "largest": float(activity.largest[layer, memory]),
        "top trigger": trigger_text(result, layer, memory, 0, 16),
        "next": joined(result, [next_token]),
        "promotes": joined(result, promoted[:5], " "),
        "suppresses": joined(result, values.suppressed[layer, memory].tolist()[:5], " "),
        "rank of next": int(values.next_rank[layer, memory]) if alive else None,
        "agrees": alive and next_token == promoted[0],
        "last-token share": float(result.reading.summary.last_token_share[layer, memory]) if alive else None,
        "confidence": float(values.confidence[layer, memory]),
    }
