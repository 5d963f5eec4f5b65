"""What is said of the stream before and behind FFNs, denials included (for `analyses.composition.findings`)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from analyses.composition.measuring import HALF, KEPT, RARE
from analyses.composition.result import Measured, Result
from analyses.composition.wording import (
    Beyond,
    about_layers,
    at_start,
    resting_on,
    sides,
    verdict_of,
    what_is_missing,
)
from analyses.registry import Finding
from analyses.wording import named_layers, percent, share_of
from interp.ffn_composed import Case
from interp.stats import Intervals

FALL = 0.02
"""A fall of the residual agreement from one layer to the next that is no rise any more."""


def refined_finding(result: Result) -> Finding:
    """Whether the model's token comes up layer by layer, further than before training."""
    now, last = result.now, result.n_layers - 1
    behind = f"before the last FFN {share_of(now.residual_agreement[last])} of predictions are made"
    if now.rise is None:
        return Finding(sentence=f"There is one FFN, and so no rise; {behind} ({resting_on(result)}).", found=None)
    sure = (now.p_steps < result.config.alpha).tolist()
    falls = [layer for layer in range(last) if sure[layer] and now.steps[layer].high < -FALL]
    steady = all(now.steps[layer].low > -FALL for layer in range(last))
    found = False if falls or now.rise.high <= 0 else True if now.rise.low > 0 and steady else None
    but = what_is_missing(result, _further_than_at_start(result, now.rise.mean)) if found else ""
    opening = {
        True: f"The model's token comes up layer by layer{but}",
        False: "The model's token does not come up layer by layer",
        None: "That the model's token comes up layer by layer, and in none falls back, is not shown",
    }[found]
    opening += f" (behind {named_layers(falls)} it falls by more than {100 * FALL:.0f} points)" if falls else ""

    def of(layer: int) -> str:
        start = at_start(result, lambda start: start.residual_agreement.mean[layer])
        probability = percent(now.residual_probability.mean[layer])
        return f"layer {layer} {share_of(now.residual_agreement[layer])} (its probability {probability}{start})"

    opening += "; the stream that each FFN reads has it on top"
    after = f"{behind}, and half of them for good {_half(now)}"
    return about_layers(result, (None if but else found, opening), of, now.residual_agreement.mean, after=after)


def _further_than_at_start(result: Result, rise: float) -> Beyond | None:
    start = result.at_step_zero
    if start is None or start.rise is None or result.since_start is None:
        return None
    further = rise > start.rise.mean and result.since_start.p_rise < result.config.alpha
    return Beyond("further than at step 0", range(result.n_layers) if further else ())


def _half(found: Measured) -> str:
    """From where on half of the predictions stay."""
    behind = found.saturation[0].cumsum(0)
    layer = int((behind * 2 < behind[-1]).sum())
    return f"before layer {layer}'s" if layer < len(behind) - 1 else "by the last FFN only"


def kept_finding(result: Result) -> Finding:
    """Whether the stream's token mostly stays (residual and agreement), more than with another prefix's update."""
    kept, kept_other = (_kept(cases) for cases in (result.now.breakdown, result.now.breakdown_other))
    more, _ = sides(kept - kept_other, 0.0, result.now.p_kept_other, result.config.alpha)
    above, below = sides(kept, KEPT, result.now.p_kept, result.config.alpha)
    level = f"{100 * KEPT:.0f}% of cases"
    found, opening = verdict_of(
        result,
        (above, below),
        Beyond("more than with another prefix's update", more),
        holds=f"the stream's token stays on top in more than {level}",
        fails=f"the stream's token stays on top in fewer than {level}",
    )

    def of(layer: int) -> str:
        cases = list(Case)[:4]
        shares = ", ".join(f"{case.name.lower()} {share_of(result.now.breakdown[case, layer])}" for case in cases)
        other, dealt = percent(kept_other[layer]), percent(_kept(result.now.breakdown_dealt)[layer])
        start = at_start(result, lambda start: _kept(start.breakdown)[layer])
        beside = f"stays with another prefix's update {other}, with the layer's values permuted {dealt}{start}"
        return f"layer {layer} {shares} ({beside})"

    return about_layers(result, (found, opening), of, kept)


def _kept(breakdown: Intervals) -> Float[Tensor, " layer"]:
    return breakdown.mean[Case.RESIDUAL] + breakdown.mean[Case.AGREEMENT]


def ffn_finding(result: Result) -> Finding:
    """Whether an FFN's own token hardly ever takes the stream's place, less than another prefix's would."""
    now = result.now
    ffn, ffn_other = now.breakdown.mean[Case.FFN], now.breakdown_other.mean[Case.FFN]
    _, fewer = sides(ffn - ffn_other, 0.0, now.p_ffn_other, result.config.alpha)
    above, below = sides(ffn, RARE, now.p_ffn, result.config.alpha)
    level = f"{100 * RARE:.0f}% of cases"
    found, opening = verdict_of(
        result,
        (below, above),
        Beyond("fewer than with another prefix's update", fewer),
        holds=f"the FFN's own token replaces the stream's in fewer than {level}",
        fails=f"the FFN's own token replaces the stream's in more than {level}",
    )

    def of(layer: int) -> str:
        start = at_start(result, lambda start: start.breakdown.mean[Case.FFN, layer])
        own, other = share_of(now.breakdown[Case.FFN, layer]), percent(ffn_other[layer])
        return f"layer {layer} {own} (another prefix's {other}{start})"

    return about_layers(result, (found, opening), of, ffn)


def composed_finding(result: Result) -> Finding:
    """Whether changes of the stream's token are mostly to a third one, more than with another prefix's update."""
    share, other = result.now.composed_changes, result.now.composed_changes_other
    alpha = result.config.alpha
    found = share.mean > HALF if result.now.p_composed < alpha else None
    more = share.mean > other.mean and result.now.p_composed_other < alpha
    beyond = Beyond("more than with another prefix's update", range(result.n_layers) if more else ())
    but = what_is_missing(result, beyond) if found else ""
    opening = {
        True: f"Where an FFN changes the stream's token, it is mostly to a third one that neither has on top{but}",
        False: "Where an FFN changes the stream's token, it is mostly to its own",
        None: "Whether an FFN that changes the stream's token mostly makes a third one is open",
    }[found]
    start = at_start(result, lambda start: start.composed_changes.mean)
    beside = f"with another prefix's update {share_of(other)}{start}; {resting_on(result)}"
    return Finding(sentence=f"{opening}: {share_of(share)} of changes ({beside}).", found=None if but else found)


def undone_finding(result: Result) -> Finding:
    """How often a final LayerNorm's bias undoes what stream and update agree on: a count, no finding."""
    undone = result.now.breakdown.mean[Case.IMPOSSIBLE]
    opening = (
        "Stream and update agree on a token and their sum says another"
        if bool(undone.any())
        else "Nowhere do stream and update agree on a token and their sum says another"
    )

    def of(layer: int) -> str:
        return f"layer {layer} {share_of(result.now.breakdown[Case.IMPOSSIBLE, layer])}"

    why = "the final LayerNorm's bias is added behind its scale, and so counts for more against a larger stream"
    return about_layers(result, (None, opening), of, undone, after=why)
