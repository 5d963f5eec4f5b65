"""What importance and ablation say of the heads, in sentences that stand alone and deny what was not found.

What an interval leaves open is called not shown, and found is None; "not" alone is said, and found is False, only where
the whole interval speaks for it.
"""

from __future__ import annotations

from analyses.head_importance_result import IMPORTANCE, INVERSE, TRUE, Judged, Ratio, Result
from analyses.registry import Finding
from interp.effect_parts import CONTROL_LEVEL
from interp.places import Intervention, head
from interp.stats import Interval
from interp.wording import nats, nothing_earlier, with_interval

_SUBJECT = {"copy_loss": "copying", "text_loss": "held-out rows"}


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


def _subject(judged: Judged) -> str:
    return _SUBJECT.get(judged.outcome, judged.outcome)


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
    subject, alone = _subject(judged), "the size of what zeroing each alone does"
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
            f"How many heads {_subject(judged)} can do without is not told: the intact model's {judged.clean:.2f} nats "
            f"are hardly better than token frequencies, so there is nothing to lose ({_where(result, judged)})."
        )
        return Finding(sentence=sentence, found=None)
    most, true = tolerance * judged.gain, judged.dispensable(TRUE, tolerance)
    cost = judged.curve(IMPORTANCE).harm[judged.n_removed.index(gone)]
    half = judged.curve(IMPORTANCE).harm[_nearest(judged, 0.5)]
    limit = f"{tolerance:.0%} of what the model gains over token frequencies ({most:.3f} nats)"
    after = f"half of them cost {nats(half)}; in the order of true harms {true} can go ({_where(result, judged)})."
    if gone == 0:
        first = judged.curve(IMPORTANCE).harm[1]
        verb = "cannot" if first.low > most else "are not shown to be able to"
        sentence = (
            f"Even the {judged.n_removed[1]} least important heads {verb} go from {_subject(judged)} for {limit}: they "
            f"cost {nats(first)}; {after}"
        )
        return Finding(sentence=sentence, found=False if first.low > most else None)
    sentence = (
        f"{gone} of {judged.n_heads} heads can go from {_subject(judged)} together, by importance, for at most "
        f"{limit}: they cost {nats(cost)}; {after}"
    )
    return Finding(sentence=sentence, found=True)


def _nearest(judged: Judged, share: float) -> int:
    """The point that is nearest to a share of the heads."""
    return min(range(len(judged.n_removed)), key=lambda at: abs(judged.n_removed[at] - share * judged.n_heads))


def _first_fifth(result: Result, judged: Judged) -> Finding:
    """Whether the least important fifth costs less than sets with as many heads in each layer."""
    matched = judged.matched
    names = ", ".join(head(*each).label for each in matched.heads)
    share = "" if judged.gain is None else f", {abs(matched.harm.mean) / judged.gain:.1%} of the gain"
    opening = f"Zeroed together, the {len(matched.heads)} least important heads for {_subject(judged)} ({names}) change"
    cost = f"{opening} it by {nats(matched.harm)}{share}"
    if matched.p is None or matched.cheaper is None or matched.smallest_p is None:
        none = (
            f"{cost}; no other set has as many heads in each layer, so there is no control ({_where(result, judged)})."
        )
        return Finding(sentence=none, found=None)
    n = len(matched.others)
    beside = (
        f"{matched.cheaper:.0%} of {n} other sets with as many heads in each layer cost more, their median being "
        f"{float(matched.others.quantile(0.5)):.3f} nats (p = {matched.p:.3g})"
    )
    if matched.smallest_p > CONTROL_LEVEL:
        verdict, found = "So few sets cannot decide whether that is special to them.", None
    elif matched.p <= CONTROL_LEVEL:
        verdict, found = "So the gradient finds heads that can go also within layers.", True
    else:
        verdict, found = "So that the gradient finds heads that can go within a layer is not shown.", None
    return Finding(sentence=f"{cost}; {beside} ({_where(result, judged)}). {verdict}", found=found)


