"""Correlations by hand, ties, and false negatives among the largest."""

from __future__ import annotations

import math

import pytest
import torch

from interp.approximation import (
    approximation,
    bootstrap_size_spearman,
    bootstrap_spearman,
    correlation,
    midranks,
)
from model.errors import InputError


def test_an_estimate_that_is_the_truth_misses_nothing():
    true = torch.tensor([[3.0, -2.0], [0.5, 0.0]])
    found = approximation(true * 2, true, top=3)
    assert (found.pearson, found.spearman, found.same_sign, found.false_negatives) == pytest.approx((1, 1, 1, 0))
    assert found.n == 4


def test_an_overlooked_effect_is_a_false_negative_whatever_its_sign():
    true = torch.tensor([-5.0, 1.0, 2.0, 0.1])
    found = approximation(torch.tensor([0.0, 1.0, 2.0, 0.1]), true, top=2)
    assert found.missed == (0,)
    assert found.false_negatives == 0.5
    assert found.same_sign == 0.75


def test_cells_without_an_effect_are_never_missed():
    found = approximation(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0]), top=2)
    assert found.missed == ()
    flat = approximation(torch.tensor([0.0, 1.0]), torch.zeros(2), top=1)
    assert math.isnan(flat.pearson)
    assert math.isnan(flat.spearman)
    assert math.isnan(flat.same_sign)
    assert flat.missed == ()


def test_ties_share_a_rank_and_ranks_ignore_the_scale():
    assert midranks(torch.tensor([1.0, 1.0, 0.0, 5.0])).tolist() == [1.5, 1.5, 0.0, 3.0]
    values = torch.tensor([0.1, 3.0, 2.0])
    assert correlation(midranks(values), midranks(values**3)) == pytest.approx(1)
    assert correlation(values, -values) == pytest.approx(-1)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="top=3 of 2 effects cannot be looked for; give a number from 1 to 2"):
        approximation(torch.zeros(2), torch.zeros(2), top=3)
    with pytest.raises(InputError, match="not finite"):
        approximation(torch.tensor([math.nan, 0]), torch.zeros(2), top=1)


def test_sizes_are_ranked_where_the_estimate_knows_no_sign():
    """Effects of either sign and an estimate of their size: ranked by sign they disagree, by size they agree wholly."""
    effects = torch.tensor([-4.0, 1.0, -2.0, 3.0, 0.5]) + 0.01 * torch.randn(
        30, 5, generator=torch.Generator().manual_seed(0)
    )
    sizes = effects.abs()
    assert bootstrap_size_spearman(sizes, effects).low == pytest.approx(1.0)
    assert bootstrap_spearman(sizes, effects).high < 0.2
    assert bootstrap_size_spearman(sizes, -effects).mean == pytest.approx(1.0)
