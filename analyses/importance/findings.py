"""What importance and ablation say of the heads, in sentences that stand alone and deny what was not found.

What an interval leaves open is called not shown, and found is None; "not" alone is said, and found is False, only where
the whole interval speaks for it.
"""

from __future__ import annotations

from analyses.importance.result import IMPORTANCE, INVERSE, TRUE, Judged, Result
from analyses.registry import Finding
from interp.effect_parts import CONTROL_LEVEL
from interp.places import Intervention, head
from interp.stats import Interval
from interp.wording import nats, nothing_earlier, p_phrase


def sentences(result: Result) -> list[Finding]:
    """For each outcome: what the gradient knows, how many heads can go, the first fifth, the order, the constants."""
    return [
        finding
        for judged in result.judged
        for finding in (
            _agreement(result, judged),
            _dispensable(result, judged),
            _first_fifth(result, judged),
            _order(result, judged),
            _spoofing(result, judged),
            _closest(result, judged),
        )
    ]


def _where(result: Result, judged: Judged) -> str:
    period = f", period {result.period}" if judged.outcome == "copy_loss" else ""
    return f"{result.run}@{result.step}{period}, n = {judged.importance.n}, seed {result.config.seed}"


def _ordered(result: Result, judged: Judged) -> str:
    """The same of what depends on the order by importance, which is made on others."""
    return f"heads ordered on {judged.n_reference} other sequences; {_where(result, judged)}"


def _plain(interval: Interval) -> str:
    return f"{interval:.2f}"


def _agreement(result: Result, judged: Judged) -> Finding:
    """Whether the gradient orders heads as the size of what zeroing each alone does; it tells no sign."""
    rho, least = judged.spearman("importance", "size of zero"), result.config.least_agreement
    start = judged.at_step_zero
    before = nothing_earlier(result.step) if start is None else f"{_plain(start.spearman)} at step 0"
    tail = (
        f"rank correlation {_plain(rho)} over {judged.n_heads} heads, where {least:g} was asked for "
        f"({before}; {_where(result, judged)})."
    )
    found = rho.above(least)
    subject, alone = judged.subject, "the size of what zeroing each alone does"
    opening = {
        True: f"A gradient orders the heads for {subject} as {alone}",
        False: f"A gradient does not order the heads for {subject} as {alone}",
        None: f"That a gradient orders the heads for {subject} as {alone} is not shown",
    }[found]
    return Finding(sentence=f"{opening}: {tail}", found=found)


def _dispensable(result: Result, judged: Judged) -> Finding:
    """How many heads can go, by importance and by true harm."""
    tolerance = result.config.tolerance
    gone = judged.dispensable(IMPORTANCE, tolerance)
    if gone is None or judged.gain is None:
        sentence = (
            f"How many heads {judged.subject} can do without is not told: the intact model's {judged.clean:.2f} nats "
            f"are hardly better than token frequencies, so there is nothing to lose ({_where(result, judged)})."
        )
        return Finding(sentence=sentence, found=None)
    most, true = tolerance * judged.gain, judged.dispensable(TRUE, tolerance)
    cost = judged.curve(IMPORTANCE).harm[judged.n_removed.index(gone)]
    limit = f"{tolerance:.0%} of what the model gains over token frequencies ({most:.3f} nats)"
    after = f"in the order of true harms {true} can go ({_ordered(result, judged)})."
    if gone == 0:
        first = judged.curve(IMPORTANCE).harm[1]
        verb = "cannot" if first.low > most else "are not shown to be able to"
        sentence = (
            f"Even the {judged.n_removed[1]} least important heads {verb} go from {judged.subject} for {limit}: they "
            f"cost {nats(first)}; {after}"
        )
        return Finding(sentence=sentence, found=False if first.low > most else None)
    sentence = (
        f"{gone} of {judged.n_heads} heads can go from {judged.subject} together, by importance, for at most "
        f"{limit}: they cost {nats(cost)}; {after}"
    )
    return Finding(sentence=sentence, found=True)


