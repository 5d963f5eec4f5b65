"""One FFN memory as figures: the tokens that its value promotes and suppresses, and how often its key fires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd
from jaxtyping import Int
from torch import Tensor

from analyses.figures import DIVERGING, QUIET, themed
from analyses.views.payload import visible
from interp.memory_stream import histogram_edges

WIDTH = 320


def value_figure(tokens: Sequence[str], scores: Sequence[float]) -> Any:
    """Bars of logits per unit of coefficient, from most promoted to most suppressed."""
    rows = pd.DataFrame({"token": [visible(token) for token in tokens], "score": scores})
    rows = rows.sort_values("score", ascending=False)
    rows["place"] = [str(place) for place in range(len(rows))]
    y = alt.Y("place:O", sort=list(rows["place"]), axis=None)
    shown = alt.Chart(rows).encode(y=y, tooltip=["token", alt.Tooltip("score:Q", format=".3f")])
    bars = shown.mark_bar(height=9).encode(
        x=alt.X("score:Q", title="logit per unit of coefficient, before the final norm's scale"),
        color=alt.condition("datum.score > 0", alt.value(DIVERGING[5]), alt.value(DIVERGING[1])),
    )
    words = shown.mark_text(align="right", dx=-6, fontSize=11, font="monospace", color=QUIET)
    layers = alt.layer(bars, words.encode(text="token:N", x=alt.value(0)))
    return themed(layers.properties(width=WIDTH, height=16 * len(rows)))


def activity_figure(histogram: Int[Tensor, " bin"]) -> Any:
    """How many prefixes have which coefficient, on logarithmic axes; the bin of all that are smaller is left out."""
    edges = histogram_edges().tolist()
    rows = pd.DataFrame({"low": edges, "high": [*edges[1:], edges[-1] * 1.25], "prefixes": histogram[1:].tolist()})
    bars = alt.Chart(rows[rows["prefixes"] > 0]).mark_bar(color=QUIET)
    coefficient = alt.X("low:Q", scale=alt.Scale(type="log"), title="coefficient (log)", axis=alt.Axis(tickCount=4))
    prefixes = alt.Y("prefixes:Q", scale=alt.Scale(type="symlog"), title="prefixes (log)", axis=alt.Axis(tickCount=3))
    drawn = bars.encode(x=coefficient, x2="high:Q", y=prefixes, y2=alt.datum(0), tooltip=["low", "high", "prefixes"])
    return themed(drawn.properties(width=WIDTH, height=120))
