"""A verdict in one sentence: effect, interval, bound, n, seed, split, control and p, or why it is undecided."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.claims.bounds import Quantity, Standing, parse_bound
from analyses.claims.statement import ControlKind, Stated
from analyses.claims.verdicts import Measured, Verdict, lasting, not_beaten
from interp.stats import Interval, smallest_sign_flip_p
from interp.wording import NO_ENDS, has_ends, p_phrase, with_interval


def plain_sentence(verdict: Verdict) -> str:
    """The same for a reader who sees the claim's own words beside it: no name of a file, no marks of code."""
    return sentence(verdict, subject="The claim").replace("`", "")


def sentence(verdict: Verdict, *, subject: str | None = None) -> str:
    """All that a verdict rests on; it begins with the claim's name, or with `subject`."""
    where = f"{verdict.checkpoint.run}@{verdict.checkpoint.step}"
    begin = f"{subject or verdict.claim} is {verdict.standing} at {where}"
    found = verdict.measured
    if found is None:
        return f"{begin}: {verdict.reason} (seed {verdict.seed})."
    told = f"{begin}: with {found.subject}, {effect_phrase(verdict, found)}; claimed was `{verdict.bound}`"
    family = "" if verdict.n_together == 1 else f", Holm over {verdict.n_together} claims"
    told += f" ({_p(verdict, found)} against {_null(verdict, found)}{family}; n = {_n(found)} sequences"
    told += f"{_unseen(verdict)}, seed {verdict.seed}; level {found.harm.level:g})"
    if found.beside.kind == ControlKind.NONE:
        told += "; no control"
    elif verdict.reason != not_beaten(found.beside):
        told += f"; control {'beaten' if found.beside.beaten else 'not beaten'}: {found.beside.said}"
    if verdict.reason:
        told += f"; undecided because {verdict.reason}"
    told += _LATE.get(verdict.stated, "")
    return f"{told}."


def _unseen(verdict: Verdict) -> str:
    """Whether anything was chosen by these sequences: heads by a rule never, a bound perhaps."""
    return "" if verdict.stated in _LATE else " that no rule has seen"


_LATE: dict[Stated | None, str] = {
    Stated.AFTER: "; its bound was stated after numbers about it had been seen, perhaps these",
    Stated.UNKNOWN: "; it is not known whether its bound was stated before numbers about it were seen",
}
"""What is said of a bound that may have been picked to fit."""


def effect_phrase(verdict: Verdict, found: Measured) -> str:
    """As in "the loss on X gets worse by 1.20 [1.10, 1.30] nats", or by a share."""
    bound, interval = parse_bound(verdict.bound), found.judged.interval
    amount = f"{with_interval(found.harm)} {found.unit}"
    if bound.is_share:
        return f"the {found.meaning} gets worse by {share(interval)} of {found.whole} ({amount})"
    if bound.quantity == Quantity.GAIN:
        return f"the {found.meaning} gets better by {with_interval(interval)} {found.unit}"
    return f"the {found.meaning} gets worse by {amount}"


def short_effect(verdict: Verdict) -> str:
    """The effect with its interval, for a table."""
    found = verdict.measured
    if found is None:
        return "-"
    if parse_bound(verdict.bound).is_share:
        return share(found.judged.interval)
    return with_interval(found.judged.interval)


def short_control(verdict: Verdict) -> str:
    """Which control, and whether it was beaten, for a table."""
    found = verdict.measured
    if found is None or found.beside.beaten is None:
        return "none" if found is not None else "-"
    return f"{found.beside.kind} {'beaten' if found.beside.beaten else 'not beaten'}"


def share(interval: Interval) -> str:
    """A share in percent with its interval; in words where that has no ends."""
    if not has_ends(interval):
        return f"{interval.mean:.0%} ({NO_ENDS})"
    return f"{interval.mean:.0%} [{interval.low:.0%}, {interval.high:.0%}]"


def short_p(verdict: Verdict) -> str:
    """A p in three digits, with <= before the smallest that could come out; a dash where nothing was measured."""
    return "-" if verdict.measured is None else _p(verdict, verdict.measured).removeprefix("p ").removeprefix("= ")


def _p(verdict: Verdict, found: Measured) -> str:
    """The corrected p; it is the smallest possible where the p before the correction is, looks counted in."""
    p = 1.0 if verdict.p is None else verdict.p
    times = found.alpha / (1 - found.harm.level)  # alpha over what this look may spend; 1 for a single one
    return p_phrase(p, p if found.judged.p <= times * smallest_sign_flip_p(found.n) * (1 + 1e-6) else 0.0)


def _null(verdict: Verdict, found: Measured) -> str:
    """What a small p speaks against: that the truth lies on the other side of the bound than what was measured."""
    bound, mean = parse_bound(verdict.bound), found.judged.interval.mean
    is_above = (abs(mean) if bound.quantity == Quantity.SIZE else mean) > bound.value
    return f"{_WHAT[bound.quantity]} {'below' if is_above else 'above'} the bound"


_WHAT = {Quantity.HARM: "a harm", Quantity.GAIN: "a gain", Quantity.SIZE: "a size", Quantity.SHARE: "a share"}


def since_phrase(verdicts: Sequence[Verdict]) -> str:
    """From which checkpoint on a claim has come to what it comes to at the last one."""
    standing, since = lasting(verdicts)
    name, n = verdicts[0].claim, len(verdicts)
    if standing == Standing.UNDECIDED:
        return f"{name} is undecided at the last of {n} checkpoints."
    word = "holds" if standing == Standing.SUPPORTED else "is refuted"
    return f"{name} {word} from step {since} on, at every later one of the {n} checkpoints tested."


def _n(found: Measured) -> str:
    return f"{found.n}" if found.looks == 1 else f"{found.n}, at look {found.looks}"
