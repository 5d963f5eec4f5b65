"""Intervals worked by hand, exact ones that miss no more often than stated, and none that shrinks to a point."""

from __future__ import annotations

import doctest
import itertools
import math

import pytest
import torch
from torch import Tensor

from interp import share_intervals
from interp.share_intervals import (
    FEWEST,
    bounded_interval,
    difference_interval,
    level_of_each,
    mean_interval,
    rank_correlation_interval,
    share_interval,
)
from interp.stats import Interval
from model.errors import InputError

LAYERS = 12


def chances(n: int, share: float) -> list[float]:
    """Of finding 0, 1, ... n of n units."""
    return [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]


def paired(n: int, rises: float, falls: float, *, times: int, seed: int = 0) -> Tensor:
    """Differences of paired 0s and 1s: 1 with one chance, -1 with another, else 0."""
    drawn = torch.rand(times, n, generator=torch.Generator().manual_seed(seed))
    return (drawn < rises).double() - (drawn > 1 - falls).double()


def test_shares_worked_by_hand() -> None:
    none, all_, half = share_interval(0, 10), share_interval(10, 10), share_interval(1, 2)
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025**0.1))
    assert (all_.low, all_.high) == (pytest.approx(0.025**0.1), 1.0)
    assert (half.low, half.high) == (pytest.approx(1 - math.sqrt(0.975)), pytest.approx(math.sqrt(0.975)))
    beta = share_interval(7, 256, level=0.995)  # quantiles of the beta distribution, from a table
    assert (beta.low, beta.high) == (pytest.approx(0.007054370557), pytest.approx(0.069653887946))


@pytest.mark.parametrize("level", [0.95, level_of_each(LAYERS)])
@pytest.mark.parametrize("n", [2, 7, 40])
def test_an_exact_interval_misses_no_share_on_either_side_more_often_than_stated(n: int, level: float) -> None:
    found = [share_interval(k, n, level) for k in range(n + 1)]
    for share in torch.linspace(0.005, 0.995, 67).tolist():
        chance = chances(n, share)
        above = sum(p for p, each in zip(chance, found, strict=True) if each.low > share)
        below = sum(p for p, each in zip(chance, found, strict=True) if each.high < share)
        assert max(above, below) <= (1 - level) / 2 + 1e-9


@pytest.mark.parametrize("n", [32, 64, 128, 256, 512])
def test_a_share_of_two_points_is_seldom_said_to_be_below_one(n: int) -> None:
    chance = chances(n, 0.02)
    denied = itertools.takewhile(lambda k: share_interval(k, n).high < 0.01, range(n + 1))
    assert sum(chance[k] for k in denied) <= 0.025


def test_paired_shares_worked_by_hand() -> None:
    """Bonett and Price 2012 add one pair on either side, about z^2 / 2 of them: (12 - 4) of 60 pairs changed."""
    changes = torch.tensor([1.0] * 12 + [-1.0] * 4 + [0.0] * 44)
    found, z2 = bounded_interval(changes), 1.959964**2
    n, mean = 60 + z2, 8 / (60 + z2)
    half = math.sqrt(z2 * ((16 + z2) / n - mean**2) / n)
    assert (found.low, found.high) == (pytest.approx(mean - half, abs=1e-6), pytest.approx(mean + half, abs=1e-6))
    assert found.mean == pytest.approx(8 / 60)


@pytest.mark.parametrize("level", [0.95, level_of_each(LAYERS)])
@pytest.mark.parametrize(("rises", "falls"), [(0.05, 0.0), (0.1, 0.1), (0.5, 0.1), (0.7, 0.0)])
@pytest.mark.parametrize("n", [16, 64, 256])
def test_intervals_of_paired_shares_cover(n: int, rises: float, falls: float, level: float) -> None:
    found = [bounded_interval(each, level) for each in paired(n, rises, falls, times=400)]
    missed = sum(not each.low <= rises - falls <= each.high for each in found) / 400
    assert missed <= (1 - level) + 2.5 * math.sqrt((1 - level) / 400)


@pytest.mark.parametrize("n", [2, 8, 32, 128])
def test_a_change_of_ten_points_is_seldom_said_to_be_below_five(n: int) -> None:
    found = [bounded_interval(each) for each in paired(n, 0.1, 0.0, times=400, seed=n)]
    assert sum(each.within(0.05) for each in found) <= 400 * 0.025


@pytest.mark.parametrize("n", [2, 5, 64])
def test_units_that_are_all_alike_leave_room_for_those_that_were_not_seen(n: int) -> None:
    for value in (-1.0, 0.0, 0.3, 1.0):
        found = bounded_interval(torch.full((n,), value))
        assert found.high - found.low > 1.5 / n
        assert -1 <= found.low <= value <= found.high <= 1 + 1e-12


def test_students_interval_worked_by_hand_covers_and_is_not_had_of_few() -> None:
    found = mean_interval(torch.arange(25.0))
    assert found is not None
    assert (found.mean, found.low) == (12, pytest.approx(12 - 2.0638986 * math.sqrt(650 / 12) / 5))
    assert mean_interval(torch.arange(FEWEST - 1.0)) is None
    drawn = torch.randn(1000, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = [each for row in drawn if (each := mean_interval(row)) is not None]
    assert 0.93 <= sum(each.low <= 0 <= each.high for each in kept) / 1000 <= 0.97


def test_a_difference_of_shares_is_that_of_newcombe() -> None:
    """His table II, 56 of 70 against 48 of 80: 0.0524 to 0.3339 from Wilson's ends, which are given here."""
    one = Interval(mean=0.8, low=0.69217, high=0.87692, n=70, level=0.95, method="Wilson")
    other = Interval(mean=0.6, low=0.49044, high=0.70043, n=80, level=0.95, method="Wilson")
    found = difference_interval(one, other)
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=1e-3), pytest.approx(0.3339, abs=1e-3))


@pytest.mark.parametrize("rarely", [0.05, 0.5])
def test_the_interval_of_a_rank_correlation_with_something_that_is_so_or_not_covers(rarely: float) -> None:
    n, seed = 400, torch.Generator().manual_seed(1)
    sure = torch.rand(300, n, generator=seed, dtype=torch.float64)
    agrees = (torch.rand(300, n, generator=seed) < rarely * 2 * sure).double()
    places = sure.argsort(1).argsort(1).double()
    rho = torch.stack([torch.corrcoef(torch.stack(pair))[0, 1] for pair in zip(places, agrees, strict=True)])
    truth = math.sqrt(12 * rarely / (1 - rarely)) / 6  # of an even spread and what follows it
    found = [rank_correlation_interval(float(each), n) for each in rho]
    covered = sum(each is not None and each.low <= truth <= each.high for each in found)
    assert 0.91 <= covered / 300 <= 0.985
    assert rank_correlation_interval(math.nan, n) is None
    assert rank_correlation_interval(0.5, FEWEST - 1) is None


def test_what_is_no_share_is_refused() -> None:
    for n_found, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(InputError, match="is no share"):
            share_interval(n_found, n)
    with pytest.raises(InputError, match=r"level=95.0 is not a coverage"):
        share_interval(1, 2, level=95.0)
    with pytest.raises(InputError, match="between -1 and 1"):
        bounded_interval(torch.tensor([0.0, 1.5]))
    with pytest.raises(InputError, match="between -1 and 1"):
        bounded_interval(torch.tensor([math.nan]))
    with pytest.raises(InputError, match="give at least one"):
        bounded_interval(torch.tensor([]))


def test_the_examples_in_the_module_hold() -> None:
    assert doctest.testmod(share_intervals).failed == 0
