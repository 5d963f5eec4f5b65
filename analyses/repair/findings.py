"""What a study of self-repair says, in sentences that stand alone and deny what was not found.

A share made good is claimed only of heads that add something by themselves: those whose direct effect's whole interval
lies beyond the floor. That it is so of any head is found only by a p corrected over all heads (Holm), that it is so of
none only where every head's interval says so. What is left open is called not shown, and found is None.
"""

from __future__ import annotations

from analyses.registry import Finding
from analyses.repair.result import COPIED, TOP, Repairs, Result
from interp.repaired import PARTS, Part
from interp.stats import Interval
from interp.wording import NO_ENDS, has_ends, nothing_earlier, number, with_interval

_NORM = PARTS.index(Part.FINAL_NORM)


def sentences(result: Result) -> list[Finding]:
    """What is made good on copied tokens and on top tokens, by the norm alone, by pairs, and by the induction heads."""
    return [
        _made_good(result, COPIED),
        _made_good(result, TOP),
        _norm(result),
        _line(result),
        _pairs(result),
        _induction(result),
    ]


def adding(repairs: Repairs, floor: float) -> list[int]:
    """The heads that raise the right token's logit by themselves: their direct effect falls by more than the floor."""
    return [row for row in repairs.heads() if repairs.numbers.direct[row].high < -floor]


def _where(result: Result, n: int) -> str:
    return f"{result.run}@{result.step}, period {result.period}, n = {n} sequences, seed {result.config.seed}"


def _corrected(result: Result, repairs: Repairs) -> str:
    return f"Holm over {len(repairs.heads())} heads at {result.config.alpha:g}"


def percent_of(share: Interval) -> str:
    """A share in percent with its interval; in words where that has no ends."""
    if not has_ends(share):
        return f"{_rounded(share.mean)}% ({NO_ENDS})"
    return f"{_rounded(share.mean)}% [{_rounded(share.low)}%, {_rounded(share.high)}%]"


def _rounded(share: float) -> str:
    return f"{100 * share:.0f}".replace("-0", "0") if abs(share) < 0.005 else f"{100 * share:.0f}"


def _made_good(result: Result, tokens: str) -> Finding:
    """Whether any head that adds to these tokens is made good in part, by Holm over all heads."""
    repairs, config = result.on(tokens), result.config
    rows, numbers = adding(repairs, config.floor), repairs.numbers
    where = _where(result, repairs.n_sequences)
    if not rows:
        none = all(numbers.direct[row].low > -config.floor for row in repairs.heads())
        verb = "adds" if none else "is shown to add"
        sentence = (
            f"No head {verb} {config.floor:g} logits or more by itself to {repairs.meaning}, so there is nothing that "
            f"others could make good ({where})."
        )
        return Finding(sentence=sentence, found=None)
    surely = [row for row in rows if repairs.p[row] < config.alpha]
    good = [row for row in surely if numbers.repaired[row].low > 0 and numbers.repaired[row].mean >= config.floor]
    worse = [row for row in surely if numbers.repaired[row].high < 0 and numbers.repaired[row].mean <= -config.floor]
    nothing = [row for row in rows if numbers.repaired[row].high < config.floor]
    top = min(rows, key=lambda row: float(numbers.direct.mean[row]))
    counts = f"{len(good)} of the {len(rows)} heads that add {config.floor:g} logits or more by themselves"
    lose = f"of {len(worse)} the logit falls by more than what they add" if worse else ""
    opening = f"On {repairs.meaning}, what is lost with {counts} is made good in part"
    if not good:
        verb = "is made good" if len(nothing) == len(rows) else "is shown to be made good"
        heads = f"of any of the {len(rows)} heads that add {config.floor:g} logits or more by themselves"
        opening = f"On {repairs.meaning}, no loss {heads} {verb} by {config.floor:g} logits or more"
    said = [
        opening,
        *([lose] if lose else []),
        f"{_of(result, repairs, top)} ({_before(result, tokens, top)}; {numbers.n_tokens[top]} tokens; {where})",
    ]
    found = True if good else False if len(nothing) == len(rows) else None
    return Finding(sentence="; ".join(said) + ".", found=found)


