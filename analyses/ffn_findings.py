"""What a checkpoint's FFN memories say, in sentences that deny what is not there (for `analyses.ffn_memories`).

A claim about training needs step 0 beside it: that triggers share their last token, say, is true of random keys too,
since in the first layer they read little else. Effects below a stated floor are not claimed however sure they are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from analyses.registry import Finding
from interp.stats import Interval, bootstrap_mean, holm

if TYPE_CHECKING:
    from analyses.ffn_memories import Result
    from analyses.ffn_reading import LayerSummary

ALPHA = 0.01
"""Level of the claim that a layer agrees, after Holm's correction over layers."""
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
    agreeing = [
        layer.layer
        for layer, p in zip(layers, adjusted, strict=True)
        if p < ALPHA and layer.agreement.share > layer.agreement.chance and _above_start(result, layer)
    ]
    opening = (
        f"In {_layers(agreeing)} values promote what follows their triggers more often than chance"
        if agreeing
        else "In no layer do values promote what follows their triggers more often than chance and than at step 0"
    )
    shown = "; ".join(_agreement_of(result, layer, p) for layer, p in zip(layers, adjusted, strict=True))
    permutations = layers[0].agreement.n_permutations
    sentence = (
        f"{opening} (the value's most promoted token is the one after its key's top trigger): {shown}. "
        f"Chance deals a layer's next tokens to its memories at random ({permutations:,} permutations, p after Holm); "
        f"intervals are over memories {_source(result)}."
    )
    return Finding(sentence=sentence, found=bool(agreeing))


def _agreement_of(result: Result, layer: LayerSummary, p: float) -> str:
    found = layer.agreement
    if found.n == 0:
        return f"layer {layer.layer} has no living memory"
    lift = "" if found.lift is None else f", {found.lift:.1f} times"
    start = (
        "" if result.initial is None else f", at step 0 {_percent(result.initial.layers[layer.layer].agreement.share)}"
    )
    return (
        f"layer {layer.layer} {_percent(found.share)} [{_percent(found.low)}, {_percent(found.high)}] of {found.n} "
        f"against {_percent(found.chance)} by chance{lift}, p={p:.2g}{start}"
    )


def _above_start(result: Result, layer: LayerSummary) -> bool:
    if result.initial is None:
        return True
    start = result.initial.layers[layer.layer].agreement.share
    return math.isnan(start) or layer.agreement.share > start


def _triggers(result: Result) -> Finding:
    """Whether training made triggers share their last token, or stop doing so."""
    now = result.reading.summary
    shares = "; ".join(f"layer {layer.layer} {_percent(layer.last_token_share)}" for layer in now.layers)
    control = f"random prefixes {_percent(result.random_last_token_share)}"
    if result.initial is None:
        return _no_start(result, f"{shares} of a memory's triggers end in one token ({control})")
    changes = [
        _paired(now.last_token_share[layer] - result.initial.last_token_share[layer], result.config.seed)
        for layer in range(result.n_layers)
    ]
    changed = _beyond(changes, SHARE_FLOOR)
    moved = "; ".join(
        f"layer {layer.layer} {_percent(layer.last_token_share)}, at step 0 "
        f"{_percent(result.initial.layers[layer.layer].last_token_share)}{_change(change)}"
        for layer, change in zip(now.layers, changes, strict=True)
    )
    sentence = (
        f"Training {f'changed in {_layers(changed)}' if changed else 'did not change'} how many of a memory's top "
        f"{result.config.n_triggers} triggers end in one and the same token: {moved}; {control}. Less than "
        f"{100 * SHARE_FLOOR:.0f} points is not claimed; intervals are over memories {_source(result)}."
    )
    return Finding(sentence=sentence, found=bool(changed))


def _activity(result: Result) -> Finding:
    """Whether training made memories fire on fewer prefixes, or on more; and how many never fire."""
    now = result.reading.summary
    dead = ", ".join(f"{layer.n_dead} of {layer.n_memories} in layer {layer.layer}" for layer in now.layers)
    rates = "; ".join(f"layer {layer.layer} {_percent(layer.firing_rate)}" for layer in now.layers)
    if result.initial is None:
        return _no_start(result, f"memories fire on {rates} of prefixes (median), and never fired: {dead}")
    changes = [
        _paired(now.firing_rate[layer].log() - result.initial.firing_rate[layer].log(), result.config.seed)
        for layer in range(result.n_layers)
    ]
    changed = _beyond(changes, RATE_FLOOR)
    moved = "; ".join(
        f"layer {layer.layer} {_percent(layer.firing_rate)}, at step 0 "
        f"{_percent(result.initial.layers[layer.layer].firing_rate)}{_factor(change)}"
        for layer, change in zip(now.layers, changes, strict=True)
    )
    sentence = (
        f"Training {f'changed in {_layers(changed)}' if changed else 'did not change'} how often memories fire (share "
        f"of prefixes with a positive coefficient, median): {moved}. Less than a factor of 1.5 is not claimed. "
        f"Never fired: {dead} {_source(result)}."
    )
    return Finding(sentence=sentence, found=bool(changed))


def _no_start(result: Result, fact: str) -> Finding:
    why = "this is step 0" if result.step == 0 else "step 0 was not read"
    return Finding(sentence=f"What training changed is not known ({why}): {fact} {_source(result)}.", found=False)


def _paired(differences: Tensor, seed: int) -> Interval | None:
    """Mean difference over the memories that are alive in both; None where there are not two."""
    kept = differences[torch.isfinite(differences)]
    return bootstrap_mean(kept, seed=seed) if len(kept) >= 2 else None


def _beyond(changes: list[Interval | None], floor: float) -> list[int]:
    """Layers whose whole interval lies on one side of zero and whose mean is beyond the floor."""
    return [i for i, each in enumerate(changes) if each is not None and each.excludes(0) and abs(each.mean) >= floor]


def _change(change: Interval | None) -> str:
    if change is None:
        return ""
    return f" (paired {100 * change.mean:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}] points)"


def _factor(change: Interval | None) -> str:
    if change is None:
        return ""
    return f" (paired, times {math.exp(change.mean):.2f} [{math.exp(change.low):.2f}, {math.exp(change.high):.2f}])"


def _source(result: Result) -> str:
    config = result.config
    return (
        f"(step {result.step}, {result.n_prefixes:,} prefixes of {config.split.value.replace('_', '-')} text, "
        f"seed {config.seed})"
    )


def _layers(layers: list[int]) -> str:
    return ("layer " if len(layers) == 1 else "layers ") + ", ".join(map(str, layers))


def _percent(share: float) -> str:
    return "none" if math.isnan(share) else f"{100 * share:.1f}%"
