"""Every head by how well its name is supported, and the evidence on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pandas as pd

from analyses.attention_evidence import Bearing, Evidence, Source
from analyses.attention_harms import COPY, TEXT
from analyses.attention_patterns import Result
from analyses.attention_verdicts import Standing, Verdict
from analyses.attention_words import WORDS

COLOURS: dict[Standing, Literal["green", "orange", "blue", "gray"]] = {
    Standing.SUPPORTED: "green",
    Standing.DISPUTED: "orange",
    Standing.ATTENTION: "blue",
    Standing.OPEN: "gray",
    Standing.RESTS: "gray",
    Standing.NONE: "gray",
}
"""The colour of each standing; the word always stands with it."""

MEANINGS = {
    Standing.SUPPORTED: "found by its attention, something is lost without it, and nothing measured speaks against it",
    Standing.DISPUTED: "found, and something is lost without it, but its weights or its attention on text disagree",
    Standing.ATTENTION: "found by its attention; that anything is lost without it is not shown",
    Standing.OPEN: "found for no kind, but its intervals cannot rule one out",
    Standing.RESTS: "attends to position 0, and to nothing that was looked for",
    Standing.NONE: "passes no rule by which heads were looked for",
}

SIGNS = {Bearing.FOR: "+ for", Bearing.AGAINST: "− against", Bearing.OPEN: "· open", Bearing.ABSENT: "? absent"}


def listed(every: Sequence[Verdict]) -> pd.DataFrame:
    """One row for each head, the best supported first, and among equals the strongest by its score."""
    return pd.DataFrame([_row(verdict) for verdict in sorted(every, key=_place)])


def _place(verdict: Verdict) -> tuple[int, float]:
    score = verdict.item(Source.ATTENTION)
    return list(Standing).index(verdict.standing), -(score.value or 0.0) if score else 0.0


def _row(verdict: Verdict) -> dict[str, object]:
    score, copying = verdict.item(Source.ATTENTION), verdict.item(Source.COPYING)
    lost, lost_on_text = verdict.item(Source.ABLATION, COPY), verdict.item(Source.ABLATION, TEXT)
    return {
        "head": verdict.label,
        "standing": [verdict.standing.value],
        "attends like": kind_name(verdict),
        "score": None if score is None else score.value,
        "copies, z": None if copying is None else copying.z,
        "copy harm": None if lost is None else lost.value,
        "text harm": None if lost_on_text is None else lost_on_text.value,
    }


def kind_name(verdict: Verdict) -> str:
    """What its attention is like, in a word or two."""
    if verdict.possible:
        return f"{WORDS[verdict.possible[0]].name.removesuffix(' head')}?"
    return WORDS[verdict.kinds[0]].name.removesuffix(" head") if verdict.kinds else "–"


def evidence(verdict: Verdict) -> pd.DataFrame:
    """One row for each item that was measured: which way it bears on a name, value, interval, null, rank and step 0."""
    rows = pd.DataFrame([_item(each) for each in verdict.evidence if each.bearing is not Bearing.ABSENT])
    return rows if verdict.kinds else rows.drop(columns="bears", errors="ignore")


def _item(item: Evidence) -> dict[str, object]:
    return {
        "bears": SIGNS[item.bearing] + ("" if item.bears else " *"),
        "source": item.source.value,
        "what": item.what.replace("_", " "),
        "value": _rounded(item.value),
        "interval": "" if item.low is None else f"[{item.low:.3f}, {item.high:.3f}]",
        "chance": _rounded(item.null),
        "z": _rounded(item.z),
        "p": item.p,
        "rank": "" if item.rank is None else f"{item.rank} of {item.n_heads}",
        "step 0": _rounded(item.step_0),
    }


def _rounded(value: float | None) -> float | None:
    """To the three decimals that are shown, so that none is a negative zero."""
    return None if value is None else round(value, 3) + 0.0


def absent(verdict: Verdict) -> list[str]:
    """What was not measured, and why."""
    return [each.said for each in verdict.evidence if each.bearing is Bearing.ABSENT]


def facts(result: Result, verdict: Verdict) -> tuple[str, ...]:
    """What the evidence rests on."""
    beside = bool(verdict.kinds) and any(not item.bears for item in verdict.evidence)
    seen = None if result.behaviour is None else result.behaviour.seen
    parts = [
        f"n = {result.headline.n_sequences} sequences of random tokens",
        "" if result.text is None else f"{result.text.n_sequences} rows of held-out text",
        "" if seen is None else f"{seen.n_queries:,} tokens of its corpus",
        f"{result.config.level:.0%} bootstrap intervals",
        "p corrected over the heads that were ablated, on copying and on text (Holm)",
        "* told beside, cannot decide this name" if beside else "",
    ]
    return tuple(part for part in parts if part)
