"""Decile and random examples: ranks are those of all prefixes, bounded exactly, and each tenth has its own example."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.memory_examples import MemoryExamples, coefficient_ranks, memory_examples
from interp.memory_pass import updated_stream
from interp.memory_stream import CoefficientStream, empty_stream
from interp.prefixes import cut_windows

N, N_SAMPLED = 4000, 300
TOKENS = np.arange(N + 50, dtype=np.int64) % 997
WINDOWS = cut_windows([(0, 2001), (2001, N + 2)], 64)
ENDS = torch.cat(
    [torch.arange(int(start), int(start + size)) for start, size in zip(WINDOWS.starts, WINDOWS.lengths, strict=True)]
)


def coefficients() -> Tensor:
    """Of four memories at every prefix: normal, ReLU, all zero, and mostly tiny with a few large negative ones."""
    drawn = torch.randn(len(ENDS), 4, generator=torch.Generator().manual_seed(0))
    drawn[:, 1].relu_()
    drawn[:, 2] = 0
    drawn[:, 3] = torch.where(drawn[:, 3] < -2, drawn[:, 3] * 5, drawn[:, 3] * 1e-3)
    return drawn


@pytest.fixture(scope="module")
def stream() -> CoefficientStream:
    return updated_stream(empty_stream(4, 3, n_sampled=N_SAMPLED, seed=1), coefficients(), ENDS)


@pytest.fixture(scope="module")
def examples(stream: CoefficientStream) -> MemoryExamples:
    return memory_examples([stream, stream], TOKENS, WINDOWS, n_random=5, n_context=6)


def true_shares(values: Tensor, memory: int) -> tuple[Tensor, Tensor]:
    """Share of all prefixes with a smaller coefficient, and share with none larger."""
    everything = coefficients()[:, memory]
    smaller, no_larger = everything[None] < values[:, None], everything[None] <= values[:, None]
    return smaller.double().mean(-1), no_larger.double().mean(-1)


@pytest.mark.parametrize("memory", range(4))
def test_the_bounds_of_a_rank_hold_its_true_share_and_are_those_of_its_bin(
    stream: CoefficientStream, memory: int
) -> None:
    rank, low, high = (each[memory].double() for each in coefficient_ranks(stream))
    below, up_to = true_shares(stream.sample.values[memory], memory)
    assert (low <= below + 1e-6).all()
    assert (up_to <= high + 1e-6).all()
    assert ((low <= rank) & (rank <= high)).all()
    values = stream.sample.values[memory]
    outside = values.abs() >= 2**-10  # a bin is a quarter of an octave; all that is near zero is one bin
    widest = true_shares(values[outside] * 1.25, memory)[0] - true_shares(values[outside] / 1.25, memory)[0]
    assert ((high - low)[outside] <= widest.abs() + 1e-6).all()


def test_the_estimated_rank_is_near_the_true_one(stream: CoefficientStream) -> None:
    rank = coefficient_ranks(stream)[0][0].double()
    below, up_to = true_shares(stream.sample.values[0], 0)
    assert float((rank - (below + up_to) / 2).abs().max()) < 0.03


def test_ranks_inside_one_bin_stand_evenly_about_its_middle() -> None:
    """All coefficients of memory 2 are equal, so that nothing but the order of the sample tells its prefixes apart."""
    few = updated_stream(empty_stream(4, 3, n_sampled=4, seed=1), coefficients(), ENDS)
    rank, low, high = (each[2] for each in coefficient_ranks(few))
    assert rank.tolist() == [1 / 8, 3 / 8, 5 / 8, 7 / 8]
    assert (low.tolist(), high.tolist()) == ([0] * 4, [1] * 4)


def test_each_tenth_is_shown_by_a_sampled_prefix_of_its_own(examples: MemoryExamples) -> None:
    normal = examples.decile_rank[0, 0]
    assert torch.equal((normal * 10).floor(), torch.arange(10.0))
    assert (examples.decile_coefficient[0, 0].diff() > 0).all()
    place = examples.decile[0, 0].long()
    end = examples.offset[place] + examples.length[place] - 1
    by_end = {int(at): row for at, row in zip(ENDS, coefficients(), strict=True)}
    assert examples.decile_coefficient[0, 0].tolist() == [float(by_end[int(at)][0]) for at in end]


def test_tenths_without_a_sampled_prefix_are_empty() -> None:
    few = updated_stream(empty_stream(4, 3, n_sampled=4, seed=1), coefficients(), ENDS)
    found = memory_examples([few], TOKENS, WINDOWS, n_random=9, n_context=6)
    absent = found.decile[0] < 0
    assert (absent.sum(-1) >= 6).all()
    assert torch.equal(found.decile_rank[0].isnan(), absent)
    assert torch.equal(found.decile_coefficient[0].isnan(), absent)
    assert found.random_coefficient.shape == (1, 4, 4)


def test_random_examples_are_the_first_of_the_sample_for_every_memory(
    stream: CoefficientStream, examples: MemoryExamples
) -> None:
    assert torch.equal(examples.random_coefficient[1], stream.sample.values[:, :5])
    assert torch.equal(examples.random_rank[0], coefficient_ranks(stream)[0][:, :5])


def test_contexts_and_next_tokens_are_those_of_the_corpus(examples: MemoryExamples) -> None:
    for place in range(0, N_SAMPLED, 17):
        offset, length = int(examples.offset[place]), int(examples.length[place])
        text = TOKENS[offset : offset + length].tolist()
        assert examples.context[place].tolist() == ([-1] * 6 + text)[-6:]
        assert int(examples.next_token[place]) == TOKENS[offset + length]
        assert offset in WINDOWS.starts
