"""What is said of how FFN layers' predictions are composed, denials included (for `analyses.ffn_composition`).

Claims are about every layer (`analyses.composition.wording`), and each number stands beside step 0 and a control.
"""

from __future__ import annotations

from analyses.composition.measuring import HALF
from analyses.composition.result import Measured, Result
from analyses.composition.stream_findings import (
    composed_finding,
    ffn_finding,
    kept_finding,
    refined_finding,
    undone_finding,
)
from analyses.composition.update_findings import carried_finding, promoted_finding
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
from analyses.wording import named_layers, percent, share_of
from interp.ffn_composed import Counted

_PLACE = {counted: place for place, counted in enumerate(Counted)}


def sentences(result: Result) -> list[Finding]:
    """Memories first, then the stream, then what the two make of each other."""
    said = [active_finding(result), zero_finding(result), targets_finding(result), refined_finding(result)]
    said += [kept_finding(result), ffn_finding(result), composed_finding(result)]
    said += [] if result.linear else [undone_finding(result)]
    return [*said, carried_finding(result), promoted_finding(result)]


def active_finding(result: Result) -> Finding:
    """Whether fewer than half of a layer's memories are active at a prefix, and fewer than before training."""
    now = result.now
    above, below = sides(now.active.mean, HALF, now.p_active, result.config.alpha)
    since = None if result.since_start is None else result.since_start.p_active
    found, opening = verdict_of(
        result,
        (below, above),
        since_start(result, "fewer than at step 0", lambda each: -each.active.mean, since),
        holds="fewer than half of the memories are active (m > 0)",
        fails="more than half of the memories are active (m > 0)",
    )

    def of(layer: int) -> str:
        low, high = (f"{100 * float(now.active_quartiles[place, layer]):.0f}" for place in (0, 2))
        start = at_start(result, lambda start: start.active.mean[layer])
        return (
            f"layer {layer} {share_of(now.active[layer])}, {low} to {high}% in the middle half of prefixes{start}; |m| "
            f"is above {result.config.strong:g} of its largest in {percent(now.strong.mean[layer])}, and "
            f"{percent(now.carrying.mean[layer])} hold 90% of |m||v|"
        )

    natural = "" if result.ffn == "relu" else f"; under {result.ffn} zero is no natural bound, so see the large ones"
    n_dead, n = int(now.dead.sum()), result.n_layers * result.n_memories
    after = f"{n_dead:,} of {n:,} memories never fire on this sample{natural}"
    return about_layers(result, (found, opening), of, now.active.mean, after=after)


def zero_finding(result: Result) -> Finding:
    """Whether most predictions of a layer are those of none of its active memories, more than with values permuted."""
    now, place = result.now, _PLACE[Counted.ACTIVE]
    zero = now.zero_agreement.mean
    above, below = sides(zero[place], HALF, now.p_zero, result.config.alpha)
    dealt = now.zero_agreement_dealt.mean[place]
    more, fewer = sides(zero[place] - dealt, 0.0, now.p_zero_dealt, result.config.alpha)
    found, opening = verdict_of(
        result,
        (above, below),
        Beyond("more than with values permuted among its memories", more),
        holds="most predictions are those of no active memory",
        fails="most predictions are those of an active memory, too",
    )

    def of(layer: int) -> str:
        every, signed = (percent(zero[_PLACE[kind], layer]) for kind in (Counted.ALL, Counted.SIGNED))
        start = at_start(result, lambda start: start.zero_agreement.mean[place, layer])
        return (
            f"layer {layer} {share_of(now.zero_agreement[place, layer])} (of no memory at all {every}, of none by the "
            f"sign of its coefficient {signed}; with values permuted {percent(dealt[layer])}{start})"
        )

    what = "the layer's top token is no active memory's top token"
    after = f"in {named_layers(fewer)} some memory agrees more often than with values permuted" if fewer else ""
    return about_layers(result, (found, f"{opening} ({what})"), of, zero[place], after=after)


def targets_finding(result: Result) -> Finding:
    """Whether the tokens that memories agree with are the common ones, more than before training."""
    found = result.now.targets
    if found.common is None or found.short is None:
        said = "About which tokens memories agree with their layer is not asked: no active one agrees anywhere"
        return Finding(sentence=f"{said} ({resting_on(result)}).", found=None)
    (own, every), (short, any_length) = found.common, found.short
    sure = found.p_common < result.config.alpha
    verdict = own.mean > every.mean if sure else None
    but = what_is_missing(result, _more_common_since_start(result)) if verdict else ""
    claim = "emories agree with their layer about common tokens more than about others"
    opening = {
        True: f"M{claim}{but}",
        False: "Memories agree with their layer about common tokens less than about others",
        None: f"That m{claim} is not shown",
    }[verdict]
    start = None if result.at_step_zero is None else result.at_step_zero.targets.common
    before = "" if start is None else f" (at step 0 {percent(start[0].mean)} and {percent(start[1].mean)})"
    sentence = (
        f"{opening}: the {found.n_common} tokens that make up half of the text are {share_of(own)} of the tokens that "
        f"an active memory agrees with, and {share_of(every)} of all that layers say{before}; {share_of(short)} and "
        f"{share_of(any_length)} are at prefixes of fewer than five tokens ({found.n_agreeing:,} of {found.n:,} pairs "
        f"of prefix and layer; {resting_on(result)})."
    )
    return Finding(sentence=sentence, found=None if but else verdict)


def _more_common_since_start(result: Result) -> Beyond | None:
    """Whether agreeing makes more of a difference than at step 0; where no memory agreed there it cannot be told."""
    if result.since_start is None or result.at_step_zero is None:
        return None

    def gained(measured: Measured) -> float:
        both = measured.targets.common
        return 0.0 if both is None else both[0].mean - both[1].mean

    more = gained(result.now) > gained(result.at_step_zero) and result.since_start.p_common < result.config.alpha
    return Beyond("more than at step 0", range(result.n_layers) if more else ())
