"""The figures of memories: no prefix lost, both signs told apart, nothing drawn that is not there."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analyses.views.by_layer import COLOURS, FEW, PARTS, Point, Series, by_layer_figure, parts_figure
from analyses.views.memory import FINEST, SIDES, activity_figure, activity_rows, value_figure
from apps.dashboard.charts import spec_of

EDGES = torch.tensor([0.001, 0.01, 0.1, 1.0])


def histogram(*counts: int) -> torch.Tensor:
    return torch.tensor(counts)


def checked(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure, if Vega-Lite's schema allows it."""
    alt.LayerChart.from_dict(figure) if "layer" in figure else alt.Chart.from_dict(figure)
    return figure


def drawn_rows(figure: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for rows in checked(figure)["datasets"].values() for row in rows]


counts = st.lists(st.integers(0, 1000), min_size=4, max_size=4)


@settings(max_examples=40)
@given(above=counts, below=counts, near=st.integers(0, 1000))
def test_every_prefix_is_in_one_bar(above: list[int], below: list[int], near: int) -> None:
    total = near + sum(above) + sum(below)
    positive = histogram(near + sum(below), *above)
    negative = histogram(near + sum(above), *below)
    rows = activity_rows(positive, negative, EDGES)
    assert sum(row["prefixes"] for row in rows) == total
    assert [row["low"] for row in rows[1:]] == [row["high"] for row in rows[:-1]]
    largest = max((edge for edge, *n in zip([0.01, 0.1, 1, 10], above, below, strict=True) if any(n)), default=0)
    for side, given_ in ((SIDES[0], below), (SIDES[2], above)):
        kept = sum(n for edge, n in zip(EDGES.tolist(), given_, strict=True) if edge >= largest / FINEST)
        assert sum(row["prefixes"] for row in rows if row["side"] == side) == kept


def test_a_coefficient_below_zero_is_drawn_below_zero() -> None:
    rows = activity_rows(histogram(9, 0, 0, 3, 0), histogram(7, 0, 5, 0, 0), EDGES)
    told = [(bar["low"], bar["high"], bar["prefixes"]) for bar in rows if bar["prefixes"] and bar["side"] != SIDES[1]]
    assert told == [pytest.approx((-0.1, -0.01, 5)), pytest.approx((0.1, 1.0, 3))]
    (middle,) = [bar for bar in rows if bar["side"] == SIDES[1]]
    assert middle["prefixes"] == 12 - 8
    assert middle["low"] == -middle["high"]


def test_without_a_negative_side_the_axis_begins_at_zero() -> None:
    for negative in (None, histogram(12, 0, 0, 0, 0)):
        rows = activity_rows(histogram(9, 0, 0, 3, 0), negative, EDGES)
        assert rows[0]["low"] == 0
        assert SIDES[0] not in {row["side"] for row in rows}


def test_a_memory_that_never_fires_is_one_bar_and_drawn() -> None:
    dead = histogram(12, 0, 0, 0, 0)
    rows = activity_rows(dead, dead, EDGES)
    assert [row["prefixes"] for row in rows] == [12]
    assert drawn_rows(activity_figure(dead, dead, EDGES)) == rows


def test_thresholds_are_drawn_where_they_are() -> None:
    figure = activity_figure(histogram(9, 0, 0, 3, 0), None, EDGES, [0.05])
    assert checked(figure)["layer"][1]["data"]["values"] == [{"threshold": 0.05}]


def test_tokens_are_in_the_order_of_their_scores_with_every_character_seen_and_their_sign() -> None:
    figure = value_figure(["\n", "<b>", "\u202e"], [-1.0, 3.0, 2.0], marked=["", "▸", ""])
    rows = drawn_rows(figure)
    assert [row["word"] for row in rows] == ["▸ <b>", "\\u202e", "⏎"]
    assert [row["score"] for row in rows] == [3.0, 2.0, -1.0]


def test_every_series_has_its_place_and_what_is_not_a_number_is_left_out() -> None:
    points = [
        Point(layer=0, series=Series.NOW, value=0.5, low=0.4, high=0.6),
        Point(layer=1, series=Series.NOW, value=math.nan),
        Point(layer=0, series=Series.CHANCE, value=0.1),
    ]
    figure = by_layer_figure(points, "a share", marked=0)
    spec = checked(figure)
    rows = [row for row in drawn_rows(figure) if "value" in row]
    assert {(row["layer"], row["series"], row["low"], row["high"]) for row in rows} == {
        (0, "this checkpoint", 0.4, 0.6),
        (0, "chance", 0.1, 0.1),
    }
    colours = {layer["mark"]["color"] for layer in spec["layer"]}
    assert COLOURS[Series.NOW] in colours
    assert COLOURS[Series.START] not in colours
    assert spec["title"]["text"] == "a share"


@pytest.mark.parametrize("n_layers", [0, FEW + 18])
def test_any_number_of_layers_is_drawn(n_layers: int) -> None:
    points = [Point(layer=layer, series=Series.NOW, value=0.5) for layer in range(n_layers)]
    assert len(checked(by_layer_figure(points, "a share"))["layer"]) == (2 if n_layers else 1)


def test_parts_keep_their_colours_whichever_of_them_there_are() -> None:
    figure = checked(parts_figure([(0, "b", 0.75), (0, "c", 0.25), (1, "b", 1.0)], ["a", "b", "c"], "parts"))
    colour = figure["encoding"]["color"]
    assert dict(zip(colour["scale"]["domain"], colour["scale"]["range"], strict=True))["b"] == PARTS[1]
    assert colour["legend"]["values"] == ["b", "c"]
    assert [row["order"] for row in drawn_rows(figure)] == [1, 2, 1]


def test_a_dark_page_changes_colours_and_no_data() -> None:
    figure = value_figure([COLOURS[Series.NOW], "b"], [1.0, 2.0])
    light, dark = (spec_of(figure, dark=dark) for dark in (False, True))
    assert light["datasets"] == dark["datasets"] == figure["datasets"]
    assert light["config"]["background"] != dark["config"]["background"]
    assert "config" not in figure
