"""How every figure looks: one theme, three colour scales, one way to a file.

Nothing here is global: a chart is given its look when it is drawn (`themed`), so importing this module, or drawing
beside somebody else's charts in a notebook, changes nothing. Colours are safe for the common kinds of colour blindness:
categories after Okabe and Ito (2008, "Color Universal Design"), magnitudes in one hue that also grows darker, signed
values in blue and orange with an exact neutral at zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

INK: str = "#22252b"
"""Titles and values."""

QUIET: str = "#6b7079"
"""Axis labels and captions."""

FAINT: str = "#e4e5e8"
"""Grid lines, and the ring round a cell."""

PAPER: str = "#ffffff"
_EDGE = "#b9bcc3"

CATEGORIES: tuple[str, ...] = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b39f00", "#5f6670")
"""Okabe and Ito's colours, the first four furthest apart; their yellow is darkened to be read on white."""

SEQUENTIAL: tuple[str, ...] = ("#f6f7fb", "#d5e0ef", "#a6c1de", "#6f9dc9", "#3c77ad", "#1b5288", "#0b2e57")
"""Small to large, one hue, falling lightness: probabilities, scores, norms."""

DIVERGING: tuple[str, ...] = ("#134b85", "#4d8ac2", "#abcbe3", "#f4f3f0", "#f5c594", "#dd8433", "#8f4204")
"""Negative, zero, positive: harms and differences. The middle is neutral."""

FONT: str = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"

WIDTH = 640
"""Plot width that reads well in a column of 720 px."""


def theme() -> dict[str, Any]:
    """The Vega-Lite config of every figure, as plain data."""
    return {
        "background": PAPER,
        "font": FONT,
        "padding": 8,
        "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": 260},
        "title": {"fontSize": 14, "fontWeight": 600, "color": INK, "anchor": "start", "offset": 10}
        | {"subtitleColor": QUIET, "subtitleFontSize": 11.5, "subtitlePadding": 5},
        "axis": {"gridColor": FAINT, "domainColor": _EDGE, "tickColor": _EDGE, "tickSize": 4}
        | {"labelPadding": 4, "titlePadding": 8, "labelFlush": False}
        | _words(),
        "axisBand": {"grid": False, "domain": False, "ticks": False},
        "axisXBand": {"labelAngle": 0},
        "header": _words() | {"labelFontSize": 12, "labelColor": INK, "labelFontWeight": 600},
        "legend": {"gradientThickness": 10, "gradientLength": 140, "symbolSize": 80} | _words(),
        "range": {"category": list(CATEGORIES), "diverging": list(DIVERGING)}
        | {"heatmap": list(SEQUENTIAL), "ramp": list(SEQUENTIAL)},
        "line": {"strokeWidth": 2, "strokeCap": "round"},
        "point": {"filled": True, "size": 46},
        "rule": {"color": "#8b9099"},
        "area": {"line": False},
    }


def _words() -> dict[str, Any]:
    """Labels quiet, titles not: the same for axes, headers and legends."""
    labels = {"labelFont": FONT, "labelFontSize": 11, "labelColor": QUIET}
    return labels | {"titleFont": FONT, "titleFontSize": 11.5, "titleFontWeight": 500, "titleColor": INK}


def themed(chart: Any) -> Any:
    """`chart` with the theme beneath whatever config it already has; the chart itself is not changed."""
    own = {} if chart.config is alt.Undefined else chart.config.to_dict()
    dressed = chart.copy(deep=False)
    dressed.config = alt.Config.from_dict(_merged(theme(), own))
    return dressed


def sequential(low: float, high: float, **settings: Any) -> alt.Scale:
    """A colour scale for magnitudes from `low` to `high`; values beyond are drawn as the end they pass."""
    return alt.Scale(domain=[low, high], range=list(SEQUENTIAL), clamp=True, interpolate="lab", **settings)


def diverging(largest: float, **settings: Any) -> alt.Scale:
    """A colour scale for signed values, symmetric about zero, so that equal lengths have equal weight.

    `largest` is the absolute value at which colour is full; zero or less is drawn as if it were 1.
    """
    limit = largest if largest > 0 else 1.0
    domain = [limit * (place / 3 - 1) for place in range(len(DIVERGING))]
    return alt.Scale(domain=domain, range=list(DIVERGING), clamp=True, interpolate="lab", **settings)


