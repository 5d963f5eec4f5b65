"""What a checkpoint's FFN memories say, in sentences that deny what is not there (for `analyses.ffn_memories`).

A claim about training needs step 0 beside it: that triggers share their last token, say, is true of random keys too,
since in the first layer they read little else. Effects below a stated floor are not claimed however sure they are, and
a denial needs an interval inside the floor: what an interval leaves open is said to be open. The numbers shown of two
steps are the statistic that is tested, over the memories that are alive at both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from analyses.ffn_reading import ALPHA
from analyses.ffn_result import Result
from analyses.ffn_summary import LayerSummary
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes, listed, rests_on, verdict
from interp.stats import Interval, bootstrap_mean, holm

AGREEMENT_FLOOR = 0.01
"""Smallest excess over chance of the share of memories that agree that is claimed."""
SHARE_FLOOR = 0.05
"""Smallest change of a last-token share that is claimed."""
RATE_FLOOR = math.log(1.5)
"""Smallest change of a firing rate that is claimed, as a logarithm: by half."""


def spoken(result: Result) -> list[Finding]:
    """Agreement first, then triggers, then activity."""
    return [_agreement(result), _triggers(result), _activity(result)]


def _agreement(result: Result) -> Finding:
    layers = result.reading.summary.layers
    adjusted = holm([layer.agreement.p for layer in layers]).tolist()
    cases = [_agrees(result, layer, p) for layer, p in zip(layers, adjusted, strict=True)]
    what = "values promote what follows their triggers more often than chance"
    agreeing, open_ = _layers_of(cases, Verdict.EFFECT), _layers_of(cases, Verdict.OPEN)
    than = "" if result.initial is None else " and than at step 0"
    if agreeing:
        opening = f"In {_layers(agreeing)} {what}"
    elif open_:
        opening = f"That {what}{than} is shown in no layer, nor that they do not in {_layers(open_)}"
    else:
        opening = f"In no layer do {what}{than}"
    spoken_layers = [_agreement_of(result, layer, p) for layer, p in zip(layers, adjusted, strict=True)]
    shown = extremes(spoken_layers, [layer.agreement.share for layer in layers])
    permutations = layers[0].agreement.n_permutations
    sentence = (
        f"{opening} (the value's most promoted token is the one after its key's top trigger): {shown}. "
        f"Chance deals a layer's next tokens to its memories at random ({permutations:,} permutations, p after Holm at "
        f"{ALPHA:g}); less than {_points(AGREEMENT_FLOOR)} above it is not claimed ({_source(result)})."
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
        f"layer {layer.layer} {_share(found.share, found.low, found.high)} of {found.n} against "
        f"{_percent(found.chance)} by chance{lift}, p={p:.2g}{_agreement_at_start(result, layer.layer)}"
    )


def _agreement_at_start(result: Result, layer: int) -> str:
    if result.initial is None:
        return ""
    start = result.initial.layers[layer].agreement
    return ", at step 0 " + (_share(start.share, start.low, start.high) if start.n else "no living memory")


def _triggers(result: Result) -> Finding:
    """Whether training made triggers share their last token, or stop doing so."""
    now = result.reading.summary
    what = f"how many of a memory's top {result.config.n_triggers} triggers end in one and the same token"
    control = f"random prefixes {_percent(result.random_last_token_share)}"
    if result.initial is None:
        said = [f"layer {layer.layer} {_percent(layer.last_token_share)}" for layer in now.layers]
        shares = extremes(said, [layer.last_token_share for layer in now.layers])
        return _no_start(result, f"{shares} of a memory's triggers end in one token ({control})")
    pairs = _alive_at_both(now.last_token_share, result.initial.last_token_share)
    changes = [_paired(after - before, result.config.seed) for after, before in pairs]
    moved = _moved(pairs, changes, lambda values: _percent(float(values.double().mean())), _change)
    cases = [verdict(change, SHARE_FLOOR) for change in changes]
    sentence = (
        f"{_changed(cases, what, _points(SHARE_FLOOR))}: mean over memories alive at both steps {moved}; {control} "
        f"({_source(result)})."
    )
    return Finding(sentence=sentence, found=Verdict.EFFECT in cases)


def _activity(result: Result) -> Finding:
    """Whether training made memories fire on fewer prefixes, or on more; and how many never fire."""
    now = result.reading.summary
    if result.initial is None:
        said = [f"layer {layer.layer} {_percent(layer.firing_rate)}" for layer in now.layers]
        rates = extremes(said, [layer.firing_rate for layer in now.layers])
        dead = extremes([_dead(layer) for layer in now.layers], [layer.n_dead for layer in now.layers], ", ")
        return _no_start(result, f"memories fire on {rates} of prefixes (median), and never fired: {dead}")
    what = "how often memories fire (share of prefixes with a positive coefficient)"
    pairs = _alive_at_both(now.firing_rate.log(), result.initial.firing_rate.log())
    changes = [_paired(after - before, result.config.seed) for after, before in pairs]
    moved = _moved(pairs, changes, lambda logs: _percent(math.exp(float(logs.double().mean()))), _factor)
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
        f"{_changed(cases, what, 'a factor of 1.5')}: geometric mean over memories alive at both steps {moved}. "
        f"Never fired: {dead} ({_source(result)})."
    )
    return Finding(sentence=sentence, found=Verdict.EFFECT in cases)


def _changed(cases: Sequence[Verdict], what: str, floor: str) -> str:
    """The opening of a sentence about training: where it changed something, where surely not, where it is open."""
    changed, below, open_ = (_layers_of(cases, case) for case in (Verdict.EFFECT, Verdict.BELOW, Verdict.OPEN))
    untold = f", and in {_layers(open_)} it cannot be told" if open_ else ""
    if changed:
        less = f", by less than {floor} in {_layers(below)}" if below else ""
        return f"In {_layers(changed)} training changed by {floor} or more {what}{less}{untold}"
    if below and open_:
        return f"Training did not change by {floor} or more {what} in {_layers(below)}{untold}"
    if below:
        return f"In no layer did training change by {floor} or more {what}"
    return f"Whether training changed by {floor} or more {what} cannot be told"


def _no_start(result: Result, fact: str) -> Finding:
    why = "this is step 0" if result.step == 0 else "step 0 was not read"
    return Finding(sentence=f"What training changed is not known ({why}): {fact} ({_source(result)}).", found=None)


def _alive_at_both(now: Tensor, start: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Per layer, the values of the memories that have one at both steps."""
    kept = torch.isfinite(now) & torch.isfinite(start)
    return [(after[both], before[both]) for after, before, both in zip(now, start, kept, strict=True)]


