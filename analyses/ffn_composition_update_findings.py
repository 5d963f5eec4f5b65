"""What is said of single sub-updates, denials included (for `analyses.ffn_composition_findings`)."""

from __future__ import annotations

import math

from analyses.ffn_composition_measuring import HALF
from analyses.ffn_composition_result import Result
from analyses.ffn_composition_wording import at_start, each_layer, resting_on, share_of, sides, verdict_of
from analyses.registry import Finding
from interp.stats import Interval
from interp.sub_updates import N_DOMINANT
from interp.wording import nothing_earlier, with_interval


def carried_finding(result: Result) -> Finding:
    """Whether ten sub-updates are more than half of what a layer writes."""
    now = result.now.sub_updates
    place = max((place for place, k in enumerate(now.ks) if k <= N_DOMINANT), default=0)
    k, squares = now.ks[place], now.top.r_squared
    above, below = sides(squares.mean[place], HALF, now.p_half, result.config.alpha)
    which = f"the {k} largest of {result.n_memories} sub-updates"
    found, opening = verdict_of(
        result,
        (above, below),
        holds=f"{which} are more than half of what is written",
        fails=f"{which} are less than half of what is written",
    )

    def of(layer: int) -> str:
        random, effect = now.random.r_squared[place, layer], now.top.effect_share[place, layer]
        start = at_start(result, lambda start: start.sub_updates.top.r_squared.mean[place, layer])
        return (
            f"layer {layer} {share_of(squares[place, layer])}, of {k} at random {share_of(random)}{start} "
            f"({_effect(effect)})"
        )

    each = each_layer(result, of, squares.mean[place])
    return Finding(sentence=f"{opening} (R^2 of the update): {each} ({resting_on(result)}).", found=found)


def _effect(share: Interval) -> str:
    if math.isinf(share.low) or math.isinf(share.high):
        return "the whole effect on the model's token may be of either sign, so it has no shares"
    return f"{share_of(share)} of the effect on the model's token"


def promoted_finding(result: Result) -> Finding:
    """Whether a prediction is promoted, or its rival lowered, where an FFN brings it to the top."""
    found = result.now.promotion
    if found is None:
        said = "Whether FFNs promote the model's token or lower its rival is not asked: hardly any brings it to the top"
        return Finding(sentence=f"{said} ({resting_on(result)}).", found=None)
    verdict = found.promoted_share.above(HALF)
    opening = {
        True: "FFNs bring the model's token to the top by promoting it more than by lowering its rival",
        False: "FFNs bring the model's token to the top by lowering its rival more than by promoting it",
        None: "Whether FFNs bring the model's token to the top by promoting it or by lowering its rival is open",
    }[verdict]
    start = None if result.at_step_zero is None else result.at_step_zero.promotion
    before = nothing_earlier(result.step) if result.at_step_zero is None else "at step 0 there are no such events"
    if start is not None:
        before = f"at step 0 {share_of(start.promoted_share)} of {start.n_events} events"
    also = ", more than all of it, as the displaced token rises too" if found.promoted_share.low > 1 else ""
    own, rival, other = (with_interval(found.total[place]) for place in range(3))
    sentence = (
        f"{opening}: of what it gains on the token it displaces {share_of(found.promoted_share)} is its own rise{also} "
        f"({before}). It rises by {own} logits against the vocabulary's mean, the displaced token by {rival}, another "
        f"prefix's by {other}; each of the ten largest sub-updates adds {with_interval(found.dominant[0])}, each of "
        f"ten at random {with_interval(found.random[0])} (p = {found.p_dominant:.2g} by sign flips; n = "
        f"{found.n_events:,} events; {resting_on(result)})."
    )
    return Finding(sentence=sentence, found=verdict)
