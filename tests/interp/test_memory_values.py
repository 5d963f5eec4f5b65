"""Values are read as the tokens that were planted, and as a plain reading of every score says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp import memory_values
from interp.memory_values import fitting_memories, folded_keys, random_coverage, read_values, value_scores
from interp.null_models import dealt_orders
from interp.token_concepts import concept_coverage, concept_table
from model.errors import InputError
from tests import planted


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


def none_asked(gpt) -> Tensor:
    return torch.full((gpt.config.ffn_width, 0), -1)


@pytest.mark.parametrize(("norm", "ffn"), [("pre", "relu"), ("post", "gelu"), ("sandwich", "swiglu")])
def test_what_is_read_of_values_is_what_all_their_scores_say(make_gpt, norm: str, ffn: str) -> None:
    gpt = make_gpt(norm=norm, ffn=ffn)
    scores = value_scores(gpt, 1).double()
    asked = torch.randint(-1, scores.shape[1], (len(scores), 3), generator=torch.Generator().manual_seed(0))
    table = concept_table([bytes([token % 256]) for token in range(scores.shape[1])])
    read = read_values(gpt, 1, n_promoted=5, asked=asked, concepts=table)
    order = scores.sort(dim=1, descending=True).indices
    assert torch.equal(read.promoted, order[:, :5].int())
    assert torch.equal(read.suppressed, order.flip(1)[:, :5].int())
    torch.testing.assert_close(read.promoted_score, scores.gather(1, order[:, :5]).float())
    torch.testing.assert_close(read.suppressed_score, scores.gather(1, order.flip(1)[:, :5]).float())
    torch.testing.assert_close(read.confidence, scores.softmax(1).amax(1).float(), rtol=1e-4, atol=0)
    standard = (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True, correction=0)
    torch.testing.assert_close(read.skew, (standard**3).mean(1).float(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(read.kurtosis, ((standard**4).mean(1) - 3).float(), rtol=1e-3, atol=1e-3)
    above = (scores[:, None, :] > scores.gather(1, asked.clamp_min(0))[:, :, None]).sum(-1)
    assert torch.equal(read.asked_rank, torch.where(asked < 0, -1, above).int())
    assert read.concept is not None
    assert torch.equal(read.concept.covered, concept_coverage(order, table).covered)


def test_groups_of_memories_are_read_as_all_at_once(make_gpt, monkeypatch: pytest.MonkeyPatch) -> None:
    gpt = make_gpt(norm="sandwich", ffn="swiglu")
    table = concept_table([bytes([token % 256]) for token in range(gpt.config.d_vocab)])
    whole = read_values(gpt, 0, n_promoted=4, asked=none_asked(gpt), concepts=table)
    random = random_coverage(gpt, 0, table, n=40, seed=1)
    monkeypatch.setattr(memory_values, "_SCORES", 5 * gpt.config.d_vocab)
    parts = read_values(gpt, 0, n_promoted=4, asked=none_asked(gpt), concepts=table)
    assert torch.equal(parts.promoted, whole.promoted)
    torch.testing.assert_close(parts.kurtosis, whole.kurtosis, rtol=1e-4, atol=1e-4)
    assert whole.concept is not None
    assert parts.concept is not None
    assert torch.equal(parts.concept.concept, whole.concept.concept)
    assert torch.equal(random_coverage(gpt, 0, table, n=40, seed=1).concept, random.concept)


def test_dealt_values_are_read_in_their_new_places_beside_the_keys_that_stayed(make_gpt) -> None:
    gpt = make_gpt(ffn="relu")
    order = dealt_orders(gpt, seed=3)[1]
    own, dealt = (read_values(gpt, 1, n_promoted=3, asked=none_asked(gpt), order=each) for each in (None, order))
    assert torch.equal(dealt.promoted, own.promoted[order])
    assert torch.equal(dealt.norm, own.norm[order])
    assert torch.equal(dealt.key_norm, own.key_norm)
    keys, values = folded_keys(gpt, 1)[0], gpt.layers[1].mlp.W_out[order].double()
    if gpt.layers[1].ln2.centres:
        values = values - values.mean(-1, keepdim=True)
    torch.testing.assert_close(dealt.key_value_cosine, torch.cosine_similarity(keys, values, dim=-1).float())


@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("norm", ["pre", "scaled", "sandwich", "reordered", "post"])
def test_folded_keys_read_the_stream_over_its_scale(make_gpt, tokens: Tensor, norm: str, norm_kind: str) -> None:
    """The difference of `hook_pre` at two positions, which no bias is in, is that of what the keys read."""
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, ffn="swiglu").double()
    _, cache = gpt.run_with_cache(tokens)
    stream = cache["resid_mid", 1]
    reads = norm in ("pre", "scaled", "sandwich")
    stream = stream / cache["blocks.1.ln2.hook_scale"] if reads else stream
    gate, linear = folded_keys(gpt, 1)
    assert linear is not None
    for keys, name in ((gate, "hook_pre"), (linear, "hook_pre_linear")):
        read, pre = stream @ keys.T, cache[f"blocks.1.mlp.{name}"]
        torch.testing.assert_close(read[:, 1:] - read[:, :1], pre[:, 1:] - pre[:, :1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", ["pre", "sandwich", "reordered", "post"])
def test_a_memory_that_takes_away_what_fires_it_has_cosine_minus_one(make_gpt, norm: str) -> None:
    """The value is planted so that what reaches the stream, through an output norm, is minus the folded key."""
    gpt = make_gpt(norm=norm, norm_kind="rmsnorm", ffn="gelu")
    block = gpt.layers[0]
    key = folded_keys(gpt, 0)[0][4]
    through = torch.ones_like(key) if block.ln2_post is None else block.ln2_post.w.detach().double()
    with torch.no_grad():
        block.mlp.W_out[4] = (-2 * key / through).float()
        block.mlp.W_out[5] = 0.0
    read = read_values(gpt, 0, n_promoted=1, asked=none_asked(gpt))
    assert float(read.key_value_cosine[4]) == pytest.approx(-1, abs=1e-5)
    assert float(read.norm[4]) == pytest.approx(2 * float(read.key_norm[4]), rel=1e-5)
    assert read.key_value_cosine[5].isnan()
    assert read.kurtosis[5].isnan()
    assert read.linear_value_cosine.isnan().all()
    assert read.key_value_cosine[6:].abs().max() < 0.9


def test_a_layer_without_an_ffn_has_no_values(make_gpt) -> None:
    gpt = make_gpt(ffn="none")
    with pytest.raises(InputError, match="attention-only"):
        read_values(gpt, 0, n_promoted=1, asked=torch.zeros(0, 0, dtype=torch.int64))
    with pytest.raises(InputError, match="n=0 random directions are no control"):
        random_coverage(make_gpt(), 0, concept_table([b"a"]), n=0, seed=0)


def test_random_directions_depend_on_their_seed_alone(make_gpt) -> None:
    gpt, other = make_gpt(), make_gpt(seed=1)
    table = concept_table([bytes([token % 256]) for token in range(gpt.config.d_vocab)])
    one, again, second = (random_coverage(gpt, 0, table, n=64, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.p, again.p)
    assert not torch.equal(one.p, second.p)
    assert not torch.equal(one.p, random_coverage(other, 0, table, n=64, seed=0).p)  # read through its unembedding