def categorical(names: Sequence[str]) -> alt.Scale:
    """A colour for each name, the same in every figure that gives the names in the same order."""
    colours = [CATEGORIES[i % len(CATEGORIES)] for i in range(len(names))]
    return alt.Scale(domain=list(names), range=colours)


def about_zero(low: float, high: float, *, linear: float | None = None) -> tuple[alt.Scale, alt.Axis]:
    """Linear within `linear` of zero and logarithmic beyond, so that one large value does not hide all small ones.

    Without `linear` it is a tenth of the largest value's power of ten. The ticks are zero, powers of ten, and thrice
    those; the axis should say "symlog" in its title, since equal lengths are not equal amounts.
    """
    largest = max(abs(low), abs(high), 1e-6)
    top = math.floor(math.log10(largest))
    linear = 10.0 ** (top - 1) if linear is None else linear
    powers = range(math.ceil(math.log10(linear) - 1e-9), top + 1)
    sizes = [round(times * 10.0**power, 12) for power in powers for times in (1, 3)]
    domain = [min(low, 0.0) - 0.1 * largest * (low < -linear), max(high, 0.0) + 0.1 * largest * (high > linear)]
    ticks = [each for each in (*(-size for size in reversed(sizes)), 0.0, *sizes) if domain[0] <= each <= domain[1]]
    scale = alt.Scale(type="symlog", constant=linear, domain=domain, nice=False)
    return scale, alt.Axis(values=ticks, format="~r", labelOverlap=True)


def index_axis(letter: str, n: int, cell: int, **settings: Any) -> alt.Axis:
    """Labels L0, H1, ... for `n` cells of `cell` pixels, thinned until they fit."""
    every = next(step for step in (1, 2, 4, 8, 16, 32, 64) if step * cell >= 15 or step >= n)
    return alt.Axis(
        labelExpr=f"'{letter}' + datum.value",
        values=list(range(0, n, every)),
        labelAngle=0,
        labelFontSize=9,
        ticks=False,
        domain=False,
        **settings,
    )


def caption(*, n: int | None = None, unit: str = "sequences", seed: int | None = None, **facts: Any) -> str:
    """The line under a figure that says what it rests on; what is None is left out.

    >>> caption(n=64, seed=0, step=512, interval="95% bootstrap")
    'n = 64 sequences · seed 0 · step 512 · interval 95% bootstrap'
    """
    parts = [f"n = {n:,} {unit}" if n is not None else None, f"seed {seed}" if seed is not None else None]
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if value is not None]
    return " · ".join(part for part in parts if part)


def to_svg(chart: Any) -> str:
    """`chart` as the text of an SVG file. It is drawn here and now; nothing is fetched."""
    return spec_svg(themed(chart).to_dict())


def spec_svg(spec: Mapping[str, Any]) -> str:
    """A figure in Vega-Lite, with its look, as the text of an SVG file."""
    import vl_convert

    return _renumbered(vl_convert.vegalite_to_svg(dict(spec), vl_version=_version(), allowed_base_urls=[]))


def _version() -> str:
    return ".".join(alt.SCHEMA_VERSION.split(".")[:2])


def save_svg(chart: Any, path: Path | str) -> Path:
    """Write `chart` as SVG and give back where; the folder must exist."""
    path = Path(path)
    path.write_text(to_svg(chart), encoding="utf-8")
    return path


def _renumbered(svg: str) -> str:
    """Ids counted from 0; Vega counts over all that a process has drawn, so that equal charts would differ."""
    names = {old: f"part{number}" for number, old in enumerate(re.findall(r'\bid="([^"]+)"', svg))}
    return re.sub(r'(\bid="|url\(#|href="#)([^")]+)', lambda found: found[1] + names.get(found[2], found[2]), svg)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Nested mappings as one; `above` wins."""
    shared = [
        key for key in below.keys() & above.keys() if isinstance(below[key], dict) and isinstance(above[key], dict)
    ]
    both = {key: _merged(below[key], above[key]) for key in shared}
    return below | above | both
