"""Agreement by confidence and by depth is that of counting, and its p-values keep their level."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from interp.agreement import chance_agreement, dealt, measured_agreement, permuted_shares, precision_at
from interp.agreement_trends import agreement_by_confidence, confidence_trend, depth_trend
from model.errors import InputError


def made(n: int, seed: int, *, rise: float = 0.0, layered: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Promoted and followed tokens of n memories in three layers; they agree more often the surer they are."""
    generator = torch.Generator().manual_seed(seed)
    layers = torch.arange(n) % 3
    confidence = torch.rand(n, generator=generator) + (layers if layered else 0)
    promoted, followed = (torch.randint(8, (n,), generator=generator) for _ in range(2))
    agrees = torch.rand(n, generator=generator) < rise * confidence
    return promoted, torch.where(agrees, promoted, followed), confidence, layers


def within_layers(layers: Tensor) -> list[list[int]]:
    """Every order in which each memory takes the place of one of its own layer."""
    groups = [
        [place for place, own in enumerate(layers.tolist()) if own == layer] for layer in sorted(set(layers.tolist()))
    ]
    orders = []
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        order = [0] * len(layers)
        for group, taken in zip(groups, choice, strict=True):
            for place, other in zip(group, taken, strict=True):
                order[place] = other
        orders.append(order)
    return orders


def test_chance_within_layers_is_the_mean_over_all_deals_within_layers() -> None:
    promoted, followed = torch.tensor([1, 1, 2, 2, 5, 2]), torch.tensor([1, 3, 2, 2, 5, 5])
    layers = torch.tensor([0, 0, 1, 1, 0, 1])
    shares = [float((promoted == followed[order]).float().mean()) for order in within_layers(layers)]
    assert chance_agreement(promoted, followed, layers) == pytest.approx(sum(shares) / len(shares))
    assert chance_agreement(promoted, followed, layers) != pytest.approx(chance_agreement(promoted, followed))
    drawn = permuted_shares(promoted, followed, n_permutations=600, seed=0, layers=layers)
    assert float(drawn.mean()) == pytest.approx(sum(shares) / len(shares), abs=0.03)


def test_deals_within_layers_keep_layers_and_reach_every_order() -> None:
    layers = torch.tensor([2, 0, 2, 0, 2])
    orders = [tuple(order.tolist()) for order in dealt(layers, 400, seed=1)]
    assert all(torch.equal(layers[list(order)], layers) for order in orders)
    assert set(orders) == {tuple(order) for order in within_layers(layers)}


def test_precision_counts_the_strongest_triggers_that_there_are() -> None:
    promoted = torch.tensor([1, 2, 3, 4])
    followed = torch.tensor([[1, 1, 9, 1], [9, 2, -1, -1], [9, 9, 9, 3], [-1, -1, -1, -1]])
    found = precision_at(promoted, followed, 3, n_permutations=50, seed=0)
    assert found.n == 3  # the last one has no triggers
    assert found.share == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    whole = precision_at(promoted, followed, 99, n_permutations=50, seed=0)
    assert whole.share == pytest.approx((3 / 4 + 1 / 2 + 1 / 4) / 3)


def test_precision_at_one_is_agreement() -> None:
    promoted, followed, _, _ = made(60, seed=1, rise=0.5)
    rows = torch.stack([followed, followed.flip(0)], dim=1)
    first = precision_at(promoted, rows, 1, n_permutations=99, seed=3)
    assert first == measured_agreement(promoted, followed, n_permutations=99, seed=3)


def test_chance_of_precision_is_the_mean_over_all_deals_of_rows() -> None:
    promoted, followed = torch.tensor([1, 1, 2, 3]), torch.tensor([[1, 2, -1], [2, 2, 1], [3, -1, -1], [1, 3, 3]])
    n = (followed >= 0).sum(1)
    shares = [
        float(((followed[list(order)] == promoted[:, None]).sum(1) / n[list(order)]).mean())
        for order in itertools.permutations(range(4))
    ]
    found = precision_at(promoted, followed, 3, n_permutations=400, seed=0)
    assert found.chance == pytest.approx(sum(shares) / len(shares))
    assert found.chance_low <= found.chance <= found.chance_high
    with pytest.raises(InputError, match="k=0 triggers are none"):
        precision_at(promoted, followed, 0, n_permutations=9, seed=0)


