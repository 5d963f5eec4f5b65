"""What is said of the stream before and behind FFNs, denials included (for `analyses.ffn_composition_findings`)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from analyses.ffn_composition_measuring import HALF, KEPT, RARE
from analyses.ffn_composition_result import Measured, Result
from analyses.ffn_composition_wording import (
    at_start,
    each_layer,
    named_layers,
    percent,
    resting_on,
    share_of,
    sides,
    verdict_of,
)
from analyses.registry import Finding
from interp.ffn_composed import Case
from interp.stats import Intervals

FALL = 0.02
"""A fall of the residual agreement from one layer to the next that is no rise any more."""


def refined_finding(result: Result) -> Finding:
    """Whether the model's token comes up layer by layer."""
    now, last = result.now, result.n_layers - 1
    behind = f"before the last FFN {share_of(now.residual_agreement[last])} of predictions are made"
    if now.rise is None:
        return Finding(sentence=f"There is one FFN, and so no rise; {behind} ({resting_on(result)}).", found=None)
    sure = (now.p_steps < result.config.alpha).tolist()
    falls = [layer for layer in range(last) if sure[layer] and now.steps[layer].high < -FALL]
    steady = all(now.steps[layer].low > -FALL for layer in range(last))
    found = False if falls or now.rise.high <= 0 else True if now.rise.low > 0 and steady else None
    opening = {
        True: "The model's token comes up layer by layer",
        False: "The model's token does not come up layer by layer",
        None: "That the model's token comes up layer by layer, and in none falls back, is not shown",
    }[found]
    opening += f" (behind {named_layers(falls)} it falls by more than {100 * FALL:.0f} points)" if falls else ""

    def of(layer: int) -> str:
        start = at_start(result, lambda start: start.residual_agreement.mean[layer])
        probability = percent(now.residual_probability.mean[layer])
        return f"layer {layer} {share_of(now.residual_agreement[layer])} (its probability {probability}{start})"

    each = each_layer(result, of, now.residual_agreement.mean)
    sentence = (
        f"{opening}: the stream that the FFN reads has it on top in {each}; {behind}, and half of them for good "
        f"{_half(now)} ({resting_on(result)})."
    )
    return Finding(sentence=sentence, found=found)


def _half(found: Measured) -> str:
    """From where on half of the predictions stay."""
    behind = found.saturation[0].cumsum(0)
    layer = int((behind * 2 < behind[-1]).sum())
    return f"before layer {layer}'s" if layer < len(behind) - 1 else "by the last FFN only"


def kept_finding(result: Result) -> Finding:
    """Whether most cases are those in which the stream's token stays: residual and agreement."""
    kept = _kept(result.now.breakdown)
    above, below = sides(kept, KEPT, result.now.p_kept, result.config.alpha)
    level = f"{100 * KEPT:.0f}% of cases"
    found, opening = verdict_of(
        result,
        (above, below),
        holds=f"the stream's token is kept in more than {level}",
        fails=f"the stream's token is kept in fewer than {level}",
    )

    def of(layer: int) -> str:
        cases = list(Case)[:4]
        shares = ", ".join(f"{case.name.lower()} {share_of(result.now.breakdown[case, layer])}" for case in cases)
        other, dealt = (percent(_kept(of)[layer]) for of in (result.now.breakdown_other, result.now.breakdown_dealt))
        start = at_start(result, lambda start: _kept(start.breakdown)[layer])
        return f"layer {layer} {shares} (kept with another prefix's update {other}, with dealt values {dealt}{start})"

    return Finding(sentence=f"{opening}: {each_layer(result, of, kept)} ({resting_on(result)}).", found=found)


def _kept(breakdown: Intervals) -> Float[Tensor, " layer"]:
    return breakdown.mean[Case.RESIDUAL] + breakdown.mean[Case.AGREEMENT]


def ffn_finding(result: Result) -> Finding:
    """Whether an FFN's own token hardly ever takes the stream's place."""
    now = result.now
    ffn = now.breakdown.mean[Case.FFN]
    above, below = sides(ffn, RARE, now.p_ffn, result.config.alpha)
    level = f"{100 * RARE:.0f}% of cases"
    found, opening = verdict_of(
        result,
        (below, above),
        holds=f"the FFN's own token replaces the stream's in fewer than {level}",
        fails=f"the FFN's own token replaces the stream's in more than {level}",
    )

    def of(layer: int) -> str:
        other = percent(now.breakdown_other.mean[Case.FFN, layer])
        start = at_start(result, lambda start: start.breakdown.mean[Case.FFN, layer])
        return f"layer {layer} {share_of(now.breakdown[Case.FFN, layer])} (another prefix's {other}{start})"

    return Finding(sentence=f"{opening}: {each_layer(result, of, ffn)} ({resting_on(result)}).", found=found)


def composed_finding(result: Result) -> Finding:
    """Whether changes of the stream's token are mostly to a third one."""
    share, other = result.now.composed_changes, result.now.composed_changes_other
    found = share.above(HALF)
    opening = {
        True: "Where an FFN changes the stream's token, it is mostly to a third one that neither has on top",
        False: "Where an FFN changes the stream's token, it is mostly to its own",
        None: "Whether an FFN that changes the stream's token mostly makes a third one is open",
    }[found]
    start = at_start(result, lambda start: start.composed_changes.mean)
    beside = f"with another prefix's update {share_of(other)}{start}; {resting_on(result)}"
    return Finding(sentence=f"{opening}: {share_of(share)} of changes ({beside}).", found=found)


def undone_finding(result: Result) -> Finding:
    """How often a final LayerNorm's bias undoes what stream and update agree on."""
    undone = result.now.breakdown.mean[Case.IMPOSSIBLE]
    found = bool(undone.any())
    opening = (
        "Stream and update agree on a token and their sum says another"
        if found
        else "Nowhere do stream and update agree on a token and their sum says another"
    )

    def of(layer: int) -> str:
        return f"layer {layer} {share_of(result.now.breakdown[Case.IMPOSSIBLE, layer])}"

    why = "the final LayerNorm's bias is added behind its scale, and so counts for more against a larger stream"
    each = each_layer(result, of, undone)
    return Finding(sentence=f"{opening}: {each}; {why} ({resting_on(result)}).", found=found)
