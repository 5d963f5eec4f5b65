"""Words that the sentences about FFN memories share (for `analyses.ffn_findings`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from analyses.ffn_result import Result
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes, rests_on
from interp.stats import Interval, bootstrap_mean


def changed(cases: Sequence[Verdict], what: str, floor: str) -> str:
    """The opening of a sentence about training: where it changed something, where surely not, where it is open."""
    found, below, open_ = (layers_of(cases, case) for case in (Verdict.EFFECT, Verdict.BELOW, Verdict.OPEN))
    untold = f", and in {layers(open_)} it cannot be told" if open_ else ""
    if found:
        less = f", by less than {floor} in {layers(below)}" if below else ""
        return f"In {layers(found)} training changed by {floor} or more {what}{less}{untold}"
    if below and open_:
        return f"Training did not change by {floor} or more {what} in {layers(below)}{untold}"
    if below:
        return f"In no layer did training change by {floor} or more {what}"
    return f"Whether training changed by {floor} or more {what} cannot be told"


def opening(cases: Sequence[Verdict], what: str, denied: str) -> str:
    """The opening of a sentence about layers: where something is so; else where it cannot be told; else the denial."""
    found, open_ = layers_of(cases, Verdict.EFFECT), layers_of(cases, Verdict.OPEN)
    if found:
        return f"In {layers(found)} {what}"
    return f"Whether {what} cannot be told in {layers(open_)}" if open_ else f"In no layer {denied}"


def told(cases: Sequence[Verdict]) -> bool | None:
    """Affirmed where it is so in any layer, denied where it is not in all, else left open."""
    if Verdict.EFFECT in cases:
        return True
    return None if Verdict.OPEN in cases else False


def no_start(result: Result, fact: str) -> Finding:
    """What is said where there is no step 0 to hold a fact against."""
    why = "this is step 0" if result.step == 0 else "step 0 was not read"
    return Finding(sentence=f"What training changed is not known ({why}): {fact} ({source(result)}).", found=None)


def alive_at_both(now: Tensor, start: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Per layer, the values of the memories that have one at both steps."""
    kept = torch.isfinite(now) & torch.isfinite(start)
    return [(after[both], before[both]) for after, before, both in zip(now, start, kept, strict=True)]


def mean_of(values: Tensor, seed: int) -> Interval | None:
    """Their mean with its interval; None where there are not two."""
    return bootstrap_mean(values.double(), seed=seed) if len(values) >= 2 else None


def moved(
    pairs: Sequence[tuple[Tensor, Tensor]],
    changes: Sequence[Interval | None],
    mean: Callable[[Tensor], str],
    spoken_change: Callable[[Interval], str],
) -> str:
    """Per layer the mean now and at step 0, and the paired change."""
    said = [
        f"layer {layer} has {len(after)} of these"
        if change is None
        else f"layer {layer} {mean(after)}, at step 0 {mean(before)} (paired {spoken_change(change)}, n = {change.n})"
        for layer, ((after, before), change) in enumerate(zip(pairs, changes, strict=True))
    ]
    return extremes(said, [math.nan if change is None else change.mean for change in changes])


def source(result: Result) -> str:
    """What a sentence rests on, for its brackets."""
    config = result.config
    text = config.text or f"the {config.split.value.replace('_', '-')} split"
    return rests_on(
        result.run,
        step=result.step,
        n=result.n_prefixes,
        unit=f"prefixes of {text}",
        seed=config.seed,
        intervals="over memories",
    )


def layers_of(cases: Sequence[Verdict], wanted: Verdict) -> list[int]:
    """Layers of one case."""
    return [layer for layer, case in enumerate(cases) if case is wanted]


def layers(numbers: Sequence[int]) -> str:
    """Layers by number, in rising order, runs of three and more by their ends.

    >>> layers([4]), layers([0, 1, 2, 3, 7, 8])
    ('layer 4', 'layers 0 to 3, 7 and 8')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"{'layer' if len(numbers) == 1 else 'layers'} {joined(said)}"


def joined(parts: Sequence[str]) -> str:
    """As in "a, b and c"."""
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def interval_of(interval: Interval | None) -> str:
    """A share with its interval."""
    return "not measured" if interval is None else share(interval.mean, interval.low, interval.high)


def share(mean: float, low: float, high: float) -> str:
    """A share with the ends of its interval."""
    return f"{percent(mean)} [{percent(low)}, {percent(high)}]"


def points(value: float) -> str:
    """A difference of shares in whole points."""
    return f"{100 * value:.0f} {'point' if round(100 * value) == 1 else 'points'}"


def percent(value: float) -> str:
    """A share; none where it is not a number."""
    return "none" if math.isnan(value) else f"{round(100 * value, 1) + 0.0:.1f}%"  # + 0.0 makes minus zero zero


def change_of(change: Interval) -> str:
    """A change of a share, in points."""
    return f"{100 * change.mean:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}] points"


def factor_of(change: Interval) -> str:
    """A change of a logarithm, as a factor."""
    return f"times {math.exp(change.mean):.2f} [{math.exp(change.low):.2f}, {math.exp(change.high):.2f}]"
