"""The three bases of attention against direct logit attribution, plain algebra, and a planted head."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.attention_bases import (
    Against,
    lengths_written,
    next_tokens,
    output_factors,
    signed_attention,
    value_bias,
    weighted_attention,
    without_value_bias,
)
from interp.attribution import logit_attribution
from interp.folding import folded_heads
from interp.places import head
from model.errors import ConfigError, InputError, NotAdditiveError
from tests import planted
from tests.rewritten import bias_of_ln1_moved

ADDITIVE = {
    "plain": {},
    "layernorm, biases, learned positions": {"norm_kind": "layernorm", "biases": True, "positions": "learned"},
    "grouped heads, biases": {"n_kv_heads": 2, "biases": True},
    "sandwich": {"norm": "sandwich", "norm_kind": "layernorm", "biases": True},
    "reordered": {"norm": "reordered"},
    "scaled, untied, alibi": {"norm": "scaled", "tie_embeddings": False, "positions": "alibi"},
    "no norm, attention-only": {"norm": "none", "ffn": "none", "embed_std": 0.1},
    "normed queries and keys": {"qk_norm": True},
    "bidirectional": {"attention": "bidirectional"},
}
OTHERS = {
    "post": {"norm": "post", "biases": True},
    "deepnorm": {"norm": "deepnorm"},
    "no skip": {"skip_connections": False},
}


@pytest.mark.parametrize("settings", ADDITIVE.values(), ids=ADDITIVE)
def test_signed_contributions_and_the_value_bias_sum_to_the_heads_logit_attribution(
    make_gpt, tokens: Tensor, settings: dict
) -> None:
    gpt = make_gpt(**settings).double()
    targets = next_tokens(tokens, after=3)
    expected = logit_attribution(gpt, tokens, targets)
    for layer in range(2):
        found = signed_attention(gpt, tokens, layer, targets, Against.NOTHING)
        total = found.contribution.sum(-1) + found.value_bias
        for index in range(gpt.config.n_heads):
            torch.testing.assert_close(total[:, index], expected.of(head(layer, index).label), rtol=1e-9, atol=1e-11)
        assert set(found.frozen) <= set(expected.frozen)


def test_against_the_mean_every_tokens_contributions_sum_to_zero(make_gpt, tokens: Tensor) -> None:
    gpt, tokens = make_gpt(biases=True, d_vocab=12).double(), tokens % 12
    every = [signed_attention(gpt, tokens, 1, token) for token in range(gpt.config.d_vocab)]
    torch.testing.assert_close(sum(each.contribution for each in every), torch.zeros_like(every[0].contribution))
    torch.testing.assert_close(sum(each.value_bias for each in every), torch.zeros_like(every[0].value_bias))
    raised, plain = (signed_attention(gpt, tokens, 1, token, "nothing").contribution for token in (5, 9))
    torch.testing.assert_close(every[5].contribution - every[9].contribution, raised - plain)


@pytest.mark.parametrize("settings", (ADDITIVE | OTHERS).values(), ids=ADDITIVE | OTHERS)
def test_value_weighted_attention_is_the_length_of_what_each_key_sends_under_every_placement(
    make_gpt, tokens: Tensor, settings: dict
) -> None:
    gpt = make_gpt(**settings).double()
    _, cache = gpt.run_with_cache(tokens, ["blocks.1.attn.hook_pattern", "blocks.1.attn.hook_v"])
    found = weighted_attention(gpt, tokens, 1)
    assert torch.equal(found.raw, cache["pattern", 1])
    constant = folded_heads(gpt).b_V[1]
    for index in range(gpt.config.n_heads):
        shared = index // (gpt.config.n_heads // gpt.config.kv_heads)
        sent = ((cache["v", 1][:, :, shared] - constant[index]) @ gpt.W_O[1, index]).norm(dim=-1)
        torch.testing.assert_close(found.weighted[:, index], cache["pattern", 1][:, index] * sent[:, None])


def test_what_keys_send_and_the_value_bias_are_the_heads_result(make_gpt, tokens: Tensor) -> None:
    gpt = make_gpt(biases=True, n_kv_heads=2).double()
    _, cache = gpt.run_with_cache(tokens, ["blocks.0.attn.hook_result", "blocks.0.attn.hook_z"])
    attention, bias = gpt.layers[0].attn, value_bias(gpt, 0)
    constant = torch.einsum("he,hed->hd", bias, attention.W_O)
    lengths = lengths_written(without_value_bias(cache["z", 0], bias), output_factors(attention))
    torch.testing.assert_close(lengths, (cache["result", 0] - constant).norm(dim=-1))


@pytest.mark.parametrize("norm", ["pre", "scaled", "sandwich"])
def test_nothing_depends_on_which_bias_holds_a_constant(make_gpt, tokens: Tensor, norm: str) -> None:
    """The bias of ln1 moved into those of the projections: the same model, written down otherwise."""
    gpt = make_gpt(norm=norm, norm_kind="layernorm", biases=True, n_kv_heads=2).double()
    other = bias_of_ln1_moved(gpt)
    torch.testing.assert_close(other(tokens), gpt(tokens), rtol=1e-10, atol=1e-12)
    targets = next_tokens(tokens, after=3)
    for layer in range(2):
        moved = [weighted_attention(each, tokens, layer).weighted for each in (gpt, other)]
        torch.testing.assert_close(*moved, rtol=1e-10, atol=1e-12)
        signed = [signed_attention(each, tokens, layer, targets) for each in (gpt, other)]
        torch.testing.assert_close(*(each.contribution for each in signed), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(*(each.value_bias for each in signed), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(value_bias(gpt, layer), folded_heads(gpt).b_V[layer], rtol=1e-12, atol=1e-14)


def test_the_planted_induction_head_moves_its_target_and_lifts_its_logit() -> None:
    gpt = planted.induction_model()
    tokens = torch.tensor([[0, 7, 9, 4, 5, 7]])
    layer, index = planted.INDUCTION_HEAD
    weighted = weighted_attention(gpt, tokens, layer)
    assert weighted.raw[0, index, 5].tolist() == [0, 0, 1, 0, 0, 0]
    assert weighted.weighted[0, index, 5].tolist() == [0, 0, 20, 0, 0, 0]
    signed = signed_attention(gpt, tokens, layer, 9).contribution[0, index, 5]
    torch.testing.assert_close(signed, torch.tensor([0, 0, 20 - 20 / planted.D_VOCAB, 0, 0, 0]))
    assert (weighted.weighted[0, [0, 1, 3]] == 0).all()


@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_where_the_stream_is_no_sum_nothing_is_added_to_a_logit_by_itself(
    make_gpt, tokens: Tensor, settings: dict
) -> None:
    with pytest.raises(NotAdditiveError, match="signed attention .* needs a residual stream that is a sum"):
        signed_attention(make_gpt(**settings), tokens, 0, 3)


def test_a_layer_that_is_not_there_and_active_dropout_are_refused(tiny, make_gpt, tokens: Tensor) -> None:
    with pytest.raises(InputError, match="layer=2 is not a layer of this model; layers run from 0 to 1"):
        weighted_attention(tiny, tokens, 2)
    with pytest.raises(InputError, match="dropout=0.1"):
        signed_attention(make_gpt(dropout=0.1).train(), tokens, 0, 3)
    with pytest.raises(ConfigError, match='against="median" is not one of mean, nothing'):
        signed_attention(tiny, tokens, 0, 3, "median")
