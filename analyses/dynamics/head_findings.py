"""What training-dynamics says of the heads of one kind: when they rose, and what stands against their scores."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.attention.kinds import Kind
from analyses.attention.words import WORDS
from analyses.dynamics.formation import Rise, formed, head_rises, largest_of_others, open_for
from analyses.dynamics.result import Result
from analyses.dynamics.wording import bracket, facts, labels_of, when
from analyses.registry import Finding
from interp.places import Head
from interp.places import head as named
from interp.wording import number, with_interval
from model.settings import as_enum

_SPOKEN = 4
"""Heads of a kind whose steps are said one by one, at most; the table has all."""


def heads_of_kind(result: Result, kind: Kind | str) -> Finding:
    """The heads of a kind that stand at the last checkpoint, and when each was half way up; or that there is none."""
    kind = as_enum(Kind, kind, "kind")
    words, heads = WORDS[kind], formed(result, kind)
    others = largest_of_others(result, kind, heads)
    if not heads:
        is_open = open_for(result, kind)
        opening = f"Whether a head came to {_to(words.attends)} cannot be told" if is_open else _none(words.attends)
        largest = "" if others is None else f": the largest share of attention {words.where} of any head at any "
        if others is not None:
            largest += (
                f"checkpoint is {with_interval(others.score)} ({named(*others.head).label} at step {others.step:,})"
            )
        last = f", and at step {result.step:,} the rule of attention-patterns is not met"
        return Finding(sentence=f"{opening}{largest}{last} {facts(result)}.", found=None if is_open else False)
    several = head_rises(result, kind, heads)
    risen = [rise.head for rise in several if rise.crossing is not None and rise.head is not None]
    if not risen and not result.starts_at_zero:
        return _already_there(result, kind, several)
    standing = "" if result.starts_at_zero else _standing([head for head in heads if head not in risen])
    heads = heads if result.starts_at_zero else [head for head in heads if head in risen]
    several = [rise for rise in several if rise.head in heads]
    count = (
        f"One head came to {_to(words.attends)}" if len(heads) == 1 else f"{len(heads)} heads came to {words.attend}"
    )
    said = "; ".join(_one(rise) for rise in several[:_SPOKEN])
    more = f"; {len(several) - _SPOKEN} more in the table" if len(several) > _SPOKEN else ""
    against = _against(result, kind, several)
    first = several[0].crossing
    since = "" if first is None else f", {'' if len(heads) == 1 else 'the first '}half way up {bracket(first)}"
    return Finding(
        sentence=f"{count}{since} ({labels_of(heads)}): {said}{more}{standing}. {against} {facts(result)}.", found=True
    )


def _to(attends: str) -> str:
    return attends.replace("attends", "attend", 1).replace("rests", "rest", 1)


def _none(attends: str) -> str:
    return f"No head came to {_to(attends)}"


def _one(rise: Rise) -> str:
    """One head's last score, and when it was half way there."""
    label = "" if rise.head is None else named(*rise.head).label
    lost = "" if rise.peak is None else f" after {with_interval(rise.peak.value)} at step {rise.peak.step:,}"
    if rise.crossing is None:
        return f"{label} stands at {with_interval(rise.last)}{lost}, with {with_interval(rise.first)} at first"
    return f"{label} stands at {with_interval(rise.last)}{lost} and was half way {when(rise.crossing)}"


def _already_there(result: Result, kind: Kind, several: Sequence[Rise]) -> Finding:
    """Of heads that did not surely rise since a first checkpoint that is not step 0."""
    words, labels = WORDS[kind], labels_of([rise.head for rise in several if rise.head is not None])
    who = (
        f"one head came to {_to(words.attends)}"
        if len(several) == 1
        else f"{len(several)} heads came to {words.attend}"
    )
    said = "; ".join(_one(rise) for rise in several[:_SPOKEN])
    more = f"; {len(several) - _SPOKEN} more in the table" if len(several) > _SPOKEN else ""
    against = _against(result, kind, several)
    return Finding(
        sentence=(
            f"When {who} cannot be told: {labels} did not surely rise by {number(result.config.margin)} since the "
            f"first checkpoint, step {result.steps[0]:,}; {said}{more}. {against} {facts(result)}."
        ),
        found=None,
    )


def _standing(heads: Sequence[Head]) -> str:
    """The heads of which it is not known when they rose, beside those that did."""
    return f"; when {labels_of(heads)} rose cannot be told: there is no step 0" if heads else ""


def _against(result: Result, kind: Kind, several: Sequence[Rise]) -> str:
    """What the scores stand beside: step 0, chance, the re-ordered copy, text, and the heads that did not form."""
    first = several[0]
    largest = max(rise.first.mean for rise in several)
    parts = [
        f"At step {result.steps[0]:,} their scores were at most {number(largest)} (chance {number(first.chance or 0)})"
    ]
    if first.control is not None:
        most = max((rise.control for rise in several if rise.control is not None), key=lambda each: each.mean)
        parts.append(f"at the old distance with the second copy re-ordered at most {with_interval(most)}")
    if first.on_text is not None and first.text_chance is not None:
        least = min((rise.on_text for rise in several if rise.on_text is not None), key=lambda each: each.mean)
        most = max((rise.on_text for rise in several if rise.on_text is not None), key=lambda each: each.mean)
        on_text = f"{with_interval(least)} to {with_interval(most)}" if least is not most else with_interval(most)
        parts.append(f"on held-out text {on_text} (chance {number(first.text_chance)})")
    largest_other = largest_of_others(result, kind, formed(result, kind))
    if largest_other is not None:
        parts.append(
            f"no other head passed {with_interval(largest_other.score)} at any checkpoint "
            f"({named(*largest_other.head).label} at step {largest_other.step:,})"
        )
    return "; ".join(parts)
