"""What the scores of a checkpoint's heads say, in sentences that deny what is not there.

Three cases are kept apart: a score that is above what it is compared with, one whose whole interval is not, and one
that cannot be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analyses.attention.evidence import Bearing, Source
from analyses.attention.items import at_step_zero, resting_on, where_of
from analyses.attention.readings import BY_CONTENT, Kind, Reading
from analyses.attention.result import (
    Result,
    can_be_found,
    claimed_heads,
    facts,
    found_heads,
    may_have_the_name,
    possible,
    ranked,
    reading_for,
)
from analyses.attention.verdicts import Standing, Verdict, cause_of, verdicts
from analyses.attention.words import WORDS
from analyses.registry import Finding
from interp.places import Head, head


def sentences(result: Result) -> list[Finding]:
    """Induction first, then what it looks like on other stimuli, then the other kinds.

    Heads that copy from two tokens after the earlier copy are rare, and are spoken of only where there are some.
    """
    later = Kind.LATER in result.headline and found_heads(result, Kind.LATER)
    return [
        _kind(result, Kind.INDUCTION),
        *_elsewhere(result),
        *([_kind(result, Kind.LATER)] if later else []),
        *(_kind(result, kind) for kind in _OTHERS if kind in reading_for(result, kind)),
        *_heads(result),
    ]


_OTHERS = (Kind.PREVIOUS, Kind.DUPLICATE, Kind.CURRENT, Kind.POSITIONAL, Kind.FIRST)


def _kind(result: Result, kind: Kind) -> Finding:
    """Heads of a kind with the strongest one's score; or that there is none; or that this cannot be told."""
    words = WORDS[kind]
    heads, open_ones = found_heads(result, kind), ranked(result, kind, possible(result, kind))
    reading = reading_for(result, kind)
    named = ranked(result, kind, may_have_the_name(result, kind))
    if not named:
        return _no_name(result, kind)
    best = (heads or open_ones or named)[0]
    share = f"{reading[kind].intervals[best]:.2f}"
    if heads:
        count = f"One head {words.attends}" if len(heads) == 1 else f"{len(heads)} heads {words.attend}"
        opening, needed = f"{count} ({_listed(heads)})", ""
        fact = f"{head(*best).label} puts {share} of its attention {where_of(reading, kind, best)}"
    else:
        opening = f"Whether a head {words.attends} cannot be told" if open_ones else f"No head {words.attends}"
        needed = f"; {_rule(result, kind)}"
        which = (
            head(*best).label
            if reading[kind].offsets is None
            else f"{head(*best).label}, {where_of(reading, kind, best)}"
        )
        fact = f"the {'' if open_ones else 'largest '}share of attention {words.where} is {share} ({which})"
    against = _comparisons(result, kind, best)
    at = f"{_period(result)}{'' if reading is result.headline else ', the second copy re-ordered'}"
    sentence = f"{opening}: at {at}, {fact}, against {against}{needed} {_source(result)}."
    return Finding(sentence=sentence, found=True if heads else None if open_ones else False)


def _no_name(result: Result, kind: Kind) -> Finding:
    """Every head attends most at distance 0 or 1, which have names of their own."""
    sentence = f"No head {WORDS[kind].attends} of two tokens or more: each attends most to the token itself or before"
    return Finding(
        sentence=f"{sentence}, the second copy re-ordered, at {_period(result)} {_source(result)}.", found=False
    )


N_SPOKEN = 6
"""Heads whose verdicts are said one by one, at most; heads.csv has all."""


def _heads(result: Result) -> list[Finding]:
    """How many heads bear their names, then the verdicts on the strongest of each kind, then on the next of each."""
    every = verdicts(result)
    of_kind = Counter[Kind]()
    ranked_verdicts: list[tuple[int, int, Verdict]] = []
    for verdict in _in_order(result, every):
        ranked_verdicts.append((of_kind[verdict.kinds[0]], len(ranked_verdicts), verdict))
        of_kind[verdict.kinds[0]] += 1
    spoken = [verdict for *_, verdict in sorted(ranked_verdicts, key=lambda each: each[:2])[:N_SPOKEN]]
    return [_count(result, every), *(_verdict(each) for each in spoken), *_not_defined(result)]


def _verdict(verdict: Verdict) -> Finding:
    return Finding(sentence=verdict.short, lines=verdict.lines, found=_found(verdict))