def _paired(differences: Tensor, seed: int) -> Interval | None:
    """Their mean with its interval; None where there are not two."""
    return bootstrap_mean(differences, seed=seed) if len(differences) >= 2 else None


def _moved(
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


def _change(change: Interval) -> str:
    return f"{100 * change.mean:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}] points"


def _factor(change: Interval) -> str:
    return f"times {math.exp(change.mean):.2f} [{math.exp(change.low):.2f}, {math.exp(change.high):.2f}]"


def _dead(layer: LayerSummary) -> str:
    return f"{layer.n_dead} of {layer.n_memories} in layer {layer.layer}"


def _source(result: Result) -> str:
    config = result.config
    return rests_on(
        result.run,
        step=result.step,
        n=result.n_prefixes,
        unit=f"prefixes of the {config.split.value.replace('_', '-')} split",
        seed=config.seed,
        intervals="over memories",
    )


def _layers_of(cases: Sequence[Verdict], wanted: Verdict) -> list[int]:
    return [layer for layer, case in enumerate(cases) if case is wanted]


def _layers(layers: Sequence[int]) -> str:
    return f"{'layer' if len(layers) == 1 else 'layers'} {listed(layers)}"


def _share(share: float, low: float, high: float) -> str:
    return f"{_percent(share)} [{_percent(low)}, {_percent(high)}]"


def _points(share: float) -> str:
    return f"{100 * share:.0f} {'point' if round(100 * share) == 1 else 'points'}"


def _percent(share: float) -> str:
    return "none" if math.isnan(share) else f"{100 * share:.1f}%"
