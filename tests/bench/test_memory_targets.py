"""The numbers that the targets on FFN memories are about, on tensors whose answer can be counted."""

from __future__ import annotations

import math

import pytest
import torch

from bench.memory_measures import (
    Measurement,
    extreme,
    largest_fall,
    last_over_first_third,
    lead_of_first_layer,
    least_sum,
    share_that_falls_more,
    third_ratio,
)
from interp.stats import Intervals


def agreeing(share: float, n: int = 200) -> torch.Tensor:
    return torch.arange(n) < round(share * n)


def shares(*means: float) -> Intervals:
    mean = torch.tensor(means, dtype=torch.float64)
    return Intervals(mean=mean, low=mean - 0.01, high=mean + 0.01, n=30, level=0.95, method="percentile")


def test_thirds_are_compared_by_their_memories_together() -> None:
    layers = [agreeing(0.02), agreeing(0.04, n=100), agreeing(0.5), agreeing(0.9), agreeing(0.1), agreeing(0.2)]
    found = last_over_first_third(layers)
    assert found.value == pytest.approx((60 / 400) / (8 / 300))
    assert found.low < found.value < found.high
    assert (found.n, len(found.layers)) == (700, 6)
    assert third_ratio([1, 2, 3, 4, 5, 7]) == 4


def test_a_first_third_that_never_agrees_gives_no_ratio_but_infinity() -> None:
    assert last_over_first_third([agreeing(0), agreeing(0.1), agreeing(0.2)]).value == math.inf
    assert math.isnan(last_over_first_third([agreeing(0), agreeing(0.1), agreeing(0)]).value)
    assert math.isnan(third_ratio([0.0, 0.1, 0.2]))


def test_a_claim_about_every_layer_is_that_of_its_worst() -> None:
    least = extreme(shares(0.3, 0.1, 0.2), "documents", least=True)
    assert (least.value, least.low, least.high, least.n) == (0.1, pytest.approx(0.09), pytest.approx(0.11), 30)
    assert extreme(shares(0.3, 0.1, 0.2), "documents", least=False).value == 0.3
    assert least_sum([shares(0.3, 0.5), shares(0.4, 0.1)], "documents").value == pytest.approx(0.6)


def test_a_rise_with_a_dip_is_known_by_the_dip() -> None:
    assert largest_fall(shares(0.1, 0.3, 0.25, 0.9), "documents").value == pytest.approx(0.05)
    assert largest_fall(shares(0.1, 0.3, 0.9), "documents").value == 0


def test_falls_are_compared_memory_by_memory_and_the_unmeasured_left_out() -> None:
    last = torch.tensor([[1.0, 0.9, 0.2, math.nan], [0.5, 0.6, 0.7, 0.8]])
    first = torch.tensor([[0.0, 0.1, 0.3, 0.0], [0.4, 0.7, 0.1, math.nan]])
    found = share_that_falls_more(last, first)
    assert (found.n, found.value) == (6, pytest.approx(4 / 6))
    assert found.layers == (pytest.approx(2 / 3), pytest.approx(2 / 3))


def test_the_first_layer_leads_by_the_distance_to_the_nearest_other() -> None:
    falls = torch.tensor([[0.9, 1.0, 0.95, math.nan], [0.5, 0.6, 0.5, 0.6], [0.7, 0.7, 0.8, 0.8]])
    lead = lead_of_first_layer(falls)
    assert lead.value == pytest.approx(0.95 - 0.75)
    assert lead.n == 3 + 4
    assert 0.05 < lead.high - lead.low < 0.2, "each layer's memories are drawn apart"
    assert lead_of_first_layer(falls.flip(0)).value == pytest.approx(0.75 - 0.95)


@pytest.mark.parametrize(("low", "high", "sure"), [(0.81, 0.9, True), (0.79, 0.9, False), (math.nan, math.nan, False)])
def test_a_verdict_is_sure_where_both_ends_say_the_same(low: float, high: float, sure: bool) -> None:
    found = Measurement(value=0.85, low=low, high=high, n=9, unit="memories")
    assert found.surely(lambda value: value >= 0.8) is sure