def _not_defined(result: Result) -> list[Finding]:
    """What was not read, one reason for each setting of the model that forbids it."""
    reasons: dict[str, list[str]] = {}
    for name, each in result.weights.missing.items():
        reasons.setdefault(each.reason, []).append(_READ.get(name, f"{name.upper()}-composition"))
    weights = [
        f"From the weights {_and(names)} {'is' if len(names) == 1 else 'are'} not read: {reason}"
        for reason, names in reasons.items()
    ]
    corpus = [] if result.no_behaviour is None else [f"What heads do on a corpus is not seen: {result.no_behaviour}"]
    return [Finding(sentence=said, found=None) for said in (*weights, *corpus)]


_READ = {"copying": "copying"}


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _in_order(result: Result, every: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts on heads with a claim, kind by kind, each kind's strongest first."""
    by_place = {(each.layer, each.head): each for each in every}
    return [by_place[place] for place in claimed_heads(result)]


def _found(verdict: Verdict) -> bool | None:
    """Whether a name is affirmed, denied, or open: without a head something is lost, nothing, or it cannot be told."""
    if verdict.standing is Standing.SUPPORTED:
        return True
    if verdict.standing is Standing.OPEN:
        return None
    return False if cause_of(verdict.evidence) is Bearing.AGAINST else None


def _count(result: Result, every: Sequence[Verdict]) -> Finding:
    """How many heads stand how, with their names where a head has a claim."""
    by = {standing: [(each.layer, each.head) for each in every if each.standing is standing] for standing in Standing}
    supported = [each for each in every if each.standing is Standing.SUPPORTED]
    said = f"No head of {len(every)} is shown to be what it attends like"
    if supported:
        names = _several(by[Standing.SUPPORTED], "is what it attends like", "are what they attend like")
        said = f"Of {len(every)} heads {names}, by {_sources(supported)}"
    rest = [_several(places, *words) for standing, words in _STANDINGS.items() if (places := by[standing])]
    unsure = any(each.standing in _UNSURE and _found(each) is None for each in every)
    found = True if supported else None if unsure else False
    return Finding(sentence=f"{'; '.join([said, *rest])} {_source(result)}.", found=found)


_UNSURE = (Standing.OPEN, Standing.DISPUTED, Standing.ATTENTION)


def _sources(supported: Sequence[Verdict]) -> str:
    """By which sources all of these heads bear their names, and how many of them do by others."""
    speaking = {words: [_speaks(each, source) for each in supported] for source, words in _SPEAKING.items()}
    n_for = {words: bearings.count(Bearing.FOR) for words, bearings in speaking.items()}
    by_all = [words for words, n in n_for.items() if n == len(supported)]
    some = [f"{n} of them also by {words}" for words, n in n_for.items() if 0 < n < len(supported)]
    return ", ".join([_and(by_all), *some])


def _speaks(verdict: Verdict, source: Source) -> Bearing:
    """What a source says of the kind that a head is named after."""
    items = [item for item in verdict.items(source) if item.kind in (None, verdict.kinds[0])]
    said = [item.bearing for item in items if item.bears]
    return next((each for each in (Bearing.FOR, Bearing.AGAINST, Bearing.OPEN) if each in said), Bearing.ABSENT)


_SPEAKING = {
    Source.ATTENTION: "attention",
    Source.TEXT: "text (more than even attention)",
    Source.COPYING: "weights",
    Source.ABLATION: "ablation",
}
"""The sources that can speak for a name, in words."""


_STANDINGS = {
    Standing.DISPUTED: ("is disputed", "are disputed"),
    Standing.ATTENTION: (
        "attends like one of a kind, but is not shown to matter for it",
        "attend like one of a kind, but are not shown to matter for it",
    ),
    Standing.OPEN: ("may be of a kind, which cannot be told", "may be of a kind, which cannot be told"),
    Standing.RESTS: ("rests on position 0", "rest on position 0"),
    Standing.NONE: ("passes no rule by which heads were looked for", "pass no rule by which heads were looked for"),
}
"""What is said of one head and of several that stand so."""


def _several(places: Sequence[Head], one: str, many: str) -> str:
    """How many heads do something, and which."""
    count = f"one {one}" if len(places) == 1 else f"{len(places)} {many}"
    return f"{count} ({_listed(places)})"


def _rule(result: Result, kind: Kind) -> str:
    """What a head would have to show, and where no head could show it."""
    config = result.config
    if kind in BY_CONTENT and result.headline.trained:
        return (
            "at a period that training showed, a learned distance cannot be told from finding the earlier copy, so no "
            "head counts"
        )
    if not can_be_found(result, kind):
        bar = config.times_chance * result.headline[kind].chance
        return (
            f"at so short a period {config.times_chance:g} times chance is {bar:.2f}, more than all of a head's "
            "attention, so no head counts"
        )
    beyond = "chance" if result.at_step_zero is None else "chance and step 0"
    margin = f"an interval from {config.margin:g} above {beyond} on"
    if kind not in BY_CONTENT:
        return f"needed are {config.threshold:g} and {margin}"
    times = f"{config.times_chance:g} times chance"
    return f"needed are {config.threshold:g}, {times}, {margin}, and under half of it in the control"


def _elsewhere(result: Result) -> list[Finding]:
    """The strongest found induction head by content in the control, and on text."""
    heads = found_heads(result, Kind.INDUCTION)
    if not heads:
        return []
    by_content = [_by_content(result, heads[0])] if Kind.MATCH in result.control else []
    on_text = result.text is not None and Kind.INDUCTION in result.text
    return [*by_content, *([_on_text(result, result.text, heads[0])] if on_text and result.text else [])]


_BY_CONTENT = {
    True: ("still puts", "it follows the content"),
    False: ("puts no more than chance,", "it does not follow the content"),
    None: ("puts", "whether it follows the content cannot be told"),
}
"""What the re-ordered control says of a head that is above chance, not above it, or either."""


def _by_content(result: Result, best: Head) -> Finding:
    match = result.control[Kind.MATCH]
    follows = match.intervals[best].above(match.chance)
    verb, verdict = _BY_CONTENT[follows]
    against = _with_step_zero(result, [f"{match.chance:.2f} by chance"], result.control, Kind.MATCH, best)
    sentence = (
        f"Where the second copy is re-ordered, {head(*best).label} {verb} {match.intervals[best]:.2f} of its "
        f"attention on the true match, the token after the earlier copy wherever it is now, against {against}: "
        f"{verdict} {_source(result)}."
    )
    return Finding(sentence=sentence, found=follows)


_ON_TEXT = {True: "more than", False: "no more than", None: "not told apart from"}
"""How a share of attention on text compares with even attention."""


def _on_text(result: Result, text: Reading, best: Head) -> Finding:
    measure = text[Kind.INDUCTION]
    more = measure.intervals[best].above(measure.chance)
    sentence = (
        f"On held-out text {head(*best).label} puts {measure.intervals[best]:.2f} of its attention on tokens that "
        f"followed an earlier copy, {_ON_TEXT[more]} the {measure.chance:.2f} of even attention"
        f"{resting_on(text, best)} ({at_step_zero(result, text, Kind.INDUCTION, best)}; "
        f"{facts(result, measure.intervals.n, 'rows')})."
    )
    return Finding(sentence=sentence, found=more)


def _comparisons(result: Result, kind: Kind, best: Head) -> str:
    parts = [f"{reading_for(result, kind)[kind].chance:.2f} by chance"]
    if kind in BY_CONTENT:
        there = float(result.control[kind].intervals.mean[best])
        parts.append(f"{there:.2f} at that distance in the re-ordered control")
    return _with_step_zero(result, parts, reading_for(result, kind), kind, best)


def _with_step_zero(result: Result, parts: Sequence[str], reading: Reading, kind: Kind, best: Head) -> str:
    """What a score is compared with, step 0 last; where that is missing, why in brackets."""
    before = at_step_zero(result, reading, kind, best)
    if result.at_step_zero is None:
        return f"{_and(parts)} ({before})"
    return _and([*parts, before])


def _period(result: Result) -> str:
    reading, trained = result.headline, result.trained_periods
    if trained is None:
        return f"period {reading.period} (no repeats in the training on record)"
    known = "among" if reading.trained else "outside"
    return f"period {reading.period}, {known} training's {trained[0]} to {trained[1]}"


def _source(result: Result) -> str:
    return f"({facts(result, result.headline.n_sequences, 'sequences')})"


def _listed(heads: Sequence[Head]) -> str:
    names = [head(*each).label for each in heads[:6]]
    return ", ".join(names) + (f" and {len(heads) - 6} more" if len(heads) > 6 else "")
