"""Figures share one look without changing anything outside themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest

from analyses import figures


@pytest.fixture
def chart() -> Any:
    rows = pd.DataFrame({"head": [0, 1, 2], "harm": [-0.5, 0.0, 1.0]})
    return alt.Chart(rows).mark_rect().encode(x="head:O", color=alt.Color("harm:Q", scale=figures.diverging(1.0)))


def test_zero_is_the_neutral_middle_of_a_signed_scale() -> None:
    scale = figures.diverging(2.5).to_dict()
    assert scale["domain"][0] == -2.5
    assert scale["domain"][-1] == 2.5
    assert scale["domain"][len(scale["domain"]) // 2] == 0
    assert len(scale["domain"]) == len(scale["range"])


def test_a_signed_scale_of_nothing_but_zeros_can_still_be_drawn() -> None:
    assert figures.diverging(0.0).to_dict()["domain"][-1] == 1.0


def test_larger_is_darker_on_a_scale_of_magnitudes() -> None:
    lightness = [_lightness(colour) for colour in figures.SEQUENTIAL]
    assert lightness == sorted(lightness, reverse=True)


def test_neighbouring_categories_differ_for_colour_blind_eyes() -> None:
    for colours in (figures.CATEGORIES[:4], figures.DIVERGING):
        seen = [_as_deuteranope(colour) for colour in colours]
        assert min(_distance(a, b) for i, a in enumerate(seen) for b in seen[:i]) > 20


def test_theming_leaves_the_chart_and_altair_as_they_were(chart: Any) -> None:
    before, theme = chart.to_json(), alt.theme.active
    dressed = figures.themed(chart)
    assert chart.to_json() == before
    assert alt.theme.active == theme
    assert dressed.to_dict()["config"]["font"] == figures.FONT


def test_a_charts_own_config_wins_over_the_theme(chart: Any) -> None:
    own = chart.configure_axis(labelFontSize=20)
    config = figures.themed(own).to_dict()["config"]
    assert config["axis"]["labelFontSize"] == 20
    assert config["axis"]["gridColor"] == figures.FAINT


def test_a_figure_is_saved_as_svg_and_drawn_the_same_each_time(chart: Any, tmp_path: Path) -> None:
    first = figures.save_svg(chart, tmp_path / "a.svg").read_text()
    second = figures.save_svg(chart, tmp_path / "b.svg").read_text()
    assert first.startswith("<svg")
    assert first == second


def test_a_figure_can_be_kept_as_plain_json(chart: Any) -> None:
    again = alt.Chart.from_dict(json.loads(figures.themed(chart).to_json()))
    assert figures.to_svg(again) == figures.to_svg(chart)


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _linear(colour: str) -> tuple[float, float, float]:
    red, green, blue = ((c / 12.92) if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour))
    return red, green, blue


def _lightness(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _as_deuteranope(colour: str) -> tuple[float, float, float]:
    """Linear RGB as seen without green cones (Viénot, Brettel & Mollon 1999), then back to 0..255."""
    red, green, blue = _linear(colour)
    merged = 0.293 * red + 0.707 * green
    seen = (merged, merged, -0.022 * red + 0.022 * green + blue)
    r, g, b = (255 * max(0.0, min(1.0, c)) ** (1 / 2.2) for c in seen)
    return r, g, b


def _distance(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5
