"""The streamed top k is the sorted list's head, in whatever pieces the stream comes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.topk import EMPTY, empty_top, merged_tops, positions_of, sort_keys, updated_top, values_of
from model.errors import InputError


def brute_force(values: Tensor, positions: Tensor, k: int) -> list[list[tuple[float, int]]]:
    """Sort everything: larger value first, then earlier position."""
    rows = [[(float(v), int(p)) for v, p in zip(row, positions, strict=True)] for row in values]
    return [sorted(row, key=lambda pair: (-pair[0], pair[1]))[:k] for row in rows]


def pairs(top: Tensor) -> list[list[tuple[float, int]]]:
    return [
        [(float(v), int(p)) for v, p in zip(vs, ps, strict=True)]
        for vs, ps in zip(values_of(top), positions_of(top), strict=True)
    ]


@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), cuts=st.lists(st.integers(1, 7), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_streamed_top_k_equals_brute_force_with_many_ties(seed: int, k: int, cuts: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = sum(cuts)
    values = torch.randint(-2, 3, (3, n), generator=generator) / 2  # five different values: ties everywhere
    positions = torch.randperm(1000, generator=generator)[:n]
    top = empty_top(3, k)
    for part, where in zip(values.split(cuts, dim=1), positions.split(cuts), strict=True):
        top = updated_top(top, part, where)
    expected = brute_force(values, positions, k)
    assert [row[: len(expected[0])] for row in pairs(top)] == expected


def test_merging_two_halves_equals_one_pass_in_either_order() -> None:
    values, positions = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)).relu(), torch.arange(200)
    whole = updated_top(empty_top(5, 25), values, positions)
    left = updated_top(empty_top(5, 25), values[:, :77], positions[:77])
    right = updated_top(empty_top(5, 25), values[:, 77:], positions[77:])
    assert torch.equal(merged_tops(left, right), whole)
    assert torch.equal(merged_tops(right, left), whole)


def test_keys_keep_every_bit_of_value_and_position() -> None:
    values = torch.tensor([0.0, -0.0, 1e-38, -1e-38, 3.14159274, -3.4e38, 3.4e38, 1.401298464324817e-45])
    positions = torch.tensor([0, 1, 2**31, 2**32 - 2, 5, 6, 7, 8])
    keys = sort_keys(values, positions)
    assert torch.equal(values_of(keys), values)
    assert torch.equal(positions_of(keys), positions)
    assert keys.argsort(descending=True).tolist() == [6, 4, 2, 7, 0, 1, 3, 5]


def test_places_that_nothing_filled_say_so() -> None:
    top = updated_top(empty_top(1, 3), torch.tensor([[2.0]]), torch.tensor([9]))
    assert top[0, 1:].tolist() == [EMPTY, EMPTY]
    assert positions_of(top).tolist() == [[9, -1, -1]]
    assert values_of(top)[0, 1:].isnan().all()


def test_a_value_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(InputError, match="not finite"):
        updated_top(empty_top(1, 2), torch.tensor([[float("nan")]]), torch.tensor([0]))


def test_a_position_no_key_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="beyond 4294967294"):
        updated_top(empty_top(1, 2), torch.tensor([[1.0]]), torch.tensor([2**32 - 1]))
