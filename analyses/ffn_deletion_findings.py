"""What FFN memories lose when a token of a trigger is taken away, in a sentence (for `analyses.ffn_findings`)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.ffn_reading import CUT_TRIGGERS
from analyses.ffn_result import Result
from analyses.ffn_summary import LayerSummary
from analyses.ffn_wording import changed, interval_of, mean_of, no_start, percent, points, source
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes, verdict
from interp.trigger_deletions import Deletion, TriggerDeletions

CUT_FLOOR = 0.05
"""Smallest change of the share of memories that is claimed."""


def deletions(result: Result) -> list[Finding]:
    """Whether training made the last token of a trigger matter more than the first; nothing where none were cut."""
    cut, summaries = result.reading.deletions, result.reading.summary.layers
    if cut is None:
        return []
    said = [_deletions_of(result, cut, layer) for layer in summaries]
    shares = [math.nan if layer.last_beats_first is None else layer.last_beats_first.mean for layer in summaries]
    n = int((cut.memory >= 0).sum())
    what = "how many memories lose more of their coefficient without a trigger's last token than without its first"
    method = (
        f"falls are (m - m') / m, medians over memories of their means over the top {CUT_TRIGGERS} triggers, n = {n} "
        f"memories drawn at random; deleting the first token moves all others by one position (BOS stays), replacing "
        f"it moves none"
    )
    start = None if result.initial is None else result.initial.deletions
    if start is None:
        return [no_start(result, f"{what}: {extremes(said, shares)}; {method}")]
    changes = [mean_of(_paired(cut, start, layer), result.config.seed) for layer in range(result.n_layers)]
    cases = [verdict(change, CUT_FLOOR) for change in changes]
    sentence = f"{changed(cases, what, points(CUT_FLOOR))}: {extremes(said, shares)}; {method} ({source(result)})."
    return [Finding(sentence=sentence, found=Verdict.EFFECT in cases)]


def _paired(now: TriggerDeletions, start: TriggerDeletions, layer: int) -> Float[Tensor, " memory"]:
    """For each memory that was cut at both steps, 1 where the last token came to matter more, -1 where less, else 0."""
    after, before = (
        dict(zip(each.measured(layer).tolist(), each.last_beats_first(layer).tolist(), strict=True))
        for each in (now, start)
    )
    return torch.tensor([float(after[memory]) - float(before[memory]) for memory in after if memory in before])


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
