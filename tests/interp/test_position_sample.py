"""A random sample of positions that no split, order or batch size changes."""

from __future__ import annotations

import pytest
import torch

from interp.position_sample import admitted, empty_sample, hashed, merged_samples, updated_sample
from model.errors import InputError

OFFSETS = torch.arange(1000, 3000)
VALUES = torch.stack([OFFSETS.float(), -OFFSETS.float()])


def sampled(parts, capacity: int = 50, seed: int = 3):
    sample = empty_sample((2,), capacity, seed)
    for part in parts:
        sample = updated_sample(sample, OFFSETS[part], VALUES[:, part])
    return sample


def test_any_order_split_and_merge_gives_the_same_sample() -> None:
    whole = sampled([torch.arange(2000)])
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    left, right = sampled(order[:900].split(7)), sampled(order[900:].split(300))
    for other in (sampled(order.split(64)), merged_samples(left, right), merged_samples(right, left)):
        assert torch.equal(other.order, whole.order)
        assert torch.equal(other.offsets, whole.offsets)
        assert torch.equal(other.values, whole.values)
    assert torch.equal(whole.values[0], whole.offsets.float())
    assert len(whole) == 50


def test_only_admitted_positions_need_values() -> None:
    sample = empty_sample((2,), 50, 3)
    for part in torch.arange(2000).split(100):
        chosen = part[admitted(sample, OFFSETS[part])]
        sample = updated_sample(sample, OFFSETS[chosen], VALUES[:, chosen])
    assert torch.equal(sample.values, sampled([torch.arange(2000)]).values)


def test_the_sample_is_spread_evenly_over_the_corpus_and_follows_the_seed() -> None:
    sample = sampled([torch.arange(2000)], capacity=1000)
    counts = torch.histc(sample.offsets.float(), 10, 1000, 3000)
    assert ((counts - 100).abs() < 40).all()  # about four standard errors
    assert ((torch.histc(sample.offsets[:200].float(), 4, 1000, 3000) - 50).abs() < 25).all()
    assert not torch.equal(sampled([torch.arange(2000)], seed=4).offsets, sampled([torch.arange(2000)]).offsets)


def test_no_two_positions_share_a_hash() -> None:
    far = torch.cat([torch.arange(20_000), torch.arange(2**32 - 20_000, 2**32)])
    assert len(hashed(far, 0).unique()) == 40_000


def test_a_short_corpus_is_kept_whole() -> None:
    sample = sampled([torch.arange(5)])
    assert sorted(sample.offsets.tolist()) == OFFSETS[:5].tolist()


def test_samples_that_were_not_started_alike_do_not_merge() -> None:
    with pytest.raises(InputError, match="do not merge; start both alike"):
        merged_samples(sampled([torch.arange(5)]), sampled([torch.arange(5, 9)], seed=4))
    with pytest.raises(InputError, match="holds nothing"):
        empty_sample((2,), 0, 0)
