"""Coefficients are streamed exactly and in bounded space."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.memory_stream import (
    N_BINS,
    empty_stream,
    fitting_windows,
    histogram_edges,
    merged_streams,
    require_memories,
    share_above,
    stream_prefixes,
    updated_stream,
)
from interp.topk import positions_of, values_of
from model.errors import InputError, NotAdditiveError


def streamed(values: Tensor, *parts: slice):
    """One stream per part of the prefixes."""
    ends = torch.arange(values.shape[1])
    return [updated_stream(empty_stream(len(values), 4), values[:, part], ends[part]) for part in parts]


def test_a_stream_in_pieces_equals_a_stream_in_one() -> None:
    values = torch.randn(6, 300, generator=torch.Generator().manual_seed(0)).relu()
    (whole,) = streamed(values, slice(None))
    left, right = streamed(values, slice(0, 130), slice(130, None))
    for merged in (merged_streams(left, right), merged_streams(right, left)):
        assert torch.equal(merged.top, whole.top)
        assert torch.equal(merged.n_active, whole.n_active)
        assert torch.equal(merged.histogram, whole.histogram)
        assert merged.n_prefixes == whole.n_prefixes == 300
        torch.testing.assert_close(merged.total, whole.total, rtol=1e-13, atol=0)
        torch.testing.assert_close(merged.total_squares, whole.total_squares, rtol=1e-13, atol=0)


def test_counts_and_sums_are_those_of_the_whole_tensor() -> None:
    values = torch.randn(6, 300, generator=torch.Generator().manual_seed(0))
    (whole,) = streamed(values, slice(None))
    assert torch.equal(whole.n_active, (values > 0).sum(1))
    assert torch.equal(values_of(whole.top), values.topk(4, dim=1).values)
    torch.testing.assert_close(whole.total, values.double().sum(1))
    assert (whole.histogram.sum(1) == 300).all()


def test_what_is_kept_does_not_grow_with_the_corpus() -> None:
    short, long = (streamed(torch.rand(5, n), slice(None))[0] for n in (10, 5000))
    for name in ("top", "n_active", "histogram", "total", "total_squares"):
        assert getattr(short, name).shape == getattr(long, name).shape


def test_every_coefficient_lies_in_the_bin_between_its_edges() -> None:
    edges = histogram_edges()
    assert len(edges) == N_BINS - 1
    below = torch.nextafter(edges, torch.zeros_like(edges))
    for bin_index, (edge, less) in enumerate(zip(edges, below, strict=True), start=1):
        histogram = streamed(torch.stack([edge, less])[None], slice(None))[0].histogram[0]
        assert histogram[bin_index] == 1  # the edge itself
        assert histogram[bin_index - 1] == 1  # just below it
    odd = torch.tensor([[0.0, -0.0, -5.0, 1e-30, 1e30]])
    assert streamed(odd, slice(None))[0].histogram[0].nonzero().flatten().tolist() == [0, N_BINS - 1]


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
    empty = [empty_stream(gpt.config.ffn_width, 5) for _ in range(2)]
    streams = stream_prefixes(gpt, tokens, ends, empty)
    _, cache = gpt.run_with_cache(tokens, lambda name: name.endswith("mlp.hook_post"))
    for layer, stream in enumerate(streams):
        counted = cache["post", layer][ends >= 0]
        assert stream.n_prefixes == len(counted)
        best = counted.sort(dim=0, descending=True, stable=True)
        assert torch.equal(values_of(stream.top), best.values[:5].T)
        assert torch.equal(positions_of(stream.top), ends[ends >= 0][best.indices[:5].T])
    assert all(each.n_prefixes == 0 for each in empty)  # nothing was changed in place


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
    with pytest.raises(InputError, match="n_triggers=0 keeps nothing"):
        empty_stream(3, 0)


def test_a_coefficient_that_is_not_a_number_stops_the_stream() -> None:
    with pytest.raises(InputError, match="not finite"):
        updated_stream(empty_stream(1, 2), torch.tensor([[1.0, float("inf")]]), torch.tensor([0, 1]))
