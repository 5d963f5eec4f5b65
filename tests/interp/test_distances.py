"""Sums along diagonals against loops."""

from __future__ import annotations

import pytest
import torch

from interp.distances import (
    binned_distances,
    distance_edges,
    distance_sums,
    even_distances,
    even_received,
    mean_distances,
    median_distances,
)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_sums_by_distance_are_sums_along_diagonals_of_the_marked_queries(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    attention = torch.rand(3, 2, n, n, generator=generator).tril().softmax(-1).tril()
    queries = torch.rand(3, n, generator=generator) < 0.7
    found = distance_sums(attention, queries)
    for distance in range(n):
        expected = sum(attention[:, :, i, i - distance] * queries[:, i, None] for i in range(max(distance, 1), n))
        torch.testing.assert_close(found[:, distance], (expected + torch.zeros(3, 2)).double().sum(0))


def test_sums_by_distance_do_not_need_their_own_memory_layout() -> None:
    attention = torch.rand(2, 3, 5, 5).tril()
    queries = torch.ones(2, 5, dtype=torch.bool)
    shared = torch.zeros(4, 3, 5, 5)
    shared[2:] = attention
    assert torch.equal(distance_sums(shared[2:], queries), distance_sums(attention, queries))
    turned = attention.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(distance_sums(turned, queries), distance_sums(attention, queries))


def test_even_attention_by_distance_and_by_key_is_that_of_a_uniform_pattern() -> None:
    n = 6
    queries = torch.tensor([[False, True, True, True, True, True], [False, True, True, False, False, False]])
    pattern = (torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]).expand(2, 1, n, n)
    received = (pattern[:, 0] * queries[:, :, None]).sum(1)
    torch.testing.assert_close(even_received(queries), received.double())
    behind = pattern.clone()
    behind[..., 0] = 0
    torch.testing.assert_close(even_distances(queries.sum(0)), distance_sums(behind, queries)[0])


@pytest.mark.parametrize("n", [1, 63, 64, 65, 100, 128, 129, 2048])
def test_every_distance_has_one_bin_and_near_ones_their_own(n: int) -> None:
    edges = distance_edges(n)
    assert edges[0] == 0
    assert (edges.diff() > 0).all()
    assert edges[: min(n, 64)].tolist() == list(range(min(n, 64)))
    counts = binned_distances(torch.ones(n))
    assert counts.sum() == n
    assert torch.equal(counts, torch.diff(edges, append=torch.tensor([n])).float())


def test_medians_and_means_of_distance() -> None:
    by_distance = torch.tensor([[0.0, 2, 0, 0], [1, 0, 0, 1.1], [0, 0, 0, 0]])
    assert median_distances(by_distance)[:2].tolist() == [1, 3]
    assert median_distances(by_distance)[2].isnan()
    torch.testing.assert_close(mean_distances(by_distance)[:2], torch.tensor([1, 3.3 / 2.1]))
