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


def _exchanged(value: Any) -> Any:
    match value:
        case dict():
            return {key: item if key == "datasets" else _exchanged(item) for key, item in value.items()}
        case list():
            return [_exchanged(item) for item in value]
        case str():
            return DARK.get(value, DARK.get(value.lower(), value))
    return value