def _order(result: Result, judged: Judged) -> Finding:
    """Whether the whole order is better than random ones and than its inverse."""
    area, inverse = judged.curve(IMPORTANCE).area, judged.curve(INVERSE).area
    n, beaten = len(judged.random_areas), judged.beaten_share
    leads = (judged.lead_over_random, judged.lead_over_inverse)
    numbers = (
        f"the area under the curve is {with_interval(area)} nats, that of {n} random orders "
        f"{float(judged.random_areas.mean()):.2f} ({float(judged.random_areas.min()):.2f} to "
        f"{float(judged.random_areas.max()):.2f}; {beaten:.0%} are worse), of the inverse {with_interval(inverse)}, of "
        f"the order by true harms {with_interval(judged.curve(TRUE).area)} ({_where(result, judged)})."
    )
    better = [lead.above(0.0) for lead in leads]
    if all(better) and beaten >= 0.5:
        opening, found = "The order by importance is better than random ones and than its inverse", True
    elif any(each is False for each in better):
        worse = "random ones" if better[0] is False else "its inverse"
        opening, found = f"The order by importance is no better than {worse}", False
    else:
        opening, found = "That the order by importance is better than random ones and its inverse is not shown", None
    return Finding(sentence=f"{opening}, for {_subject(judged)}: {numbers}", found=found)


def _ratio_phrase(ratio: Ratio) -> str:
    fitted = "" if ratio.fitted != ratio.fitted else f", {ratio.fitted:.2f} where it was fitted"
    return f"{_plain(ratio.median)} of {ratio.of}'s (median over {ratio.n_heads} heads{fitted})"


def _spoofing(result: Result, judged: Judged) -> Finding:
    """How much of zero's harm is left with the best constant: the rest was the replacement's own."""
    by = {each.of: each for each in judged.ratios}
    zero = by[Intervention.ZERO]
    if not zero.n_heads:
        sentence = f"No head is sure to harm {_subject(judged)} when zeroed, so no share of its harm can be told"
        return Finding(sentence=f"{sentence} ({_where(result, judged)}).", found=None)
    phrases = [_ratio_phrase(each) for each in judged.ratios if each.n_heads]
    slope = float(judged.slope_left.quantile(0.5))
    tail = (
        f"the harm is {'; '.join(phrases)}; fitting left {slope:.0%} of the slope at the mean (median) "
        f"({_where(result, judged)})."
    )
    found = True if zero.median.high < 1 else False if zero.median.low >= 1 else None
    opening = {
        True: "Part of the harm of zeroing a head is the zero's own, not the head's",
        False: "No part of the harm of zeroing a head is shown to be the zero's own",
        None: "That part of the harm of zeroing a head is the zero's own is not shown",
    }[found]
    return Finding(sentence=f"{opening}, for {_subject(judged)}: with the best constant {tail}", found=found)


def _closest(result: Result, judged: Judged) -> Finding:
    """Which ablation orders the heads most as the optimal one does."""
    zero, mean, resample = (judged.spearman("optimal", each) for each in ("zero", "mean", "resample"))
    numbers = (
        f"rank correlation with the optimal harm {_plain(mean)} for the mean, {_plain(zero)} for zero, "
        f"{_plain(resample)} for resampling ({judged.n_heads} heads; {_where(result, judged)})."
    )
    if mean.low > zero.high:
        opening, found = f"For {_subject(judged)} the mean orders heads more as the best constant does than zero", True
    elif mean.high < zero.low:
        opening, found = f"For {_subject(judged)} zero orders heads more as the best constant does than the mean", False
    else:
        opening = (
            f"For {_subject(judged)} it is not shown whether the mean or zero orders heads more as the best constant"
        )
        found = None
    return Finding(sentence=f"{opening}: {numbers}", found=found)
