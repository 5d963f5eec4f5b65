"""Pruning curves: nested sets, each measured as a whole run would, and areas that tell a good order from a bad one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ablation import ablated
from interp.importance import head_importance
from interp.outcomes import TEXT, copy_outcome
from interp.places import every_head
from interp.pruning import (
    Curves,
    MatchedDraws,
    matched_draws,
    pruning_curves,
    pruning_points,
    random_orders,
    recomputed_order,
)
from interp.stats import bootstrap_mean
from model import GPT
from model.errors import InputError
from tests import planted

HEADS = every_head(2, 4)
NEEDED = {planted.PREVIOUS_HEAD, planted.INDUCTION_HEAD}
SPARED = [each for each in HEADS if each not in NEEDED] + sorted(NEEDED)


@pytest.fixture(scope="module")
def repeats() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    segment = torch.stack([1 + torch.randperm(planted.D_VOCAB - 1, generator=generator)[:10] for _ in range(6)])
    return torch.cat([torch.zeros(6, 1, dtype=torch.long), segment, segment], 1)


@pytest.fixture(scope="module")
def circuit() -> GPT:
    return planted.induction_model()


def test_each_point_is_what_a_run_without_those_heads_loses(tiny: GPT, tokens: Tensor):
    (order,) = random_orders(2, 4, 1, seed=3)
    found = pruning_curves(tiny, tokens, TEXT, {"drawn": order}, points=(0, 3, 5, 8))
    clean = TEXT.of_logits(tiny(tokens), tokens)
    for point, gone in enumerate(found.n_removed):
        if gone:
            with ablated(tiny, [f"L{layer}H{index}:zero" for layer, index in order[:gone]]), torch.no_grad():
                whole = TEXT.of_logits(tiny(tokens), tokens)
            torch.testing.assert_close(found.harm["drawn"][:, point], (whole - clean).double(), atol=1e-5, rtol=0)
    assert (found.harm["drawn"][:, 0] == 0).all()


def test_a_planted_circuit_is_kept_to_the_end_by_the_right_order_and_lost_at_once_by_the_wrong_one(
    circuit: GPT, repeats: Tensor
):
    copying = copy_outcome(10)
    orders = {"right": SPARED, "wrong": SPARED[::-1], "drawn": random_orders(2, 4, 1, seed=0)[0]}
    found = pruning_curves(circuit, repeats, copying, orders, points=range(9))
    right, wrong = found.harm["right"].mean(0), found.harm["wrong"].mean(0)
    assert (right[:7].abs() < 1e-6).all()
    assert (right[7:] > 2).all()
    assert (wrong[1:] > 2).all()
    assert float(found.area("right").mean) == pytest.approx(float(right[7] + right[8] / 2) / 8, rel=1e-6)
    assert found.lead("right", ["wrong"]).low > 1.5
    assert found.lead("right", ["right"]).mean == 0
    assert found.beaten_share("right", ["wrong", "drawn"]) == 1.0
    assert found.beaten_share("wrong", ["right", "drawn"]) == 0.0


def test_the_fifth_that_nobody_needs_beats_matched_sets_and_the_circuit_is_beaten_by_all(circuit: GPT, repeats: Tensor):
    copying = copy_outcome(10)
    spared = matched_draws(circuit, repeats, copying, [(0, 0), (1, 0)], seed=1)
    assert (spared.n_possible, len(spared.others)) == (15, 15)
    assert spared.cheaper == pytest.approx(7 / 15)  # sets with either head of the circuit
    assert spared.p == pytest.approx((1 + 8) / 16)  # the rest cost as little
    needed = matched_draws(circuit, repeats, copying, sorted(NEEDED), seed=1)
    assert needed.cheaper == pytest.approx(3 / 15)  # without the previous-token head alone, induction is misled
    assert needed.p == pytest.approx((1 + 12) / 16)
    assert needed.smallest_p == 1 / 16


def test_a_set_without_equals_has_no_p():
    none = MatchedDraws(
        heads=((0, 0),), harm=bootstrap_mean(torch.tensor([0.1, 0.2])), others=torch.zeros(0), n_possible=0
    )
    assert (none.p, none.cheaper, none.smallest_p) == (None, None, None)


def test_sets_that_tie_but_for_rounding_are_neither_cheaper_nor_dearer():
    """p counts ties as sets that cost as little, so `cheaper` must leave out the very same ones."""
    ties = torch.tensor([0.1 + 0.2, 0.3 * (1 - 1e-12), 0.3, 0.4, 0.2], dtype=torch.float64)
    drawn = MatchedDraws(
        heads=((0, 0),), harm=bootstrap_mean(torch.full((4,), 0.3).double()), others=ties, n_possible=5
    )
    assert drawn.cheaper == pytest.approx(1 / 5)
    assert drawn.p == pytest.approx((1 + 4) / 6)
    harm = {name: torch.tensor([[0.0, end]]).double() for name, end in (("own", 0.3), ("same", 0.3), ("more", 0.4))}
    harm["tie"] = torch.tensor([[0.0, 0.3 + 1e-15]], dtype=torch.float64)
    curves = Curves(n_removed=(0, 1), n_heads=1, harm=harm)
    assert curves.beaten_share("own", ["same", "tie", "more"]) == pytest.approx(1 / 3)
    assert curves.beaten_share("own", []) == 0.0


def test_an_order_recomputed_takes_the_least_important_of_what_is_left(tiny: GPT, tokens: Tensor):
    points = (0, 2, 5, 8)
    found = recomputed_order(tiny, tokens, TEXT, points=points)
    assert sorted(found) == HEADS
    gone: list[Any] = []
    for start, stop in pairwise(points):
        expected = head_importance(tiny, tokens, TEXT, removed=gone).order()[: stop - start]
        assert found[start:stop] == expected
        gone += expected
    assert found[:2] == head_importance(tiny, tokens, TEXT).order()[:2]


def test_how_much_runs_at_a_time_changes_no_curve(tiny: GPT, tokens: Tensor):
    orders = {"drawn": random_orders(2, 4, 1, seed=0)[0]}
    little, much = (pruning_curves(tiny, tokens, TEXT, orders, memory=memory).harm["drawn"] for memory in (1, 2**28))
    torch.testing.assert_close(little, much, atol=1e-5, rtol=0)


def test_areas_are_means_over_shares_also_where_points_are_uneven():
    line = torch.tensor([[0.0, 2.0, 4.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
    found = Curves(n_removed=(0, 2, 4), n_heads=4, harm={"even": line})
    torch.testing.assert_close(found.areas("even"), torch.tensor([2.0, 1.0], dtype=torch.float64))
    uneven = Curves(n_removed=(0, 3, 4), n_heads=4, harm={"uneven": torch.tensor([[0.0, 3.0, 4.0]]).double()})
    assert float(uneven.areas("uneven")) == pytest.approx(2.0)
    assert found.intervals("even").mean.tolist() == [0.0, 1.5, 3.0]


@pytest.mark.parametrize("n_heads", [1, 4, 16, 33, 144])
def test_points_are_even_shares_from_none_to_all(n_heads: int):
    points = pruning_points(n_heads)
    assert (points[0], points[-1]) == (0, n_heads)
    assert list(points) == sorted(set(points))
    assert all(abs(point / n_heads - step / 10) <= 0.5 / n_heads for step, point in enumerate(points) if n_heads > 9)


def test_random_orders_are_orders_and_differ_by_seed():
    one, again, other = (random_orders(2, 4, 3, seed=seed) for seed in (0, 0, 1))
    assert one == again != other
    assert all(sorted(order) == HEADS for order in one)
    assert len({tuple(order) for order in one}) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"orders": {"short": HEADS[:3]}}, "the order short names 3 heads"),
        ({"orders": {"twice": [*HEADS[:7], (0, 0)]}}, "the order twice names 8 heads; it must name each of 8 once"),
        ({"points": (0, 3)}, r"points=\[0, 3\] must rise from 0 to 8"),
        ({"points": (1, 8)}, "must rise from 0"),
        ({"points": (0, 5, 4, 8)}, "must rise"),
    ],
)
def test_what_is_no_curve_is_refused(given: dict[str, Any], said: str, tiny: GPT, tokens: Tensor):
    with pytest.raises(InputError, match=said):
        pruning_curves(tiny, tokens, TEXT, **({"orders": {"all": HEADS}} | given))


def test_no_heads_and_nobody_to_lead_are_refused(tiny: GPT, tokens: Tensor):
    with pytest.raises(InputError, match="no heads to hold against others"):
        matched_draws(tiny, tokens, TEXT, [])
    with pytest.raises(InputError, match="leads nobody"):
        Curves(n_removed=(0, 1), n_heads=1, harm={"a": torch.zeros(2, 2)}).lead("a", [])
    with pytest.raises(InputError, match="make no curve"):
        pruning_points(4, 0)
