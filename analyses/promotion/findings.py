"""What a study of promotion says, in sentences that stand alone and deny what was not found.

What is found, denied or open, and why: `analyses.promotion.verdicts`.
"""

from __future__ import annotations

import math

from analyses.promotion.result import Control, ControlKind, Result
from analyses.promotion.verdicts import (
    NAMES,
    ON,
    Judged,
    missed,
    priced,
    promoted,
    promoted_at_once,
    rises_with_strength,
)
from analyses.registry import Finding
from analyses.wording import percent, points
from interp.stats import Interval
from interp.wording import fine, nothing_earlier, p_phrase, with_interval


def sentences(result: Result) -> list[Finding]:
    """Promotion, its first step, its dose, its price, and what is missed when the memories are off."""
    return [_promoted(result), _at_once(result), _dose(result), _price(result), _off(result)]


def _where(result: Result) -> str:
    config = result.config
    return (
        f"{result.run}@{result.step}, n = {result.n_prompts} prompts of {result.kind}, {result.n_new_tokens} tokens "
        f"each at temperature {config.temperature:g}, seed {config.seed}, 95% intervals over prompts"
    )


def _memories(result: Result) -> str:
    labels = [each.label for each in result.memories]
    shown = ", ".join(labels[:_SHOWN]) + (", ..." if len(labels) > _SHOWN else "")
    chosen = "; the concept chosen by the model's values" if result.is_chosen else ""
    if len(labels) == 1:
        return f"the memory whose value stands out most for {_concept(result)} ({shown}{chosen})"
    return f"the {len(labels)} memories whose values stand out most for {_concept(result)} ({shown}{chosen})"


def _concept(result: Result) -> str:
    return f'"{result.concept}"' if result.concept.startswith("text:") else result.concept


_SHOWN = 4


def _open(judged: Judged) -> str:
    """Why something is not shown, in brackets."""
    return f" ({'; '.join(judged.why)})"


def _promoted(result: Result) -> Finding:
    doses, config, judged = result.doses, result.config, promoted(result)
    row = doses.at(config.strength)
    with_ = f"With {_memories(result)} held at {config.strength:g} x the largest coefficient of each"
    ends = f"from {percent(result.plain_share.mean)} to {percent(doses.share[row].mean)} of the generated tokens"
    share = f"the concept's share changes by {_points(doses.share_change[row])} points, {ends}"
    more = "" if result.start is None else " and more than at step 0"
    verb = {
        True: f"{share}, more than with any control{more}",
        False: f"the concept is not promoted by {points(config.floor)} or more: {share}",
        None: f"the concept is not shown to be promoted{_open(judged)}: {share}",
    }[judged.found]
    said = "; ".join(_against(result.control(kind)) for kind in ON)
    return _finding(judged, f"{with_}, {verb} ({_where(result)}).", f"Controls: {said}.", _start(result))


def _finding(judged: Judged, *parts: str) -> Finding:
    """The sentence, in the parts that there are."""
    lines = tuple(filter(None, parts))
    return Finding(sentence=" ".join(lines), found=judged.found, lines=lines)


def _against(control: Control) -> str:
    """What one control does, and the rank."""
    name = NAMES[control.kind]
    if control.p is None or control.smallest_p is None:
        return f"{name}: {control.note}"
    extreme = control.share_change.min() if control.kind is ControlKind.OFF else control.share_change.max()
    bound = "least" if control.kind is ControlKind.OFF else "most"
    return (
        f"{name} change it by {_point(float(control.share_change.quantile(0.5)))} points (median) and at {bound} "
        f"{_point(float(extreme))} ({_rank(control, control.p)})"
    )


def _rank(control: Control, p: float) -> str:
    """A rank's p, and where it is the smallest that there can be, that it is."""
    smallest = control.smallest_p or 0.0
    least = f", the smallest that {len(control.share_change)} sets allow" if p <= smallest * (1 + 1e-9) else ""
    return p_phrase(p, smallest, ".2g") + least


def _start(result: Result) -> str:
    if result.start is None:
        return f"There is {nothing_earlier(result.step)}."
    start = result.start
    return (
        f"At step 0 the memories that stand out there change its share by {_points(start.share_change)} points, from "
        f"{percent(start.share)}."
    )


