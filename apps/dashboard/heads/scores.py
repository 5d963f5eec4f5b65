"""The head grids of attention-patterns: one kind of score, on one kind of sequence, beside step 0."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analyses import attention_patterns
from analyses.attention_patterns import Result
from analyses.attention_readings import Kind, Reading
from analyses.attention_result import reading_for
from analyses.attention_words import WORDS
from analyses.views import Scale, head_grid_payload
from analyses.views.payload import Payload
from apps.dashboard.state import head_name

MEANINGS = {
    Kind.INDUCTION: "share of attention on the token after an earlier copy",
    Kind.LATER: "share of attention on the token two after the earlier copy",
    Kind.MATCH: "share of attention on the token after the earlier copy, wherever it is now",
    Kind.PREFIX_MATCHING: "share of attention on the tokens after all earlier copies",
    Kind.DUPLICATE: "share of attention on an earlier copy of the token",
    Kind.PREVIOUS: "share of attention on the token before",
    Kind.CURRENT: "share of attention on the token itself",
    Kind.FIRST: "share of attention on position 0",
    Kind.POSITIONAL: "share of attention at the head's best fixed distance",
    Kind.LOCAL: "share of attention on the last 8 keys, position 0 aside",
    Kind.FAR: "share of attention beyond the last 8 keys, position 0 aside",
    Kind.ENTROPY: "entropy of attention, 1 is even",
    Kind.DISTANCE: "mean distance attended to, in tokens",
    Kind.COPYING: "copying: 1 raises only what it attends to, -1 only other tokens",
}
"""What each kind of score is, in the order in which they are offered: by match, by place, by spread, by what is
written."""


def title(kind: Kind) -> str:
    """What a kind is called on its button."""
    return "position 0" if kind is Kind.FIRST else kind.value.replace("_", " ")


def where_decided(result: Result, kind: Kind) -> Reading:
    """The reading to show a kind on: where heads are found by it, else the first that has it, else the headline."""
    decides = reading_for(result, kind)
    return decides if kind in decides else next((each for each in result.readings if kind in each), result.headline)


def why_not(result: Result, reading: Reading, kind: Kind) -> str:
    """Why a reading lacks a kind, and which have it."""
    if kind in reading.left_out:
        return f"{title(kind)}: {reading.left_out[kind]}"
    having = [each.title for each in result.readings if kind in each]
    if having:
        return f"{title(kind)} is not measured on {reading.title}, only on: {'; '.join(having)}."
    known = next((each.left_out[kind] for each in result.readings if kind in each.left_out), None)
    return f"{title(kind)}: {known or 'fewer than two sequences of any kind hold what it looks for.'}"


def grid(result: Result, reading: Reading, kind: Kind, *, chosen: str | None, ablated: Sequence[str]) -> Payload:
    """One score of every head on one reading; heads that count as found are underlined on the reading that decides."""
    measure, first = reading[kind], result.first(reading)
    decides = kind in WORDS and reading is reading_for(result, kind)
    return head_grid_payload(
        measure.intervals.mean,
        f"{MEANINGS[kind]} (chance {measure.chance:.2f})",
        scale=_scale(kind),
        interval=(measure.intervals.low, measure.intervals.high),
        before=None if first is None or kind not in first else first[kind].intervals.mean,
        sure=attention_patterns.found(result, kind) if decides else None,
        chosen=chosen,
        ablated=ablated,
        marks=None if measure.offsets is None else [[f"{n} back" for n in row] for row in measure.offsets.tolist()],
    )


def ranking(result: Result, reading: Reading, kind: Kind) -> pd.DataFrame:
    """The heads by their score on one reading, best first, with interval, chance and step 0."""
    measure, first = reading[kind], result.first(reading)
    before = None if first is None or kind not in first else first[kind].intervals.mean
    rows = []
    for place in result.heads:
        cell = measure.intervals[place]
        row = {"rank": int(measure.ranks[place]), "head": head_name(*place)}
        row |= {} if measure.offsets is None else {"tokens back": int(measure.offsets[place])}
        row |= {"mean": cell.mean, "low": cell.low, "high": cell.high, "chance": measure.chance}
        row |= {} if measure.permuted is None else {"if spread evenly": float(measure.permuted[place])}
        row |= {} if before is None else {"step 0": float(before[place])}
        rows.append(row)
    return pd.DataFrame(rows).sort_values(by="rank")


def _scale(kind: Kind) -> Scale | None:
    """Shares share one scale; copying runs from -1 to 1; a distance has that of its largest."""
    if kind is Kind.DISTANCE:
        return None
    return Scale(kind="diverging", low=-1.0, high=1.0) if kind is Kind.COPYING else Scale(high=1.0)
