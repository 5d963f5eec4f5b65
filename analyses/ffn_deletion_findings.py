"""What FFN memories lose when a token of a trigger is taken away, in a sentence (for `analyses.ffn_findings`)."""

from __future__ import annotations

import math

from jaxtyping import Bool
from torch import Tensor

from analyses.ffn_reading import ALPHA, CUT_TRIGGERS
from analyses.ffn_result import Result
from analyses.ffn_summary import LayerSummary
from analyses.ffn_wording import interval_of, opening, percent, source, told
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes
from interp.stats import Interval, holm
from interp.trigger_deletions import Deletion, TriggerDeletions


def deletions(result: Result) -> list[Finding]:
    """Whether the last token of a trigger matters more than the first; nothing where no triggers were cut."""
    cut = result.reading.deletions
    if cut is None:
        return []
    p = [_sign_p(cut.last_beats_first(layer)) for layer in range(result.n_layers)]
    adjusted = holm(p).tolist()
    summaries = result.reading.summary.layers
    cases = [_mostly(layer.last_beats_first, at) for layer, at in zip(summaries, adjusted, strict=True)]
    what = "most memories lose more of their coefficient without a trigger's last token than without its first"
    said = [_deletions_of(result, cut, layer) for layer in summaries]
    shares = [math.nan if layer.last_beats_first is None else layer.last_beats_first.mean for layer in summaries]
    n = int((cut.memory >= 0).sum())
    sentence = (
        f"{opening(cases, what, f'do {what}')}: {extremes(said, shares)}. Falls are (m - m') / m, medians over "
        f"memories of their means over the top {CUT_TRIGGERS} triggers, n = {n} memories drawn at random; deleting the "
        f"first token moves all others by one position (BOS stays), replacing it moves none (sign test, p after Holm "
        f"at {ALPHA:g}; {source(result)})."
    )
    return [Finding(sentence=sentence, found=told(cases))]


def _mostly(found: Interval | None, p: float) -> Verdict:
    """Surely more than half, surely not, or neither."""
    if found is None:
        return Verdict.OPEN
    if p < ALPHA and found.mean > 0.5:
        return Verdict.EFFECT
    return Verdict.BELOW if found.high <= 0.5 else Verdict.OPEN


def _sign_p(beats: Bool[Tensor, " memory"]) -> float:
    """Chance of so many heads or more, of a fair coin."""
    n, k = len(beats), int(beats.sum())
    return sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n


def _deletions_of(result: Result, cut: TriggerDeletions, layer: LayerSummary) -> str:
    falls = {change: percent(_median(cut.of(change)[layer.layer])) for change in Deletion}
    start = None if result.initial is None else result.initial.layers[layer.layer].last_beats_first
    at_start = "" if start is None else f", at step 0 {interval_of(start)}"
    return (
        f"layer {layer.layer} {interval_of(layer.last_beats_first)}{at_start} (falls: last {falls[Deletion.LAST]}, "
        f"first {falls[Deletion.FIRST]}, a random one between {falls[Deletion.RANDOM]}; replaced: last "
        f"{falls[Deletion.LAST_REPLACED]}, first {falls[Deletion.FIRST_REPLACED]})"
    )


def _median(values: Tensor) -> float:
    known = values[values.isfinite()]
    return float(known.double().quantile(0.5)) if len(known) else math.nan