def test_without_triggers_there_is_no_precision() -> None:
    nothing = precision_at(torch.tensor([1]), torch.tensor([[-1, -1]]), 2, n_permutations=9, seed=0)
    assert (nothing.n, nothing.p) == (0, 1.0)
    assert math.isnan(nothing.share)


def test_bins_hold_as_many_memories_each_in_order_of_confidence() -> None:
    promoted, followed, confidence, layers = made(50, seed=0, rise=0.8)
    bins = agreement_by_confidence(promoted, followed, confidence, layers, n_bins=4, n_permutations=50, seed=0)
    assert [each.agreement.n for each in bins] == [13, 13, 12, 12]
    order = confidence.argsort()
    assert (bins[0].low, bins[-1].high) == (float(confidence.min()), float(confidence.max()))
    assert all(one.high < two.low for one, two in itertools.pairwise(bins))
    first = order[:13]
    assert bins[0].agreement.share == pytest.approx(float((promoted[first] == followed[first]).float().mean()))
    assert bins[0].agreement.chance == pytest.approx(chance_agreement(promoted[first], followed[first], layers[first]))
    few = agreement_by_confidence(promoted[:2], followed[:2], confidence[:2], layers[:2], n_permutations=9, seed=0)
    assert [each.agreement.n for each in few] == [1, 1]
    assert (
        agreement_by_confidence(promoted[:0], followed[:0], confidence[:0], layers[:0], n_permutations=9, seed=0) == ()
    )
    with pytest.raises(InputError, match="n_bins=0"):
        agreement_by_confidence(promoted, followed, confidence, layers, n_bins=0, n_permutations=9, seed=0)


def test_surer_values_that_agree_more_are_found_within_layers_too() -> None:
    found = confidence_trend(*made(600, seed=0, rise=0.9), n_permutations=199, seed=0)
    assert found.rho > 0.2
    assert (found.p, found.within_p) == (1 / 200, 1 / 200)
    assert found.within > 0.6
    assert abs(found.chance) < 0.05
    falling = confidence_trend(
        *((made(600, seed=0, rise=0.9))[:2]), -made(600, seed=0)[2], made(600, seed=0)[3], n_permutations=199, seed=0
    )
    assert falling.rho == pytest.approx(-found.rho)
    assert falling.within == pytest.approx(1 - found.within)
    assert falling.within_p > 0.99


def test_late_layers_that_are_surer_and_agree_more_are_no_relation_within_layers() -> None:
    generator = torch.Generator().manual_seed(3)
    promoted, followed, _, layers = made(900, seed=4)
    agrees = torch.rand(900, generator=generator) < torch.tensor([0.0, 0.3, 0.8])[layers]
    confidence = torch.rand(900, generator=generator) + layers
    found = confidence_trend(
        promoted, torch.where(agrees, promoted, followed), confidence, layers, n_permutations=199, seed=0
    )
    assert found.rho > 0.4
    assert abs(found.within - 0.5) < 0.05
    assert found.within_p > 0.02


def test_the_share_within_layers_is_that_of_all_pairs() -> None:
    promoted, followed, confidence, layers = made(40, seed=2, rise=0.6)
    confidence = (confidence * 5).round()  # with ties
    agrees = promoted == followed
    pairs = [
        (float(confidence[one] > confidence[two]) + float(confidence[one] == confidence[two]) / 2)
        for one in range(40) for two in range(40)
        if layers[one] == layers[two] and agrees[one] and not agrees[two]
    ]  # fmt: skip
    found = confidence_trend(promoted, followed, confidence, layers, n_permutations=19, seed=0)
    assert found.within == pytest.approx(sum(pairs) / len(pairs))