def _of(result: Result, repairs: Repairs, row: int) -> str:
    """The numbers of one head."""
    numbers, label = repairs.numbers, repairs.components[row].label
    by = {part: numbers.share_by_part[row, place] for place, part in enumerate(PARTS)}
    shares = ", ".join(
        f"{percent_of(share)} by {_WHO[part]}"
        for part, share in by.items()
        if part is not Part.OUTPUT_NORMS or share.mean
    )
    return (
        f"{label}, which adds most, takes {with_interval(_turned(numbers.direct[row]))} logits with it when replaced "
        f"by {result.config.intervention.value}, and the logit falls by {with_interval(_turned(numbers.total[row]))}: "
        f"{percent_of(numbers.share[row])} is made good, {shares}"
    )


_WHO = {
    Part.HEADS: "later heads",
    Part.FFNS: "FFNs",
    Part.OUTPUT_NORMS: "output norms",
    Part.FINAL_NORM: "the final norm",
}


def _turned(interval: Interval) -> Interval:
    """A fall as its size."""
    return Interval(
        mean=-interval.mean, low=-interval.high, high=-interval.low, n=interval.n, level=interval.level,
        method=interval.method,
    )  # fmt: skip


def _before(result: Result, tokens: str, row: int) -> str:
    if result.at_step_zero is None:
        return nothing_earlier(result.step)
    start = result.at_step_zero.on(tokens).numbers
    taken, fell = (number(-float(each.mean[row])) for each in (start.direct, start.total))
    return f"at step 0 it took {taken} logits and the logit fell by {fell}"


def _norm(result: Result) -> Finding:
    """The final norm's share, over the heads that add something to top tokens; Rushing and Nanda: up to some 30 %."""
    repairs, config = result.on(TOP), result.config
    rows, where = adding(repairs, config.floor), _where(result, repairs.n_sequences)
    if not rows:
        return Finding(
            sentence=f"What the final norm makes good is not asked: no head is shown to add {config.floor:g} logits or "
            f"more by itself to {repairs.meaning} ({where}).",
            found=None,
        )
    shares = {row: repairs.numbers.share_by_part[row, _NORM] for row in rows}
    surely = [row for row, share in shares.items() if share.low > 0 and repairs.p_norm[row] < config.alpha]
    against = [row for row, share in shares.items() if share.high <= 0]
    top = max(rows, key=lambda row: float(repairs.numbers.by_part.mean[row, _NORM]))
    most = (
        f"most for {repairs.components[top].label}, {with_interval(repairs.numbers.by_part[top, _NORM])} logits, "
        f"{percent_of(shares[top])} of what it adds"
    )
    opening = f"The final norm's scale alone makes some of it good for {len(surely)} of the {len(rows)} heads"
    if not surely:
        opening = (
            f"The final norm's scale makes nothing good for any of the {len(rows)} heads"
            if len(against) == len(rows)
            else f"That the final norm's scale makes anything good is not shown for any of the {len(rows)} heads"
        )
    found = True if surely else False if len(against) == len(rows) else None
    return Finding(
        sentence=f"{opening} that add to {repairs.meaning} ({_corrected(result, repairs)}); {most} ({where}).",
        found=found,
    )


def _line(result: Result) -> Finding:
    """The slope of total on direct effects over copied tokens: below 1 where more is made good where more is lost."""
    repairs, config = result.on(COPIED), result.config
    rows, line = adding(repairs, config.floor), repairs.numbers.line
    where = _where(result, repairs.n_sequences)
    if not rows:
        said = f"No head adds enough to {repairs.meaning} for a line of total on direct effects"
        return Finding(sentence=f"{said} ({where}).", found=None)
    surely = [row for row in rows if repairs.p_slope[row] < config.alpha]
    below = [row for row in surely if line.slope[row].high < 1]
    above = [row for row in surely if line.slope[row].low > 1]
    never = all(line.slope[row].low >= 1 for row in rows)
    top = min(rows, key=lambda row: float(repairs.numbers.direct.mean[row]))
    slope, fit = with_interval(line.slope[top]), with_interval(line.r_squared[top])
    one = f"{repairs.components[top].label}: slope {slope}, R^2 {fit}"
    less = "the logit falls less steeply than the direct effect (a slope below 1)"
    found = True if below else False if never else None
    opening = {
        True: f"From token to token {less} for {len(below)} of the {len(rows)} heads",
        False: f"From token to token {less} for none of the {len(rows)} heads",
        None: f"That {less} from token to token is not shown for any of the {len(rows)} heads",
    }[found]
    steeper = f", and more steeply for {len(above)}" if above else ""
    sentence = f"{opening} that add to {repairs.meaning}{steeper} ({_corrected(result, repairs)}); {one} ({where})."
    return Finding(sentence=sentence, found=found)


