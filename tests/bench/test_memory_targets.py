"""The numbers that the targets on FFN memories are about, on tensors whose answer can be counted."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.memory_found import chance_ratio, third_ratio_of
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
from interp.stats import Intervals, bootstrap_means

pytestmark = pytest.mark.whole


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
    counts = [len(each) for each in layers]
    assert found.value == third_ratio(found.layers, counts), "one formula, as for step 0 and chance"
    assert third_ratio([0.1, 0.2, 0.9, 0.6], [300, 1, 1, 100]) == pytest.approx(6.0)
    assert third_ratio([0.1, math.nan, 0.9, 0.9, 0.2, 0.4], [10, 0, 5, 5, 10, 30]) == pytest.approx(0.35 / 0.1)


def found_with(shares: list[float], chances: list[float], counts: list[int]) -> Any:
    """What `chance_ratio` and `third_ratio_of` read, of a side that is not the trained one."""
    layers = [
        SimpleNamespace(agreement=SimpleNamespace(share=share, chance=chance, n=n))
        for share, chance, n in zip(shares, chances, counts, strict=True)
    ]
    summary = SimpleNamespace(layers=layers)
    return SimpleNamespace(trained=SimpleNamespace(summary=summary), memories=SimpleNamespace(reading=_OTHER))


_OTHER = SimpleNamespace(summary=None)


def test_step_0_and_chance_are_pooled_over_memories_as_the_trained_ones_are() -> None:
    """A layer of 10 living memories does not count as much as one of 1,000."""
    found = found_with([0.5, 0.01, 0.0, 0.0, 0.02, 0.02], [0.1, 0.2, 0.0, 0.0, 0.4, 0.4], [10, 1000, 9, 9, 500, 500])
    pooled = 0.02 / ((5 + 10) / 1010)
    assert third_ratio_of(found, found.trained).value == pytest.approx(pooled)
    assert chance_ratio(found) == pytest.approx(0.4 / (201 / 1010))


def test_a_first_third_that_never_agrees_gives_no_ratio_but_infinity() -> None:
    assert last_over_first_third([agreeing(0), agreeing(0.1), agreeing(0.2)]).value == math.inf
    assert math.isnan(last_over_first_third([agreeing(0), agreeing(0.1), agreeing(0)]).value)
    assert third_ratio([0.0, 0.1, 0.2], [5, 5, 5]) == math.inf


def test_a_claim_about_every_layer_is_that_of_its_worst() -> None:
    least = extreme(shares(0.3, 0.1, 0.2), "documents", least=True)
    wider = 2.71 / 1.96  # Student's 0.025 / 3 with 29 degrees of freedom; a table has 2.54 for 0.025 / 3 of one side
    assert (least.value, least.n) == (0.1, 30)
    assert (least.low, least.high) == (
        pytest.approx(0.1 - 0.01 * wider, abs=1e-3),
        pytest.approx(0.1 + 0.01 * wider, abs=1e-3),
    )
    assert extreme(shares(0.3, 0.1, 0.2), "documents", least=False).value == 0.3
    assert least_sum([shares(0.3, 0.5), shares(0.4, 0.1)], "documents").value == pytest.approx(0.6)
    assert extreme(shares(0.995, 0.999), "documents", least=False).high == 1.0


def test_the_ends_of_an_extreme_are_those_of_all_layers() -> None:
    """Another layer may be the least: one that was measured worse reaches lower."""
    mean = torch.tensor([0.20, 0.21], dtype=torch.float64)
    unsure = Intervals(mean=mean, low=mean - 0.01, high=mean + 0.01, n=30, level=0.95, method="percentile")
    unsure.low[1] = 0.05
    assert extreme(unsure, "documents", least=True).low < 0.05


def test_an_extreme_is_covered_though_its_layer_was_chosen_by_the_data() -> None:
    """Six equal layers, of which the least is lower by chance: its own interval misses too often."""
    generator = torch.Generator().manual_seed(0)
    n_simulated, covered, plainly = 200, 0, 0
    for seed in range(n_simulated):
        units = 0.5 + 0.1 * torch.randn(15, 6, generator=generator, dtype=torch.float64)
        intervals = bootstrap_means(units, 500, seed)
        found, plain = extreme(intervals, "documents", least=True), intervals[int(intervals.mean.argmin())]
        covered += found.low <= 0.5 <= found.high
        plainly += plain.low <= 0.5 <= plain.high
    assert covered >= 0.93 * n_simulated
    assert plainly < 0.88 * n_simulated


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
    assert lead.n == 3 + 4 + 4
    assert 0.05 < lead.high - lead.low < 0.25, "each layer's memories are drawn apart"
    assert lead_of_first_layer(falls.flip(0)).value == pytest.approx(0.75 - 0.95)


@pytest.mark.parametrize("ahead", [0.0, 0.1])
def test_a_lead_is_covered_though_its_rival_was_chosen_by_the_data(ahead: float) -> None:
    """Of five equal others, the nearest is near by chance."""
    generator = torch.Generator().manual_seed(1)
    n_simulated, found, lead = 150, [], torch.tensor([ahead, 0, 0, 0, 0, 0], dtype=torch.float64)
    for _ in range(n_simulated):
        falls = 0.5 + lead[:, None] + 0.2 * torch.randn(6, 64, generator=generator, dtype=torch.float64)
        found.append(lead_of_first_layer(falls, 400))
    assert sum(each.low <= ahead <= each.high for each in found) >= 0.93 * n_simulated
    assert max(each.high - each.low for each in found) < 0.3
    biased = sum(each.value for each in found) / n_simulated
    assert biased < ahead - 0.02, "the plain difference to the nearest is too low by what chance favours"


def test_layers_without_any_spread_lead_for_certain() -> None:
    lead = lead_of_first_layer(torch.tensor([[0.9, 0.9], [0.5, 0.5], [0.7, 0.7]]))
    assert (lead.low, lead.value, lead.high) == (pytest.approx(0.2), pytest.approx(0.2), pytest.approx(0.2))


@pytest.mark.parametrize(("low", "high", "sure"), [(0.81, 0.9, True), (0.79, 0.9, False), (math.nan, math.nan, False)])
def test_a_verdict_is_sure_where_both_ends_say_the_same(low: float, high: float, sure: bool) -> None:
    found = Measurement(value=0.85, low=low, high=high, n=9, unit="memories")
    assert found.surely(lambda value: value >= 0.8) is sure
