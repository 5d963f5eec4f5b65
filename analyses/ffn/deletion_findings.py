"""What FFN memories lose when a token of a trigger is taken away, in a sentence (for `analyses.ffn.findings`)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from analyses.ffn.reading import CUT_TRIGGERS
from analyses.ffn.result import Result
from analyses.ffn.summary import median
from analyses.ffn.wording import change_of, changed, changes_of, no_start, source_of_layers
from analyses.registry import Finding
from analyses.verdicts import extremes, told, verdict
from analyses.wording import percent, points, share_of
from interp.share_intervals import bounded_interval
from interp.stats import Interval
from interp.trigger_deletions import Deletion, TriggerDeletions

CUT_FLOOR = 0.1
"""Smallest change of the share of memories that is claimed: of 64 memories that are alike, 5 in 100 could go unseen."""


def deletions(result: Result) -> list[Finding]:
    """Whether training made the last token of a trigger matter more than the first; nothing where none were cut."""
    cut, summaries = result.reading.deletions, result.reading.summary.layers
    if cut is None:
        return []
    n = int((cut.memory >= 0).sum())
    what = "how many memories lose more of their coefficient without a trigger's last token than without its first"
    method = (
        f"falls are (m - m') / m, medians over memories of their means over the top {CUT_TRIGGERS} triggers, n = {n} "
        f"memories drawn at random; deleting the first token moves all others by one position (BOS stays), replacing "
        f"it moves none"
    )
    start = None if result.initial is None else result.initial.deletions
    if start is None:
        said = [
            f"layer {each.layer} {share_of(each.last_beats_first)} ({_falls(cut, each.layer)})" for each in summaries
        ]
        shares = [math.nan if each.last_beats_first is None else each.last_beats_first.mean for each in summaries]
        return [no_start(result, f"{what}: {extremes(said, shares)}; {method}")]
    pairs = [_measured_at_both(cut, start, layer) for layer in range(result.n_layers)]
    changes = changes_of(pairs, bounded_interval)
    said = [
        f"layer {layer} {_moved(pair, change)}{_falls(cut, layer)})"
        for layer, (pair, change) in enumerate(zip(pairs, changes, strict=True))
    ]
    shown = extremes(said, [math.nan if change is None else change.mean for change in changes])
    cases = [verdict(change, CUT_FLOOR) for change in changes]
    opening = changed(cases, what, points(CUT_FLOOR))
    sentence = f"{opening}: of memories cut at both steps {shown}; {method} ({source_of_layers(result)})."
    return [Finding(sentence=sentence, found=told(cases))]


def _measured_at_both(now: TriggerDeletions, start: TriggerDeletions, layer: int) -> tuple[Tensor, Tensor]:
    """Of each memory that was cut at both steps, whether the last token mattered more (1) or not (0)."""
    after, before = (
        dict(zip(each.measured(layer).tolist(), each.last_beats_first(layer).tolist(), strict=True))
        for each in (now, start)
    )
    both = [memory for memory in after if memory in before]
    now_, start_ = (torch.tensor([float(each[memory]) for memory in both]) for each in (after, before))
    return now_, start_


def _moved(pair: tuple[Tensor, Tensor], change: Interval | None) -> str:
    if change is None:
        return "none ("
    now, start = (percent(each.double().mean()) for each in pair)
    return f"{now}, at step 0 {start} (paired {change_of(change)}, n = {change.n}; "


def _falls(cut: TriggerDeletions, layer: int) -> str:
    """Median falls of a layer under every change."""
    fell = {change: percent(median(cut.of(change)[layer])) for change in Deletion}
    return (
        f"falls: last {fell[Deletion.LAST]}, first {fell[Deletion.FIRST]}, a random one between "
        f"{fell[Deletion.RANDOM]}; replaced: last {fell[Deletion.LAST_REPLACED]}, first {fell[Deletion.FIRST_REPLACED]}"
    )
