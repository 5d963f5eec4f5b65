"""What is said of heads over a corpus: against loops over whole patterns, planted heads, and itself in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.example_rows import example_rows
from interp.folding import folded_heads
from interp.head_behaviour import HeadBehaviour, behaviour_of, fitting_batch
from interp.head_stream import HeadStream, empty_stream, merged_streams, stream_windows
from interp.head_tokens import SHRINKAGE
from interp.log_bins import N_BINS, bin_edges, bin_of
from interp.prefixes import Windows, cut_windows, window_batches
from model import GPT
from model.errors import InputError
from tests import planted
from tests.rewritten import bias_of_ln1_moved

SEVERAL = {
    "pre": {},
    "grouped heads, biases, layernorm": {"n_kv_heads": 2, "biases": True, "norm_kind": "layernorm"},
    "post, learned": {"norm": "post", "positions": "learned", "biases": True},
    "sandwich, alibi": {"norm": "sandwich", "positions": "alibi"},
    "no skip": {"skip_connections": False},
    "smeared keys, normed queries and keys": {"smeared_keys": True, "qk_norm": True},
}


def corpus_of(gpt: GPT, n: int = 400, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, gpt.config.d_vocab - 1, n).astype(np.uint16)


def windows_of(gpt: GPT, n: int = 400, *, bos: int | None) -> Windows:
    return cut_windows([(0, 150), (150, 173), (173, n)], gpt.config.n_ctx - (bos is not None))


def streamed(gpt: GPT, batches: Sequence[tuple[Tensor, Tensor]], **settings: int) -> HeadStream:
    stream = empty_stream(gpt, **settings)
    for tokens, ends in batches:
        stream_windows(gpt, tokens, ends, stream)
    return stream


def batches_of(gpt: GPT, *, bos: int | None, batch_size: int = 4) -> list[tuple[Tensor, Tensor]]:
    return list(window_batches(corpus_of(gpt), windows_of(gpt, bos=bos), bos=bos, batch_size=batch_size))


def looped(gpt: GPT, tokens: Tensor, ends: Tensor) -> Iterator[tuple[int, int, int, Tensor, Tensor, Tensor]]:
    """(layer, row, query, pattern row [head, key], what keys send [head, key], what is written [head]), one by one."""
    names = [
        f"blocks.{layer}.attn.hook_{x}" for layer in range(gpt.config.n_layers) for x in ("pattern", "v", "result")
    ]
    _, cache = gpt.run_with_cache(tokens, names)
    share, constants = gpt.config.n_heads // gpt.config.kv_heads, folded_heads(gpt).b_V
    for layer in range(gpt.config.n_layers):
        bias = constants[layer]
        values = cache["v", layer].double().repeat_interleave(share, 2) - bias
        W_O = gpt.W_O[layer].double()
        sent = torch.einsum("bkhe,hed->bkhd", values, W_O).norm(dim=-1)
        written = (cache["result", layer].double() - torch.einsum("he,hed->hd", bias, W_O)).norm(dim=-1)
        for row, query in (ends >= 0).nonzero().tolist():
            if query > 0:
                yield (
                    layer,
                    row,
                    query,
                    cache["pattern", layer][row, :, query].double(),
                    sent[row].T,
                    written[row, query],
                )


@pytest.mark.parametrize("settings", SEVERAL.values(), ids=SEVERAL)
def test_every_sum_is_that_of_a_loop_over_whole_patterns(make_gpt, settings: dict) -> None:
    gpt, bos = make_gpt(**settings), None if "positions" in settings else 49
    windows = cut_windows([(0, 30), (30, 37), (37, 90)], 14)
    batches = list(window_batches(corpus_of(gpt), windows, bos=bos, batch_size=4))
    stream = streamed(gpt, batches)
    by_loop = {name: torch.zeros_like(getattr(stream, name)) for name in SUMMED}
    for tokens, ends in batches:
        for layer, row, query, pattern, sent, written in looped(gpt, tokens, ends):
            at = tokens[row, query]
            by_loop["position_zero"][layer] += pattern[:, 0]
            by_loop["position_zero_weighted"][layer] += pattern[:, 0] * sent[:, 0]
            for key in range(1, query + 1):
                _count_key(by_loop, tokens[row], layer, query, key, pattern[:, key], pattern[:, key] * sent[:, key])
            by_loop["written"][at, layer] += written
            by_loop["entropy"][layer] += torch.special.entr(pattern).sum(-1) * (query % 4 == 3)
            by_loop["n_token"][at] += layer == 0
            by_loop["n_queries_at"][query] += layer == 0
    for name, expected in by_loop.items():
        torch.testing.assert_close(
            getattr(stream, name), expected, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert stream.written_histogram.sum() == stream.n_queries * gpt.config.n_layers * gpt.config.n_heads


def _count_key(by_loop, row: Tensor, layer: int, query: int, key: int, raw: Tensor, moved: Tensor) -> None:
    by_loop["distance"][layer, :, query - key] += raw
    by_loop["distance_weighted"][layer, :, query - key] += moved
    by_loop["received"][row[key], layer] += raw
    by_loop["received_weighted"][row[key], layer] += moved
    by_loop["even_received"][row[key]] += (layer == 0) / (query + 1)


SUMMED = (
    *("distance", "distance_weighted", "position_zero", "position_zero_weighted", "entropy", "written"),
    *("received", "received_weighted", "even_received", "n_token", "n_queries_at"),
)


def test_nothing_depends_on_which_bias_holds_a_constant(make_gpt) -> None:
    gpt = make_gpt(biases=True, norm_kind="layernorm").double()
    batches = batches_of(gpt, bos=49)
    one, other = (streamed(each, batches) for each in (gpt, bias_of_ln1_moved(gpt)))
    for name in SUMMED:
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)
    assert torch.equal(one.top, other.top)


def test_shares_sum_to_one_and_even_attention_too(make_gpt) -> None:
    gpt = make_gpt()
    found = behaviour_of(gpt, corpus_of(gpt), windows_of(gpt, bos=49), bos=49, n_listed=50)
    torch.testing.assert_close(found.distance.sum(-1) + found.position_zero, torch.ones(2, 4))
    torch.testing.assert_close(found.distance_weighted.sum(-1) + found.position_zero_weighted, torch.ones(2, 4))
    assert math.isclose(float(found.even_distance.sum()) + found.even_position_zero, 1, rel_tol=1e-6)
    torch.testing.assert_close(found.attended.share.nansum(-1), found.distance.sum(-1))
    assert torch.equal(found.local_share(1), found.distance[..., 0])
    assert (found.entropy <= found.even_entropy).all()
    with pytest.raises(InputError, match="n=65 keys cannot be told apart"):
        found.local_share(65)


# --- in pieces --------------------------------------------------------------------------------------------------------


def assert_same(one: HeadStream, other: HeadStream, **tolerance: float) -> None:
    for name in ("top", "written_histogram", "n_token", "n_queries_at"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    for field in fields(one.sample):
        left, right = getattr(one.sample, field.name), getattr(other.sample, field.name)
        assert torch.equal(left, right) if isinstance(left, Tensor) else left == right
    for name in SUMMED:
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12)


def test_three_ranks_say_what_one_says_in_whatever_order_they_are_merged(make_gpt) -> None:
    gpt = make_gpt()
    batches = batches_of(gpt, bos=49, batch_size=2)
    whole = streamed(gpt, batches, n_sample=64, n_top=5)
    first, second, third = (streamed(gpt, batches[rank::3], n_sample=64, n_top=5) for rank in range(3))
    assert_same(merged_streams(merged_streams(first, second), third), whole)
    assert_same(merged_streams(third, merged_streams(second, first)), whole)
    assert_same(merged_streams(empty_stream(gpt, n_sample=64, n_top=5), whole), whole)


def test_random_and_decile_examples_do_not_depend_on_the_batch_size(make_gpt) -> None:
    gpt = make_gpt()
    small, large = (
        behaviour_of(gpt, corpus_of(gpt), windows_of(gpt, bos=None), bos=None, batch_size=size) for size in (1, 16)
    )
    for kind in ("random", "deciles", "top"):
        one, other = getattr(small, kind), getattr(large, kind)
        assert torch.equal(one.query, other.query)
        assert torch.equal(one.start, other.start)
        torch.testing.assert_close(one.value, other.value)
    assert torch.equal(small.random.query, small.random.query[:1, :1].expand_as(small.random.query))
    other = behaviour_of(gpt, corpus_of(gpt), windows_of(gpt, bos=None), bos=None, seed=1)
    assert not torch.equal(other.random.query, small.random.query)


def test_what_is_known_takes_the_same_memory_after_one_batch_and_after_many(make_gpt) -> None:
    gpt = make_gpt()
    batches = batches_of(gpt, bos=None, batch_size=2)

    def n_bytes(stream: HeadStream) -> int:
        own = [getattr(stream, field.name) for field in fields(stream) if field.name not in ("sample", "spare")]
        sample = (stream.sample.order, stream.sample.offsets, stream.sample.values)
        return sum(tensor.nbytes for tensor in (*own, *sample))

    first, later = (streamed(gpt, batches[:n], n_sample=16) for n in (1, len(batches)))
    assert n_bytes(first) == n_bytes(later)


def test_a_batch_that_fails_adds_nothing(make_gpt) -> None:
    gpt = make_gpt()
    batches = batches_of(gpt, bos=None)
    stream, expected = streamed(gpt, batches[:1]), streamed(gpt, batches[:1])

    def fail(x: Tensor, hook: object) -> None:
        raise RuntimeError("the machine is on fire")

    with pytest.raises(RuntimeError), gpt.hooks([("blocks.1.hook_resid_post", fail)]):
        stream_windows(gpt, *batches[1], stream)
    assert_same(stream, expected)
    assert not gpt.hooked


# --- ranks ------------------------------------------------------------------------------------------------------------


def all_written(gpt: GPT, batches: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Corpus offsets of all queries, and what every head writes at each, by keeping every one as a top example."""
    stream = streamed(gpt, batches, n_sample=10_000)
    return stream.sample.offsets, stream.sample.values


