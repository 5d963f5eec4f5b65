"""Figures of the studies on a light or a dark page: the same chart, its named colours exchanged for the dark ones.

The studies draw for paper. Every colour they use is named in `analyses.figures`, so exchanging those names, and nothing
else, keeps what the colours mean: nothing is the page's background, more is further from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyses import figures
from analyses.views.by_layer import CHANCE, PALE

DARK = dict(
    zip(
        (
            *(figures.INK, figures.QUIET, figures.FAINT, figures.PAPER, figures.CATEGORIES[0], figures.CATEGORIES[-1]),
            *figures.SEQUENTIAL,
            *figures.DIVERGING,
        ),
        (
            *("#e4e8ee", "#9aa5b4", "#2a313b", "#12161c", "#3f86e0", "#9aa5b4"),
            *("#18202b", "#1a3557", "#1d4c80", "#3271b5", "#4b8fd6", "#8fbbe9", "#d5e8fc"),
            *("#8cc2fa", "#4b89c8", "#28527f", "#1d232b", "#7a4517", "#c4742f", "#ffb169"),
        ),
        strict=True,
    )
) | {PALE: "#566070", CHANCE: "#8a95a5"}


def spec_of(figure: Any, *, dark: bool) -> dict[str, Any]:
    """Return `figure` as a Vega-Lite specification with the project's look, for a dark page if so asked.

    A figure is an Altair chart, or is written in Vega-Lite already, without a look.
    """
    plain = isinstance(figure, Mapping)
    spec = dict(figure) | {"config": figures.theme()} if plain else figures.themed(figure).to_dict()
    return darkened(spec) if dark else spec


def darkened(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification that has its look for a dark page."""
    return _exchanged(dict(spec))


FEW = 200
"""Rows of a data set that travel within a specification."""


def inlined(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return `spec` with its small data sets where they are used.

    Streamlit makes a table in Arrow's format of every named one, which takes some milliseconds for a few rows: at a
    dozen figures of a page it is what a click costs most.
    """
    named = spec.get("datasets", {})
    small = {name: rows for name, rows in named.items() if isinstance(rows, list) and len(rows) <= FEW}
    used = {name for name in [spec.get("data", {}).get("name")] if name is not None}  # the page's own, kept as it is
    inside = {name: rows for name, rows in small.items() if name not in used}
    kept = {name: rows for name, rows in named.items() if name not in inside}
    found = {key: _with_data(part, inside) for key, part in spec.items() if key != "datasets"}
    return found | ({"datasets": kept} if kept else {})


def _with_data(value: Any, inside: Mapping[str, Any]) -> Any:
    match value:
        case {"name": str(name)} if name in inside and len(value) == 1:
            return {"values": inside[name]}
        case dict():
            return {key: item if key == "values" else _with_data(item, inside) for key, item in value.items()}
        case list():
            return [_with_data(item, inside) for item in value]
    return value


def _exchanged(value: Any) -> Any:
    match value:
        case dict():
            return {key: item if key == "datasets" else _exchanged(item) for key, item in value.items()}
        case list():
            return [_exchanged(item) for item in value]
        case str():
            return DARK.get(value, DARK.get(value.lower(), value))
    return value
