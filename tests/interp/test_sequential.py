"""Stopping early: wrong no more often than stated however often one looks, and sooner where there is much to see."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from torch import Tensor

from interp import sequential
from interp.sequential import Decision, decide, look_sizes, studentized
from model.errors import InputError

TRIALS, MOST, ALPHA = 1000, 64, 0.05


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for the levels tried here, in a tenth of the time."""
    monkeypatch.setattr(sequential, "_FLIPS", 399)
    monkeypatch.setattr(sequential, "_RESAMPLES", 400)


def normal(n: int, mean: float = 0.0, seed: int = 0) -> Tensor:
    return mean + torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def skewed(n: int, seed: int) -> Tensor:
    """Exponential, its mean 0."""
    return -torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log() - 1


def decided(values: Tensor, bounds: float | tuple[float, ...] = 0.0, **asked: float) -> Decision:
    return decide(lambda start, stop: values[start:stop], bounds, most=len(values), alpha=ALPHA, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("draw", [normal, pytest.param(skewed, marks=pytest.mark.slow)])
def test_a_mean_on_the_bound_is_put_on_a_side_no_more_often_than_alpha(draw: object) -> None:
    wrong = peeked = 0
    for seed in range(TRIALS):
        values = draw(MOST, seed=seed)  # type: ignore[operator]
        wrong += decided(values).is_decided
        looks = [values[:n] for n in look_sizes(MOST)]
        peeked += any(abs(float(each.mean())) > 1.96 * float(each.std()) / math.sqrt(len(each)) for each in looks)
    assert wrong / TRIALS <= ALPHA
    assert peeked / TRIALS > 1.5 * ALPHA, "without spending the same looks are wrong too often, or this test is blind"


def test_a_large_effect_needs_a_fraction_of_the_sequences_and_is_put_on_its_side() -> None:
    found = [decided(normal(256, mean=1.5, seed=seed)) for seed in range(60)]
    assert all(each.sides == (True,) for each in found)
    assert sum(each.n for each in found) / len(found) < 0.15 * 256
    assert found[0].saved > 0.8
    assert all(each.sides == (False,) for each in (decided(normal(64, mean=-2.0, seed=seed)) for seed in range(20)))


def test_the_error_is_spent_over_the_looks_and_adds_up() -> None:
    found = decided(normal(100, seed=3))
    assert [look.n for look in found.looks] == [16, 32, 64, 100]
    assert [look.spent for look in found.looks] == pytest.approx([ALPHA * n / 100 for n in (16, 16, 32, 36)])
    assert sum(look.spent for look in found.looks) == pytest.approx(ALPHA)
    assert [look.interval.level for look in found.looks] == pytest.approx([1 - look.spent for look in found.looks])
    assert not found.is_decided
    assert (found.sides, found.n, found.saved) == ((None,), 100, 0.0)


def test_every_sequence_is_asked_for_once_and_in_order() -> None:
    asked: list[tuple[int, int]] = []

    def measure(start: int, stop: int) -> Tensor:
        asked.append((start, stop))
        return normal(stop - start, mean=0.2, seed=start)

    decide(measure, most=100)
    assert asked == [(0, 16), (16, 32), (32, 64), (64, 100)][: len(asked)]
    assert len(asked) > 1


def test_two_bounds_tell_that_little_is_there() -> None:
    found = decided(0.01 * normal(64), (-0.05, 0.05))
    assert found.sides == (True, False)
    assert found.interval.within(0.05)
    assert found.n == 16
    assert decided(normal(64), (-0.05, 0.05)).sides != (True, False)


def test_few_values_have_a_wider_interval_than_percentiles_and_no_spread_none() -> None:
    from interp.stats import bootstrap_mean

    values = skewed(16, seed=1)
    wide, usual = studentized(values, n_resamples=4000), bootstrap_mean(values)
    assert wide.high - wide.low > 1.1 * (usual.high - usual.low)
    still = studentized(torch.full((16,), 0.3))
    assert (still.low, still.high) == (still.mean, still.mean)
    lone = studentized(torch.tensor([0.0] * 15 + [1.0]))
    assert lone.high == math.inf  # most resamples miss the one that is not zero, and know of no spread


def test_the_interval_of_a_look_covers_the_mean_of_few_skewed_values() -> None:
    found = [studentized(skewed(16, seed=seed), n_resamples=500) for seed in range(600)]
    assert 0.92 <= sum(each.low <= 0 <= each.high for each in found) / 600 <= 0.98


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"bounds": ()}, "decide nothing"),
        ({"bounds": (math.nan,)}, "decide nothing"),
        ({"bounds": 0.0, "alpha": 5.0}, "no chance of an error"),
        ({"bounds": 0.0, "first": 1}, "make no look"),
        ({"bounds": 0.0, "first": 4}, "it could never decide; look later first"),
    ],
)
def test_what_could_never_decide_is_refused_before_anything_is_measured(asked: dict, sentence: str) -> None:
    def measure(start: int, stop: int) -> Tensor:
        raise AssertionError("measured")

    with pytest.raises(InputError, match=sentence):
        decide(measure, **{"most": 64, **asked})


def test_numbers_that_are_too_few_or_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="16 sequences were asked for and"):
        decide(lambda start, stop: torch.zeros(3), most=64)
    with pytest.raises(InputError, match="all finite"):
        decide(lambda start, stop: torch.full((stop - start,), math.nan), most=64)


def test_the_examples_in_the_module_hold() -> None:
    assert doctest.testmod(sequential).failed == 0
