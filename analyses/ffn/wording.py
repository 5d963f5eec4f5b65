"""Words and intervals that the sentences about FFN memories share (for `analyses.ffn.findings`).

A sentence speaks of every layer at once, so that intervals are taken at a level at which those of all layers hold
together: else of twelve layers in which training changed nothing one would often be said to have changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from analyses.ffn.result import Result
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes, rests_on
from analyses.wording import named_layers
from interp.share_intervals import level_of_each
from interp.stats import Interval


def changed(cases: Sequence[Verdict], what: str, floor: str) -> str:
    """The opening of a sentence about training: where it changed something, where surely not, where it is open."""
    found, below, open_ = (layers_of(cases, case) for case in (Verdict.EFFECT, Verdict.BELOW, Verdict.OPEN))
    if found:
        less = f", by less than {floor} in {named_layers(below)}" if below else ""
        return f"In {named_layers(found)} training changed by {floor} or more {what}{less}{untold(open_)}"
    if below and open_:
        return f"Training did not change by {floor} or more {what} in {named_layers(below)}{untold(open_)}"
    if below:
        return f"In no layer did training change by {floor} or more {what}"
    return f"Whether training changed by {floor} or more {what} cannot be told"


def untold(open_: Sequence[int]) -> str:
    """What is added where some layers leave a claim open."""
    return f", and in {named_layers(open_)} it cannot be told" if open_ else ""


def opening(cases: Sequence[Verdict], what: str, denied: str) -> str:
    """The opening of a sentence about layers: where something is so; else where it cannot be told; else the denial."""
    found, open_ = layers_of(cases, Verdict.EFFECT), layers_of(cases, Verdict.OPEN)
    if found:
        return f"In {named_layers(found)} {what}{untold(open_)}"
    return f"Whether {what} cannot be told in {named_layers(open_)}" if open_ else f"In no layer {denied}"


def no_start(result: Result, fact: str) -> Finding:
    """What is said where there is no step 0 to hold a fact against."""
    why = "this is step 0" if result.step == 0 else "step 0 was not read"
    return Finding(sentence=f"What training changed is not known ({why}): {fact} ({source(result)}).", found=None)


def alive_at_both(now: Tensor, start: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Per layer, the values of the memories that have one at both steps."""
    kept = torch.isfinite(now) & torch.isfinite(start)
    return [(after[both], before[both]) for after, before, both in zip(now, start, kept, strict=True)]


def changes_of(
    pairs: Sequence[tuple[Tensor, Tensor]], interval: Callable[[Tensor, float], Interval | None]
) -> list[Interval | None]:
    """Per layer the mean paired change, with an interval that holds in all layers together; None without memories."""
    level = level_of_each(len(pairs))
    return [interval(after.double() - before.double(), level) if len(after) else None for after, before in pairs]


def moved(
    pairs: Sequence[tuple[Tensor, Tensor]],
    changes: Sequence[Interval | None],
    mean: Callable[[Tensor], str],
    spoken_change: Callable[[Interval], str],
) -> str:
    """Per layer the mean now and at step 0, and the paired change."""
    said = [
        f"layer {layer} has {len(after)} of these, too few to tell"
        if change is None
        else f"layer {layer} {mean(after)}, at step 0 {mean(before)} (paired {spoken_change(change)}, n = {change.n})"
        for layer, ((after, before), change) in enumerate(zip(pairs, changes, strict=True))
    ]
    return extremes(said, [math.nan if change is None else change.mean for change in changes])


def source(result: Result, intervals: str = "over memories") -> str:
    """What a sentence rests on, for its brackets."""
    config = result.config
    text = config.text or f"the {config.split.value.replace('_', '-')} split"
    return rests_on(
        result.run,
        step=result.step,
        n=result.n_prefixes,
        unit=f"prefixes of {text}",
        seed=config.seed,
        intervals=intervals,
    )


def source_of_layers(result: Result) -> str:
    """The same for intervals that hold in all layers together."""
    all_layers = (
        ""
        if result.n_layers == 1
        else f", together in {'both' if result.n_layers == 2 else f'all {result.n_layers}'} layers"
    )
    return source(result, f"over memories{all_layers}")


def layers_of(cases: Sequence[Verdict], wanted: Verdict) -> list[int]:
    """Layers of one case."""
    return [layer for layer, case in enumerate(cases) if case is wanted]


def change_of(change: Interval) -> str:
    """A change of a share, in points."""
    mean, low, high = (round(100 * each, 1) + 0.0 for each in (change.mean, change.low, change.high))  # no minus zero
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] points"


def factor_of(change: Interval) -> str:
    """A change of a logarithm, as a factor."""
    return f"times {math.exp(change.mean):.2f} [{math.exp(change.low):.2f}, {math.exp(change.high):.2f}]"