@pytest.mark.parametrize("n_sample", [64, 10_000])
def test_examples_have_the_rank_they_claim(make_gpt, n_sample: int) -> None:
    from interp.head_examples import decile_examples, random_examples, top_examples

    gpt = make_gpt()
    batches, windows = batches_of(gpt, bos=None), windows_of(gpt, bos=None)
    offsets, values = all_written(gpt, batches)
    stream = streamed(gpt, batches, n_sample=n_sample)
    less = (values[..., None] < values[..., None, :]).double().mean(2)  # [layer, head, query]: share that is smaller
    for examples in (decile_examples(stream, windows), random_examples(stream, windows, 8)):
        at = (offsets == examples.query[..., None]).int().argmax(-1)
        true = less.gather(-1, at).float()
        assert examples.present.all()
        assert (examples.rank_low <= true + 1e-6).all()
        assert (true <= examples.rank_high + 1e-6).all()
        assert (examples.rank - true).abs().max() < 0.05
        assert torch.equal(examples.value, values.gather(-1, at))
    if n_sample > len(offsets):
        tenths = (decile_examples(stream, windows).rank * 10).floor()
        assert torch.equal(tenths, torch.arange(10.0).expand_as(tenths))
    top = top_examples(stream, windows)
    torch.testing.assert_close(top.value, values.topk(8).values)
    torch.testing.assert_close(top.rank, less.gather(-1, values.topk(8).indices).float())
    starts, lengths = torch.from_numpy(windows.starts), torch.from_numpy(windows.lengths)
    ends = starts[torch.searchsorted(starts, top.start)] + lengths[torch.searchsorted(starts, top.start)]
    assert torch.isin(top.start, starts).all()
    assert ((top.start < top.query) & (top.query < ends)).all()


