"""What training-dynamics says: what formed, when, how suddenly and in which order, and what did not or cannot be told.

A step is read off the straight line between two checkpoints, so the two are always said. An order is affirmed or denied
only where a checkpoint lies between; a change is called sudden only where checkpoints are fine enough to tell. What the
first checkpoint has already is not said to have formed, or not to have; what was lost again is said. One run is one
seed: nothing here says how another would go.
"""

from __future__ import annotations

from analyses.attention.kinds import Kind
from analyses.dynamics.formation import formed, head_rises, previous_before_induction
from analyses.dynamics.head_findings import heads_of_kind
from analyses.dynamics.losses import (
    LEAST,
    LEAST_COPYING,
    LEAST_ICL,
    SHARE,
    WINDOW,
    Change,
    change,
    fell_back,
    formed_since_first,
    gain,
    grew,
    loss_crossing,
    there_at_first,
)
from analyses.dynamics.result import Result
from analyses.dynamics.wording import bracket, facts, steps_of, when
from analyses.registry import Finding
from interp.places import head as named
from interp.wording import with_interval


def spoken(result: Result) -> list[Finding]:
    """Copying first, then heads, then their order, then in-context learning on text, then what was not read."""
    if len(result.steps) < 2:
        return [_one_checkpoint(result), *_left_out(result)]
    found = [_copying(result)]
    stretch = change(result)
    if stretch is not None:
        found.append(_sudden(result, stretch))
    found += [heads_of_kind(result, kind) for kind in (Kind.INDUCTION, Kind.PREVIOUS)]
    found += [heads_of_kind(result, kind) for kind in _OTHERS if formed(result, kind)]
    found += _order(result)
    if stretch is not None:
        found += _together(result, stretch)
    return [*found, _icl(result), *_left_out(result)]


_OTHERS = (Kind.DUPLICATE, Kind.LATER)


def _one_checkpoint(result: Result) -> Finding:
    whose = f"up to step {result.step}" if result.imported_from is None else f"as imported from {result.imported_from}"
    return Finding(
        sentence=f"What formed when cannot be told: {result.run} has one checkpoint {whose}, and a change needs two.",
        found=None,
    )


def _left_out(result: Result) -> list[Finding]:
    return [Finding(sentence=sentence, found=None) for sentence in result.left_out]


def _copying(result: Result) -> Finding:
    """Whether the second copy of random tokens came to cost less than the first, and when."""
    last = result.loss_at("copying", len(result.steps) - 1)
    numbers = (
        f"the second copy of random tokens costs {with_interval(last)} nats less than the first at step "
        f"{result.step:,} and {with_interval(result.loss_at('copying', 0))} at step {result.steps[0]:,}"
    )
    if result.repeats.trained:
        numbers += " (training showed this period, so a learned distance would do)"
    numbers += _lost(result, "copying")
    crossing = loss_crossing(result, "copying")
    if formed_since_first(result, "copying") and crossing is not None:
        sentence = (
            f"Copying formed {bracket(crossing)}: {numbers}; by straight lines between checkpoints half of the change "
            f"was there at step {steps_of(crossing.at)} {facts(result)}."
        )
        return Finding(sentence=sentence, found=True)
    found, words = _not_formed(result, "copying")
    opening = {
        "there": f"Copying was there already at the first checkpoint, step {result.steps[0]:,}, so when it formed "
        "cannot be told",
        "lost": "Copying formed, but did not stay",
        "none": "Copying did not form",
        "unsure": "Whether copying formed cannot be told",
    }[words]
    return Finding(sentence=f"{opening}: {numbers}; asked: {LEAST_COPYING} nats {facts(result)}.", found=found)


def _not_formed(result: Result, name: str) -> tuple[bool | None, str]:
    """What is to be said of a loss that did not surely form since the first checkpoint: found or not, and why."""
    if there_at_first(result, name):
        return None, "there"
    if grew(result, name) is None or (not result.starts_at_zero and _has(result, name)):
        return None, "unsure"
    return False, "none" if fell_back(result, name) is None else "lost"


def _has(result: Result, name: str) -> bool:
    """Whether the last checkpoint may have a loss of what is asked, however it came by it."""
    last = result.loss_at(name, len(result.steps) - 1)
    return (last.high if name == "copying" else -last.low) >= LEAST[name]


def _lost(result: Result, name: str) -> str:
    """What it had come to before it fell back, if it did."""
    peak = fell_back(result, name)
    return "" if peak is None else f"; it had been {with_interval(peak.value)} at step {peak.step:,}, and fell back"


