"""Matched sets are what they say, and p is what so few of them allow."""

from __future__ import annotations

import doctest
import itertools

import pytest
import torch

from interp import controls
from interp.controls import control_p, matched_head_sets
from model.errors import InputError


def test_few_matched_sets_are_all_listed_with_the_smallest_p_they_allow() -> None:
    found = matched_head_sets([(1, 0), (1, 2)], n_layers=2, n_heads=4)
    expected = {tuple((1, h) for h in pair) for pair in itertools.combinations(range(4), 2)} - {((1, 0), (1, 2))}
    assert set(found) == expected
    assert found.enumerated
    assert (found.n_possible, found.smallest_p) == (5, 1 / 6)


def test_many_matched_sets_are_drawn_distinct_and_with_the_same_heads_per_layer() -> None:
    claimed = [(0, 1), (2, 3), (2, 4)]
    found = matched_head_sets(claimed, n_layers=3, n_heads=12, limit=150, seed=2)
    assert len(set(found)) == len(found) == 150
    assert found.n_possible == 12 * 66 - 1
    assert not found.enumerated
    for heads in found:
        assert sorted(layer for layer, _ in heads) == [0, 2, 2]
        assert heads != tuple(claimed)
    assert found == matched_head_sets(claimed, n_layers=3, n_heads=12, limit=150, seed=2)


def test_where_every_head_is_claimed_no_set_is_left() -> None:
    none = matched_head_sets([(0, 0), (0, 1)], n_layers=1, n_heads=2)
    assert (len(none), none.smallest_p) == (0, 1.0)


def test_the_control_p_of_a_set_chosen_at_random_is_valid() -> None:
    effects = torch.rand(6, generator=torch.Generator().manual_seed(0)).tolist()
    every = list(itertools.combinations(range(6), 2))
    total = {pair: effects[pair[0]] + effects[pair[1]] for pair in every}
    p = torch.tensor([
        control_p(total[pair], [total[tuple(h for _, h in s)] for s in matched_head_sets([(0, h) for h in pair], 1, 6)])
        for pair in every
    ])  # fmt: skip
    for level in (0.05, 0.1, 0.2, 0.5):
        assert float((p <= level).double().mean()) <= level + 1e-9


def test_sets_that_cost_the_same_tie_however_their_numbers_are_summed() -> None:
    """Shares of right predictions: the same 64 numbers in another order have a mean that differs in the last bit."""
    generator = torch.Generator().manual_seed(0)
    for sign in (1, -1):
        for _ in range(50):
            harm = sign * torch.randint(0, 8, (64,), generator=generator).double() / 30
            others = torch.stack([harm[torch.randperm(64, generator=generator)] for _ in range(19)], dim=1)
            assert control_p(float(harm.mean()), others.mean(0)) == 1.0
            assert control_p(float(harm.contiguous().mean()), others.mean(0).tolist()) == 1.0


def test_a_tie_is_as_near_as_rounding_and_no_nearer() -> None:
    assert control_p(1.0, [1 - 1e-6]) == 0.5
    assert control_p(1e-3, [1e-3 - 1e-8]) == 0.5
    assert control_p(1e6, [1e6 * (1 - 1e-12)]) == 1.0
    assert doctest.testmod(controls).failed == 0


@pytest.mark.parametrize("limit", [9, 39])
def test_the_p_of_a_random_set_against_drawn_sets_is_valid_too(limit: int) -> None:
    """P(p <= a) <= a for every a, up to the draw: sets are drawn without replacement from all others."""
    generator = torch.Generator().manual_seed(1)
    effects = torch.randn(12, generator=generator).tolist()
    every = list(itertools.combinations(range(12), 3))  # 220 sets
    total = {each: sum(effects[head] for head in each) for each in every}
    ps = []
    for number, claimed in enumerate(every * 3):
        sets = matched_head_sets([(0, head) for head in claimed], 1, 12, limit=limit, seed=number)
        ps.append(control_p(total[claimed], [total[tuple(head for _, head in each)] for each in sets]))
    p = torch.tensor(ps)
    for level in (0.05, 0.1, 0.2, 0.5):
        assert float((p <= level).double().mean()) <= level + 2 * (level * (1 - level) / len(ps)) ** 0.5
    assert float(p.min()) == pytest.approx(1 / (1 + limit))
    assert float((p <= 0.5).double().mean()) > 0.4, "a p that is never small would be valid, and useless"


def test_a_head_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match=r"no head L2H0; layers run 0 to 1, heads 0 to 3"):
        matched_head_sets([(2, 0)], n_layers=2, n_heads=4)