def test_where_queries_are_fewer_than_examples_the_rest_is_absent(make_gpt) -> None:
    gpt = make_gpt()
    found = behaviour_of(gpt, corpus_of(gpt), cut_windows([(0, 5)], 8), bos=None)
    assert found.n_queries == 3
    assert found.top.present.sum(-1).unique().tolist() == [3]
    assert found.deciles.present.sum(-1).unique().tolist() == [3]
    assert found.random.query.shape[-1] == 3
    assert found.top.value[..., 3:].isnan().all()
    assert (found.top.start[..., 3:] == -1).all()
    rows = example_rows(gpt, corpus_of(gpt), found.top, bos=None, heads=[(1, 2)])
    assert (rows.tokens[0, 3:] == -1).all()
    assert rows.next_token[0, 3:].tolist() == [-1] * 5


def test_bins_are_narrow_and_cover_everything() -> None:
    edges = bin_edges()
    assert torch.equal(bin_of(edges), torch.arange(1, N_BINS))
    assert torch.equal(bin_of(edges[1:] * (1 - 1e-6)), torch.arange(1, N_BINS - 1))
    assert (edges[1:] / edges[:-1] <= 1 + 1 / 64).all()
    assert bin_of(torch.tensor([0.0, -1.0, 1e-9, 1e9])).tolist() == [0, 0, 0, N_BINS - 1]


