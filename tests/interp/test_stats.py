"""Intervals that cover, tests that are level, corrections worked by hand, and what is not finite refused."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from torch import Tensor

from interp import stats
from interp.stats import (
    Interval,
    Intervals,
    benjamini_hochberg,
    bootstrap_crossed,
    bootstrap_mean,
    bootstrap_means,
    bootstrap_ratios,
    holm,
    linear_fit,
    over_seeds,
    sign_flip_p,
    sign_flip_ps,
    student_quantile,
)
from model.errors import InputError


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def distance_from_uniform(p: Tensor) -> float:
    """Kolmogorov and Smirnov's distance times sqrt(n); above 1.63 uniformity is refused at 1%."""
    ordered, n = p.sort().values, len(p)
    steps = torch.arange(n + 1) / n
    return float(torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max() * math.sqrt(n))


def test_a_95_percent_interval_of_50_values_covers_the_truth_93_to_97_times_in_100() -> None:
    found = bootstrap_means(normal(50, 2000) + 3)
    assert found.method == "percentile"
    assert 0.93 <= coverage(found, 3) <= 0.97


def test_a_95_percent_interval_of_50_skewed_values_covers_the_truth_91_to_97_times_in_100() -> None:
    skewed = -torch.rand(50, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).log()
    found = bootstrap_means(skewed)
    assert found.method == "percentile"
    assert 0.91 <= coverage(found, 1) <= 0.97


def test_coverage_tells_a_narrower_interval_from_the_one_that_was_asked_for() -> None:
    """The two tests above are not blind: intervals of 90% or 99% do not pass for 95%."""
    values = normal(50, 1000)
    assert coverage(bootstrap_means(values, level=0.9), 0) < 0.93
    assert coverage(bootstrap_means(values, level=0.99), 0) > 0.97


def coverage(found: Intervals, truth: float) -> float:
    return float(((found.low <= truth) & (found.high >= truth)).double().mean())


def test_bca_covers_skewed_data_about_as_well_and_better_than_the_percentiles() -> None:
    skewed = -torch.rand(40, 2000, generator=torch.Generator().manual_seed(1), dtype=torch.float64).log()
    bca = bootstrap_means(skewed)
    assert bca.method == "bca"
    covered = float(((bca.low <= 1) & (bca.high >= 1)).double().mean())
    assert 0.91 <= covered <= 0.97


def test_bca_agrees_with_the_percentiles_on_symmetric_data() -> None:
    half = normal(24, seed=3)
    values = torch.cat([half, -half])
    found = bootstrap_mean(values, n_resamples=20_000)
    draws = values[torch.randint(48, (20_000, 48), generator=torch.Generator().manual_seed(9))].mean(1)
    expected = draws.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    assert [found.low, found.high] == pytest.approx(expected, abs=0.02)


def test_an_interval_is_the_same_for_the_same_seed_and_contains_its_mean() -> None:
    values = normal(60).float()
    first, second = bootstrap_mean(values, seed=4), bootstrap_mean(values, seed=4)
    assert first == second
    assert first.low < first.mean < first.high
    assert first.mean == pytest.approx(float(values.double().mean()), abs=1e-12)
    assert bootstrap_mean(values, seed=5) != first


def test_a_constant_has_an_interval_of_no_width() -> None:
    found = bootstrap_mean(torch.full((10,), 0.1))
    assert found.high - found.low == pytest.approx(0, abs=1e-12)
    assert found.excludes(0)


def test_tiny_effects_on_large_means_keep_their_digits() -> None:
    small = normal(64)
    shifted = bootstrap_mean(small * 1e-9 + 1e3)
    assert shifted.high - shifted.low == pytest.approx(1e-9 * _width(bootstrap_mean(small)), rel=1e-2)


def _width(interval: Interval) -> float:
    return interval.high - interval.low


def test_many_cells_at_once_equal_each_alone() -> None:
    values = normal(55, 2, 3)
    together = bootstrap_means(values)
    assert together.mean.shape == (2, 3)
    alone = bootstrap_mean(values[:, 1, 2])
    assert _ends(together[1, 2]) == pytest.approx(_ends(alone), abs=1e-12)


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.mean, interval.low, interval.high


def test_large_samples_are_resampled_in_blocks_without_changing_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    values = normal(100)
    whole = bootstrap_mean(values, n_resamples=100)
    monkeypatch.setattr("interp.stats._BLOCK", 700)
    assert _ends(bootstrap_mean(values, n_resamples=100)) == pytest.approx(_ends(whole), abs=1e-12)


