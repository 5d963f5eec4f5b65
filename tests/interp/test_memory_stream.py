"""Coefficients of both signs are streamed exactly and in bounded space, however the corpus is cut and ordered."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.coefficient_bins import N_BINS, histogram_edges, share_above
from interp.exact_sums import added, limbs, value_of
from interp.memory_pass import _Bench, _Layer, stream_prefixes, updated_stream
from interp.memory_stream import (
    CoefficientStream,
    empty_stream,
    fitting_windows,
    merged_streams,
    require_memories,
)
from interp.position_sample import hashed
from interp.topk import positions_of, values_of
from model.errors import InputError, NotAdditiveError

EXACT = ("top", "bottom", "n_active", "n_negative", "histogram", "negative_histogram")


def streamed(values: Tensor, *parts: slice | list[int], k: int = 4, n_sampled: int = 20) -> list[CoefficientStream]:
    """One stream per part of the prefixes of `values` [memory, prefix]."""
    ends = torch.arange(values.shape[1])
    empty = empty_stream(len(values), k, n_sampled=n_sampled, seed=5)
    return [updated_stream(empty, values[:, part].T, ends[part]) for part in parts]


def alike(one: CoefficientStream, other: CoefficientStream) -> None:
    """Bit for bit, but for the rounding of the sums."""
    for name in EXACT:
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert one.n_prefixes == other.n_prefixes
    assert torch.equal(one.sample.offsets, other.sample.offsets)
    assert torch.equal(one.sample.values, other.sample.values)
    torch.testing.assert_close(one.total, other.total, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(one.total_squares, other.total_squares, rtol=1e-13, atol=1e-13)


def by_sorting(values: Tensor, ends: Tensor, k: int, sign: int) -> tuple[Tensor, Tensor]:
    """The slow reference: sort everything, the larger first and the earlier of equals; [prefix, memory] in, k out."""
    order = ends.argsort()
    found = (sign * values[order]).sort(dim=0, descending=True, stable=True)
    return sign * found.values[:k].T, ends[order][found.indices[:k]].T


def kinds_of_values(generator: torch.Generator, n: int, n_memories: int) -> Tensor:
    """Coefficients as models make them: of both signs, sparse, dead, tied, tiny, large; [prefix, memory]."""
    values = torch.randn(n, n_memories, generator=generator)
    values[:, 1] = values[:, 1].relu()
    values[:, 2] = torch.nn.functional.gelu(4 * values[:, 2])  # many ties at the minimum, many at -0.0
    values[:, 3] = 0.0
    values[:, 4] = values[:, 4].mul(2).round()
    values[:, 5] = -values[:, 5].abs() * 1e-6
    values[:, 6] *= 1e4
    return values


@given(seed=st.integers(0, 10_000), k=st.integers(1, 30), cuts=st.lists(st.integers(1, 900), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_any_cut_and_order_gives_what_sorting_everything_gives(seed: int, k: int, cuts: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = sum(cuts)
    values, ends = kinds_of_values(generator, n, 7), torch.randperm(5000, generator=generator)[:n]
    if seed % 2:
        ends = ends.sort().values  # as a corpus is read
    stream = empty_stream(7, k, n_negative=k + 1, n_sampled=50, seed=seed)
    for part, where in zip(values.split(cuts), ends.split(cuts), strict=True):
        stream = updated_stream(stream, part, where)
    for keys, sign, most in ((stream.top, 1, k), (stream.bottom, -1, k + 1)):
        coefficients, positions = by_sorting(values, ends, most, sign)
        kept = min(most, n)
        assert torch.equal(sign * values_of(keys)[:, :kept], coefficients)
        assert torch.equal(positions_of(keys)[:, :kept], positions)
        assert (positions_of(keys)[:, kept:] == -1).all()
    assert torch.equal(stream.n_active, (values > 0).sum(0))
    assert torch.equal(stream.n_negative, (values < 0).sum(0))
    torch.testing.assert_close(stream.total, values.double().sum(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stream.total_squares, values.double().square().sum(0), rtol=1e-12, atol=1e-12)
    drawn = hashed(ends, seed).argsort()[:50]
    assert torch.equal(stream.sample.offsets, ends[drawn])
    assert torch.equal(stream.sample.values, values[drawn].T)


def test_streams_in_pieces_merged_in_any_order_equal_a_stream_in_one() -> None:
    values = kinds_of_values(torch.Generator().manual_seed(0), 300, 7).T
    (whole,) = streamed(values, slice(None))
    first, second, third = streamed(values, slice(0, 130), slice(130, 131), slice(131, None))
    alike(merged_streams(merged_streams(first, second), third), whole)
    alike(merged_streams(third, merged_streams(second, first)), whole)


def test_batches_in_any_order_and_grouping_give_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    values = 10 ** torch.randn(20, 4000, generator=generator) * torch.randn(20, 4000, generator=generator)
    one, two, three, four = streamed(values, *(slice(start, start + 1000) for start in range(0, 4000, 1000)))
    chained = merged_streams(merged_streams(merged_streams(one, two), three), four)
    paired = merged_streams(merged_streams(four, two), merged_streams(three, one))
    assert torch.equal(chained.sums, paired.sums)
    assert torch.equal(chained.total, paired.total)
    a, b, c, d = (part.double().sum(1) for part in values.split(1000, dim=1))
    assert not torch.equal(a + b + c + d, d + b + (c + a))  # which plain sums do not
    alike(chained, paired)


@given(
    numbers=st.lists(st.floats(-(2.0**60), 2.0**60, allow_subnormal=False), min_size=1, max_size=40),
    scale=st.sampled_from([2.0**-60, 2.0**-20, 1.0, 2.0**30]),
    cut=st.integers(0, 40),
)
@settings(max_examples=60, deadline=None)
def test_limbs_add_up_to_the_exact_sum_in_any_order(numbers: list[float], scale: float, cut: int) -> None:
    given_numbers = [number * scale for number in numbers]
    parts = [limbs(torch.tensor([number], dtype=torch.float64)) for number in given_numbers]
    forward, backward = reduce(added, parts), reduce(added, [*parts[cut:], *parts[:cut]][::-1])
    assert torch.equal(forward, backward)
    exact = float(sum(map(Fraction, given_numbers)))
    assert float(value_of(forward)) == pytest.approx(exact, rel=2**-51, abs=len(parts) * 2**-48)


def test_what_is_left_when_limbs_cancel_is_exact() -> None:
    assert float(value_of(torch.tensor([-(2**21), 2**61 + 1, 0]))) == 2**-8
    assert float(value_of(torch.tensor([0, -(2**21), 2**61 + 1]))) == 2**-48


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_no_limb_holds_is_refused(sign: int) -> None:
    limit = torch.tensor(2.0**94, dtype=torch.float64)
    largest = sign * limit.nextafter(torch.zeros_like(limit))
    assert torch.equal(value_of(limbs(largest)), largest)
    with pytest.raises(InputError, match="cannot be summed exactly"):
        limbs(sign * limit)


def test_sums_hold_coefficients_as_large_as_they_come_and_refuse_what_they_cannot_hold() -> None:
    largest, n = 4e9, 4096
    stream = empty_stream(1, 1, n_sampled=2)
    for start in range(3):
        stream = updated_stream(stream, torch.full((n, 1), largest), torch.arange(n) + n * start)
    assert float(stream.total_squares[0]) == pytest.approx(3 * n * float(np.float32(largest)) ** 2, rel=1e-12)
    assert float(stream.mean[0]) == pytest.approx(largest, rel=1e-6)
    assert float(stream.std[0]) == 0
    with pytest.raises(InputError, match="more than 2e28, which cannot be summed exactly"):
        updated_stream(stream, torch.tensor([[3e38]]), torch.tensor([10**6]))
    near = torch.full((1, 1), 1.2e14)  # three quarters of what a sum may reach
    half = [updated_stream(empty_stream(1, 1, n_sampled=2), near, torch.tensor([place])) for place in range(2)]
    with pytest.raises(InputError, match="cannot be summed exactly"):
        merged_streams(*half)
    with pytest.raises(InputError, match="cannot be summed exactly"):
        updated_stream(half[0], near, torch.tensor([1]))
    layer, none = _Layer(half[0], _Bench(torch.device("cpu"))), torch.tensor([], dtype=torch.int64)
    layer.add(near, torch.tensor([0]), torch.tensor([1]), none)
    with pytest.raises(InputError, match="cannot be summed exactly"):  # batches of one pass
        layer.add(near, torch.tensor([0]), torch.tensor([2]), none)
    with pytest.raises(InputError, match="cannot be summed exactly"):
        added(*[torch.full((3, 1), 2**61)] * 2)


def test_means_and_deviations_are_those_of_all_coefficients() -> None:
    values = kinds_of_values(torch.Generator().manual_seed(0), 500, 7)
    values[:, 3] = 1e3 + 1e-2 * values[:, 0]  # nearly constant
    (stream,) = streamed(values.T, slice(None))
    torch.testing.assert_close(stream.mean, values.double().mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stream.std, values.double().std(0, correction=0), rtol=1e-5, atol=1e-9)
    gone_wrong = replace(stream, sums=stream.sums * torch.tensor([1, -1])[:, None])
    assert gone_wrong.std.isnan().all()  # and not zero


def test_what_is_kept_does_not_grow_with_the_corpus() -> None:
    short, long = (streamed(torch.randn(5, n), slice(None))[0] for n in (30, 5000))
    for name in (*EXACT, "total", "total_squares"):
        assert getattr(short, name).shape == getattr(long, name).shape
    assert short.sample.values.shape == long.sample.values.shape


def test_every_coefficient_lies_in_the_bin_between_its_edges_on_its_own_side() -> None:
    edges = histogram_edges()
    assert len(edges) == N_BINS - 1
    below = torch.nextafter(edges, torch.zeros_like(edges))
    for bin_index, (edge, less) in enumerate(zip(edges, below, strict=True), start=1):
        (stream,) = streamed(torch.stack([edge, less, -edge, -less])[None], slice(None))
        for histogram in (stream.histogram[0], stream.negative_histogram[0]):
            expected = torch.zeros(N_BINS, dtype=torch.int64)
            expected[bin_index] += 1  # the edge itself
            expected[bin_index - 1] += 1  # just below it
            expected[0] += 2  # those of the other sign
            assert torch.equal(histogram, expected)
    odd = torch.tensor([[0.0, -0.0, -5.0, 1e-30, 1e12, -1e12]])
    (stream,) = streamed(odd, slice(None))
    assert stream.histogram[0].nonzero().flatten().tolist() == [0, N_BINS - 1]
    assert stream.histogram.sum() == stream.negative_histogram.sum() == 6
    assert (stream.n_active.tolist(), stream.n_negative.tolist()) == ([2], [2])


def test_shares_above_a_threshold_start_at_the_edge_below_it() -> None:
    values = torch.tensor([[0.5, 1.0, 1.1, 1.3, 2.0]])
    histogram = streamed(values, slice(None))[0].histogram
    assert share_above(histogram, torch.tensor([1.05])).tolist() == pytest.approx([4 / 5])  # from 1.0 on
    assert share_above(histogram, torch.tensor([1.25])).tolist() == pytest.approx([2 / 5])
    assert share_above(histogram, torch.tensor([100.0])).tolist() == [0]


@pytest.mark.parametrize("ffn", ["relu", "gelu", "swiglu"])
def test_the_streams_of_a_model_hold_its_hook_post(make_gpt, tokens: Tensor, ffn: str) -> None:
    gpt = make_gpt(ffn=ffn)
    ends = torch.arange(tokens.numel()).view(tokens.shape) + 500
    ends[:, 0] = -1  # BOS does not count
    ends[1, 7:] = -1  # nor does padding
    empty = [empty_stream(gpt.config.ffn_width, 5, n_sampled=9) for _ in range(2)]
    half = len(tokens) // 2
    batches = [(tokens[:half], ends[:half]), (tokens[half:], ends[half:])]
    streams = stream_prefixes(gpt, batches, empty)
    _, cache = gpt.run_with_cache(tokens, lambda name: name.endswith("mlp.hook_post"))
    counted_ends = ends[ends >= 0]
    for layer, stream in enumerate(streams):
        counted = cache["post", layer][ends >= 0]
        assert stream.n_prefixes == len(counted)
        for keys, sign in ((stream.top, 1), (stream.bottom, -1)):
            coefficients, positions = by_sorting(counted, counted_ends, 5, sign)
            torch.testing.assert_close(sign * values_of(keys), coefficients, rtol=0, atol=1e-6)  # batches of two sizes
            assert (positions_of(keys) == positions).float().mean() > 0.9
        drawn = hashed(counted_ends, 0).argsort()[:9]
        assert torch.equal(stream.sample.offsets, counted_ends[drawn])
        torch.testing.assert_close(stream.sample.values, counted[drawn].T, rtol=0, atol=1e-6)
    assert all(each.n_prefixes == 0 for each in empty)  # nothing was changed in place
    assert all((each.top == empty[0].top).all() and len(each.sample) == 0 for each in empty)


def test_batches_given_one_by_one_or_together_are_the_same(make_gpt, tokens: Tensor) -> None:
    gpt = make_gpt(ffn="gelu")
    ends = torch.arange(tokens.numel()).view(tokens.shape)
    batches = [(tokens[:1], ends[:1]), (tokens[1:], ends[1:])]
    streams = [empty_stream(gpt.config.ffn_width, 3, n_sampled=7) for _ in range(2)]
    together, one_by_one = stream_prefixes(gpt, batches, streams), tuple(streams)
    for batch in batches:
        one_by_one = stream_prefixes(gpt, [batch], one_by_one)
    for one, other in zip(together, one_by_one, strict=True):
        alike(one, other)


def test_a_large_model_streams_fewer_windows_at_once(make_gpt) -> None:
    small = make_gpt().config
    assert fitting_windows(small, small.n_ctx, 64) == 64
    large = small.varied(d_ff=1536)
    assert [fitting_windows(large, n_pos, 64) for n_pos in (64, 2048, 10**6)] == [64, 7, 1]


def test_without_skip_connections_no_value_promotes_a_token_by_itself(make_gpt) -> None:
    with pytest.raises(NotAdditiveError, match="skip_connections=false lets a value reach the logits only through"):
        require_memories(make_gpt(skip_connections=False).config)


def test_models_without_memories_or_prefixes_are_refused(make_gpt) -> None:
    with pytest.raises(InputError, match="attention-only"):
        require_memories(make_gpt(ffn="none").config)
    with pytest.raises(InputError, match="attention=bidirectional"):
        require_memories(make_gpt(attention="bidirectional").config)


def test_a_stream_that_would_keep_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="n_triggers=0 keeps nothing"):
        empty_stream(3, 0)
    with pytest.raises(InputError, match="n_negative=0 keeps nothing"):
        empty_stream(3, 2, n_negative=0)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_a_coefficient_that_is_not_a_number_stops_the_stream(odd: float) -> None:
    filled = updated_stream(empty_stream(1, 2), torch.randn(300, 1), torch.arange(300))
    for stream in (empty_stream(1, 2), filled):
        with pytest.raises(InputError, match="not finite"):
            updated_stream(stream, torch.tensor([[1.0], [odd]]), torch.tensor([1000, 1001]))
