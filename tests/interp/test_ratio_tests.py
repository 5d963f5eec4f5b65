"""Shares over units of unequal size: p keeps its level where units come in bursts, and still finds what is there."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from interp import ratio_tests
from interp.ratio_tests import FEWEST, Ratio, ratio_ps
from interp.stats import sign_flip_ps
from model.errors import InputError

N = 400


def sizes(n: int, generator: torch.Generator, *, n_cells: int = N) -> Tensor:
    """Prefixes of documents, up to twenty times as many of one as of another."""
    return (torch.rand(n, n_cells, generator=generator) * 3).exp().mul(10).round().double()


def bursty(n: int, generator: torch.Generator, *, n_cells: int = N) -> Tensor:
    """Shares of documents: half of the prefixes in a fifth of them, none in the others; 10% on average."""
    return torch.where(torch.rand(n, n_cells, generator=generator) < 0.2, 0.5, 0.0).double()


def skewed(n: int, generator: torch.Generator, *, n_cells: int = N) -> Tensor:
    """Beta(1, 9): 10% on average."""
    return 1 - (1 - torch.rand(n, n_cells, generator=generator)).double() ** (1 / 9)


def test_a_rare_event_in_bursts_is_not_said_to_be_rarer() -> None:
    """The mean is 10%. Sign flips say "fewer than 10%" in more than one of ten samples of 15 documents."""
    generator = torch.Generator().manual_seed(2)
    whole = sizes(15, generator)
    part = bursty(15, generator) * whole
    fewer = part.sum(0) / whole.sum(0) < 0.1
    flipped = sign_flip_ps(part - 0.1 * whole, n_flips=999)
    assert float(((flipped <= 0.05) & fewer).double().mean()) > 0.1
    p = ratio_ps([Ratio(part, whole)], level=0.1)
    assert float((p <= 0.05).double().mean()) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("n", [12, 15, 30, 60])
@pytest.mark.parametrize("drawn", [bursty, skewed])
def test_the_level_is_kept(drawn: Callable[..., Tensor], n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    n_cells = 2000
    whole = sizes(n, generator, n_cells=n_cells)
    ps = [
        ratio_ps([Ratio(drawn(n, generator, n_cells=200) * some, some)], level=0.1, seed=place)
        for place, some in enumerate(whole.split(200, dim=1))
    ]
    assert float((torch.cat(ps) <= 0.05).double().mean()) <= 0.05 + 3 * (0.05 * 0.95 / n_cells) ** 0.5


def test_two_shares_of_the_same_mean_are_not_told_apart_and_others_are() -> None:
    generator, few = torch.Generator().manual_seed(3), 120
    whole = sizes(15, generator, n_cells=few)
    own, other = (bursty(15, generator, n_cells=few) * whole for _ in range(2))
    p = ratio_ps([Ratio(own, whole)], less=[Ratio(other, whole)])
    assert float((p <= 0.05).double().mean()) <= 0.06
    base = skewed(15, generator, n_cells=few)
    own, other = ((base + shift + 0.01 * torch.rand(15, few, generator=generator)) * whole for shift in (0.02, 0.0))
    assert (ratio_ps([Ratio(own, whole)], less=[Ratio(other, whole)]) < 0.01).double().mean() > 0.95  # paired


def test_what_is_there_is_found() -> None:
    """Fifteen documents, each of about 5%, and as many of about 15%, against 10%."""
    generator = torch.Generator().manual_seed(4)
    whole = sizes(15, generator, n_cells=100)
    for mean in (0.05, 0.15):
        share = mean + 0.02 * (torch.rand(15, 100, generator=generator) - 0.5)
        assert (ratio_ps([Ratio(share * whole, whole)], level=0.1) < 0.01).all()


def test_a_difference_of_differences_is_of_four_ratios() -> None:
    generator = torch.Generator().manual_seed(5)
    whole = sizes(20, generator, n_cells=1)
    a, b, c, d = (
        Ratio((shift + 0.02 * torch.rand(20, 1, generator=generator)) * whole, whole) for shift in (0.5, 0.3, 0.4, 0.2)
    )
    assert float(ratio_ps([a, d], less=[b, c])) > 0.05  # 0.2 and 0.2
    assert float(ratio_ps([a], less=[b])) < 0.01
    assert float(ratio_ps([a, b], less=[c, d])) < 0.01


def test_where_all_units_are_at_one_end_the_chance_of_that_counts() -> None:
    whole = torch.full((15, 1), 9.0)
    assert float(ratio_ps([Ratio(0 * whole, whole)], level=0.1)) == pytest.approx(2 * 0.9**15)
    assert float(ratio_ps([Ratio(whole, whole)], level=0.6)) == pytest.approx(2 * 0.6**15)
    assert float(ratio_ps([Ratio(whole, whole)], less=[Ratio(0 * whole, whole)])) == pytest.approx(2 * 0.5**15)
    assert float(ratio_ps([Ratio(0 * whole, whole)], less=[Ratio(0 * whole, whole)])) == 1
    assert float(ratio_ps([Ratio(whole / 2, whole)], level=0.1)) == 1  # no spread, and not at an end


def test_few_units_and_empty_wholes_decide_nothing() -> None:
    generator = torch.Generator().manual_seed(6)
    share = 0.9 + 0.05 * torch.rand(FEWEST, 2, generator=generator)
    whole = torch.ones(FEWEST, 2)
    whole[:, 1] = 0
    ps = ratio_ps([Ratio(share * whole, whole)], level=0.1)
    assert float(ps[0]) < 0.001
    assert float(ps[1]) == 1
    assert float(ratio_ps([Ratio(share[1:, :1], whole[1:, :1])], level=0.1)) == 1


def test_resamples_without_a_whole_count_against_the_claim() -> None:
    """A third of the units has anything at all: some resamples have none."""
    part, whole = torch.zeros(12, 1), torch.zeros(12, 1)
    whole[:2], part[0], part[1] = 10.0, 9.0, 8.0
    assert float(ratio_ps([Ratio(part, whole)], level=0.1, fewest=2)) > 0.2
    assert float(ratio_ps([Ratio(part, whole)], level=0.1)) == 1  # of two that have anything
    whole[2:8], part[2:8] = 10.0, torch.arange(6)[:, None] / 10 + 8
    assert float(ratio_ps([Ratio(part, whole)], level=0.1, fewest=8)) < 0.02  # of eight nearly all resamples have one


def test_what_cannot_be_compared_is_refused() -> None:
    one = Ratio(torch.ones(12, 1), torch.ones(12, 1))
    with pytest.raises(InputError, match="of the same units"):
        ratio_ps([one], less=[Ratio(torch.ones(11, 1), torch.ones(11, 1))])
    with pytest.raises(InputError, match="not finite"):
        ratio_ps([Ratio(torch.full((12, 1), torch.nan), one.whole)])


def test_the_example_in_the_module_holds() -> None:
    assert doctest.testmod(ratio_tests).failed == 0
