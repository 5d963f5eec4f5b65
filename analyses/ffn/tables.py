"""FFN memories as rows of text and numbers (for `analyses.ffn_memories`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from analyses.ffn.parts import FRACTIONS, Triggers
from analyses.ffn.result import Result
from analyses.ffn.summary import LayerSummary, Summary
from analyses.views.payload import visible
from interp.pattern_kinds import TriggerPattern
from interp.stats import Interval
from interp.trigger_deletions import Deletion

Rows = list[dict[str, Any]]

N_TOKENS, N_PROMOTED = 16, 5
"""Tokens shown of the end of a trigger, and of either end of a value's order."""


def memory_rows(result: Result) -> Rows:
    """Per memory: how it fires, what its triggers share, the end of its top one, and the ends of its value's order."""
    numbers = {name: _flat(column) for name, column in _memory_columns(result).items()}
    n_layers, n_memories = result.reading.activity.firing_rate.shape
    places = [(layer, memory) for layer in range(n_layers) for memory in range(n_memories)]
    kinds, concepts = [kind.value for kind in TriggerPattern], result.reading.values.concepts
    rows = []
    for at, (layer, memory) in enumerate(places):
        own = {name: column[at] for name, column in numbers.items()}
        next_token, promoted, suppressed = own.pop("next token"), own.pop("promoted"), own.pop("suppressed")
        kind, concept, negative_next = own.pop("kind"), own.pop("concept"), own.pop("negative next")
        alive = next_token >= 0
        words = {
            "top trigger": _end(result, result.reading.triggers, layer, memory),
            "next": joined(result, [next_token]),
            "promotes": joined(result, promoted, " "),
            "suppresses": joined(result, suppressed, " "),
            "agrees": alive and next_token == promoted[0],
            "pattern": kinds[kind],
            "concept": concepts[concept] if concept >= 0 else "",
            "most negative trigger": _end(result, result.reading.negative, layer, memory),
            "next there": joined(result, [negative_next]),
        }
        own |= {} if alive else dict.fromkeys(("rank of next", "last-token share"))
        rows.append({"memory": f"L{layer}M{memory}", "layer": layer, "index": memory, **own, **words})
    return rows


def _memory_columns(result: Result) -> dict[str, Tensor]:
    """What is told of each memory in numbers, and the tokens that are spelled: [layer, memory, ...]."""
    reading = result.reading
    activity, evidence, values = reading.activity, reading.evidence, reading.values
    return {
        "firing rate": activity.firing_rate,
        "strong rate": activity.strong_rate,
        "negative rate": activity.negative_rate,
        "largest": activity.largest,
        "lowest": activity.lowest,
        "rank of next": values.next_rank,
        "last-token share": evidence.last_token_share,
        "last-bigram share": evidence.last_bigram_share,
        "region share": evidence.region_share,
        "shared end": evidence.majority_suffix,
        "documents": evidence.n_documents,
        "copies": evidence.n - evidence.n_distinct,
        "confidence": values.confidence,
        "value norm": values.norm,
        "key-value cosine": values.key_value_cosine,
        "concept covers": values.concept_covered,
        "concept p": values.concept_p,
        "concept": values.concept,
        "kind": evidence.kind,
        "next token": reading.triggers.next_token[..., 0],
        "promoted": values.promoted[..., :N_PROMOTED],
        "suppressed": values.suppressed[..., :N_PROMOTED],
        "negative next": reading.negative.next_token[..., 0],
    }


def _flat(column: Tensor) -> list[Any]:
    return column.flatten(0, 1).tolist()


def layer_rows(result: Result) -> Rows:
    """Per layer and step (the checkpoint's, and 0): agreement with its interval, chance, triggers and activity."""
    return [
        {"step": step, "layer": each.layer, **_layer_numbers(summary, each)}
        for step, summary in sorted(_both(result).items())
        for each in summary.layers
    ]


def _both(result: Result) -> dict[int, Summary]:
    return {result.step: result.reading.summary} | ({0: result.initial} if result.initial is not None else {})