# --- planted heads ----------------------------------------------------------------------------------------------------

BOS, TRIGGER, FOLLOWER = 19, 7, 9


@pytest.fixture(scope="module")
def induction() -> tuple[np.ndarray, Windows, list[int]]:
    """Documents of distinct tokens; in every third, 7 9 stands early and 7 again at the end of the window, before 9."""
    generator, documents, triggers, at = np.random.default_rng(0), [], [], 0
    for number in range(30):
        tokens = generator.permutation(np.setdiff1d(np.arange(BOS), [TRIGGER, FOLLOWER]))[:10]
        if number % 3 == 0:
            tokens = np.concatenate([tokens[:2], [TRIGGER, FOLLOWER], tokens[2:], [TRIGGER, FOLLOWER]])
            triggers.append(at + len(tokens) - 2)
        documents.append(tokens)
        at += len(tokens)
    ends = np.cumsum([len(tokens) for tokens in documents])
    spans = [(int(end) - len(tokens), int(end)) for tokens, end in zip(documents, ends, strict=True)]
    return np.concatenate(documents), cut_windows(spans, planted.N_CTX - 1), triggers


@pytest.fixture(scope="module")
def behaviour(induction) -> HeadBehaviour:
    corpus, windows, triggers = induction
    return behaviour_of(planted.induction_model(), corpus, windows, bos=BOS, n_top=len(triggers))


def test_the_planted_previous_token_head_attends_one_back_and_nowhere_else(behaviour: HeadBehaviour) -> None:
    head = planted.PREVIOUS_HEAD
    first = behaviour.n_windows / behaviour.n_queries  # the first token of each window attends to BOS
    assert math.isclose(behaviour.position_zero[head], first, rel_tol=1e-6)
    expected = torch.zeros(planted.N_CTX)
    expected[1] = 1 - first
    torch.testing.assert_close(behaviour.distance[head], expected)
    torch.testing.assert_close(behaviour.distance_weighted[head], expected)
    assert behaviour.median_distance[head] == 1
    assert behaviour.entropy[head] == 0
    assert math.isclose(behaviour.written[head], 1, rel_tol=1e-6)


def test_heads_that_attend_evenly_are_as_even_attention(behaviour: HeadBehaviour) -> None:
    torch.testing.assert_close(behaviour.distance[0, 0], behaviour.even_distance)
    torch.testing.assert_close(behaviour.position_zero[0, 0], torch.tensor(behaviour.even_position_zero))
    torch.testing.assert_close(behaviour.entropy[0, 0], torch.tensor(behaviour.even_entropy))
    torch.testing.assert_close(behaviour.attended.lift[0, 0], torch.ones(10))
    assert behaviour.written[0, 0] == 0
    assert behaviour.position_zero_weighted[0, 0].isnan()
    assert (behaviour.query_tokens.token[0, 0] == -1).all()
    assert (behaviour.attended_weighted.token[0, 0] == -1).all()


