"""Bounds: read or refused, and held against deltas whose answer is known because they were planted."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from torch import Tensor

from analyses.claims import bounds
from analyses.claims.bounds import Judged, Standing, judged, parse_bound
from interp.sequential import studentized
from interp.stats import bootstrap_mean, bootstrap_means, sign_flip_p, sign_flip_ps
from model.errors import InputError

N = 32


def spread(mean: float, *, sd: float = 0.1, n: int = N, seed: int = 0) -> Tensor:
    """Values with exactly this mean, and about this deviation."""
    drawn = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return mean + sd * (drawn - drawn.mean())


def of(text: str, harm: Tensor, whole: Tensor | None = None, *, alpha: float = 0.05) -> Judged:
    return judged(parse_bound(text), harm, whole, alpha=alpha, seed=0)


@pytest.mark.parametrize(
    ("bound", "mean", "standing"),
    [
        ("harm >= 1.0", 1.5, "supported"),
        ("harm >= 1.0", 0.5, "refuted"),
        ("harm >= 1.0", 1.01, "undecided"),
        ("harm <= 0.5", 0.1, "supported"),
        ("harm <= 0.5", -2.0, "supported"),
        ("harm <= 0.5", 1.0, "refuted"),
        ("harm <= 0.5", 0.5, "undecided"),
        ("gain >= 0.5", -1.0, "supported"),
        ("gain >= 0.5", 0.0, "refuted"),
        ("gain >= 0.5", -0.5, "undecided"),
        ("|harm| <= 0.5", 0.0, "supported"),
        ("|harm| <= 0.5", 1.0, "refuted"),
        ("|harm| <= 0.5", -1.0, "refuted"),
        ("|harm| <= 0.5", -0.49, "undecided"),
        ("|harm| <= 0.01", 0.0, "undecided"),
    ],
)
def test_a_planted_effect_is_judged_by_where_its_interval_lies(bound: str, mean: float, standing: str):
    found = of(bound, spread(mean))
    assert found.standing == standing
    assert (found.p <= 0.05) is (standing != "undecided")


@pytest.mark.parametrize(
    ("bound", "share", "standing"),
    [
        ("share >= 0.5", 0.8, "supported"),
        ("share >= 0.5", 0.2, "refuted"),
        ("share >= 0.5", 0.5, "undecided"),
        ("share <= 0.5", 0.2, "supported"),
        ("share <= 0.5", 0.8, "refuted"),
    ],
)
def test_a_planted_share_is_judged_as_a_ratio_of_means(bound: str, share: float, standing: str):
    whole = spread(4.0, sd=0.5, seed=1)
    found = of(bound, share * whole + spread(0.0, seed=2), whole)
    assert found.standing == standing
    assert found.interval.mean == pytest.approx(share)


def test_the_p_of_a_share_is_one_of_the_mean_and_not_of_single_ratios():
    """One sequence whose whole is nearly nothing has a ratio of 100, and must not decide."""
    whole = spread(2.0)
    harm = 0.2 * whole + spread(0.0, seed=1)
    whole[0], harm[0] = 0.001, 0.1
    found = of("share >= 0.5", harm, whole)
    assert found.standing == "refuted"
    assert found.p < 0.01


def test_a_share_of_what_may_be_nothing_has_no_interval_and_decides_nothing():
    found = of("share >= 0.5", spread(1.0), spread(0.0, sd=1.0, seed=3))
    assert found.standing == "undecided"


def test_the_level_is_one_minus_alpha():
    wide, narrow = (of("harm >= 1", spread(1.5), alpha=alpha).interval for alpha in (0.001, 0.2))
    assert (wide.level, narrow.level) == (0.999, 0.8)
    assert wide.low < narrow.low


DRAWS = {
    "normal": lambda x: x,
    "exponential": lambda x: -torch.special.ndtr(x).log() - 1,
    "lognormal": lambda x: x.exp() - math.exp(0.5),
}
"""Of mean zero, made of normal numbers: not skewed, skewed by 2, and by 6."""


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_a_claim_whose_mean_lies_on_the_bound_is_rarely_supported(draw: str):
    """P(supported) <= alpha: 600 replicates of 64 sequences, by the same three conditions as `judged`."""
    generator = torch.Generator().manual_seed(4)
    deltas = 1.0 + DRAWS[draw](torch.randn(64, 600, dtype=torch.float64, generator=generator))
    intervals = bootstrap_means(deltas, n_resamples=400, seed=0)
    told = sign_flip_ps(deltas - 1.0, seed=0, n_flips=999) <= 0.05
    robust = [studentized(each, n_resamples=400) for each in deltas.T]
    above = (intervals.low >= 1.0) & torch.tensor([each.low > 1.0 for each in robust]) & told
    below = (intervals.high <= 1.0) & torch.tensor([each.high < 1.0 for each in robust]) & told
    for wrongly in (above, below):
        assert float(wrongly.double().mean()) <= 0.05


def test_judging_is_the_three_conditions_of_that_test():
    for seed in range(12):
        deltas = spread(1.0 + 0.04 * (seed - 6), sd=0.5, n=64, seed=seed)
        found = of("harm >= 1.0", deltas)
        assert found.interval == bootstrap_mean(deltas)
        assert found.p == sign_flip_p(deltas - 1.0)
        lows, highs = zip(*((each.low, each.high) for each in (found.interval, studentized(deltas))), strict=True)
        standing = "supported" if min(lows) > 1 else "refuted" if max(highs) < 1 else "undecided"
        assert found.standing == standing


def test_the_usual_interval_alone_would_support_too_much_that_is_skewed():
    """Why there is a third condition: here the first and the last hold, and the studentized interval does not."""
    generator = torch.Generator().manual_seed(4)
    deltas = 1.0 + DRAWS["lognormal"](torch.randn(64, 40, dtype=torch.float64, generator=generator))
    kept = [of("harm <= 1.0", each) for each in deltas.T]
    usual = [each for each in kept if each.interval.high <= 1.0 and each.p <= 0.05]
    assert len([each for each in usual if each.standing == "supported"]) < len(usual)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("harm", '"harm" is no bound.* `harm >= 1.0`'),
        ("harm > 1", "is no bound"),
        ("harm >= one", "is no bound"),
        ("harm >= 1e", '"1e" in "harm >= 1e" is no number'),
        ("harn >= 1", '"harn" is nothing that a bound is about. Did you mean "harm"'),
        ("harm <= -0.1", "bounds by a negative number.*gain"),
        ("harm >= -1", "bounds by a negative number"),
        ("share >= 1.2", "is no share of a whole"),
        ("share <= 0", "is no share of a whole"),
        ("|harm| >= 0.1", "in which direction"),
        ("gain <= 0.1", "no claim of absence"),
        ("|harm| <= 0", "exactly nothing"),
    ],
)
def test_a_bound_that_says_nothing_is_refused(text: str, said: str):
    with pytest.raises(InputError, match=said):
        parse_bound(text)


def test_a_share_without_a_whole_is_refused():
    with pytest.raises(InputError, match="something to be a share of"):
        of("share >= 0.5", spread(1.0))


def test_a_bound_is_printed_as_it_is_read():
    for text in ("harm >= 1", "harm <= 0.05", "|harm| <= 0.05", "gain >= 0.2", "share >= 0.5"):
        assert str(parse_bound(text)) == text
    assert Standing("supported") is Standing.SUPPORTED


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(bounds).failed == 0
