"""Verdicts on a claim as a figure: the effect at each checkpoint, with its interval, beside the bound it is held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyses.claims.bounds import Quantity, parse_bound
from analyses.claims.records import Record
from analyses.figures import CATEGORIES, FAINT

Spec = dict[str, Any]

COLOURS = {"supported": CATEGORIES[2], "refuted": CATEGORIES[4], "undecided": CATEGORIES[-1]}
SHAPES = {"supported": "circle", "refuted": "cross", "undecided": "diamond"}
"""A verdict is told by its shape as well as by its colour."""


def verdict_figure(records: Sequence[Record]) -> Spec:
    """One claim's verdicts, in Vega-Lite without a look; what the bound allows is shaded.

    Verdicts that measured nothing are left out.
    """
    rows = [row for record in records if (row := _row(record)) is not None]
    bound = parse_bound(records[-1].verdict.bound)
    least = -bound.value if bound.quantity == Quantity.SIZE else None
    allowed = {"from": bound.value if bound.at_least else least, "to": None if bound.at_least else bound.value}
    values = [value for row in rows for value in (row["low"], row["high"])]
    ends = [*values, bound.value, 0.0, *([] if least is None else [least])]
    margin = 0.08 * (max(ends) - min(ends) or 1.0)
    low, high = min(ends) - margin, max(ends) + margin
    scale = {"domain": [low, high], "nice": False, "zero": False}
    shaded = {name: {"from": low, "to": high}[name] if value is None else value for name, value in allowed.items()}
    x: Spec = {"type": "quantitative", "title": _axis(records[-1]), "scale": scale}
    y: Spec = {"field": "step", "type": "ordinal", "title": "step", "sort": "descending"}
    standings = list(dict.fromkeys(row["verdict"] for row in rows))
    colour: Spec = {
        "field": "verdict", "type": "nominal", "legend": None,
        "scale": {"domain": standings, "range": [COLOURS[each] for each in standings]},
    }  # fmt: skip
    shape = colour | {"scale": {"domain": standings, "range": [SHAPES[each] for each in standings]}}
    tooltip = [
        {"field": "verdict", "type": "nominal"},
        *({"field": name, "type": "quantitative", "format": ".3f"} for name in ("mean", "low", "high")),
    ]
    return {
        "height": {"step": 26},
        "data": {"values": rows},
        "layer": [
            {"data": {"values": [shaded]}, "mark": {"type": "rect", "color": FAINT, "opacity": 0.6},
             "encoding": {"x": x | {"field": "from"}, "x2": {"field": "to"}}},
            {"data": {"values": [{"bound": bound.value}]}, "mark": {"type": "rule", "strokeDash": [3, 3]},
             "encoding": {"x": x | {"field": "bound"}}},
            {"mark": {"type": "rule", "strokeWidth": 2},
             "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour}},
            {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
             "encoding": {"x": x | {"field": "mean"}, "y": y, "color": colour, "shape": shape, "tooltip": tooltip}},
        ],
    }  # fmt: skip


def _row(record: Record) -> Spec | None:
    verdict, found = record.verdict, record.verdict.measured
    if found is None:
        return None
    judged = found.judged.interval
    ends = {"mean": judged.mean, "low": judged.low, "high": judged.high}
    return {"step": verdict.checkpoint.step, "verdict": verdict.standing.value, **ends}


def _axis(record: Record) -> list[str]:
    bound, found = parse_bound(record.verdict.bound), record.verdict.measured
    what = "" if found is None or bound.is_share else f" of the {found.meaning}, {found.unit}"
    return [f"{bound.quantity}{what}", f"shaded: {bound}"]
