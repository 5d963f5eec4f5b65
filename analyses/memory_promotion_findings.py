"""What a study of promotion says, in sentences that stand alone and deny what was not found.

That a concept is promoted is found where its share rises surely (by its interval over prompts) by what matters, and by
more than with any control (each by its rank: all of them have to be beaten, so that nothing needs correcting). It is
denied where the whole interval lies below what matters. What rises, but with some control as well, is left open.
"""

from __future__ import annotations

import math

from analyses.memory_promotion_result import Control, ControlKind, Result
from analyses.registry import Finding
from analyses.verdicts import Verdict, verdict
from interp.stats import Interval
from interp.wording import fine, nothing_earlier, with_interval

ON = (ControlKind.RANDOM, ControlKind.MATCHED, ControlKind.DIRECTION)
"""The controls of memories that are turned on."""

NAMES = {
    ControlKind.RANDOM: "other memories of the same layers",
    ControlKind.MATCHED: "memories that write exactly as much",
    ControlKind.DIRECTION: "random directions as long as the values",
    ControlKind.OFF: "memories that usually write as much, turned off,",
}


def sentences(result: Result) -> list[Finding]:
    """Promotion, its first step, its dose, its price, and what is missed when the memories are off."""
    return [_promoted(result), _at_once(result), _dose(result), _price(result), _off(result)]


def promotes(result: Result) -> bool | None:
    """Whether the concept is promoted by more than the controls; None where that is open."""
    rise = result.doses.share_change[result.doses.at(result.config.strength)]
    if rise.high < result.config.floor:
        return False
    beaten = [_beaten(result, result.control(kind)) for kind in ON]
    return True if rise.low >= result.config.floor and all(beaten) else None


def _beaten(result: Result, control: Control, p: float | None = None) -> bool:
    p = control.p if p is None else p
    return p is not None and p <= result.config.alpha


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


def _promoted(result: Result) -> Finding:
    doses, config = result.doses, result.config
    row = doses.at(config.strength)
    rise, found = doses.share_change[row], promotes(result)
    with_ = f"With {_memories(result)} kept at {config.strength:g} x the largest coefficient of each"
    ends = f"from {_percent(result.plain_share.mean)} to {_percent(doses.share[row].mean)} of the generated tokens"
    share = f"the concept's share changes by {_points(rise)} points, {ends}"
    verb = {
        True: f"{share}, more than with any control",
        False: f"the concept is not promoted by {100 * config.floor:g} points or more: {share}",
        None: f"the concept is not shown to be promoted by more than {_why(result, rise)}: {share}",
    }[found]
    said = "; ".join(_against(result.control(kind)) for kind in ON)
    sentence = f"{with_}, {verb} ({_where(result)}). Controls: {said}. {_start(result)}"
    return Finding(sentence=sentence, found=found)


def _why(result: Result, rise: Interval) -> str:
    """What it was not shown to exceed."""
    if rise.low < result.config.floor:
        return f"{100 * result.config.floor:g} points"
    unbeaten = [NAMES[kind] for kind in ON if not _beaten(result, result.control(kind))]
    return "is done by " + " and by ".join(unbeaten)


def _against(control: Control) -> str:
    """What one control does, and the rank."""
    name = NAMES[control.kind]
    if control.p is None or control.smallest_p is None:
        return f"{name}: {control.note}"
    extreme = control.share_change.min() if control.kind is ControlKind.OFF else control.share_change.max()
    bound = "least" if control.kind is ControlKind.OFF else "most"
    smallest = f", the smallest that {len(control.share_change)} sets allow" if control.p == control.smallest_p else ""
    return (
        f"{name} change it by {_point(float(control.share_change.quantile(0.5)))} points (median) and at {bound} "
        f"{_point(float(extreme))} (p = {control.p:.2g}{smallest})"
    )


def _start(result: Result) -> str:
    if result.start is None:
        return f"There is {nothing_earlier(result.step)}."
    start = result.start
    return (
        f"At step 0 the memories that stand out there change its share by {_points(start.share_change)} points, from "
        f"{_percent(start.share)}."
    )