def _sudden(result: Result, stretch: Change) -> Finding:
    """Whether copying formed within a fifth of all steps."""
    opening = {
        True: "Copying formed suddenly",
        False: "Copying did not form suddenly",
        None: "Whether copying formed suddenly cannot be told",
    }[stretch.sudden]
    width = f"{stretch.width.mean:.0%} [{stretch.width.low:.0%}, {stretch.width.high:.0%}]"
    coarse = ""
    if stretch.sudden is None and stretch.width.low > WINDOW:
        coarse = "; checkpoints are too far apart to tell more"
    return Finding(
        sentence=(
            f"{opening}: {stretch.share:.0%} of what it earned at the end lies between steps {stretch.start:,} and "
            f"{stretch.end:,}, {width} of the {result.step - result.steps[0]:,} steps (asked: {SHARE:.0%} within "
            f"{WINDOW:.0%}; no finer than checkpoints lie){coarse} {facts(result)}."
        ),
        found=stretch.sudden,
    )


def _order(result: Result) -> list[Finding]:
    """Whether previous-token attention rose before induction attention."""
    both = previous_before_induction(result)
    if both is None or both.previous.crossing is None or both.induction.crossing is None:
        return []
    names = [named(*rise.head).label for rise in (both.previous, both.induction) if rise.head is not None]
    first, second = both.previous.crossing, both.induction.crossing
    apart = both.order.apart
    numbers = (
        f"{names[0]} (to the token before) was half way {when(first)}, {names[1]} (induction, the earliest) "
        f"{when(second)}; by straight lines {steps_of(apart)} steps apart"
    )
    if both.order.resolved:
        was_first = apart.mean > 0
        opening = "Previous-token attention rose before induction attention"
        opening = opening if was_first else "Previous-token attention did not rise before induction attention"
        return [Finding(sentence=f"{opening}: {numbers}, with a checkpoint between {facts(result)}.", found=was_first)]
    return [
        Finding(
            sentence=(
                f"Whether previous-token attention rose before induction attention cannot be told: {numbers}, and no "
                f"checkpoint lies surely between {facts(result)}."
            ),
            found=None,
        )
    ]


def _together(result: Result, stretch: Change) -> list[Finding]:
    """Whether the first induction head was half way up in the stretch in which copying formed."""
    several = head_rises(result, Kind.INDUCTION, formed(result, Kind.INDUCTION))
    if not several or several[0].head is None or any(rise.crossing is None for rise in several):
        return []
    if several[0].crossing is None:
        return []
    at = several[0].crossing.at
    inside = stretch.start <= at.low and at.high <= stretch.end
    outside = at.high < stretch.start or at.low > stretch.end
    found = True if inside else False if outside else None
    opening = {
        True: "Copying and induction attention formed in the same stretch",
        False: "Copying and induction attention did not form in the same stretch",
        None: "Whether copying and induction attention formed in the same stretch cannot be told",
    }[found]
    return [
        Finding(
            sentence=(
                f"{opening}: {named(*several[0].head).label}, the earliest, was half way {when(several[0].crossing)}, "
                f"and {stretch.share:.0%} of what copying earned at the end lies between steps {stretch.start:,} and "
                f"{stretch.end:,}; that one made the other is for ablation to say {facts(result)}."
            ),
            found=found,
        )
    ]


def _icl(result: Result) -> Finding:
    """Whether more context came to help on text."""
    if "icl_score" not in result.losses:
        return Finding(
            sentence="Whether more context came to help on text cannot be told: the run holds out too little text.",
            found=None,
        )
    moved, last = gain(result, "icl_score"), result.loss_at("icl_score", len(result.steps) - 1)
    n = result.losses["icl_score"].intervals.n
    numbers = (
        f"late minus early loss is {with_interval(last)} nats at step {result.step:,} and "
        f"{with_interval(result.loss_at('icl_score', 0))} at step {result.steps[0]:,}, a change of "
        f"{with_interval(moved)} on the same rows"
    )
    source = facts(result, n=n, unit="rows of held-out text")
    numbers += _lost(result, "icl_score")
    if formed_since_first(result, "icl_score"):
        crossing = loss_crossing(result, "icl_score")
        at = "" if crossing is None else f"; half of that change was there {when(crossing)}"
        return Finding(sentence=f"More context came to help on text: {numbers}{at} {source}.", found=True)
    found, words = _not_formed(result, "icl_score")
    opening = {
        "there": f"More context helped on text already at the first checkpoint, step {result.steps[0]:,}, so when it "
        "came to cannot be told",
        "lost": f"More context came to help on text by {LEAST_ICL} nats, but not to stay",
        "none": f"More context did not come to help on text by {LEAST_ICL} nats",
        "unsure": f"Whether more context came to help on text by {LEAST_ICL} nats cannot be told",
    }[words]
    return Finding(sentence=f"{opening}: {numbers} {source}.", found=found)