def test_p_within_layers_keeps_its_level() -> None:
    ps = [confidence_trend(*made(60, seed=seed), n_permutations=19, seed=seed).within_p for seed in range(60)]
    assert sum(p <= 0.05 for p in ps) <= 8  # 3 expected; more than 8 has a chance below one percent


def test_values_that_are_all_as_sure_have_every_deal_as_good_as_their_own() -> None:
    promoted, followed, _, layers = made(60, seed=1, rise=0.5)
    found = confidence_trend(promoted, followed, torch.ones(60), layers, n_permutations=49, seed=0)
    assert (found.within, found.within_p) == (0.5, 1.0)


def test_next_tokens_are_dealt_within_layers_where_trends_are_tested() -> None:
    """One layer agrees in all its memories, the other in none, whichever way they are dealt: no deal differs."""
    promoted = torch.tensor([1] * 10 + [2] * 10)
    followed = torch.tensor([3] * 10 + [2] * 10)
    layers, confidence = torch.arange(20) // 10, torch.arange(20.0)
    found = confidence_trend(promoted, followed, confidence, layers, n_permutations=49, seed=0)
    assert found.rho > 0.8
    assert found.chance == pytest.approx(found.rho)
    assert (found.p, found.within_p) == (1.0, 1.0)


def test_which_memories_agree_is_shuffled_within_layers() -> None:
    """Of two layers only the surer memory of the smaller one agrees: within it that is an even chance, not 6 in 8."""
    promoted, followed = torch.zeros(8, dtype=torch.int64), torch.tensor([1] * 7 + [0])
    layers = torch.tensor([0] * 6 + [1] * 2)
    found = confidence_trend(promoted, followed, torch.arange(8.0), layers, n_permutations=999, seed=0)
    assert found.within == 1
    assert found.within_p == pytest.approx(0.5, abs=0.07)


def test_where_nothing_or_everything_agrees_there_is_no_trend() -> None:
    tokens, other = torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
    for followed in (tokens, other):
        found = confidence_trend(
            tokens, followed, torch.rand(6), torch.zeros(6, dtype=torch.int64), n_permutations=9, seed=0
        )
        assert math.isnan(found.rho)
        assert math.isnan(found.within)
        assert (found.p, found.within_p) == (1.0, 1.0)


@pytest.mark.parametrize("values", [[5.0, 4.0, 3.0, 2.0, 1.0, 0.0], [1.0, 3.0, 2.0, 2.0], [2.0, 1.0]])
def test_a_trend_with_depth_is_held_against_every_order(values: list[float]) -> None:
    found = depth_trend(torch.tensor(values))
    rank = torch.tensor([sum(one < two for one in values) + (values.count(two) - 1) / 2 for two in values])
    depth = torch.arange(len(values)).float()

    def rho(order: list[int] | tuple[int, ...]) -> float:
        return float(torch.corrcoef(torch.stack([rank[list(order)], depth]))[0, 1])

    rhos = [rho(order) for order in itertools.permutations(range(len(values)))]
    own = rho(range(len(values)))  # pyright: ignore[reportArgumentType]
    assert found.rho == pytest.approx(own, abs=1e-6)
    assert found.p_falls == pytest.approx(sum(each <= own + 1e-6 for each in rhos) / len(rhos))
    assert found.p_rises == pytest.approx(sum(each >= own - 1e-6 for each in rhos) / len(rhos))
    assert (found.n_orders, found.exact) == (len(rhos), True)


def test_many_layers_are_held_against_drawn_orders_and_layers_without_a_number_are_left_out() -> None:
    values = torch.arange(12.0)
    values[4] = torch.nan
    found = depth_trend(values, n_permutations=199, seed=0)
    assert (found.n, found.n_orders, found.exact) == (11, 199, False)
    assert found.rho == pytest.approx(1)
    assert (found.p_rises, found.p_falls) == (1 / 200, 1.0)


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0, 2.0], [torch.nan, 1.0]])
def test_one_layer_or_equal_ones_have_no_trend(values: list[float]) -> None:
    found = depth_trend(torch.tensor(values))
    assert math.isnan(found.rho)
    assert (found.p_rises, found.p_falls) == (1.0, 1.0)
