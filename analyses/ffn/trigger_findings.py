"""What fires a checkpoint's FFN memories, and how often, in sentences (for `analyses.ffn.findings`)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.ffn.reading import CUT_TRIGGERS
from analyses.ffn.result import Result
from analyses.ffn.summary import LayerSummary, Summary
from analyses.ffn.wording import (
    alive_at_both,
    change_of,
    changed,
    changes_of,
    factor_of,
    moved,
    no_start,
    source_of_layers,
)
from analyses.registry import Finding
from analyses.verdicts import extremes, told, verdict
from analyses.wording import percent, points
from interp.pattern_kinds import TriggerPattern
from interp.share_intervals import bounded_interval, mean_interval

SHARE_FLOOR = 0.05
"""Smallest change of a share, and smallest excess over chance, that is claimed."""
RATE_FLOOR = math.log(1.5)
"""Smallest change of a firing rate that is claimed, as a logarithm: by half."""
N_KINDS = 7
"""Patterns that a memory can have: all kinds but none and few."""


def last_tokens(result: Result) -> Finding:
    """Whether training made triggers share their last token, or stop doing so."""
    now = result.reading.summary
    what = f"how many of a memory's top {result.config.n_triggers} triggers end in one and the same token"
    control = f"random prefixes {percent(result.random_last_token_share)}"
    if result.initial is None:
        said = [f"layer {layer.layer} {percent(layer.last_token_share)}" for layer in now.layers]
        shares = extremes(said, [layer.last_token_share for layer in now.layers])
        return no_start(result, f"share of a memory's triggers that end in one and the same token: {shares}; {control}")
    pairs = alive_at_both(now.last_token_share, result.initial.last_token_share)
    changes = changes_of(pairs, bounded_interval)
    shown = moved(pairs, changes, lambda values: percent(float(values.double().mean())), change_of)
    cases = [verdict(change, SHARE_FLOOR) for change in changes]
    sentence = (
        f"{changed(cases, what, points(SHARE_FLOOR))}: mean over memories alive at both steps {shown}; {control} "
        f"({source_of_layers(result)})."
    )
    return Finding(sentence=sentence, found=told(cases))


def patterns(result: Result) -> Finding:
    """Whether training changed how many memories have a pattern in their triggers, beside what random prefixes have."""
    now = result.reading.summary
    chance = percent(N_KINDS / (1 + now.evidence.random.n_sets))
    rule = (
        f"a pattern holds for more than half of a memory's triggers, copies of one text counted once, and for more "
        f"than in any of {now.evidence.random.n_sets:,} sets of as many random prefixes, by chance in {chance} at most"
    )
    held = _patterned(now)
    if result.initial is None:
        said = [f"layer {n} {percent(_mean(held[n]))} ({_commonest(now, n)})" for n in range(result.n_layers)]
        shares = extremes(said, [_mean(each) for each in held])
        return no_start(result, f"memories with a pattern in their triggers: {shares}; {rule}. {_covered(result)}")
    pairs = alive_at_both(held, _patterned(result.initial))
    changes = changes_of(pairs, bounded_interval)
    cases = [verdict(change, SHARE_FLOOR) for change in changes]
    shown = moved(pairs, changes, lambda values: percent(_mean(values)), change_of)
    kinds = extremes(
        [f"layer {n} {_commonest(now, n)}, at step 0 {_commonest(result.initial, n)}" for n in range(result.n_layers)],
        [_mean(each) for each in held],
    )
    what = "how many memories have a pattern in their triggers"
    sentence = (
        f"{changed(cases, what, points(SHARE_FLOOR))}: of memories with at least three triggers at both steps {shown}; "
        f"{rule}. The commonest kinds: {kinds}. {_covered(result)} ({source_of_layers(result)})."
    )
    return Finding(sentence=sentence, found=told(cases))


def _patterned(summary: Summary) -> Float[Tensor, "layer memory"]:
    """Whether each memory has a pattern; NaN where it has too few triggers to tell."""
    kinds, places = summary.evidence.kind, tuple(TriggerPattern)
    held = (kinds != places.index(TriggerPattern.NONE)).float()
    return torch.where(kinds == places.index(TriggerPattern.FEW), torch.nan, held)


def _mean(values: Tensor) -> float:
    return float(values.double().nanmean())


def _commonest(summary: Summary, layer: int) -> str:
    """The two kinds that most of a layer's memories are of."""
    counts = summary.evidence.counts(layer)
    most = sorted(counts, key=lambda kind: -counts[kind])[:2]
    return ", ".join(f"{kind.value.replace('_', ' ')} {counts[kind]}" for kind in most)


