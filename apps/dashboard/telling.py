"""Findings as they are read: a short lead each, and under it, when it is opened, the whole sentence with its numbers.

They open and close in the browser, without asking the server. A lead is a clause with a verb; where it tells a number,
it goes on to the interval and the unit.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

import streamlit as st

from analyses.registry import Finding

MARKS = {True: "●", False: "○", None: "?"}
"""Found; looked for and not found; cannot be told."""

GROUPS = {True: "Found", False: "Looked for and not found", None: "Cannot be told"}

SHORT = 110
"""Characters of a sentence that is its own lead."""

LEAST = 14
"""Characters of a lead, at least: the name of a head alone is none."""

FEW = 3
"""Leads shown in short; the others fold."""

STYLE = """<style>
.findings { display: flex; flex-direction: column; gap: 2px; line-height: 1.45; }
.findings details > summary { cursor: pointer; padding: 2px 0 2px 1.3em; text-indent: -1.3em; list-style: none; }
.findings details > summary::-webkit-details-marker { display: none; }
.findings details > summary::after { content: " ⌄"; opacity: .45; }
.findings details[open] > summary::after { content: " ⌃"; }
.findings summary:hover { text-decoration: underline dotted; text-underline-offset: 3px; }
.findings .alone { padding: 2px 0 2px 1.3em; text-indent: -1.3em; margin: 0; }
.findings .whole { margin: 0 0 .5em 1.3em; opacity: .78; font-size: .93em; max-width: 78ch; }
.findings .mark { display: inline-block; width: 1.3em; text-indent: 0; opacity: .7; }
.findings .denied > summary, .findings .denied.alone { opacity: .8; }
.findings .group { opacity: .85; font-size: .93em; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 3px 14px; margin: 0; font-size: .92em; }
.facts dt { opacity: .72; margin: 0; padding: 0; font-weight: 400; }
.facts dd { margin: 0; padding: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.findings .group .inner { margin-left: 1.3em; }
</style>"""


def findings(found: Iterable[Finding]) -> None:
    """What was found, by its leads; what was not, and what cannot be told, behind a fold each."""
    every = list(found)
    parts = [_one(each) for each in every if each.found]
    parts += [_group(GROUPS[kind], [each for each in every if each.found is kind]) for kind in (False, None)]
    _draw(parts)


def findings_in_short(found: Iterable[Finding]) -> None:
    """The first few things found, by their leads; the rest behind a fold."""
    every = list(found)
    affirmed = [each for each in every if each.found]
    parts = [_one(each) for each in affirmed[:FEW]]
    parts.append(_group("More that was found", affirmed[FEW:]))
    parts += [_group(GROUPS[kind], [each for each in every if each.found is kind]) for kind in (False, None)]
    _draw(parts)


def lead(sentence: str) -> str:
    """The first clause, without what stands in brackets; one with an interval goes on to the unit behind it.

    >>> lead("No induction head: the largest score is 0.1 [0.0, 0.2].")
    'No induction head'
    >>> lead("The loss falls by 0.5 nats [0.4, 0.6], from 1.5 to 1.0 (seed 0).")
    'The loss falls by 0.5 nats [0.4, 0.6]'
    >>> lead("L1H6: induction head. 0.70 [0.69, 0.71] of its attention is on the token after the earlier copy.")
    'L1H6 is an induction head'
    >>> lead("With the 2 memories (L1M2, L0M1) kept on, the share changes by 9 [8, 10] points, from 1% to 10%.")
    'With the 2 memories kept on, the share changes by 9 [8, 10] points'
    """
    told = _with_verb(BRACKETS.sub("", sentence))
    interval = INTERVAL.search(told)
    for end in ENDS.finditer(told, LEAST):
        inside = interval is not None and interval.start() < end.start() < interval.end()
        before = interval is None or end.start() < interval.start()
        if not inside and not (before and end.group() == ", "):
            return told[: end.start()]
    return told.removesuffix(".")


def _with_verb(sentence: str) -> str:
    """The verdict on a head, as a clause: it is written as `L0H5: previous-token head`, or `L0H5: attends like ...`."""
    named = re.match(r"(L\d+H\d+): (?=[a-z])", sentence)
    if named is None:
        return sentence
    rest = sentence[named.end() :]
    noun = re.match(r"[\w\- ]*\bhead\b(?=[.;:,]|$)", rest)
    article = "" if noun is None else "is an " if rest[0] in "aeiou" else "is a "
    return f"{named[1]} {article if noun and not rest.startswith('attends') else ''}{rest}"


BRACKETS = re.compile(r" \([^()]*(?:\([^()]*\)[^()]*)*\)")
INTERVAL = re.compile(r"\[[^\]]*\]")
ENDS = re.compile(r": |; |\. |, ")


def _one(finding: Finding) -> str:
    """One finding: its lead, and behind it the sentence."""
    first, denied = lead(finding.sentence), "" if finding.found else "denied"
    mark = f'<span class="mark">{MARKS[finding.found]}</span>'
    if len(finding.sentence) <= SHORT or len(first) >= len(finding.sentence) - 1:
        return f'<p class="alone {denied}">{mark}{html.escape(finding.sentence)}</p>'
    whole = f'<p class="whole">{html.escape(finding.sentence)}</p>'
    return f'<details class="{denied}"><summary>{mark}{html.escape(first)}</summary>{whole}</details>'


def _group(title: str, members: Sequence[Finding]) -> str:
    """Findings behind one fold; nothing where there are none."""
    if not members:
        return ""
    inner = "".join(map(_one, members))
    summary = f"<summary>{html.escape(title)}: {len(members)}</summary>"
    return f'<details class="group">{summary}<div class="inner">{inner}</div></details>'


def _draw(parts: Sequence[str]) -> None:
    said = "".join(parts)
    if said:
        st.html(f'<div class="findings">{said}</div>')


def facts(told: Sequence[tuple[str, str]]) -> None:
    """Names and what they are, in two columns."""
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in told)
    st.html(f'<dl class="facts">{rows}</dl>')


def style() -> None:
    """Give findings their look; called once a page by the entrypoint."""
    st.html(STYLE)