def _first_fifth(result: Result, judged: Judged) -> Finding:
    """Whether the least important fifth costs less than sets with as many heads in each layer."""
    matched = judged.matched
    names = ", ".join(head(*each).label for each in matched.heads)
    share = "" if judged.gain is None else f", {abs(matched.harm.mean) / judged.gain:.1%} of the gain"
    opening = f"Zeroed together, the {len(matched.heads)} least important heads for {judged.subject} ({names}) change"
    cost = f"{opening} it by {nats(matched.harm)}{share}"
    if matched.p is None or matched.cheaper is None or matched.smallest_p is None:
        none = (
            f"{cost}; no other set has as many heads in each layer, so there is no control "
            f"({_ordered(result, judged)})."
        )
        return Finding(sentence=none, found=None)
    n = len(matched.others)
    beside = (
        f"{round(matched.cheaper * n)} of {n} other sets with as many heads in each layer cost more "
        f"({p_phrase(matched.p, matched.smallest_p)}; their median {float(matched.others.quantile(0.5)):.3f} nats)"
    )
    if matched.smallest_p > CONTROL_LEVEL:
        verdict, found = "So few sets cannot decide whether that is special to them.", None
    elif matched.p <= CONTROL_LEVEL:
        verdict, found = "So the gradient finds heads that can go also within layers.", True
    else:
        verdict, found = "So that the gradient finds heads that can go within a layer is not shown.", None
    return Finding(sentence=f"{cost}; {beside} ({_ordered(result, judged)}). {verdict}", found=found)


def _order(result: Result, judged: Judged) -> Finding:
    """Whether the whole order is better than random ones and than its inverse."""
    n, worse = len(judged.random_areas), round(judged.beaten_share * len(judged.random_areas))
    leads = (judged.lead_over_random, judged.lead_over_inverse)
    better, few = [lead.above(0.0) for lead in leads], 1 / (1 + n) > CONTROL_LEVEL
    numbers = (
        f"averaged over how many heads are gone, it costs {nats(judged.curve(IMPORTANCE).area)}, its inverse "
        f"{nats(judged.curve(INVERSE).area)}, and {worse} of {n} random orders cost more "
        f"({p_phrase(judged.p_random, 1 / (1 + n), '.2g')}{', too few to decide' if few else ''}; "
        f"{_ordered(result, judged)})."
    )
    if all(better) and judged.p_random <= CONTROL_LEVEL:
        opening, found = "The order by importance is better than random ones and than its inverse", True
    elif any(each is False for each in better):
        than = "random ones are on average" if better[0] is False else "its inverse"
        opening, found = f"The order by importance is no better than {than}", False
    else:
        opening, found = "That the order by importance is better than random ones and its inverse is not shown", None
    return Finding(sentence=f"{opening}, for {judged.subject}: {numbers}", found=found)


def _spoofing(result: Result, judged: Judged) -> Finding:
    """How much of zero's harm is left with the best constant: the rest was the replacement's own."""
    by = {each.of: each for each in judged.ratios}
    zero = by[Intervention.ZERO]
    if not zero.n_heads:
        sentence = f"No head is sure to harm {judged.subject} when zeroed, so no share of its harm can be told"
        return Finding(sentence=f"{sentence} ({_where(result, judged)}).", found=None)
    mean = by[Intervention.MEAN]
    beside = f", and {_plain(mean.median)} of the mean's ({mean.n_heads} heads)" if mean.n_heads else ""
    tail = (
        f"the harm is {_plain(zero.median)} of zero's (median over {zero.n_heads} heads; {zero.fitted:.2f} where it "
        f"was fitted){beside} (heads chosen on {judged.n_reference} other sequences; {_where(result, judged)})."
    )
    found = True if zero.median.high < 1 else False if zero.median.low >= 1 else None
    opening = {
        True: "Part of the harm of zeroing a head is the zero's own, not the head's",
        False: "No part of the harm of zeroing a head is shown to be the zero's own",
        None: "That part of the harm of zeroing a head is the zero's own is not shown",
    }[found]
    return Finding(sentence=f"{opening}, for {judged.subject}: with the best constant {tail}", found=found)


def _closest(result: Result, judged: Judged) -> Finding:
    """Which ablation orders the heads most as the optimal one does."""
    zero, mean, resample = (judged.spearman("optimal", each) for each in ("zero", "mean", "resample"))
    numbers = (
        f"rank correlation with the optimal harm {_plain(mean)} for the mean, {_plain(zero)} for zero, "
        f"{_plain(resample)} for resampling ({judged.n_heads} heads; {_where(result, judged)})."
    )
    if mean.low > zero.high:
        opening, found = f"For {judged.subject} the mean orders heads more as the best constant does than zero", True
    elif mean.high < zero.low:
        opening, found = f"For {judged.subject} zero orders heads more as the best constant does than the mean", False
    else:
        opening = (
            f"For {judged.subject} it is not shown whether the mean or zero orders heads more as the best constant"
        )
        found = None
    return Finding(sentence=f"{opening}: {numbers}", found=found)
