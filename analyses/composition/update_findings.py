"""What is said of single sub-updates, denials included (for `analyses.composition.findings`)."""

from __future__ import annotations

import math

from analyses.composition.measuring import HALF
from analyses.composition.result import Promotion, Result
from analyses.composition.wording import (
    Beyond,
    about_layers,
    at_start,
    resting_on,
    sides,
    since_start,
    verdict_of,
    what_is_missing,
)
from analyses.registry import Finding
from analyses.wording import share_of
from interp.stats import Interval
from interp.sub_updates import N_DOMINANT
from interp.wording import nothing_earlier, with_interval


def carried_finding(result: Result) -> Finding:
    """Whether ten sub-updates are more than half of what a layer writes, and more than before training."""
    now = result.now.sub_updates
    place = max((place for place, k in enumerate(now.ks) if k <= N_DOMINANT), default=0)
    k, squares = now.ks[place], now.top.r_squared
    above, below = sides(squares.mean[place], HALF, now.p_half, result.config.alpha)
    since = None if result.since_start is None else result.since_start.p_carried
    which = f"the {k} largest of {result.n_memories} sub-updates"
    found, opening = verdict_of(
        result,
        (above, below),
        since_start(result, "more than at step 0", lambda each: each.sub_updates.top.r_squared.mean[place], since),
        holds=f"{which} are more than half of the update",
        fails=f"{which} are less than half of the update",
    )

    def of(layer: int) -> str:
        random, effect = now.random.r_squared[place, layer], now.top.effect_share[place, layer]
        start = at_start(result, lambda start: start.sub_updates.top.r_squared.mean[place, layer])
        return (
            f"layer {layer} {share_of(squares[place, layer])}, of {k} at random {share_of(random)}{start} "
            f"({_effect(effect)})"
        )

    return about_layers(result, (found, f"{opening} (by R^2)"), of, squares.mean[place])


def _effect(share: Interval) -> str:
    if math.isinf(share.low) or math.isinf(share.high):
        return "the whole effect on the model's token may be of either sign, so it has no shares"
    return f"{share_of(share)} of the effect on the model's token"


def promoted_finding(result: Result) -> Finding:
    """Whether a prediction is promoted, or its rival lowered, where an FFN brings it to the top.

    Promotion lifts this prediction, and not only what is often predicted: it rises more than another prefix's. And it
    makes up more than at step 0, where it makes up more than half as well: what comes up has been chosen by its rise.
    """
    found = result.now.promotion
    if found is None:
        said = "Whether FFNs promote the model's token or lower its rival is not asked: hardly any brings it to the top"
        return Finding(sentence=f"{said} ({resting_on(result)}).", found=None)
    share, alpha = found.promoted_share, result.config.alpha
    verdict = share.mean > HALF if found.p_promoted < alpha else None
    further = float(found.total.mean[0]) > float(found.total.mean[2]) and found.p_another < alpha
    beyond = Beyond("by more than another prefix's", range(result.n_layers) if further else ())
    but = (what_is_missing(result, beyond) or _unlike_start(result, found)) if verdict else ""
    opening = {
        True: f"FFNs bring the model's token to the top by promoting it more than by lowering its rival{but}",
        False: "FFNs bring the model's token to the top by lowering its rival more than by promoting it",
        None: "Whether FFNs bring the model's token to the top by promoting it or by lowering its rival is open",
    }[verdict]
    start = None if result.at_step_zero is None else result.at_step_zero.promotion
    before = nothing_earlier(result.step) if result.at_step_zero is None else "at step 0 there are no such events"
    if start is not None:
        before = f"at step 0 {share_of(start.promoted_share)} of {start.n_events:,} events"
    own, rival, other = (with_interval(found.total[place]) for place in range(3))
    sentence = (
        f"{opening}: of that token's rises and the falls of the one it displaces, {share_of(share)} are rises "
        f"({before}). It rises by {own} logits against the vocabulary's mean, the displaced token by {rival}, another "
        f"prefix's by {other}; each of the ten largest sub-updates adds {with_interval(found.dominant[0])}, each of "
        f"ten at random {with_interval(found.random[0])} (p = {found.p_dominant:.2g}; n = "
        f"{found.n_events:,} events; {resting_on(result)})."
    )
    return Finding(sentence=sentence, found=None if but else verdict)


def _unlike_start(result: Result, found: Promotion) -> str:
    """Why it may be no more than at step 0; empty where it surely is."""
    start = result.at_step_zero
    if start is not None and start.promotion is None:
        return "; whether training made it so cannot be told (there are hardly any such events at step 0)"
    if start is None or start.promotion is None or result.since_start is None:
        return what_is_missing(result, None)
    more = found.promoted_share.mean > start.promotion.promoted_share.mean
    sure = result.since_start.p_promoted < result.config.alpha
    return what_is_missing(result, Beyond("more than at step 0", range(result.n_layers) if more and sure else ()))
