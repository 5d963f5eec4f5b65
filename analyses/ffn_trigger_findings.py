"""What fires a checkpoint's FFN memories, and how often, in sentences (for `analyses.ffn_findings`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from analyses.ffn_reading import CUT_TRIGGERS
from analyses.ffn_result import Result
from analyses.ffn_summary import LayerSummary, Summary
from analyses.ffn_wording import (
    alive_at_both,
    change_of,
    changed,
    factor_of,
    interval_of,
    layers,
    layers_of,
    mean_of,
    moved,
    no_start,
    opening,
    percent,
    points,
    source,
    told,
)
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes, verdict
from interp.pattern_kinds import TriggerPattern
from interp.stats import Interval

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
        return no_start(result, f"{shares} of a memory's triggers end in one token ({control})")
    pairs = alive_at_both(now.last_token_share, result.initial.last_token_share)
    changes = [mean_of(after - before, result.config.seed) for after, before in pairs]
    shown = moved(pairs, changes, lambda values: percent(float(values.double().mean())), change_of)
    cases = [verdict(change, SHARE_FLOOR) for change in changes]
    sentence = (
        f"{changed(cases, what, points(SHARE_FLOOR))}: mean over memories alive at both steps {shown}; {control} "
        f"({source(result)})."
    )
    return Finding(sentence=sentence, found=Verdict.EFFECT in cases)


def patterns(result: Result) -> Finding:
    """How many memories have a pattern in their triggers, beside what random prefixes have, and at step 0."""
    now, seed = result.reading.summary, result.config.seed
    chance = N_KINDS / (1 + now.evidence.random.n_sets)
    shares = [mean_of(_patterned(now, layer), seed) for layer in range(result.n_layers)]
    cases = [_over(own, chance) for own in shares]
    what = "memories have a pattern in their triggers more often than random prefixes do"
    said = [
        f"layer {layer} {interval_of(own)} of {0 if own is None else own.n} memories ({_commonest(now, layer)}"
        f"{_patterned_at_start(result, layer)})"
        for layer, own in enumerate(shares)
    ]
    values = [math.nan if own is None else own.mean for own in shares]
    sentence = (
        f"{opening(cases, what, f'do {what}')}{_untrained(result, cases, chance)}: {extremes(said, values)}. A pattern "
        f"holds for more than half of a memory's triggers, copies of one text counted once, and for more than in any "
        f"of {now.evidence.random.n_sets:,} sets of as many random prefixes: by chance in {percent(chance)} at most; "
        f"less than {points(SHARE_FLOOR)} above is not claimed. {_covered(result)} ({source(result)})."
    )
    return Finding(sentence=sentence, found=told(cases))


def _untrained(result: Result, cases: Sequence[Verdict], chance: float) -> str:
    """Where keys that nothing has trained have patterns too: they read the last token, if little else."""
    if result.initial is None or Verdict.EFFECT not in cases:
        return ""
    starts = [mean_of(_patterned(result.initial, layer), result.config.seed) for layer in range(result.n_layers)]
    random_too = layers_of([_over(start, chance) for start in starts], Verdict.EFFECT)
    return f" (at step 0 too, in {layers(random_too)})" if random_too else " (at step 0 in no layer)"


def _patterned_at_start(result: Result, layer: int) -> str:
    if result.initial is None:
        return ""
    start = mean_of(_patterned(result.initial, layer), result.config.seed)
    return f"; at step 0 {interval_of(start)}: {_commonest(result.initial, layer)}"


def _patterned(summary: Summary, layer: int) -> Bool[Tensor, " memory"]:
    """Of a layer's memories with at least three triggers, which have a pattern."""
    kinds, places = summary.evidence.kind[layer], tuple(TriggerPattern)
    asked = kinds[kinds != places.index(TriggerPattern.FEW)]
    return asked != places.index(TriggerPattern.NONE)


def _over(own: Interval | None, chance: float) -> Verdict:
    """Surely more than chance, surely not, or neither."""
    if own is None:
        return Verdict.OPEN
    if own.low >= chance + SHARE_FLOOR:
        return Verdict.EFFECT
    return Verdict.BELOW if own.high < chance + SHARE_FLOOR else Verdict.OPEN


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
        fact = f"memories fire on {rates} of prefixes (median), never fired: {dead}, {_dense(now)}"
        return no_start(result, fact)
    what = "how often memories fire (share of prefixes with a positive coefficient)"
    pairs = alive_at_both(now.firing_rate.log(), result.initial.firing_rate.log())
    changes = [mean_of(after - before, result.config.seed) for after, before in pairs]
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
        f"Never fired: {dead}; {_dense(now)}, {_dense(result.initial)} at step 0 ({source(result)})."
    )
    return Finding(sentence=sentence, found=Verdict.EFFECT in cases)


def _dense(summary: Summary) -> str:
    n_dense, n = (sum(getattr(each, name) for each in summary.layers) for name in ("n_dense", "n_memories"))
    return f"{n_dense} of {n} fired on more than half of prefixes"


def _dead(layer: LayerSummary) -> str:
    return f"{layer.n_never_fired} of {layer.n_memories} in layer {layer.layer}"


def negative(result: Result) -> list[Finding]:
    """Whether most memories reach half as far below zero as above it; nothing where no coefficient is negative."""
    activity, summaries = result.reading.activity, result.reading.summary.layers
    if not bool(activity.lowest.lt(0).any()):
        return []
    far = -activity.lowest >= activity.largest / 2
    shares = [mean_of(far[layer][activity.alive[layer]], result.config.seed) for layer in range(result.n_layers)]
    cases = [_most(each) for each in shares]
    what = "most memories reach at least half as far below zero as above it"
    said = [
        f"layer {layer.layer} {interval_of(own)} of {0 if own is None else own.n} (median reach below "
        f"{layer.lowest_over_largest:.2f} of that above{_reach_at_start(result, layer)}; negative on "
        f"{percent(layer.negative_rate)} of prefixes)"
        for layer, own in zip(summaries, shares, strict=True)
    ]
    values = [math.nan if own is None else own.mean for own in shares]
    sentence = (
        f"{opening(cases, what, f'do {what}')}: {extremes(said, values)}. A negative coefficient writes the value with "
        f"its sign turned, and so suppresses what the value promotes{_signs(result)} ({source(result)})."
    )
    return [Finding(sentence=sentence, found=told(cases))]


def _most(own: Interval | None) -> Verdict:
    """Surely more than half, surely not, or neither."""
    if own is None:
        return Verdict.OPEN
    return Verdict.EFFECT if own.low > 0.5 else Verdict.BELOW if own.high <= 0.5 else Verdict.OPEN


def _reach_at_start(result: Result, layer: LayerSummary) -> str:
    start = None if result.initial is None else result.initial.layers[layer.layer].lowest_over_largest
    return "" if start is None else f", {start:.2f} at step 0"


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
