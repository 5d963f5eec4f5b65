"""What a checkpoint's FFN memories say, in sentences that deny what is not there (for `analyses.ffn_memories`).

Here are those about values; those about triggers and activity are in `analyses.ffn_trigger_findings`. A claim about
training needs step 0 beside it: that triggers share their last token, say, is true of random keys too, since in the
first layer they read little else. Effects below a stated floor are not claimed however sure they are, and a denial
needs an interval inside the floor: what an interval leaves open is said to be open. The numbers shown of two steps are
the statistic that is tested, over the memories that are alive at both.
"""

from __future__ import annotations

import torch

from analyses.ffn_deletion_findings import deletions
from analyses.ffn_reading import ALPHA
from analyses.ffn_result import Result
from analyses.ffn_summary import LayerSummary
from analyses.ffn_trigger_findings import activity, last_tokens, negative, patterns
from analyses.ffn_wording import interval_of, layers, layers_of, opening, percent, points, share, source, told
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes
from interp.agreement_trends import DepthTrend, depth_trend
from interp.stats import holm

AGREEMENT_FLOOR = 0.01
"""Smallest excess over chance of the share of memories that agree that is claimed."""
CONCEPT_FLOOR = 0.05
"""Smallest excess over random directions of the share of values with a concept that is claimed."""
FEWEST_LAYERS = 4
"""Of fewer layers no order is improbable enough to say that a number goes with depth."""


def spoken(result: Result) -> list[Finding]:
    """Agreement first, then what else is said of values, then triggers, then activity."""
    deep = [_depth(result)] if result.n_layers >= FEWEST_LAYERS else []
    about_triggers = [last_tokens(result), patterns(result), *deletions(result)]
    return [
        _agreement(result), _confidence(result), *deep, _concepts(result),
        *about_triggers, activity(result), *negative(result),
    ]  # fmt: skip


