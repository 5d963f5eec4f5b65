"""Evidence from what was measured on sequences: attention on random tokens, attention on text, ablation."""

from __future__ import annotations

from analyses.attention.evidence import Bearing, Evidence, Source
from analyses.attention.harms import COPY, TEXT, HarmOn
from analyses.attention.readings import BY_CONTENT, Kind, Reading
from analyses.attention.result import Result, reading_for
from analyses.attention.words import WORDS
from analyses.verdicts import Verdict as EffectVerdict
from analyses.verdicts import verdict
from interp.places import Head
from interp.stats import EXACT_FLIPS, Interval
from interp.wording import nats, number
from model.settings import as_enum


def attention_item(result: Result, kind: Kind | str, place: Head) -> Evidence:
    """The score by which a head was found, or might be."""
    kind = as_enum(Kind, kind, "kind")
    reading = reading_for(result, kind)
    measure = reading[kind]
    score = measure.intervals[place]
    rank = int(measure.ranks[place])
    parts = [f"chance {number(measure.chance)}", f"rank {rank} of {measure.n_heads}"]
    if kind in BY_CONTENT and kind in result.control:
        there = number(float(result.control[kind].intervals.mean[place]))
        parts.append(f"{there} at that distance where the copy is re-ordered")
    parts.append(at_step_zero(result, reading, kind, place))
    return Evidence(
        source=Source.ATTENTION,
        what=f"{kind.value} score, {reading.title}",
        bearing=Bearing.FOR,
        said=f"{score:.2f} of its attention {where_of(reading, kind, place)} ({', '.join(parts)})",
        kind=kind,
        value=score.mean,
        low=score.low,
        high=score.high,
        null=measure.chance,
        rank=rank,
        n_heads=measure.n_heads,
        step_0=_before(result, reading, kind, place),
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
    where = _ON_TEXT.get(kind) or where_of(text, kind, place)
    even = f"the {number(measure.chance)} of even attention"
    resting = "" if kind is Kind.FIRST else resting_on(text, place)
    return Evidence(
        source=Source.TEXT,
        what=f"{kind.value} score, held-out text",
        bearing=bearing,
        said=f"on held-out text {score:.2f} {where}, {compared} {even}{resting}",
        kind=kind,
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


def resting_on(text: Reading, place: Head) -> str:
    """Where else its attention goes on text, if much of it goes to position 0."""
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
        said=f"{nats(harm)} on {_outcome(result, on)} ({', '.join(_beside(result, on, p, before))})",
        value=harm.mean,
        low=harm.low,
        high=harm.high,
        null=0.0,
        p=p,
        n_heads=len(result.harms.heads),
        step_0=None if before is None else before.mean,
    )


def _bearing_of_harm(harm: Interval, p: float, *, floor: float, alpha: float) -> Bearing:
    """For: the whole interval is at least `floor` nats, and that is not luck; against: it is less."""
    if verdict(harm, floor) is EffectVerdict.EFFECT and harm.mean > 0:
        return Bearing.FOR if p < alpha else Bearing.OPEN
    return Bearing.AGAINST if harm.high < floor else Bearing.OPEN


def _outcome(result: Result, on: HarmOn) -> str:
    """Where something is lost, and of copying how much there is to lose."""
    if on.outcome == TEXT:
        return "held-out text"
    gained = number(result.harms.copying.mean)
    return f"copying at period {result.harms.period}, where a repeat saves {gained}"


def _beside(result: Result, on: HarmOn, p: float, before: Interval | None) -> list[str]:
    """How many sequences, where not as many as the sentence says; p; step 0."""
    n, smallest = on.harm.n, result.harms.smallest_p(on)
    drawn = n > EXACT_FLIPS and p <= smallest * (1 + 1e-9)
    return [
        *([] if n == result.headline.n_sequences else [f"n = {n}"]),
        f"Holm p {'<=' if drawn else '='} {p:.2g} over {result.harms.n_tests} tests",
        *([] if before is None else [f"{number(before.mean)} at step 0"]),
    ]


def where_of(reading: Reading, kind: Kind | str, place: Head) -> str:
    """Where a head's attention goes by a kind of score; of fixed distances, which."""
    kind = as_enum(Kind, kind, "kind")
    offsets = reading[kind].offsets
    if offsets is None:
        return WORDS[kind].where
    offset = int(offsets[place])
    return f"{offset} {'token' if offset == 1 else 'tokens'} back"


def _before(result: Result, reading: Reading, kind: Kind, place: Head) -> float | None:
    first = result.first(reading)
    return None if first is None or kind not in first else float(first[kind].intervals.mean[place])


def at_step_zero(result: Result, reading: Reading, kind: Kind | str, place: Head) -> str:
    """The same score at step 0, or why it is missing."""
    before = _before(result, reading, as_enum(Kind, kind, "kind"), place)
    if before is not None:
        return f"{number(before)} at step 0"
    return "this is step 0" if result.step == 0 else "the run keeps no step 0"
