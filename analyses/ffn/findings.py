"""What a checkpoint's FFN memories say, in sentences that deny what is not there (for `analyses.ffn_memories`).

Here are those about agreement; others are in `analyses.ffn.concept_findings`, `analyses.ffn.trigger_findings` and
`analyses.ffn.deletion_findings`. A claim about training needs step 0 beside it: that triggers share their last token,
say, is true of random keys too, since in the first layer they read little else. Effects below a stated floor are not
claimed however sure they are, and a denial needs an interval inside the floor: what an interval leaves open is said to
be open, and marked so. Intervals that a claim rests on hold in all layers together, p is after Holm, and no interval
shrinks to a point where memories are all alike (`interp.share_intervals`): of few memories an effect is not denied. The
numbers shown of two steps are the statistic that is tested, over the memories that are alive at both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from analyses.ffn.concept_findings import concepts
from analyses.ffn.deletion_findings import deletions
from analyses.ffn.reading import ALPHA
from analyses.ffn.result import Result
from analyses.ffn.summary import LayerSummary, Summary
from analyses.ffn.trigger_findings import activity, last_tokens, negative, patterns
from analyses.ffn.wording import layers_of, source, source_of_layers, untold
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes, told
from analyses.wording import named_layers, percent, points, share_of
from interp.agreement import Agreement
from interp.agreement_trends import ConfidenceTrend, DepthTrend, depth_trend
from interp.share_intervals import difference_interval, level_of_each, rank_correlation_interval, share_interval
from interp.stats import Interval, holm
from interp.wording import number, with_interval

AGREEMENT_FLOOR = 0.01
"""Smallest excess over chance of the share of memories that agree that is claimed."""
FEWEST_LAYERS = 4
"""Of fewer layers no order is improbable enough to say that a number goes with depth."""


def spoken(result: Result) -> list[Finding]:
    """Agreement first, then what else is said of values, then triggers, then activity."""
    deep = [depth(result)] if result.n_layers >= FEWEST_LAYERS else []
    about_triggers = [last_tokens(result), patterns(result), *deletions(result)]
    return [
        _agreement(result), confidence(result), *deep, concepts(result),
        *about_triggers, activity(result), *negative(result),
    ]  # fmt: skip


def _agreement(result: Result) -> Finding:
    summaries = result.reading.summary.layers
    adjusted = holm([layer.agreement.p for layer in summaries]).tolist()
    cases = [_agrees(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    begins = _agreeing(result, cases, adjusted)
    said = [_agreement_of(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    shown = extremes(said, [layer.agreement.share for layer in summaries])
    permutations = summaries[0].agreement.n_permutations
    precision = extremes(
        [_precision_of(layer) for layer in summaries], [layer.precision.share for layer in summaries], ", "
    )
    sentence = (
        f"{begins} (the value's most promoted token is the one after its key's top trigger): {shown}. "
        f"Of the top {result.config.n_triggers} triggers its most promoted token follows {precision}. "
        f"Chance permutes a layer's next tokens among its memories ({permutations:,} permutations, p after Holm at "
        f"{ALPHA:g}; {source_of_layers(result)})."
    )
    return Finding(sentence=sentence, found=told(cases))


def _agreeing(result: Result, cases: list[Verdict], adjusted: list[float]) -> str:
    """The opening: where values agree by more than the floor, or at all, or surely do not, or where it is open."""
    agreeing, open_ = layers_of(cases, Verdict.EFFECT), layers_of(cases, Verdict.OPEN)
    what = "values promote what follows their triggers more often than chance"
    floor = f"by {points(AGREEMENT_FLOOR)} or more"
    floor += "" if result.initial is None else ", and more often than at step 0"
    if agreeing:
        return f"In {named_layers(agreeing)} {what}, {floor}{untold(open_)}"
    if not open_:
        return f"In no layer do {what} {floor}"
    related = [layer for layer, p in enumerate(adjusted) if p < ALPHA]
    if related:
        return f"In {named_layers(related)} {what}, but that it is {floor}, is shown in no layer"
    return f"That {what}, {floor}, is shown in no layer, nor that they do not in {named_layers(open_)}"


def _agrees(result: Result, layer: LayerSummary, p: float) -> Verdict:
    """Surely more than chance and than at step 0, surely not, or neither."""
    found = _share(result, layer.agreement)
    if found is None:
        return Verdict.BELOW  # no memory, no agreement
    start = None if result.initial is None else _share(result, result.initial.layers[layer.layer].agreement)
    level = layer.agreement.chance + AGREEMENT_FLOOR
    if p < ALPHA and found.low >= level and (start is None or found.low > start.high):
        return Verdict.EFFECT
    return Verdict.BELOW if found.high < level else Verdict.OPEN


def _share(result: Result, found: Agreement) -> Interval | None:
    """The share that agrees with an interval that holds in all layers together; None without living memories."""
    return share_interval(round(found.n * found.share), found.n, level_of_each(result.n_layers)) if found.n else None


def _agreement_of(result: Result, layer: LayerSummary, p: float) -> str:
    found = layer.agreement
    if found.n == 0:
        return f"layer {layer.layer} has no living memory"
    lift = "" if found.lift is None else f", {found.lift:.1f} times"
    return (
        f"layer {layer.layer} {share_of(_share(result, found))} of {found.n} against "
        f"{percent(found.chance)} by chance{lift}, p={p:.2g}{_agreement_at_start(result, layer.layer)}"
    )


def _agreement_at_start(result: Result, layer: int) -> str:
    if result.initial is None:
        return ""
    start = _share(result, result.initial.layers[layer].agreement)
    return ", at step 0 " + ("no living memory" if start is None else share_of(start))


def _precision_of(layer: LayerSummary) -> str:
    found = layer.precision
    return f"{percent(found.share)} in layer {layer.layer} ({percent(found.chance)} by chance)"


def confidence(result: Result) -> Finding:
    """Whether values that are surer of their top token agree more often, within layers too, and more than at step 0."""
    summary = result.reading.summary
    trend, bins = summary.confidence_trend, summary.confidence
    start = None if result.initial is None else result.initial.confidence_trend
    rises = trend.p < ALPHA and trend.within_p < ALPHA and trend.rho > trend.chance and trend.within > 0.5
    rises = rises and (start is None or _is_steeper(trend, start))
    what = "values that are surer of their most promoted token agree more often with what follows their triggers"
    begins = _begun(f"V{what[1:]}" if rises else f"That {what}", shown=rises, beside_start=start is not None)
    shown = "no memory fires"
    if bins:
        low, high = bins[0].agreement, bins[-1].agreement
        shown = (
            f"{_ends(high)} of the surest {high.n} ({percent(high.chance)} by chance) "
            f"against {_ends(low)} of the least sure {low.n} ({percent(low.chance)})"
        )
    at_start = "" if start is None else f"; at step 0 {_correlated(start)}, permuted {number(start.chance)}"
    sentence = (
        f"{begins}: {shown}; rank correlation {_correlated(trend)} over all {trend.n} memories (next tokens permuted "
        f"{number(trend.chance)}, p={trend.p:.2g}{at_start}), and of two memories of one layer of which one agrees it "
        f"is the surer one with probability {trend.within:.2f} (no relation 0.5, p={trend.within_p:.2g}; "
        f"{source(result)})."
    )
    return Finding(sentence=sentence, found=True if rises else None)


def _begun(what: str, *, shown: bool, beside_start: bool) -> str:
    """A claim with what it is held against, and that it is not shown where it is not."""
    start = ", and more so than at step 0" if beside_start else ""
    return f"{what}{start}" if shown else f"{what}{start}{',' if start else ''} is not shown"


def _is_steeper(now: ConfidenceTrend, start: ConfidenceTrend) -> bool:
    """Whether the correlation is surely further above that of permuted next tokens than at step 0."""
    before, after = (rank_correlation_interval(each.rho, each.n) for each in (start, now))
    if math.isnan(start.rho):
        return True  # where no value agrees, or every one, there is nothing to be beyond
    if after is None or before is None:
        return False
    return difference_interval(after, before).low > now.chance - start.chance


def _correlated(trend: ConfidenceTrend) -> str:
    interval = rank_correlation_interval(trend.rho, trend.n)
    return ("none" if math.isnan(trend.rho) else number(trend.rho)) if interval is None else with_interval(interval)


def _ends(found: Agreement) -> str:
    return f"{percent(found.share)} [{percent(found.low)}, {percent(found.high)}]"


def depth(result: Result) -> Finding:
    """Whether agreement rises, and the next token's rank falls, from layer to layer, and so does their change."""
    (rises, falls), gained = depth_trends(result), _gains(result)
    more, fewer = gained or (rises, falls)
    p_rises, p_falls = holm([max(rises.p_rises, more.p_rises), max(falls.p_falls, fewer.p_falls)]).tolist()
    found = p_rises < _DEPTH_ALPHA and p_falls < _DEPTH_ALPHA
    first, *_, last = result.reading.summary.layers
    what = "values agree more with their triggers the deeper the layer"
    begins = _begun(f"V{what[1:]}" if found else f"That {what}", shown=found, beside_start=gained is not None)
    beyond = "" if gained is None else (
        f"; what they gained on step 0 goes with depth by {more.rho:.2f} and {fewer.rho:.2f}, and p is the larger one"
    )  # fmt: skip
    sentence = (
        f"{begins}: agreement goes with depth by {rises.rho:.2f} (rank correlation, p={p_rises:.2g}; "
        f"{percent(first.agreement.share)} in the first layer, {percent(last.agreement.share)} in the last), and the "
        f"median rank of the next token in the value's order by {falls.rho:.2f} (p={p_falls:.2g}; "
        f"{first.median_rank:g} to {last.median_rank:g}, other memories' {first.chance_rank:g} to "
        f"{last.chance_rank:g}{beyond}; n = {rises.n} layers, p against {rises.n_orders:,} orders of them, after Holm "
        f"at {_DEPTH_ALPHA:g}; {source(result)})."
    )
    return Finding(sentence=sentence, found=True if found else None)


_DEPTH_ALPHA = 0.05
"""Level of the claim that values change with depth; few layers allow no smaller one."""


def depth_trends(result: Result) -> tuple[DepthTrend, DepthTrend]:
    """How agreement, and the median rank of the top trigger's next token, go with depth."""
    agreement, ranks = _by_layer(result.reading.summary)
    return depth_trend(agreement), depth_trend(ranks)


def _gains(result: Result) -> tuple[DepthTrend, DepthTrend] | None:
    """The same of their differences from step 0."""
    if result.initial is None:
        return None
    agreement, ranks = (
        now - start for now, start in zip(_by_layer(result.reading.summary), _by_layer(result.initial), strict=True)
    )
    return depth_trend(agreement), depth_trend(ranks)


def _by_layer(summary: Summary) -> tuple[Tensor, Tensor]:
    """Share that agrees, and the median rank of the next token."""
    agreement, ranks = zip(*((each.agreement.share, each.median_rank) for each in summary.layers), strict=True)
    return torch.tensor(agreement), torch.tensor(ranks)
