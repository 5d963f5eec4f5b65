"""What a study of promotion finds, denies or leaves open, and what stands in the way where it is open.

An effect is found where it surely (by its interval over prompts) reaches what matters, exceeds every control (each by
its rank: all of them have to be beaten, so that nothing needs correcting), and surely exceeds the same at step 0, where
other memories stand out by chance. At step 0 itself nothing is found, as nothing is learned there; a run without one
rests on its controls. An effect is denied where its whole interval lies short of what matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyses.promotion.result import Control, ControlKind, Result
from analyses.wording import points
from interp.stats import Interval

ON = (ControlKind.RANDOM, ControlKind.MATCHED, ControlKind.DIRECTION)
"""The controls of memories that are turned on."""

NAMES = {
    ControlKind.RANDOM: "other memories of the same layers",
    ControlKind.MATCHED: "memories that write exactly as much",
    ControlKind.DIRECTION: "random directions as long as the values",
    ControlKind.OFF: "memories that usually write as much, turned off,",
}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One question's answer."""

    found: bool | None
    why: tuple[str, ...] = ()
    """What stands in the way, in words, where it is open."""
    lacks_sets: bool = False
    """Whether only this does: that there are too few control sets to tell."""


def promoted(result: Result) -> Judged:
    """Whether the concept's share rises."""
    rise = result.doses.share_change[result.doses.at(result.config.strength)]
    ranks = {kind: result.control(kind).p for kind in ON}
    return _rise(result, rise, ranks, result.start and result.start.share_lead)


def promoted_at_once(result: Result) -> Judged:
    """Whether its probability at the first new token does."""
    rise = result.doses.first_change[result.doses.at(result.config.strength)]
    ranks = {kind: result.control(kind).p_first for kind in ON}
    return _rise(result, rise, ranks, result.start and result.start.first_lead)


def rises_with_strength(result: Result) -> Judged:
    """Whether its share rises with the strength, over all strengths, and more than with memories that write as much."""
    ranks = {ControlKind.MATCHED: result.control(ControlKind.MATCHED).p_slope}
    return _rise(result, result.slope, ranks, result.start and result.start.slope_lead)


def missed(result: Result) -> Judged:
    """Whether its share falls when the memories are turned off; what is rare cannot fall by the floor, but by half."""
    fall = result.doses.share_change[result.doses.at(0.0)]
    least = min(result.config.floor, result.plain_share.mean / 2)
    surely = _falls(fall).low >= least
    if not surely and fall.low > -result.config.floor:
        return Judged(found=False)
    ranks = {ControlKind.OFF: result.control(ControlKind.OFF).p}
    more = None if result.start is None else _falls(result.start.off_lead)
    said = points(least) if least == result.config.floor else "half of that share"
    return _judged(result, said, ranks, more, surely=surely)


def priced(result: Result) -> Judged:
    """Whether the text is harder for the model as it is, or says the same over and over."""
    doses, config = result.doses, result.config
    row = doses.at(config.strength)
    loss, distinct = doses.loss_change[row], doses.distinct_change[row]
    if loss.high < config.loss_floor and distinct.low > -config.floor:
        return Judged(found=False)
    if not (loss.low >= config.loss_floor or distinct.high <= -config.floor):
        return Judged(found=None, why=("the intervals reach both sides of that",))
    return Judged(found=None, why=(_NOTHING_LEARNED,)) if result.step == 0 else Judged(found=True)


def _rise(result: Result, rise: Interval, ranks: Mapping[ControlKind, float | None], lead: Interval | None) -> Judged:
    floor = result.config.floor
    return (
        Judged(found=False)
        if rise.high < floor
        else _judged(result, points(floor), ranks, lead, surely=rise.low >= floor)
    )


def _judged(
    result: Result,
    least: str,
    ranks: Mapping[ControlKind, float | None],
    lead: Interval | None,
    *,
    surely: bool,
) -> Judged:
    """Found, where nothing stands in the way."""
    why = [] if surely else [f"it may be less than {least}, the least that counts"]
    if result.step == 0:
        why.append(_NOTHING_LEARNED)
    elif lead is not None and lead.low <= 0:
        why.append("it is not surely more than at step 0")
    lacking = [kind for kind in ranks if _lacks_sets(result, result.control(kind))]
    beaten_by = [kind for kind, p in ranks.items() if kind not in lacking and not (p and p <= result.config.alpha)]
    if beaten_by:
        why.append(
            "some sets of " + " and of ".join(NAMES[kind].removesuffix(",") for kind in beaten_by) + " do as much"
        )
    lacks_sets = bool(lacking) and not why
    why += [f"{_few(result.control(kind))} at {result.config.alpha:g}" for kind in lacking]
    return Judged(found=None if why else True, why=tuple(why), lacks_sets=lacks_sets)


def _lacks_sets(result: Result, control: Control) -> bool:
    return control.smallest_p is None or control.smallest_p > result.config.alpha


def _few(control: Control) -> str:
    """That the sets cannot decide, as in "2 sets of ... allow no p below 0.33, too few to tell"."""
    n, name = len(control.share_change), NAMES[control.kind].removesuffix(",")
    if control.smallest_p is None:
        return f"without sets of {name} nothing can be told"
    sets = f"{n} {'set' if n == 1 else 'sets'} of {name} {'allows' if n == 1 else 'allow'}"
    return f"{sets} no p below {control.smallest_p:.2g}, too few to tell"


def _falls(change: Interval) -> Interval:
    """A change as the size of its fall."""
    return Interval(
        mean=-change.mean, low=-change.high, high=-change.low, n=change.n, level=change.level, method=change.method
    )


_NOTHING_LEARNED = "this is step 0, where nothing is learned"