def _pairs(result: Result) -> Finding:
    """Pairs that cost more, or less, together than one by one; Holm over all pairs."""
    pairs, config = result.pairs, result.config
    if pairs is None:
        return Finding(sentence=f"There is one head, and so no pair ({result.run}@{result.step}).", found=None)
    interaction, corrected = pairs.interaction, pairs.holm
    there = [row for row in range(len(pairs.pairs)) if corrected[row] < config.alpha]
    more = [row for row in there if interaction[row].low > 0 and interaction[row].mean >= config.floor]
    less = [row for row in there if interaction[row].high < 0 and interaction[row].mean <= -config.floor]
    top = int(interaction.mean.abs().argmax())
    one, other = (pairs.places[place].partition(":")[0] for place in pairs.pairs[top])
    start = None if result.at_step_zero is None else result.at_step_zero.pairs
    before = nothing_earlier(result.step) if start is None else f"at step 0 {with_interval(start.interaction[top])}"
    alone, beside = (float(pairs.alone.mean[place]) for place in pairs.pairs[top])
    beyond, more_or_less = interaction[top], "more"
    if beyond.mean < 0:
        beyond, more_or_less = _turned(beyond), "less"
    largest = (
        f"{one} and {other} cost copying {number(float(pairs.joint.mean[top]))} nats together and {number(alone)} and "
        f"{number(beside)} alone, {with_interval(beyond)} {more_or_less} than the sum ({before}; "
        f"{_where(result, interaction.n)})"
    )
    tail = f"by {config.floor:g} nats or more, Holm-corrected over {len(pairs.pairs)} pairs at {config.alpha:g}"
    if not more and not less:
        flat = all(interaction[row].within(config.floor) for row in range(len(pairs.pairs)))
        verb = "deviates" if flat else "is shown to deviate"
        said = f"No pair of the {len(pairs.places)} costliest heads {verb} from the sum of both {tail}"
        return Finding(sentence=f"{said}; {largest}.", found=False if flat else None)
    sentence = (
        f"Of {len(pairs.pairs)} pairs of the {len(pairs.places)} costliest heads, {len(more)} cost more together than "
        f"one by one and {len(less)} cost less, {tail}; {largest}."
    )
    return Finding(sentence=sentence, found=True)


def _induction(result: Result) -> Finding:
    """Whether the induction heads as a set cost more than the sum of each."""
    found = result.induction
    if found is None:
        n = len(result.discovery.induction_heads)
        which = "no head passes" if n == 0 else "one head alone passes"
        said = f"Whether induction heads stand in for each other is not asked: {which} the rule"
        sentence = f"{said} ({result.run}@{result.step})."
        return Finding(sentence=sentence, found=None)
    nats, logits = found.in_nats, found.in_logits
    start = None if result.at_step_zero is None else result.at_step_zero.induction
    before = nothing_earlier(result.step)
    if start is not None:
        before = f"at step 0 together {with_interval(start.together)} nats"
    verdict = {
        True: "cost copying more together than one by one: ",
        False: "cost copying no more together than one by one: ",
        None: "are not shown to cost copying more together than one by one: ",
    }[nats.above(1)]
    sentence = (
        f"The {len(found.heads)} induction heads {', '.join(found.heads)} {verdict}{with_interval(found.together)} "
        f"nats, {_times(nats)} the sum of each alone, and in logits of the copied token {_times(logits)} ({before}; "
        f"{_where(result, found.together.n)})."
    )
    return Finding(sentence=sentence, found=nats.above(1))


def _times(ratio: Interval) -> str:
    return f"{number(ratio.mean)} [{number(ratio.low)}, {number(ratio.high)}] times"