def _agreement(result: Result) -> Finding:
    summaries = result.reading.summary.layers
    adjusted = holm([layer.agreement.p for layer in summaries]).tolist()
    cases = [_agrees(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    what = "values promote what follows their triggers more often than chance"
    agreeing, open_ = layers_of(cases, Verdict.EFFECT), layers_of(cases, Verdict.OPEN)
    than = "" if result.initial is None else " and than at step 0"
    if agreeing:
        begins = f"In {layers(agreeing)} {what}"
    elif open_:
        begins = f"That {what}{than} is shown in no layer, nor that they do not in {layers(open_)}"
    else:
        begins = f"In no layer do {what}{than}"
    said = [_agreement_of(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    shown = extremes(said, [layer.agreement.share for layer in summaries])
    permutations = summaries[0].agreement.n_permutations
    precision = extremes(
        [_precision_of(layer) for layer in summaries], [layer.precision.share for layer in summaries], ", "
    )
    sentence = (
        f"{begins} (the value's most promoted token is the one after its key's top trigger): {shown}. "
        f"Of the top {result.config.n_triggers} triggers its most promoted token follows {precision}. "
        f"Chance deals a layer's next tokens to its memories at random ({permutations:,} permutations, p after Holm at "
        f"{ALPHA:g}); less than {points(AGREEMENT_FLOOR)} above it is not claimed ({source(result)})."
    )
    return Finding(sentence=sentence, found=bool(agreeing))


def _agrees(result: Result, layer: LayerSummary, p: float) -> Verdict:
    """Surely more than chance and than at step 0, surely not, or neither."""
    found = layer.agreement
    if found.n == 0:
        return Verdict.BELOW  # no memory, no agreement
    start = None if result.initial is None else result.initial.layers[layer.layer].agreement
    above_start = start is None or start.n == 0 or found.low > start.high
    if p < ALPHA and found.low >= found.chance + AGREEMENT_FLOOR and above_start:
        return Verdict.EFFECT
    return Verdict.BELOW if found.high < found.chance + AGREEMENT_FLOOR else Verdict.OPEN


def _agreement_of(result: Result, layer: LayerSummary, p: float) -> str:
    found = layer.agreement
    if found.n == 0:
        return f"layer {layer.layer} has no living memory"
    lift = "" if found.lift is None else f", {found.lift:.1f} times"
    return (
        f"layer {layer.layer} {share(found.share, found.low, found.high)} of {found.n} against "
        f"{percent(found.chance)} by chance{lift}, p={p:.2g}{_agreement_at_start(result, layer.layer)}"
    )


def _agreement_at_start(result: Result, layer: int) -> str:
    if result.initial is None:
        return ""
    start = result.initial.layers[layer].agreement
    return ", at step 0 " + (share(start.share, start.low, start.high) if start.n else "no living memory")


def _precision_of(layer: LayerSummary) -> str:
    found = layer.precision
    return f"{percent(found.share)} in layer {layer.layer} ({percent(found.chance)} by chance)"


def _confidence(result: Result) -> Finding:
    """Whether values that are surer of their top token agree more often, within layers too."""
    summary = result.reading.summary
    trend, bins = summary.confidence_trend, summary.confidence
    rises = trend.p < ALPHA and trend.within_p < ALPHA and trend.rho > trend.chance and trend.within > 0.5
    what = "values that are surer of their most promoted token agree more often with what follows their triggers"
    begins = f"{what[0].upper()}{what[1:]}" if rises else f"That {what} is not shown"
    shown = "no memory fires"
    if bins:
        low, high = bins[0].agreement, bins[-1].agreement
        shown = (
            f"{share(high.share, high.low, high.high)} of the surest {high.n} ({percent(high.chance)} by chance) "
            f"against {share(low.share, low.low, low.high)} of the least sure {low.n} ({percent(low.chance)})"
        )
    start = "" if result.initial is None else f"; at step 0 rho {result.initial.confidence_trend.rho:.2f}"
    sentence = (
        f"{begins}: {shown}; rank correlation {trend.rho:.2f} over all {trend.n} memories (dealt next tokens "
        f"{trend.chance:.2f}, p={trend.p:.2g}{start}), and of two memories of one layer of which one agrees it is the "
        f"surer one with probability {trend.within:.2f} (no relation 0.5, p={trend.within_p:.2g}; {source(result)})."
    )
    return Finding(sentence=sentence, found=True if rises else None)


def _depth(result: Result) -> Finding:
    """Whether agreement rises, and the next token's rank falls, from layer to layer."""
    rises, falls = depth_trends(result)
    p_rises, p_falls = holm([rises.p_rises, falls.p_falls]).tolist()
    found = p_rises < _DEPTH_ALPHA and p_falls < _DEPTH_ALPHA
    first, *_, last = result.reading.summary.layers
    begins = "Values agree more with their triggers the deeper the layer" if found else (
        "That values agree more with their triggers the deeper the layer is not shown"
    )  # fmt: skip
    sentence = (
        f"{begins}: agreement goes with depth by {rises.rho:.2f} (rank correlation, p={p_rises:.2g}; "
        f"{percent(first.agreement.share)} in the first layer, {percent(last.agreement.share)} in the last), and the "
        f"median rank of the next token in the value's order by {falls.rho:.2f} (p={p_falls:.2g}; "
        f"{first.median_rank:g} to {last.median_rank:g}, other memories' {first.chance_rank:g} to "
        f"{last.chance_rank:g}; n = {rises.n} layers, p against {rises.n_orders:,} orders of them, after Holm at "
        f"{_DEPTH_ALPHA:g}; {source(result)})."
    )
    return Finding(sentence=sentence, found=True if found else None)


_DEPTH_ALPHA = 0.05
"""Level of the claim that values change with depth; few layers allow no smaller one."""


def depth_trends(result: Result) -> tuple[DepthTrend, DepthTrend]:
    """How agreement, and the median rank of the top trigger's next token, go with depth."""
    summaries = result.reading.summary.layers
    agreement = torch.tensor([layer.agreement.share for layer in summaries])
    ranks = torch.tensor([layer.median_rank for layer in summaries])
    return depth_trend(agreement), depth_trend(ranks)


def _concepts(result: Result) -> Finding:
    """Whether values promote tokens that have something in common, more often than random directions."""
    summaries = result.reading.summary.layers
    adjusted = holm([layer.concepts.p for layer in summaries]).tolist()
    cases = [_has_concepts(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    what = "values promote tokens that have something in common more often than random directions do"
    begins = opening(cases, what, f"do {what}")
    said = [_concepts_of(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    shares = [0.0 if layer.concepts.share is None else layer.concepts.share.mean for layer in summaries]
    sentence = (
        f"{begins} (a rule covers at least 4 of the 30 most promoted, and more than of 30 random tokens): "
        f"{extremes(said, shares)} (p after Holm at {ALPHA:g}; less than {points(CONCEPT_FLOOR)} above is not claimed; "
        f"{source(result)})."
    )
    return Finding(sentence=sentence, found=told(cases))


def _has_concepts(result: Result, layer: LayerSummary, p: float) -> Verdict:
    now = layer.concepts
    if now.share is None or now.random is None:
        return Verdict.OPEN
    start = None if result.initial is None else result.initial.layers[layer.layer].concepts.share
    level = now.random.mean + CONCEPT_FLOOR
    if p < ALPHA and now.share.low >= level and (start is None or now.share.low > start.high):
        return Verdict.EFFECT
    return Verdict.BELOW if now.share.high < level else Verdict.OPEN


def _concepts_of(result: Result, layer: LayerSummary, p: float) -> str:
    now = layer.concepts
    start = "" if result.initial is None else (
        f", at step 0 {interval_of(result.initial.layers[layer.layer].concepts.share)}"
    )  # fmt: skip
    return (
        f"layer {layer.layer} {interval_of(now.share)} of {now.n} values against {interval_of(now.random)} of "
        f"{now.n_random} directions, p={p:.2g}{start}"
    )
