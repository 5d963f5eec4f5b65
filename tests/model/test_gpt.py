"""The forward pass: what it computes, what it never leaks, what it refuses."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model import GPT, Norm, Positions
from model.errors import InputError
from tests.model.variants import ALL, PLACEMENTS, POSITIONS, name_of

MakeGPT = Callable[..., GPT]


@pytest.mark.parametrize("variant", ALL, ids=name_of)
def test_fused_and_explicit_attention_agree(make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any]) -> None:
    gpt = make_gpt(**variant).double()
    with gpt.explicit_attention():
        explicit = gpt(tokens)
    torch.testing.assert_close(gpt(tokens), explicit, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gpt.float()(tokens).double(), explicit, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", [*PLACEMENTS, *POSITIONS], ids=name_of)
@pytest.mark.parametrize("explicit", [False, True])
def test_a_future_token_changes_no_earlier_logit_bit(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], explicit: bool
) -> None:
    gpt, other = make_gpt(**variant), tokens.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 50
    run = gpt if not explicit else lambda t: gpt.run_with_cache(t)[0]
    assert torch.equal(run(tokens)[:, :7], run(other)[:, :7])
    assert not torch.equal(run(tokens)[:, 7:], run(other)[:, 7:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_attention_equals_a_loop_over_heads(
    make_gpt: MakeGPT, tokens: Tensor, dtype: torch.dtype, n_kv_heads: int
) -> None:
    """The definition, written out: softmax(q k^T / sqrt(d_head)) v W_O, one head and one query at a time."""
    gpt = make_gpt(positions="none", n_kv_heads=n_kv_heads, biases=True).to(dtype)
    _, cache = gpt.run_with_cache(tokens, names_filter=["blocks.0.ln1.hook_out", "blocks.0.hook_attn_out"])
    x, W_Q, W_K, W_V, W_O = cache["blocks.0.ln1.hook_out"], gpt.W_Q[0], gpt.W_K[0], gpt.W_V[0], gpt.W_O[0]
    expected = gpt.b_O[0].expand_as(x).clone()
    for head in range(4):
        q, k = x @ W_Q[head] + gpt.b_Q[0, head], x @ W_K[head] + gpt.b_K[0, head]
        v = x @ W_V[head] + gpt.b_V[0, head]
        for query in range(x.shape[1]):
            scores = (q[:, query, None] * k[:, : query + 1]).sum(-1) / math.sqrt(8)
            z = (scores.softmax(-1)[..., None] * v[:, : query + 1]).sum(1)
            expected[:, query] += z @ W_O[head]
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(cache["attn_out", 0], expected, rtol=tolerance * 10, atol=tolerance * 2)


def test_attention_equals_torchs_own(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(positions="rope")
    names = [f"blocks.1.attn.hook_{name}" for name in ("rot_q", "rot_k", "v", "z")]
    _, cache = gpt.run_with_cache(tokens, names_filter=names)
    q, k, v = (cache[name].transpose(1, 2) for name in names[:3])
    torch.testing.assert_close(cache["z", 1].transpose(1, 2), F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("norm", Norm)
def test_the_placements_are_the_equations_of_the_papers(make_gpt: MakeGPT, tokens: Tensor, norm: Norm) -> None:
    gpt = make_gpt(norm=norm, n_layers=3).double()
    _, cache = gpt.run_with_cache(tokens)
    alpha = (2 * 3) ** 0.25
    on_sum, on_output = norm in (Norm.POST, Norm.DEEPNORM), norm in (Norm.SANDWICH, Norm.REORDERED)
    for layer, block in enumerate(gpt.layers):
        halves = [
            ("resid_pre", "attn_out", "resid_mid", "ln1", "attn.hook_z", block.attn.o_proj),
            ("resid_mid", "mlp_out", "resid_post", "ln2", "mlp.hook_post", block.mlp.out_proj),
        ]
        for before, added, after, ln, inside, write in halves:
            x, out = cache[before, layer], cache[added, layer]
            total = (alpha * x if norm is Norm.DEEPNORM else x) + out
            torch.testing.assert_close(cache[after, layer], getattr(block, ln)(total) if on_sum else total)
            raw = write(cache[f"blocks.{layer}.{inside}"].flatten(2))
            torch.testing.assert_close(out, getattr(block, f"{ln}_post")(raw) if on_output else raw)
            if norm in (Norm.PRE, Norm.SCALED, Norm.SANDWICH):
                shrink = math.sqrt(layer + 1) if norm is Norm.SCALED else 1
                whole = cache["normalized", layer, ln] * getattr(block, ln).w
                torch.testing.assert_close(cache["out", layer, ln], whole / shrink)
                torch.testing.assert_close(cache["normalized", layer, ln], x / cache["scale", layer, ln])
        if layer + 1 < len(gpt.layers):
            assert torch.equal(cache["resid_post", layer], cache["resid_pre", layer + 1])


def test_pre_and_post_twins_share_weights_but_not_the_function(make_gpt: MakeGPT, tokens: Tensor) -> None:
    pre, post = (GPT(make_gpt().config.varied(norm=norm)) for norm in ("pre", "post"))
    shared = dict(post.named_parameters())
    assert all(torch.equal(parameter, shared[name]) for name, parameter in pre.named_parameters() if name in shared)
    assert (pre(tokens) - post(tokens)).abs().max() > 1e-2


def test_without_skips_only_what_was_written_goes_on(make_gpt: MakeGPT, tokens: Tensor) -> None:
    _, cache = make_gpt(skip_connections=False).run_with_cache(tokens)
    assert torch.equal(cache["resid_mid", 0], cache["attn_out", 0])


def test_dropout_acts_in_training_only(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(dropout=0.5)
    assert torch.equal(gpt(tokens), gpt(tokens))
    gpt.train()
    assert not torch.equal(gpt(tokens), gpt(tokens))


@pytest.mark.parametrize("d_head", [16, 64, 256])
def test_scaling_by_the_root_of_d_head_keeps_the_variance_of_scores_at_one(make_gpt: MakeGPT, d_head: int) -> None:
    """For queries and keys of unit variance: without the scale the variance of q.k is d_head (Vaswani et al. 2017)."""
    gpt, generator = make_gpt(n_heads=1, d_head=d_head, n_ctx=600, positions="none"), torch.Generator().manual_seed(0)
    unit = [
        (f"blocks.0.attn.hook_{part}", lambda x, hook: torch.randn(x.shape, generator=generator)) for part in ("q", "k")
    ]
    with gpt.hooks(unit):
        _, cache = gpt.run_with_cache(
            torch.zeros(1, 600, dtype=torch.long), [f"blocks.0.attn.hook_{part}" for part in ("q", "k", "attn_scores")]
        )
    products = torch.einsum("bqhe,bkhe->bhqk", cache["q", 0], cache["k", 0])
    scores = cache["attn_scores", 0][0, 0]
    assert products.var().item() == pytest.approx(d_head, rel=0.05)
    assert scores[scores.isfinite()].var().item() == pytest.approx(1, rel=0.05)


# --- padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [*POSITIONS, *PLACEMENTS[::2], {"smeared_keys": True}], ids=name_of)
@pytest.mark.parametrize("explicit", [False, True])
def test_left_padding_changes_nothing(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], explicit: bool
) -> None:
    gpt = make_gpt(**variant)
    padded = torch.cat((torch.zeros(3, 5, dtype=torch.long), tokens), dim=1)
    mask = torch.arange(17).expand(3, -1) >= 5
    run = gpt if not explicit else lambda t, m=None: gpt.run_with_cache(t, attention_mask=m)[0]
    torch.testing.assert_close(run(padded, mask)[:, 5:], run(tokens), rtol=1e-4, atol=1e-4)
    assert gpt.loss(padded, mask).item() == pytest.approx(gpt.loss(tokens).item(), abs=1e-5)


def test_a_wholly_masked_row_is_zero_and_its_gradient_finite(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt, mask = make_gpt(), torch.arange(12).expand(3, -1) >= 3
    for names in (None, "blocks.0.hook_resid_post"):  # explicit, then fused
        gpt.zero_grad()
        logits, cache = gpt.run_with_cache(tokens, names, attention_mask=mask)
        logits[:, 3:].sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in gpt.parameters())
        assert logits.isfinite().all()
        if names is None:
            assert (cache["pattern", 0][:, :, :3] == 0).all()
            assert cache["pattern", 0][:, :, 3:].sum(-1).allclose(torch.ones(()))
            assert (cache["z", 0][:, :3] == 0).all()


def test_masked_scores_are_minus_infinity(tiny: GPT, tokens: Tensor) -> None:
    _, cache = tiny.run_with_cache(tokens, "blocks.0.attn.hook_attn_scores")
    future = torch.ones(12, 12, dtype=torch.bool).triu(1)
    assert torch.equal(cache["attn_scores", 0].isneginf(), future.expand(3, 4, -1, -1))


def test_where_nothing_is_predicted_there_is_no_loss(tiny: GPT, tokens: Tensor) -> None:
    with pytest.raises(InputError, match="no next token to predict here"):
        tiny.loss(tokens[:, :1])
    with pytest.raises(InputError, match="no next token to predict here"):
        tiny.loss(tokens, torch.zeros(3, 12, dtype=torch.bool))


def test_a_bidirectional_model_sees_both_ways_and_predicts_nothing(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(attention="bidirectional")
    _, cache = gpt.run_with_cache(tokens)
    assert (cache["pattern", 0] > 0).all()
    with pytest.raises(InputError, match="bidirectional model sees the next token"):
        gpt.loss(tokens)
    with pytest.raises(InputError, match="bidirectional model cannot generate"):
        gpt.generate(tokens, max_new_tokens=1)


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", Positions)
def test_bfloat16_stays_near_float32(make_gpt: MakeGPT, tokens: Tensor, positions: Positions) -> None:
    gpt = make_gpt(positions=positions)
    exact = gpt(tokens)
    rough, cache = gpt.to(torch.bfloat16).run_with_cache(tokens)
    assert cache["pattern", 0].dtype is torch.float32
    assert (rough.float() - exact).abs().max() < 0.05 * exact.abs().max()


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (torch.tensor([[0, 50]]), r"token id 50 is outside this model's vocabulary of 50 \(0 to 49\)"),
        (torch.tensor([[-1, 3]]), "token id -1 is outside"),
        (torch.zeros(1, 25, dtype=torch.long), "25 positions exceed this model's n_ctx=24"),
        (torch.zeros(5, dtype=torch.long), r"shape \[batch, pos\], not empty; got torch.int64 of shape \(5,\)"),
        (torch.zeros(1, 0, dtype=torch.long), "not empty"),
    ],
)
def test_wrong_tokens_are_refused_in_a_sentence(tiny: GPT, wrong: Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tiny(wrong)


def test_a_mask_of_the_wrong_shape_is_refused(tiny: GPT, tokens: Tensor) -> None:
    with pytest.raises(InputError, match=r"attention_mask has shape \(3, 11\); it must cover \(3, 12\)"):
        tiny(tokens, torch.ones(3, 11))


# --- isolation --------------------------------------------------------------------------------------------------------


def test_two_threads_never_meet_each_others_hooks(tiny: GPT, tokens: Tensor) -> None:
    clean, seen = tiny(tokens), {}
    entered, looked = threading.Event(), threading.Event()

    def other() -> None:
        entered.wait(60)
        seen["other"] = tiny(tokens)
        looked.set()

    thread = threading.Thread(target=other)
    thread.start()
    with tiny.hooks([("blocks.0.hook_resid_pre", lambda x, hook: x * 0)]):
        entered.set()
        looked.wait(60)
        seen["mine"] = tiny(tokens)
    thread.join(60)
    assert torch.equal(seen["other"], clean)
    assert not torch.equal(seen["mine"], clean)


def test_a_name_out_of_another_toolkit_is_answered_with_ours(tiny: GPT) -> None:
    with pytest.raises(AttributeError, match=r"a GPT has no cfg; what you look for is gpt\.config\."):
        _ = tiny.cfg
    assert not hasattr(tiny, "to_tokens")
    _, cache = tiny.run_with_cache(torch.tensor([[1, 2]]), "hook_embed")
    with pytest.raises(AttributeError, match=r"a cache has no remove_batch_dim; .* cache\.without_batch\(\)\."):
        cache.remove_batch_dim()
    with pytest.raises(AttributeError, match="nonsense"):
        _ = tiny.nonsense