def test_the_top_examples_of_the_planted_induction_head_are_the_planted_triggers(
    behaviour: HeadBehaviour, induction
) -> None:
    _, _, triggers = induction
    head = planted.INDUCTION_HEAD
    assert behaviour.top.query[head].tolist() == triggers  # of equals the first in the corpus comes first
    assert (behaviour.top.value[head] == 20).all()
    assert (behaviour.deciles.value[head][:-1] < 20).all()
    assert (behaviour.deciles.value[head].diff() >= 0).all()


def test_the_planted_induction_heads_tokens_are_the_trigger_and_what_follows_it(behaviour: HeadBehaviour) -> None:
    head = planted.INDUCTION_HEAD
    assert behaviour.attended_lift.token[head][0] == FOLLOWER
    assert behaviour.attended.token[head][0] == FOLLOWER
    assert behaviour.attended_weighted.token[head][0] == FOLLOWER
    assert behaviour.attended_lift.lift[head][0] > 1.4 > behaviour.attended_lift.lift[head][1]
    assert behaviour.query_tokens.count[head][behaviour.query_tokens.token[head] == TRIGGER].tolist() == [20]


def test_rows_of_the_planted_triggers_are_exact_in_every_basis(behaviour: HeadBehaviour, induction) -> None:
    corpus, _, triggers = induction
    heads = [planted.INDUCTION_HEAD, planted.PREVIOUS_HEAD, (1, 0)]
    rows = example_rows(planted.induction_model(), corpus, behaviour.top, bos=BOS, heads=heads, batch_size=4)
    assert rows.heads.tolist() == [list(head) for head in heads]
    assert (rows.next_token[0] == FOLLOWER).all()
    for example in range(len(triggers)):
        tokens = rows.tokens[0, example].tolist()
        n = tokens.index(-1) if -1 in tokens else len(tokens)
        assert (tokens[0], tokens[n - 1]) == (BOS, TRIGGER)
        target = torch.eye(len(tokens))[tokens.index(FOLLOWER)]
        torch.testing.assert_close(rows.raw[0, example], target)
        torch.testing.assert_close(rows.weighted[0, example], 20 * target)
        torch.testing.assert_close(rows.signed[0, example], (20 - 20 / planted.D_VOCAB) * target)
    assert (rows.weighted[2] == 0).all()
    assert (rows.value_bias == 0).all()


def test_rare_tokens_are_shrunk_to_what_the_head_does_on_average(make_gpt) -> None:
    """A token met once counts for little: its mean is one part its own, ten parts the head's."""
    gpt = make_gpt()
    stream = streamed(gpt, batches_of(gpt, bos=49))
    found = behaviour_of(gpt, corpus_of(gpt), windows_of(gpt, bos=49), bos=49, n_listed=50, batch_size=4)
    token, count = found.query_tokens.token[1, 2], found.query_tokens.count[1, 2]
    assert torch.equal(count[token >= 0], stream.n_token[token[token >= 0]])
    average = stream.written[:, 1, 2].sum() / stream.n_queries
    for rank in (0, 10, 40):
        own = stream.written[token[rank], 1, 2] / count[rank]
        shrunk = (own * count[rank] + average * SHRINKAGE) / (count[rank] + SHRINKAGE)
        torch.testing.assert_close(found.query_tokens.mean[1, 2, rank].double(), shrunk, rtol=1e-6, atol=0)
    assert (found.query_tokens.mean[..., :-1] >= found.query_tokens.mean[..., 1:])[
        found.query_tokens.token[..., 1:] >= 0
    ].all()