def test_an_interval_prints_as_one_would_write_it() -> None:
    interval = Interval(mean=0.912, low=0.88, high=0.934, n=64, level=0.95, method="percentile")
    assert f"{interval:.2f}" == "0.91 [0.88, 0.93]"


@pytest.mark.parametrize(
    ("values", "level", "sentence"),
    [
        (torch.zeros(1), 0.95, "1 value is too few"),
        (torch.tensor([0.0, math.nan]), 0.95, "not finite"),
        (torch.zeros(3), 95.0, r"level=95.0 is not a coverage"),
    ],
)
def test_what_cannot_be_resampled_is_refused(values: Tensor, level: float, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        bootstrap_mean(values, level=level)


def test_inputs_are_left_as_they_were() -> None:
    values = normal(20)
    before = values.clone()
    bootstrap_mean(values)
    sign_flip_p(values)
    holm(values.abs().clamp(max=1))
    assert torch.equal(values, before)


def test_sign_flips_of_few_values_are_all_counted() -> None:
    # Of 8 sign patterns of (1, 2, 3) only +++ and --- reach a mean of 2.
    assert sign_flip_p(torch.tensor([1.0, 2.0, 3.0])) == 2 / 8
    assert sign_flip_p(torch.tensor([1.0, -1.0])) == 1.0


def test_drawn_sign_flips_are_never_zero() -> None:
    assert sign_flip_p(torch.ones(40), n_flips=999) == 1 / 1000


@pytest.mark.parametrize("n", [12, 30])
def test_sign_flip_p_is_uniform_when_nothing_differs(n: int) -> None:
    p = sign_flip_ps(normal(n, 1500, seed=n), n_flips=1999)
    assert distance_from_uniform(p) < 1.63
    assert distance_from_uniform(p / 2) > 1.63, "a one-sided p would pass, so this test would be blind"
    assert distance_from_uniform(sign_flip_ps(normal(n, 1500, seed=n) + 0.2, n_flips=1999)) > 1.63


def test_holm_and_bh_equal_examples_worked_by_hand() -> None:
    p = [0.005, 0.011, 0.02, 0.04, 0.13]
    assert holm(p).tolist() == pytest.approx([0.025, 0.044, 0.06, 0.08, 0.13])
    assert benjamini_hochberg(p).tolist() == pytest.approx([0.025, 0.0275, 1 / 30, 0.05, 0.13])
    tied = [0.03, 0.01, 0.03, 0.9]  # out of order, with a tie
    assert holm(tied).tolist() == pytest.approx([0.09, 0.04, 0.09, 0.9])
    assert benjamini_hochberg(tied).tolist() == pytest.approx([0.04, 0.04, 0.04, 0.9])


def test_adjusted_p_values_keep_the_shape_of_their_family_and_stay_below_one() -> None:
    p = torch.tensor([[0.5, 0.9], [0.7, 1.0]])
    assert holm(p).shape == benjamini_hochberg(p).shape == (2, 2)
    assert holm(p).max() == 1.0


def test_a_p_value_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        holm([0.1, 1.2])


@pytest.mark.parametrize("ends", [(math.nan, 1.0), (-1.0, math.nan), (math.nan, math.nan)])
def test_an_interval_without_ends_excludes_nothing_and_is_no_evidence_of_nothing(ends: tuple[float, float]) -> None:
    interval = Interval(mean=math.nan, low=ends[0], high=ends[1], n=3, level=0.95, method="percentile")
    assert not interval.excludes(0)
    assert not interval.within(1e9)


def test_an_interval_excludes_what_lies_beyond_either_end_and_is_within_what_holds_it_whole() -> None:
    interval = Interval(mean=0.1, low=-0.1, high=0.3, n=3, level=0.95, method="percentile")
    assert [interval.excludes(value) for value in (-0.2, -0.1, 0, 0.3, 0.4)] == [True, False, False, False, True]
    assert [interval.within(bound) for bound in (0.2, 0.3, 0.31)] == [False, False, True]
    assert [interval.above(value) for value in (-0.2, -0.1, 0, 0.3, 0.4)] == [True, None, None, False, False]


def test_a_straight_line_has_r_squared_one_and_a_still_one_has_none() -> None:
    slope, linearity = linear_fit(torch.tensor([[1.0, 3.0, 5.0, 7.0]] * 2))
    assert slope.mean == pytest.approx(2)
    assert linearity == pytest.approx(1)
    assert math.isnan(linear_fit(torch.ones(2, 4))[1])


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062047), (2, 4.3026527), (4, 2.7764451), (5, 2.5705818), (30, 2.0422725)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=1e-7)


