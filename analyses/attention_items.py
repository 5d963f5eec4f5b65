"""Evidence from what was measured on sequences: attention on random tokens, attention on text, ablation."""

from __future__ import annotations

from analyses.attention_evidence import Bearing, Evidence, Source
from analyses.attention_harms import COPY, TEXT, HarmOn
from analyses.attention_readings import BY_CONTENT, Kind, Reading
from analyses.attention_result import Result, reading_for
from analyses.attention_words import WORDS
from interp.places import Head
from interp.stats import Interval
from interp.wording import nats, number
from model.settings import as_enum


def attention_item(result: Result, kind: Kind | str, place: Head) -> Evidence:
    """The score by which a head was found, or might be."""
    kind = as_enum(Kind, kind, "kind")
    reading = reading_for(result, kind)
    measure, before = reading[kind], _before(result, reading, kind, place)
    score = measure.intervals[place]
    rank = int(measure.ranks[place])
    parts = [f"chance {number(measure.chance)}", f"rank {rank} of {measure.n_heads}"]
    if kind in BY_CONTENT and kind in result.control:
        there = number(float(result.control[kind].intervals.mean[place]))
        parts.append(f"{there} at that distance where the copy is re-ordered")
    parts.append(_at_step_zero(result, before))
    where = WORDS[kind].where if measure.offsets is None else _distance(int(measure.offsets[place]))
    return Evidence(
        source=Source.ATTENTION,
        what=f"{kind.value} score, {reading.title}",
        bearing=Bearing.FOR,
        said=f"{score:.2f} of its attention {where} ({', '.join(parts)})",
        value=score.mean,
        low=score.low,
        high=score.high,
        null=measure.chance,
        rank=rank,
        n_heads=measure.n_heads,
        step_0=before,
    )


def text_item(result: Result, kind: Kind | str, place: Head) -> Evidence | None:
    """Whether it attends so on held-out text as well; None where there is no text, or no such score on it."""
    text, kind = result.text, as_enum(Kind, kind, "kind")
    if text is None or kind not in text:
        return None
    measure = text[kind]
    score = measure.intervals[place]
    more = score.above(measure.chance)
    bearing = {True: Bearing.FOR, False: Bearing.AGAINST, None: Bearing.OPEN}[more]
    compared = {True: "more than", False: "no more than", None: "not told apart from"}[more]
    where = _ON_TEXT.get(kind, WORDS[kind].where) if measure.offsets is None else _distance(int(measure.offsets[place]))
    even = f"the {number(measure.chance)} of even attention"
    resting = "" if kind is Kind.FIRST else _resting(text, place)
    return Evidence(
        source=Source.TEXT,
        what=f"{kind.value} score, held-out text",
        bearing=bearing,
        said=f"on held-out text {score:.2f} {where}, {compared} {even}{resting}",
        value=score.mean,
        low=score.low,
        high=score.high,
        null=measure.chance,
        rank=int(measure.ranks[place]),
        n_heads=measure.n_heads,
        step_0=_before(result, text, kind, place),
    )


_ON_TEXT = {
    Kind.INDUCTION: "on tokens that followed an earlier copy",
    Kind.DUPLICATE: "on earlier copies of the token",
}
"""A text holds more than one earlier copy of a token."""

_MUCH = 0.25
"""Share of attention from which resting on position 0 is spoken of beside something else."""


def _resting(text: Reading, place: Head) -> str:
    share = float(text[Kind.FIRST].intervals.mean[place]) if Kind.FIRST in text else 0.0
    return f", while {number(share)} rests on position 0" if share >= _MUCH else ""


def harm_items(result: Result, kind: Kind | str | None, place: Head) -> tuple[Evidence, ...]:
    """What ablating it alone costs on copying and on text.

    Kinds that need a match are for copying, so only copying decides about them; any other kind may serve either.
    """
    kind = None if kind is None else as_enum(Kind, kind, "kind")
    harms = result.harms
    at = harms.place_of(place)
    if at is None:
        said = f"not ablated: the {len(harms.heads)} heads with the strongest claims were"
        return (Evidence(source=Source.ABLATION, what=COPY, bearing=Bearing.ABSENT, said=said),)
    return tuple(_harm_item(result, on, at, place, _bears(kind, on.outcome)) for on in harms.on)


def _bears(kind: Kind | None, outcome: str) -> bool:
    return outcome == COPY or kind not in BY_CONTENT


def _harm_item(result: Result, on: HarmOn, at: int, place: Head, bears: bool) -> Evidence:  # noqa: FBT001
    harm, p, config = on.harm[at], float(on.p[at]), result.config
    before = None if result.harms_at_step_zero is None else result.harms_at_step_zero.harm(on.outcome, place)
    return Evidence(
        source=Source.ABLATION,
        what=f"{on.outcome}, ablated alone",
        bearing=_bearing_of_harm(harm, p, floor=config.floor, alpha=config.alpha),
        bears=bears,
        said=f"{nats(harm)} on {_OUTCOMES[on.outcome]} ({_p(p)}{'' if before is None else _start(before)})",
        value=harm.mean,
        low=harm.low,
        high=harm.high,
        null=0.0,
        p=p,
        n_heads=len(result.harms.heads),
        step_0=None if before is None else before.mean,
    )


_OUTCOMES = {COPY: "copying", TEXT: "held-out text"}


def _bearing_of_harm(harm: Interval, p: float, *, floor: float, alpha: float) -> Bearing:
    """For: something is lost that is at least `floor` nats and not luck; against: the whole interval is below that."""
    if harm.mean >= floor and harm.low > 0 and p < alpha:
        return Bearing.FOR
    return Bearing.AGAINST if harm.high < floor else Bearing.OPEN


def _p(p: float) -> str:
    return f"Holm p = {p:.2g}"


def _start(before: Interval) -> str:
    return f", {number(before.mean)} at step 0"


def _distance(offset: int) -> str:
    return f"{offset} {'token' if offset == 1 else 'tokens'} back"


def _before(result: Result, reading: Reading, kind: Kind, place: Head) -> float | None:
    first = result.first(reading)
    return None if first is None or kind not in first else float(first[kind].intervals.mean[place])


def _at_step_zero(result: Result, before: float | None) -> str:
    if before is not None:
        return f"{number(before)} at step 0"
    return "this being step 0" if result.step == 0 else "no step 0 is kept"