def _at_once(result: Result) -> Finding:
    """The probability at the first new token, before anything that was generated can be read."""
    doses, row, judged = result.doses, result.doses.at(result.config.strength), promoted_at_once(result)
    change, least = doses.first_change[row], points(result.config.floor)
    before = percent(float(result.plain_mass[0]))
    what = f"the concept's probability at the first new token changes by {_points(change)} points, from {before}"
    opening = {
        True: "Before anything generated is read, ",
        False: f"Before anything generated is read, there is no rise of {least} or more: ",
        None: f"Before anything generated is read, a rise of {least} or more is not shown{_open(judged)}: ",
    }[judged.found]
    controls = [result.control(kind) for kind in ON]
    ranks = [
        f"{NAMES[each.kind]} {p_phrase(each.p_first, each.smallest_p, '.2g')}"
        for each in controls
        if each.p_first is not None and each.smallest_p is not None
    ]
    beside = f"Its rank among controls: {'; '.join(ranks)}." if ranks else ""
    start = "" if result.start is None else f"At step 0 it changes by {_points(result.start.first_change)} points."
    return _finding(judged, f"{opening}{what} ({_where(result)}).", beside, start)


def _dose(result: Result) -> Finding:
    """Whether more strength gives more of the concept, over all strengths."""
    doses, control, judged = result.doses, result.control(ControlKind.MATCHED), rises_with_strength(result)
    steps = ", ".join(
        f"{percent(float(doses.share.mean[row]))} at {strength:g}" for row, strength in enumerate(doses.strengths)
    )
    opening = {
        True: "More strength gives more of the concept",
        False: f"More strength does not give {points(result.config.floor)} or more of the concept per unit",
        None: f"That more strength gives more of the concept is not shown{_open(judged)}",
    }[judged.found]
    rise = f"a line through all strengths changes by {_points(result.slope)} points per unit"
    start = "" if result.start is None else f"At step 0 it changes by {_points(result.start.slope)} points per unit."
    beside = ""
    if control.p_slope is not None:
        median, most = float(control.slope.quantile(0.5)), float(control.slope.max())
        beside = (
            f"With {NAMES[control.kind]} it changes by {_point(median)} points (median) and at most {_point(most)} "
            f"({_rank(control, control.p_slope)})."
        )
    return _finding(judged, f"{opening}: its share is {steps}; {rise} ({_where(result)}).", beside, start)


def _price(result: Result) -> Finding:
    """What the text costs, and how much of that any memories cost that write as much.

    A text that says one thing over and over is an easy one, so fewer distinct tokens are a price as a higher loss is.
    """
    doses, config, row, judged = result.doses, result.config, result.doses.at(result.config.strength), priced(result)
    loss, distinct = doses.loss_change[row], doses.distinct_change[row]
    alike = result.control(ControlKind.MATCHED).loss_change
    beside = f", {fine(float(alike.quantile(0.5)))[0]} (median) with memories that write as much" if len(alike) else ""
    least = f"{config.loss_floor:g} nats or {points(config.floor)} or more"
    opening = {
        True: "The price: ",
        False: f"No price of {least}: ",
        None: f"A price of {least} is not shown{_open(judged)}: ",
    }[judged.found]
    return _finding(
        judged,
        f"{opening}under the model as it is the text costs {with_interval(loss)} nats per token more than what it "
        f"writes itself ({fine(result.plain_loss)[0]}){beside}; the share of distinct tokens changes by "
        f"{_points(distinct)} points, from {percent(result.plain_distinct)} ({_where(result)}).",
    )


def _off(result: Result) -> Finding:
    """Whether the concept is missed when its memories are turned off."""
    doses, control, judged = result.doses, result.control(ControlKind.OFF), missed(result)
    fall = doses.share_change[doses.at(0.0)]
    what = f"its share changes by {_points(fall)} points, from {percent(result.plain_share.mean)}"
    opening = {
        True: "Turned off, these memories are missed: ",
        False: f"Turned off, these memories are not missed by {points(result.config.floor)} or more: ",
        None: f"That these memories are missed when they are off is not shown{_open(judged)}: ",
    }[judged.found]
    start = "" if result.start is None else f"At step 0 it changes by {_points(result.start.off_change)} points."
    return _finding(judged, f"{opening}{what} ({_where(result)}).", f"Control: {_against(control)}.", start)


def _point(share: float) -> str:
    """Points of a share, as in "94.3"; zero has no sign."""
    return percent(share).removesuffix("%")


def _points(share: Interval) -> str:
    """As in "94.3 [92.1, 96.0]", in points of a share."""
    if not math.isfinite(share.low):
        return _point(share.mean)
    return f"{_point(share.mean)} [{_point(share.low)}, {_point(share.high)}]"
