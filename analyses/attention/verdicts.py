"""A verdict for every head: what it is called, what speaks for and against that, and what ablating it does.

A name takes more than a score on random tokens. A head that was found for a kind (`analyses.attention.result`) is
*supported* if something is lost without it, after correction over all heads and outcomes that were tried, and nothing
else that was measured speaks against the name; *disputed* if something is lost but its weights or its attention on text
speak against it; and it has *attention* alone if nothing that can be told is lost, or it was not ablated: a stripe is
not yet a cause. A head that is not found, while its intervals cannot rule out that it is one of a kind, is *open*.
Heads that rest on position 0 and heads of no kind are described by what they do on a corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from weakref import WeakKeyDictionary

from jaxtyping import Bool
from torch import Tensor

from analyses.attention.circuit_items import behaviour_item, composition_items, copying_items
from analyses.attention.evidence import Bearing, Evidence, Source
from analyses.attention.harms import COPY, TEXT
from analyses.attention.items import attention_item, harm_items, text_item
from analyses.attention.readings import BY_CONTENT, Kind
from analyses.attention.result import Result, facts, found, possible, reading_for
from analyses.attention.words import WORDS
from interp.places import Head, head
from model.settings import as_enum


class Standing(StrEnum):
    """How well the name of a head is supported."""

    SUPPORTED = "supported"
    """Found by its attention; something is lost without it; nothing that was measured speaks against it."""
    DISPUTED = "disputed"
    """Found, and something is lost without it, but weights or text speak against the name."""
    ATTENTION = "attention only"
    """Found by its attention, and nothing that can be told is lost without it, or it was not ablated."""
    OPEN = "open"
    """Found for no kind, but for one at least that cannot be ruled out."""
    RESTS = "rests"
    """Attends to position 0, and to nothing that was looked for."""
    NONE = "no kind"
    """Passes no rule by which heads were looked for."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is to be said of one head."""

    layer: int
    head: int
    kinds: tuple[Kind, ...]
    """The kinds that its attention was found for, the one it is named after first."""
    standing: Standing
    evidence: tuple[Evidence, ...]
    """All that bears on it, the attention it was found by first."""
    sentence: str
    """The verdict with its evidence, in words."""
    lines: tuple[str, ...]
    """The same with what decides it only, a sentence for each group of sources."""
    possible: tuple[Kind, ...] = ()
    """The kinds that a head without `kinds` may be of, as its intervals cannot tell."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "standing", as_enum(Standing, self.standing, "standing"))

    @property
    def label(self) -> str:
        """As in L1H3."""
        return head(self.layer, self.head).label

    @property
    def short(self) -> str:
        """The lines in one."""
        return " ".join(self.lines)

    @property
    def name(self) -> str | None:
        """What the head is called; None where it has no name that stands."""
        return WORDS[self.kinds[0]].name if self.standing is Standing.SUPPORTED else None

    def items(self, source: Source | str) -> tuple[Evidence, ...]:
        """The evidence from one source."""
        wanted = as_enum(Source, source, "source")
        return tuple(item for item in self.evidence if item.source is wanted)

    def item(self, source: Source | str, what: str = "") -> Evidence | None:
        """The first item from a source whose description begins with `what`."""
        return next((item for item in self.items(source) if item.what.startswith(what)), None)


def verdicts(result: Result) -> tuple[Verdict, ...]:
    """One verdict for each head, layer by layer; weighed once for each result, since tables, figures and findings ask.

    A result is not changed once it is made, so what was weighed holds for as long as there is the result.
    """
    if result not in _WEIGHED:
        _WEIGHED[result] = _weighed(result)
    return _WEIGHED[result]


_WEIGHED: WeakKeyDictionary[Result, tuple[Verdict, ...]] = WeakKeyDictionary()


def _weighed(result: Result) -> tuple[Verdict, ...]:
    known = [kind for kind in WORDS if kind in reading_for(result, kind)]
    sure, maybe = ({kind: ask(result, kind) for kind in known} for ask in (found, possible))

    def kinds(masks: dict[Kind, Bool[Tensor, "layer head"]], place: Head) -> tuple[Kind, ...]:
        return tuple(kind for kind, mask in masks.items() if bool(mask[place]))

    return tuple(
        _verdict(result, place, own, () if own else kinds(maybe, place))
        for place in result.heads
        for own in [kinds(sure, place)]
    )


def _verdict(result: Result, place: Head, kinds: tuple[Kind, ...], maybe: tuple[Kind, ...]) -> Verdict:
    main = kinds[0] if kinds else None
    evidence = tuple(_evidence(result, place, kinds, maybe))
    standing = Standing.OPEN if maybe else _standing(main, evidence)
    opening = _opening(result, maybe[0] if maybe else main, standing, evidence)
    return Verdict(
        layer=place[0],
        head=place[1],
        kinds=kinds,
        standing=standing,
        evidence=evidence,
        sentence=" ".join(_sentences(result, place, opening, evidence)),
        lines=_sentences(result, place, opening, [each for each in evidence if each.decides]),
        possible=maybe,
    )


def _evidence(result: Result, place: Head, kinds: Sequence[Kind], maybe: Sequence[Kind]) -> Iterator[Evidence]:
    main = kinds[0] if kinds else None
    for kind in maybe:
        yield replace(attention_item(result, kind, place), bearing=Bearing.OPEN)
    for kind in kinds:
        yield attention_item(result, kind, place)
        on_text = text_item(result, kind, place)
        if on_text is not None:
            yield replace(on_text, bears=kind is main)
    yield from copying_items(result, main, place)
    yield from composition_items(result, place)
    yield behaviour_item(result, place)
    yield from harm_items(result, main, place)


def _standing(main: Kind | None, evidence: Sequence[Evidence]) -> Standing:
    if main is None:
        return Standing.NONE
    if main is Kind.FIRST:
        return Standing.RESTS
    if cause_of(evidence) is not Bearing.FOR:
        return Standing.ATTENTION
    return Standing.DISPUTED if _doubts(evidence) else Standing.SUPPORTED


def cause_of(evidence: Sequence[Evidence]) -> Bearing:
    """What the ablations say together: for, if one does; against, if all do that bear on it."""
    bearings = [item.bearing for item in evidence if item.source is Source.ABLATION and item.bears]
    if Bearing.FOR in bearings:
        return Bearing.FOR
    told = [bearing for bearing in bearings if bearing is not Bearing.ABSENT]
    if not told:
        return Bearing.ABSENT
    return Bearing.AGAINST if Bearing.AGAINST in told and Bearing.OPEN not in told else Bearing.OPEN


def _doubts(evidence: Sequence[Evidence]) -> list[Evidence]:
    return [
        item
        for item in evidence
        if item.bearing is Bearing.AGAINST and item.bears and item.source is not Source.ABLATION
    ]


_PARTS = (
    (Source.ATTENTION, Source.TEXT),
    (Source.COPYING, Source.COMPOSITION),
    (Source.BEHAVIOUR,),
)
"""What is said in one breath."""


def _sentences(result: Result, place: Head, opening: str, evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """What is said of a head, one sentence for each part."""
    parts = [f"{head(*place).label}: {opening}"]
    for sources in _PARTS:
        said = dict.fromkeys(item.said for item in evidence if item.source in sources and item.said)
        if said:
            parts.append("; ".join(said))
    n_text = "" if result.text is None else f" and {result.text.n_sequences} rows of text"
    parts.append(f"{_ablated(evidence)} ({facts(result, result.headline.n_sequences, f'sequences{n_text}')})")
    return tuple(f"{part[0].upper()}{part[1:]}." for part in parts)


def _opening(result: Result, main: Kind | None, standing: Standing, evidence: Sequence[Evidence]) -> str:
    if main is None:
        lost = _lost(evidence)
        return "passes no rule by which heads were looked for" + (f", yet {lost} without it" if lost else "")
    words = WORDS[main]
    match standing:
        case Standing.SUPPORTED:
            return words.name
        case Standing.DISPUTED:
            doubts = " and ".join(_DOUBTS[item.source] for item in _doubts(evidence))
            return f"{words.attends}, and {_lost(evidence)} without it, but {doubts}"
        case Standing.OPEN:
            return f"whether it {words.attends} cannot be told"
        case Standing.ATTENTION:
            return f"{words.attends}; {_no_cause(result, main, evidence)}: a stripe is not yet a cause"
        case _:
            return words.attends


_DOUBTS = {
    Source.TEXT: "on held-out text it does not attend so",
    Source.COPYING: "its weights do not copy",
}


def _lost(evidence: Sequence[Evidence]) -> str:
    """What is shown to be worse without the head; nothing if nothing is."""
    lost = {
        item.what.split(",")[0] for item in evidence if item.source is Source.ABLATION and item.bearing is Bearing.FOR
    }
    named = [name for outcome, name in ((COPY, "copying"), (TEXT, "text")) if outcome in lost]
    return f"{' and '.join(named)} {'is' if len(named) == 1 else 'are'} worse" if named else ""


def _no_cause(result: Result, main: Kind, evidence: Sequence[Evidence]) -> str:
    nats = f"{result.config.floor:g} nats{' of copying' if main in BY_CONTENT else ''}"
    return {
        Bearing.AGAINST: f"ablating it costs less than {nats}",
        Bearing.OPEN: f"that ablating it costs {nats} or more {_not_shown(result)}",
        Bearing.ABSENT: "it was not ablated",
    }[cause_of(evidence)]


def _not_shown(result: Result) -> str:
    """That something is not shown; and where so few sequences could have shown nothing, that."""
    harms = result.harms
    on = harms.on[0]
    smallest = harms.smallest_p(on)
    if smallest < result.config.alpha:
        return "is not shown"
    return f"cannot be shown by {on.harm.n} sequences in {harms.n_tests} tests (p is {smallest:.2g} at least)"


def _ablated(evidence: Sequence[Evidence]) -> str:
    """The ablations in one clause."""
    items = [item for item in evidence if item.source is Source.ABLATION]
    if items[0].bearing is Bearing.ABSENT:
        return items[0].said
    return f"ablating it alone costs {' and '.join(item.said for item in items)}"
