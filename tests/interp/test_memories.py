"""Coefficients are streamed exactly and in bounded space, and values are read as the tokens that were planted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.memories import (
    N_BINS,
    empty_stream,
    fitting_memories,
    fitting_windows,
    histogram_edges,
    merged_streams,
    require_memories,
    share_above,
    stream_prefixes,
    updated_stream,
    value_scores,
)
from interp.topk import positions_of, values_of
from model.errors import InputError, NotAdditiveError
from tests import planted


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


def test_the_planted_value_promotes_its_token_and_nothing_else() -> None:
    gpt = planted.memory_model(promoted=7, memory=2)
    scores = value_scores(gpt, 0)
    assert scores[2].argmax() == 7
    assert scores[2, 7] == 5
    assert scores.count_nonzero() == 1


@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("norm", ["pre", "scaled", "sandwich", "reordered", "none"])
def test_scores_of_the_last_layers_values_are_their_effect_on_the_logits(
    make_gpt, tokens: Tensor, norm: str, norm_kind: str
) -> None:
    """One more unit of a memory, in a forward pass, moves the logits by its scores over the scales it passes.

    Those scales are held at their values in the intact run: a memory changes them as well, and the scores leave that
    out.
    """
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, ffn="relu").double()
    scales = [name for name in ("blocks.1.ln2_post.hook_scale", "ln_final.hook_scale") if name in gpt.named_sites()]
    clean, cache = gpt.run_with_cache(tokens, [*scales, "hook_logits"])
    held = [(name, lambda _, hook: cache[hook.name]) for name in scales]
    scale = torch.stack([cache[name] for name in scales]).prod(0) if scales else torch.ones(1, dtype=torch.float64)
    scores = value_scores(gpt, 1).double()
    for memory in (0, 31):

        def one_more(coefficients: Tensor, hook, memory: int = memory) -> None:
            coefficients[:, :, memory] += 1.0

        moved = gpt.run_with_hooks(tokens, [("blocks.1.mlp.hook_post", one_more), *held]) - clean
        torch.testing.assert_close(moved * scale, scores[memory].expand_as(moved), rtol=1e-4, atol=1e-5)


def test_memories_in_groups_have_the_scores_of_all_at_once(make_gpt) -> None:
    gpt = make_gpt(norm="sandwich", norm_kind="layernorm")
    whole, unembed = value_scores(gpt, 1), gpt.folded_unembed()
    n_memories, d_vocab = whole.shape
    parts = [value_scores(gpt, 1, slice(start, start + 5), unembed) for start in range(0, n_memories, 5)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)
    assert fitting_memories(n_memories, d_vocab) == [slice(0, n_memories)]
    groups = fitting_memories(1536, 49_152)
    assert [group.start for group in groups[1:]] == [group.stop for group in groups[:-1]]
    assert (groups[0].start, groups[-1].stop) == (0, 1536)
    assert max(group.stop - group.start for group in groups) * 49_152 * 4 <= 2**26  # bytes
    assert len(fitting_memories(3, 2**30)) == 3


def test_a_large_model_streams_fewer_windows_at_once(make_gpt) -> None:
    small = make_gpt().config
    assert fitting_windows(small, small.n_ctx, 64) == 64
    large = small.varied(d_ff=1536)
    assert [fitting_windows(large, n_pos, 64) for n_pos in (64, 2048, 10**6)] == [64, 7, 1]


@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("norm", ["pre", "post", "deepnorm"])
def test_scores_of_early_values_are_their_direct_effect_through_every_norm_on_the_way(
    make_gpt, tokens: Tensor, norm: str, norm_kind: str
) -> None:
    """What later sublayers write is held, and the scales of the norms passed: left is the value's own way.

    Under deepnorm each sum on the way multiplies the stream by alpha, which the scores leave out.
    """
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, ffn="relu", n_layers=3).double()
    clean, cache = gpt.run_with_cache(tokens)
    on_stream = ["blocks.0.ln2", *(f"blocks.{layer}.{ln}" for layer in (1, 2) for ln in ("ln1", "ln2"))]
    passed = [f"{name}.hook_scale" for name in (["ln_final"] if norm == "pre" else on_stream)]
    later = [f"blocks.{layer}.hook_{out}" for layer in (1, 2) for out in ("attn_out", "mlp_out")]
    held = [(name, lambda _, hook: cache[hook.name]) for name in (*passed, *later)]
    alpha = (2 * 3) ** 0.25 if norm == "deepnorm" else 1.0
    scale = torch.stack([cache[name] for name in passed]).prod(0) / alpha ** (len(passed) - 1)
    scores = value_scores(gpt, 0).double()
    for memory in (0, 31):

        def one_more(coefficients: Tensor, hook, memory: int = memory) -> None:
            coefficients[:, :, memory] += 1.0

        moved = gpt.run_with_hooks(tokens, [("blocks.0.mlp.hook_post", one_more), *held]) - clean
        torch.testing.assert_close(moved * scale, scores[memory].expand_as(moved), rtol=1e-4, atol=1e-5)


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