# --- rows, refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SEVERAL.values(), ids=SEVERAL)
def test_rows_of_examples_are_those_of_the_whole_window(make_gpt, settings: dict) -> None:
    from interp.attention_bases import next_tokens, signed_attention, weighted_attention

    gpt = make_gpt(**settings)
    corpus, windows = corpus_of(gpt), windows_of(gpt, bos=49)
    found = behaviour_of(gpt, corpus, windows, bos=49, n_top=2)
    rows = example_rows(gpt, corpus, found.top, bos=49, heads=[(1, 3), (0, 1)])
    for row, (layer, index) in enumerate(rows.heads.tolist()):
        for example in range(2):
            start, query = int(found.top.start[layer, index, example]), int(found.top.query[layer, index, example])
            window = torch.tensor([[49, *corpus[start : query + 3].tolist()]])[:, : gpt.config.n_ctx]
            at = query - start + 1
            assert rows.tokens[row, example, : at + 1].tolist() == window[0, : at + 1].tolist()
            expected = weighted_attention(gpt, window, layer)
            for name in ("raw", "weighted"):
                whole = getattr(expected, name)[0, index, at, : at + 1]
                torch.testing.assert_close(getattr(rows, name)[row, example, : at + 1], whole, rtol=1e-4, atol=1e-6)
            if not gpt.config.additive_stream:
                assert rows.signed.isnan().all()
                assert rows.value_bias.isnan().all()
                continue
            targets = next_tokens(window, after=0)
            targets[0, at] = int(rows.next_token[row, example])
            signed = signed_attention(gpt, window, layer, targets)
            whole = signed.contribution[0, index, at, : at + 1]
            torch.testing.assert_close(rows.signed[row, example, : at + 1], whole, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(
                rows.value_bias[row, example], signed.value_bias[0, index, at], rtol=1e-4, atol=1e-5
            )


def test_reading_leaves_no_hook_and_no_change(make_gpt, tokens: Tensor) -> None:
    gpt = make_gpt()
    clean = gpt(tokens)
    found = behaviour_of(gpt, corpus_of(gpt), windows_of(gpt, bos=None), bos=None)
    example_rows(gpt, corpus_of(gpt), found.random, bos=None)
    assert not gpt.hooked
    assert torch.equal(gpt(tokens), clean)


def test_models_and_requests_without_meaning_are_refused(make_gpt) -> None:
    gpt = make_gpt()
    corpus, windows = corpus_of(gpt), windows_of(gpt, bos=None)
    with pytest.raises(InputError, match="bidirectional model attends to later tokens"):
        behaviour_of(make_gpt(attention="bidirectional"), corpus, windows, bos=None)
    with pytest.raises(InputError, match="dropout=0.1"):
        behaviour_of(make_gpt(dropout=0.1).train(), corpus, windows, bos=None)
    with pytest.raises(InputError, match="n_top=0 keeps no example"):
        behaviour_of(gpt, corpus, windows, bos=None, n_top=0)
    with pytest.raises(InputError, match="No window holds two tokens"):
        behaviour_of(gpt, corpus, cut_windows([(0, 9)], 1), bos=None)
    with pytest.raises(InputError, match="windows are not in rising order"):
        behaviour_of(gpt, corpus, cut_windows([(90, 120), (0, 50)], 24), bos=None)
    found = behaviour_of(gpt, corpus, windows, bos=None)
    with pytest.raises(InputError, match="L2H0 has no examples here; they are of 2 layers with 4 heads"):
        example_rows(gpt, corpus, found.top, bos=None, heads=[(2, 0)])


def test_long_contexts_are_read_fewer_windows_at_once(make_gpt) -> None:
    config = make_gpt().config
    assert fitting_batch(config, 64) == 64
    assert [fitting_batch(config.varied(n_ctx=n), 64) for n in (256, 1024, 4096)] == [30, 1, 1]


def test_progress_is_told(make_gpt) -> None:
    gpt, seen = make_gpt(), []
    behaviour_of(
        gpt, corpus_of(gpt), windows_of(gpt, bos=None), bos=None, batch_size=8, progress=lambda *at: seen.append(at)
    )
    assert seen == [(0, 3), (1, 3), (2, 3)]
