"""FFN memories as lines of text for a terminal: one in full, and the hits of a search (for `cutaway memories`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyses.memories.text import shown

if TYPE_CHECKING:
    from analyses.memories.index import MemoryIndex
    from analyses.memories.search import Found

SHARED = {
    "last_token_share": "end in the same token",
    "last_bigram_share": "end in the same two tokens",
    "last_trigram_share": "end in the same three tokens",
    "region_share": "end within 256 tokens of one document",
    "position_share": "end at the same position",
    "copied_share": "copy a stronger one",
}
"""Shares of triggers that are told, in words."""

_INDENT = 10
_NEGATIVE = 3
"""Prefixes shown with the most negative coefficients: under GELU these are hardly below zero, and any."""


def card_lines(record: Mapping[str, Any], width: int) -> Iterator[str]:
    """All that is known of one memory (`analyses.memories.card`); contexts are cut in front to fit `width`."""
    yield from _activity_lines(record)
    yield from _trigger_lines("Fired most by (coefficient, end of the prefix, what follows)", record["triggers"], width)
    yield from _trigger_lines("Most negative on", record["negative"][:_NEGATIVE], width)
    yield from _share_lines(record)
    yield from _value_lines(record["value"])
    yield from ("", "Agreement", f"  {_agreement_line(record['agreement'])}")
    if record["ablate"] is not None:
        yield from ("", f"Test it: {record['ablate']}")


def found_lines(index: MemoryIndex, found: Found, top: int, width: int) -> Iterator[str]:
    """How many were found, and for each of the best why it matched, its top trigger, and what it promotes."""
    from analyses.memories.card import trigger_record
    from analyses.memories.search import found_rows

    shares = f"{len(found):,} of {index.alive.size:,} memories of {index.checkpoint} ({index.corpus})"
    yield f"{shares}; the best {top:,}:" if len(found) > top else shares
    for hit, row in enumerate(found_rows(index, found, top)):
        place = int(found.layer[hit]), int(found.memory[hit])
        concept = None if row["concept"] and row["concept"] in row["why"] else row["concept"]
        said = [row["why"], row["pattern"], concept, f"fires on {row['firing rate']:.1%}"]
        yield f"{row['memory']:<{_INDENT}}{'; '.join(filter(None, said))}"
        if index.alive[place]:
            yield f"{'':<{_INDENT}}{context_line(trigger_record(index, *place, rank=row['rank']), width - _INDENT)}"
        yield f"{'':<{_INDENT}}promotes {' '.join(map(shown, row['promotes']))}"


def context_line(trigger: Mapping[str, Any], room: int) -> str:
    """The end of a prefix with its last token marked and what follows, cut at its beginning to fit.

    >>> context_line({"before": "from model ", "last": "import", "next": " GPT", "cut": False}, 40)
    'from·model·⟦import⟧ → ·GPT'
    >>> context_line({"before": "from model ", "last": "import", "next": " GPT", "cut": False}, 22)
    '…model·⟦import⟧ → ·GPT'
    """
    tail = f"⟦{shown(trigger['last'])}⟧ → {shown(trigger['next'])}"
    before, left = shown(trigger["before"]), max(0, room - len(tail) - 1)
    if len(before) > left:
        return f"…{before[len(before) - left :]}{tail}"
    return f"{'…' if trigger['cut'] else ''}{before}{tail}"


def _activity_lines(record: Mapping[str, Any]) -> Iterator[str]:
    seen = record["activity"]
    start = "" if seen["step 0 firing rate"] is None else f" (step 0: {seen['step 0 firing rate']:.1%})"
    state = "never fired" if seen["state"] == "dead" else seen["state"]
    yield f"{record['memory']} of {record['checkpoint']} ({_corpus(record['corpus'])}): {state}"
    if seen["state"] == "dead":
        yield f"  never further from zero than 1e-6{start}"
        return
    yield f"  above zero on {seen['firing rate']:.1%} of prefixes{start}"
    yield f"  above a tenth of its largest on {seen['strong rate']:.1%}, negative on {seen['negative rate']:.1%}"
    yield f"  from {seen['lowest'] + 0.0:.3g} to {seen['largest']:.3g}, mean {seen['mean']:.3g}, std {seen['std']:.3g}"


def _corpus(corpus: Mapping[str, Any]) -> str:
    text = corpus["text"] or f"{corpus['split'].replace('_', '-')} text"
    return f"{text}, {corpus['n_prefixes']:,} prefixes, seed {corpus['seed']}"


def _trigger_lines(title: str, triggers: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    if triggers:
        yield from ("", title)
    for each in triggers:
        yield f"  {each['coefficient']:>8.3f}  {context_line(each, width - 12)}"


def _share_lines(record: Mapping[str, Any]) -> Iterator[str]:
    shares = record["shares"]
    if not shares["n"]:
        return
    kinds = ", ".join(kind for kind in record["patterns"] if kind != record["pattern"])
    yield from ("", f"Its {shares['n']} triggers: {record['pattern']}{kinds and f' (also {kinds})'}")
    for name, said in SHARED.items():
        each = shares[name]
        if each["triggers"] is not None:
            start = "" if each["step 0"] is None else f"; at step 0 {each['step 0']:.0%}"
            yield f"  {each['triggers']:>5.0%} {said} (random prefixes {each['random']:.0%}{start})"
    yield f"  {_deletion_line(record)}"


def _deletion_line(record: Mapping[str, Any]) -> str:
    """How far the coefficient falls without a token, or what measures it."""
    falls = record["deletions"]
    if falls is None:
        return f"without a token: not in the study's sample; measure it: {record['cut']}"
    if not falls["n"]:
        return "without a token: no trigger has three tokens that could be cut"
    told = ", ".join(
        f"{name} {round(falls[name], 2) + 0.0:.0%}" for name in ("first", "last", "random") if falls[name] is not None
    )
    return f"without a token the coefficient falls: {told} (mean of {falls['n']} triggers)"


def _value_lines(value: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "Value (logits per unit of coefficient, before the final norm's scale)")
    for what in ("promotes", "suppresses"):
        tokens = "  ".join(f"{shown(each['token'])} {each['score']:.3g}" for each in value[what])
        yield f"  {what:<10}  {tokens}"
    if value["concept"] is not None:
        concept = value["concept"]
        yield f"  concept     {concept['name']}: {concept['covered']} of its top tokens (p = {concept['p']:.1g})"
    cosine = "not defined" if value["cosine"] is None else f"{value['cosine']:+.2f}"
    sizes = f"|v| {value['norm']:.3g}, |k| {value['key norm']:.3g}, cos(k, v) {cosine}"
    yield f"  {sizes}, confidence {value['confidence']:.3g}"


def _agreement_line(agreement: Mapping[str, Any]) -> str:
    if agreement["rank"] is None:
        return "none: it never fired, so nothing followed"
    share, chance = agreement["layer share"], agreement["layer chance"]
    layer = "" if share is None else f"; in its layer {share:.1%} agree, by chance {chance:.1%}"
    return (
        f"what followed its top trigger, {shown(agreement['next'])}, stands at place {agreement['rank'] + 1:,} of "
        f"{agreement['d_vocab']:,} in its value's order; the first of them followed {agreement['n_agreeing']} of its "
        f"{agreement['n_triggers']} triggers{layer}"
    )