def _at_once(result: Result) -> Finding:
    """The probability at the first new token, before anything that was generated can be read."""
    doses, row = result.doses, result.doses.at(result.config.strength)
    change, floor = doses.first_change[row], result.config.floor
    found = {Verdict.EFFECT: change.mean > 0, Verdict.BELOW: False, Verdict.OPEN: None}[verdict(change, floor)]
    before = float(result.plain_mass[0])
    what = (
        f"the concept's probability at the first new token changes by {_points(change)} points, from {_percent(before)}"
    )
    opening = {
        True: "Before anything generated is read, ",
        False: f"Before anything generated is read, there is no rise of {100 * floor:g} points or more: ",
        None: f"Before anything generated is read, a rise of {100 * floor:g} points or more is not shown: ",
    }[found]
    return Finding(sentence=f"{opening}{what} ({_where(result)}).", found=found)


def _dose(result: Result) -> Finding:
    """Whether more strength gives more of the concept, over all strengths."""
    doses, slope = result.doses, result.slope
    steps = ", ".join(
        f"{_percent(float(doses.share.mean[row]))} at {strength:g}" for row, strength in enumerate(doses.strengths)
    )
    found = True if slope.low > 0 else False if slope.high < result.config.floor else None
    opening = {
        True: "The stronger, the more of the concept",
        False: "More strength does not give more of the concept",
        None: "That more strength gives more of the concept is not shown",
    }[found]
    rise = f"a line through all strengths rises by {_points(slope)} points per unit"
    return Finding(sentence=f"{opening}: its share is {steps}; {rise} ({_where(result)}).", found=found)


def _price(result: Result) -> Finding:
    """What the text costs, and how much of that any memories cost that write as much.

    A text that says one thing over and over is an easy one, so fewer distinct tokens are a price as a higher loss is.
    """
    doses, config, row = result.doses, result.config, result.doses.at(result.config.strength)
    loss, distinct = doses.loss_change[row], doses.distinct_change[row]
    is_paid = loss.low >= config.loss_floor or distinct.high <= -config.floor
    is_free = loss.high < config.loss_floor and distinct.low > -config.floor
    found = True if is_paid else False if is_free else None
    alike = result.control(ControlKind.MATCHED).loss_change
    beside = f", {fine(float(alike.quantile(0.5)))[0]} (median) with memories that write as much" if len(alike) else ""
    opening = {
        True: "The price: ",
        False: f"No price of {config.loss_floor:g} nats or {100 * config.floor:g} points or more: ",
        None: f"A price of {config.loss_floor:g} nats or {100 * config.floor:g} points or more is not shown: ",
    }[found]
    return Finding(
        sentence=(
            f"{opening}under the model as it is the text costs {with_interval(loss)} nats per token beside what it "
            f"writes itself ({fine(result.plain_loss)[0]}){beside}; the share of distinct tokens changes by "
            f"{_points(distinct)} points, from {_percent(result.plain_distinct)} ({_where(result)})."
        ),
        found=found,
    )


def _off(result: Result) -> Finding:
    """Whether the concept is missed when its memories are turned off."""
    doses, config, control = result.doses, result.config, result.control(ControlKind.OFF)
    fall = doses.share_change[doses.at(0.0)]
    surely = fall.high <= -min(config.floor, result.plain_share.mean / 2)
    found = True if surely and _beaten(result, control) else False if fall.low > -config.floor else None
    what = f"its share changes by {_points(fall)} points, from {_percent(result.plain_share.mean)}"
    opening = {
        True: "Turned off, these memories are missed: ",
        False: f"Turned off, these memories are not missed by {100 * config.floor:g} points or more: ",
        None: "That these memories are missed when they are off is not shown: ",
    }[found]
    return Finding(sentence=f"{opening}{what} ({_where(result)}). Control: {_against(control)}.", found=found)


def _percent(share: float) -> str:
    """As in "3.0%"."""
    return f"{100 * share:.1f}%"


def _point(share: float) -> str:
    text = f"{100 * share:.1f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _points(share: Interval) -> str:
    """As in "94.3 [92.1, 96.0]", in points of a share."""
    if not math.isfinite(share.low):
        return _point(share.mean)
    return f"{_point(share.mean)} [{_point(share.low)}, {_point(share.high)}]"