def _layer_numbers(summary: Summary, each: LayerSummary) -> dict[str, Any]:
    evidence, counts = summary.evidence, summary.evidence.counts(each.layer)
    random = evidence.random_level("covered_share")[each.layer]
    return {
        "memories": each.n_memories,
        "dead": each.n_dead,
        "never above zero": each.n_one_sided,
        "dense": each.n_dense,
        "agreement": each.agreement.share,
        "low": each.agreement.low,
        "high": each.agreement.high,
        "chance": each.agreement.chance,
        "chance low": each.agreement.chance_low,
        "chance high": each.agreement.chance_high,
        "p": each.agreement.p,
        "lift": each.agreement.lift,
        "precision": each.precision.share,
        "precision by chance": each.precision.chance,
        "median rank": each.median_rank,
        "chance rank": each.chance_rank,
        "with a concept": _mean(each.concepts.share),
        "random directions with one": _mean(each.concepts.random),
        "last-token share": each.last_token_share,
        "covered by last tokens": float(evidence.covered_share[each.layer].nanmean()),
        "covered at random": float(random.nanmean()),
        "with a pattern": sum(counts.values()) - counts[TriggerPattern.NONE] - counts[TriggerPattern.FEW],
        "last token beats first": _mean(each.last_beats_first),
        "firing rate": each.firing_rate,
        "strong rate": each.strong_rate,
        "negative rate": each.negative_rate,
        "lowest over largest": each.lowest_over_largest,
    }


def _mean(interval: Interval | None) -> float | None:
    return None if interval is None else interval.mean


def pattern_rows(result: Result) -> Rows:
    """Per step, layer and kind: how many memories are of it, and in how many the pattern holds beside others."""
    return [
        {
            "step": step,
            "layer": layer,
            "pattern": kind.value,
            "memories": n,
            "holds of": int(summary.evidence.holds[layer, :, list(TriggerPattern).index(kind)].sum()),
        }
        for step, summary in sorted(_both(result).items())
        for layer in range(result.n_layers)
        for kind, n in summary.evidence.counts(layer).items()
    ]


def confidence_rows(result: Result) -> Rows:
    """Per step and bin of confidence: how often values agree with their triggers, beside chance."""
    return [
        {
            "step": step,
            "bin": place,
            "confidence from": each.low,
            "to": each.high,
            "memories": each.agreement.n,
            "agreement": each.agreement.share,
            "low": each.agreement.low,
            "high": each.agreement.high,
            "chance": each.agreement.chance,
            "p": each.agreement.p,
        }
        for step, summary in sorted(_both(result).items())
        for place, each in enumerate(summary.confidence)
    ]


def deletion_rows(result: Result) -> Rows:
    """Per step and sampled memory: how far its coefficient falls when its triggers are cut or changed."""
    rows = []
    for step, summary in sorted(_both(result).items()):
        cut = summary.deletions
        if cut is None:
            continue
        for layer, place in (cut.memory >= 0).nonzero().tolist():
            memory, falls = int(cut.memory[layer, place]), cut.fall[layer, place].tolist()
            named = {
                f"fall: {change.value.replace('_', ' ')}": fall for change, fall in zip(Deletion, falls, strict=True)
            }
            n_triggers = int(cut.n_triggers[layer, place])
            rows.append({"step": step, "memory": f"L{layer}M{memory}", "layer": layer, "triggers": n_triggers, **named})
    return rows


def threshold_rows(result: Result) -> Rows:
    """Per step and layer: on what share of prefixes |m| reaches each share of its largest, median over memories."""
    return [
        {"step": step, "layer": layer, "of the largest": fraction, "prefixes": float(share)}
        for step, summary in sorted(_both(result).items())
        for layer in range(result.n_layers)
        for fraction, share in zip(FRACTIONS, summary.active_above[layer], strict=True)
    ]


def trigger_text(result: Result, layer: int, memory: int, rank: int, n_tokens: int | None = None) -> str:
    """The end of one trigger, every character visible; at most `n_tokens` tokens of what is stored."""
    return _text(result, result.reading.triggers, (layer, memory, rank), n_tokens)


def _end(result: Result, triggers: Triggers, layer: int, memory: int) -> str:
    return _text(result, triggers, (layer, memory, 0), N_TOKENS)


def _text(result: Result, triggers: Triggers, place: tuple[int, int, int], n_tokens: int | None) -> str:
    tokens = triggers.context[place].tolist()
    return joined(result, tokens if n_tokens is None else tokens[-n_tokens:])


def joined(result: Result, tokens: list[int], separator: str = "") -> str:
    """Tokens as text in which every character can be seen."""
    return separator.join(visible(token) for token in result.spelled(tokens))