def test_one_seed_has_no_interval() -> None:
    interval = over_seeds(torch.tensor([0.4]))
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert not interval.excludes(0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [([0.1, math.nan, 0.3], "1 of 3 values over seeds are not finite"), ([-math.inf], "1 of 1"), ([], "0 of 0")],
)
def test_what_is_not_finite_has_no_mean_over_seeds(values: list[float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        over_seeds(torch.tensor(values))


def test_the_examples_in_the_module_hold() -> None:
    assert doctest.testmod(stats).failed == 0


def test_a_ratio_of_means_is_paired_and_does_not_follow_single_small_wholes():
    generator = torch.Generator().manual_seed(0)
    whole = torch.rand(40, generator=generator).double() + 0.001
    found = bootstrap_ratios(torch.stack([0.8 * whole, whole * 0], 1), torch.stack([whole, whole], 1))
    assert found.mean.tolist() == pytest.approx([0.8, 0.0])
    torch.testing.assert_close(found.low, found.mean)  # in every resample the ratio is the same
    torch.testing.assert_close(found.high, found.mean)
    noisy = bootstrap_ratios((whole + torch.randn(40, generator=generator))[:, None], whole[:, None])[0]
    assert noisy.low < noisy.mean < noisy.high


def test_a_ratio_to_nothing_is_no_number_and_one_to_an_unsure_whole_has_no_ends():
    spread = torch.tensor([-1.0, 1.1, -0.9, 1.0])
    found = bootstrap_ratios(torch.ones(4, 2), torch.stack([torch.zeros(4), spread], 1))
    assert found.mean[0].isnan()
    assert found.low[0].isnan()
    assert (float(found.low[1]), float(found.high[1])) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("part", "whole"),
    [([0.0, 0.9], [0.0, 1.0]), ([0.5, 0.9], [0.0, 1.0]), ([0.9] * 2 + [0.0] * 10, [1.0] * 2 + [0.0] * 10)],
)
def test_a_ratio_whose_whole_may_be_zero_by_chance_has_no_ends(part: list[float], whole: list[float]):
    found = bootstrap_ratios(torch.tensor(part)[:, None], torch.tensor(whole)[:, None])[0]
    assert found.mean == pytest.approx(sum(part) / sum(whole))
    assert (found.low, found.high) == (-math.inf, math.inf)


@pytest.mark.parametrize(("n", "method"), [(20, "bca"), (80, "percentile")])
def test_the_interval_of_a_ratio_covers_it(n: int, method: str) -> None:
    generator = torch.Generator().manual_seed(2)
    whole = 0.2 - torch.rand(n, 1000, generator=generator, dtype=torch.float64).log()  # skewed, its mean 1.2
    part = 0.7 * whole - 0.3 * (torch.rand(n, 1000, generator=generator, dtype=torch.float64).log() + 1)
    found = bootstrap_ratios(part, whole, n_resamples=1000)
    assert found.method == method
    assert 0.92 <= float(((found.low <= 0.7) & (found.high >= 0.7)).double().mean()) <= 0.97


@pytest.mark.parametrize(("by_row", "by_unit"), [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.2, 1.0)])
def test_an_interval_over_rows_and_units_covers_whichever_of_them_varies(by_row: float, by_unit: float) -> None:
    covered = 0
    for seed in range(300):
        rows, units, single = (normal(n, seed=3 * seed + which) for which, n in enumerate((12, 18, 12 * 18)))
        values = by_row * rows[:, None] + by_unit * units + 0.1 * single.view(12, 18)
        found = bootstrap_crossed(values, n_resamples=500, seed=seed)
        assert (found.n, found.method) == (18, "two-way percentile")
        covered += found.low <= 0 <= found.high
    assert 0.91 <= covered / 300 <= 0.985


def test_an_interval_over_rows_and_units_needs_two_of_each() -> None:
    for shape in ((1, 9), (9, 1)):
        with pytest.raises(InputError, match="too few"):
            bootstrap_crossed(torch.zeros(shape))