def _covered(result: Result) -> str:
    """How much of the triggers last tokens account for, as people's patterns did in Geva et al. 2021."""
    evidence = result.reading.evidence
    level = evidence.random_level("covered_share")
    start = "" if result.initial is None else (
        f", at step 0 {percent(float(result.initial.evidence.covered_share.nanmean()))}"
    )  # fmt: skip
    return (
        f"Last tokens that three triggers share cover {percent(float(evidence.covered_share.nanmean()))} of triggers "
        f"(random prefixes {percent(float(level.nanmean()))}{start}; people's patterns 65-80% in Geva et al. 2021), "
        f"{float(evidence.n_patterns[evidence.n > 0].mean()):.1f} a memory"
    )


def activity(result: Result) -> Finding:
    """Whether training made memories fire on fewer prefixes, or on more; how many never fire, and how many often."""
    now = result.reading.summary
    if result.initial is None:
        said = [f"layer {layer.layer} {percent(layer.firing_rate)}" for layer in now.layers]
        rates = extremes(said, [layer.firing_rate for layer in now.layers])
        dead = extremes([_dead(layer) for layer in now.layers], [layer.n_dead for layer in now.layers], ", ")
        fact = f"the median memory fires on this share of prefixes: {rates}; never fired: {dead}; {_dense(now)}"
        return no_start(result, fact)
    what = "how often memories fire (share of prefixes with a positive coefficient)"
    pairs = alive_at_both(now.firing_rate.log(), result.initial.firing_rate.log())
    changes = changes_of(pairs, mean_interval)
    shown = moved(pairs, changes, lambda logs: percent(math.exp(float(logs.double().mean()))), factor_of)
    cases = [verdict(change, RATE_FLOOR) for change in changes]
    dead = extremes(
        [
            f"{_dead(layer)} ({start.n_dead} at step 0)"
            for layer, start in zip(now.layers, result.initial.layers, strict=True)
        ],
        [layer.n_dead for layer in now.layers],
        ", ",
    )
    sentence = (
        f"{changed(cases, what, 'a factor of 1.5')}: geometric mean over memories alive at both steps {shown}. "
        f"Never fired: {dead}; {_dense(now)}, {_dense(result.initial)} at step 0 ({source_of_layers(result)})."
    )
    return Finding(sentence=sentence, found=told(cases))


def _dense(summary: Summary) -> str:
    n_dense, n = (sum(getattr(each, name) for each in summary.layers) for name in ("n_dense", "n_memories"))
    return f"{n_dense} of {n} fired on more than half of prefixes"


def _dead(layer: LayerSummary) -> str:
    return f"{layer.n_never_fired} of {layer.n_memories} in layer {layer.layer}"


def negative(result: Result) -> list[Finding]:
    """Whether training changed how far memories reach below zero; nothing where no coefficient is negative."""
    now = result.reading.summary
    if not bool(now.below_zero.gt(0).any()):
        return []
    means = "a negative coefficient writes the value with its sign turned, and so suppresses what the value promotes"
    rates = extremes(
        [f"{percent(layer.negative_rate)} in layer {layer.layer}" for layer in now.layers],
        [layer.negative_rate for layer in now.layers],
        ", ",
    )
    facts = f"the median memory's coefficient is negative on {rates} (shares of prefixes); {means}{_signs(result)}"
    if result.initial is None:
        said = [f"layer {n} {percent(_mean(each))}" for n, each in enumerate(now.below_zero)]
        reach = extremes(said, [_mean(each) for each in now.below_zero])
        return [
            no_start(
                result, f"share of the range of a memory's coefficients that lies below zero: {reach} (mean); {facts}"
            )
        ]
    pairs = alive_at_both(now.below_zero, result.initial.below_zero)
    changes = changes_of(pairs, bounded_interval)
    cases = [verdict(change, SHARE_FLOOR) for change in changes]
    shown = moved(pairs, changes, lambda values: percent(_mean(values)), change_of)
    what = "how much of the range of a memory's coefficients lies below zero"
    opening = changed(cases, what, points(SHARE_FLOOR))
    sentence = f"{opening}: mean over memories {shown}; {facts} ({source_of_layers(result)})."
    return [Finding(sentence=sentence, found=told(cases))]


def _signs(result: Result) -> str:
    """Of swiglu, which factor is negative where a coefficient is most negative."""
    signs = result.reading.gate_signs
    if signs is None:
        return ""
    linear, both = (
        torch.cat([read(layer) for layer in range(result.n_layers)])
        for read in (signs.linear_is_negative, signs.both_negative)
    )
    if not len(linear):
        return ""
    return (
        f"; at the most negative coefficients it is the linear factor that is negative in {int(linear.sum())} of "
        f"{len(linear)}, else the gate; at the largest both are in {int(both.sum())} of {len(both)} (up to "
        f"{CUT_TRIGGERS} of each of the memories drawn)"
    )
