"""How far back one head looks in a corpus, as a figure: raw and value-weighted attention beside even attention."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, INK, themed
from interp.head_behaviour import HeadBehaviour
from interp.places import Head

WIDTH = 340
HEIGHT = 240

FIRST = "first"
"""The stretch that is position 0, however far back it lies."""

SERIES = {"raw": CATEGORIES[0], "value-weighted": CATEGORIES[1], "even attention": INK}
"""What is told of each stretch, and its colour."""


MARKS = {
    "raw": ("mark_bar", {"opacity": 0.8}),
    "value-weighted": ("mark_point", {"shape": "diamond", "filled": True, "size": 70, "opacity": 1}),
    "even attention": ("mark_tick", {"thickness": 1.5, "size": 24}),
}
"""How each is drawn, from the back to the front."""


def distance_figure(seen: HeadBehaviour, place: Head) -> Any:
    """Shares of one head's attention by distance: bars raw, diamonds value-weighted, ticks what is even."""
    rows = distance_rows(seen, place)
    told = rows.melt("band", var_name="series", value_name="share")
    x = alt.X(
        "band:N",
        sort=list(rows["band"]),
        title="tokens back; first: position 0",
        axis=alt.Axis(labelAngle=0, labelFontSize=10),
    )
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=list(SERIES), range=list(SERIES.values())),
        legend=alt.Legend(title=None, orient="top"),
    )
    layers = [
        getattr(alt.Chart(told[told["series"] == name]), mark)(**look).encode(
            x=x,
            y=alt.Y("share:Q", title="share of attention", axis=alt.Axis(tickCount=4)),
            color=colour,
            tooltip=["series", "band", alt.Tooltip("share:Q", format=".3f")],
        )
        for name, (mark, look) in MARKS.items()
    ]
    return themed(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT))


def distance_rows(seen: HeadBehaviour, place: Head) -> pd.DataFrame:
    """One row for each stretch of distances: the head's raw and value-weighted share, and an even head's."""
    edges = seen.distance_edges
    rows = [
        {
            "band": FIRST,
            "raw": float(seen.position_zero[place]),
            "value-weighted": float(seen.position_zero_weighted[place]),
            "even attention": seen.even_position_zero,
        }
    ]
    for name, low, high in distance_bands(int(edges[-1])):
        inside = (edges >= low) & (edges < high)
        rows.append(
            {
                "band": name,
                "raw": float(seen.distance[place][inside].sum()),
                "value-weighted": float(seen.distance_weighted[place][inside].sum()),
                "even attention": float(seen.even_distance[inside].sum()),
            }
        )
    return pd.DataFrame(rows)


def distance_bands(longest: int) -> list[tuple[str, int, int]]:
    """Stretches of distance, each about as long as all before it: its name, its first, the first beyond.

    >>> distance_bands(9)
    [('0', 0, 1), ('1', 1, 2), ('2', 2, 3), ('3', 3, 4), ('4-7', 4, 8), ('8-15', 8, 16)]
    """
    single = [(str(distance), distance, distance + 1) for distance in range(min(4, longest + 1))]
    starts = [start for power in range(2, 32) if (start := 2**power) <= longest]
    return [*single, *((f"{start}-{2 * start - 1}", start, 2 * start) for start in starts)]
