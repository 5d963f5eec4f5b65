"""One FFN memory as figures: the tokens that its value promotes and suppresses, and how often its key fires.

Written in Vega-Lite as it is, for the reason that `analyses.views.by_layer` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from analyses.figures import DIVERGING, QUIET
from analyses.views.by_layer import Spec
from analyses.views.payload import visible

ROW, HEIGHT = 17, 140
SIDES = ["negative", "about zero", "positive"]
FINEST = 2**9
"""Coefficients smaller than the largest one over this are drawn as one bar about zero."""

_UP, _DOWN = DIVERGING[5], DIVERGING[1]


def value_figure(tokens: Sequence[str], scores: Sequence[float], *, marked: Sequence[str] = ()) -> Spec:
    """Bars of logits per unit of coefficient, from most promoted to most suppressed.

    Args:
        tokens: printable strings.
        scores: what the value adds to each one's logit.
        marked: a sign for each token, such as that it followed the top trigger; empty where there is none to give.
    """
    signs = list(marked) or [""] * len(tokens)
    bars = sorted(zip(tokens, scores, signs, strict=True), key=lambda bar: -bar[1])
    rows = [
        {"place": place, "token": visible(token), "score": score, "word": f"{sign} {visible(token)}".strip()}
        for place, (token, score, sign) in enumerate(bars)
    ]
    y = {"field": "place", "type": "ordinal", "axis": None}
    tooltip = [{"field": "token", "type": "nominal"}, {"field": "score", "type": "quantitative", "format": ".3f"}]
    return {
        "height": ROW * len(rows),
        "datasets": {"tokens": rows},
        "data": {"name": "tokens"},
        "layer": [
            {
                "mark": {"type": "bar", "height": 9},
                "encoding": {
                    "x": _quantity("score", title="logit per unit of coefficient", axis={"tickCount": 5}),
                    "y": y,
                    "color": {"condition": {"test": "datum.score > 0", "value": _UP}, "value": _DOWN},
                    "tooltip": tooltip,
                },
            },
            {
                "mark": {
                    "type": "text", "align": "right", "dx": -6, "fontSize": 11, "font": "monospace", "color": QUIET,
                    "limit": 110,
                },
                "encoding": {
                    "x": {"value": 0}, "y": y, "text": {"field": "word", "type": "nominal"}, "tooltip": tooltip,
                },
            },
        ],
    }  # fmt: skip


def activity_figure(
    histogram: Int[Tensor, " bin"],
    negative: Int[Tensor, " bin"] | None,
    edges: Float[Tensor, " edge"],
    thresholds: Sequence[float] = (),
) -> Spec:
    """How many prefixes have which coefficient, of either sign, on axes that are logarithmic away from zero.

    Args:
        histogram: prefixes by coefficient; the first bin has all below the first edge, negative ones too.
        negative: the same of the coefficient's negative; None where no coefficient is negative.
        edges: lower edges of all bins but the first.
        thresholds: coefficients above which a memory is said to fire, drawn as dashed rules.
    """
    rows = activity_rows(histogram, negative, edges)
    (near,) = (row["high"] for row in rows if row["side"] == SIDES[1])
    axis = {"values": _powers(rows, near), "format": ".6~f", "labelOverlap": "greedy"}
    x = _quantity(
        "low", title="coefficient (log on either side of 0)", axis=axis, scale={"type": "symlog", "constant": near}
    )
    bars = {
        "data": {"name": "bars"},
        "mark": {"type": "bar", "clip": True},
        "encoding": {
            "x": x,
            "x2": {"field": "high"},
            "y": _quantity("prefixes", title="prefixes (log)", axis=_counts(rows), scale={"type": "symlog"}),
            "y2": {"datum": 0},
            "color": {
                "field": "side",
                "type": "nominal",
                "scale": {"domain": SIDES, "range": [_DOWN, QUIET, _UP]},
                "legend": None,
            },
            "tooltip": [_quantity("low", format=".3g"), _quantity("high", format=".3g"), _quantity("prefixes")],
        },
    }
    rules = {
        "data": {"values": [{"threshold": threshold} for threshold in thresholds]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": QUIET},
        "encoding": {"x": _quantity("threshold"), "tooltip": [_quantity("threshold", format=".3g")]},
    }
    return {
        "height": HEIGHT,
        "datasets": {"bars": [row for row in rows if row["prefixes"]]},
        "layer": [bars, *([rules] if thresholds else [])],
    }


def activity_rows(
    histogram: Int[Tensor, " bin"], negative: Int[Tensor, " bin"] | None, edges: Float[Tensor, " edge"]
) -> list[Spec]:
    """The bars of `activity_figure`: from `low` to `high`, and how many prefixes; what is close to zero is one bar."""
    lows = edges.tolist()
    highs = [*lows[1:], lows[-1] * lows[-1] / lows[-2]]
    up = histogram[1:].tolist()
    down = [0] * len(up) if negative is None else negative[1:].tolist()
    reach = max((high for high, *counts in zip(highs, up, down, strict=True) if any(counts)), default=lows[0])
    kept = [at for at, low in enumerate(lows) if reach / FINEST <= low < reach]
    near = lows[kept[0]] if kept else lows[0]
    beyond = sum(up[at] + down[at] for at in kept)
    below = list(reversed(kept)) if any(down) else []
    bars = [
        *((-highs[at], -lows[at], down[at], SIDES[0]) for at in below),
        (-near if below else 0.0, near, int(histogram.sum()) - beyond, SIDES[1]),
        *((lows[at], highs[at], up[at], SIDES[2]) for at in kept),
    ]
    return [dict(zip(("low", "high", "prefixes", "side"), bar, strict=True)) for bar in bars]


def _counts(rows: Sequence[Spec]) -> Spec:
    """Ticks at zero and at powers of ten, of which about four are told; Vega's own for this scale are two."""
    most = max((row["prefixes"] for row in rows), default=1)
    last = max(1, len(str(most)) - 1)
    powers = [10**power for power in range(last, 0, -max(1, -(-last // 4)))]
    return {"values": [0, *sorted(powers)], "format": ",.0f"}


def _powers(rows: Sequence[Spec], near: float) -> list[float]:
    """Zero and the powers of ten on either side, as far as there are bars."""
    powers = [10.0**power for power in range(-9, 10) if 10.0**power >= near]
    below = [-power for power in reversed(powers) if -power >= rows[0]["low"]]
    return [*below, 0.0, *(power for power in powers if power <= rows[-1]["high"])]


def _quantity(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative"} | more
