"""What goes wrong with hooks and caches elsewhere, and does not here (docs/known-pitfalls.md).

Each test is named for the right behaviour. Rows whose proof is a test of a part stand in that part's own file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, GPTConfig, Hook, KeyValueCache, Norm
from model.errors import ConfigError
from model.sites import ON_DEMAND

MakeGPT = Callable[..., GPT]
SCORES, PATTERN, RESULT = (f"blocks.1.attn.hook_{name}" for name in ("attn_scores", "pattern", "result"))


# --- scores, patterns, heads ------------------------------------------------------------------------------------------


def test_cached_scores_are_the_scores_and_their_softmax_is_the_pattern(tiny: GPT, tokens: Tensor) -> None:
    _, cache = tiny.run_with_cache(tokens, [SCORES, PATTERN])
    scores, pattern = cache[SCORES], cache[PATTERN]
    visible = torch.ones(12, 12).tril().bool()
    assert scores[..., ~visible].isneginf().all()
    assert scores[..., visible].min() < 0
    assert (scores - pattern)[..., visible].abs().max() > 0.1
    torch.testing.assert_close(scores.softmax(-1), pattern)


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_rotated_queries_and_keys_give_the_scores(make_gpt: MakeGPT, tokens: Tensor, n_kv_heads: int) -> None:
    gpt = make_gpt(n_kv_heads=n_kv_heads)
    _, cache = gpt.run_with_cache(tokens)
    q, k = (cache[f"blocks.1.attn.hook_rot_{part}"] for part in ("q", "k"))
    expected = torch.einsum("bqhe,bkhe->bhqk", q, k.repeat_interleave(4 // n_kv_heads, dim=2)) / math.sqrt(8)
    visible = torch.ones(12, 12).tril().bool()
    torch.testing.assert_close(cache[SCORES][..., visible], expected[..., visible])
    unrotated = torch.einsum(
        "bqhe,bkhe->bhqk", cache["q", 1], cache["k", 1].repeat_interleave(4 // n_kv_heads, dim=2)
    ) / math.sqrt(8)
    assert (cache[SCORES] - unrotated)[..., visible].abs().max() > 0.1


@pytest.mark.parametrize("in_place", [True, False])
def test_an_edit_of_the_scores_makes_another_pattern_and_other_logits(
    tiny: GPT, tokens: Tensor, in_place: bool
) -> None:
    def forbid_the_first_key(scores: Tensor, hook: Hook) -> Tensor | None:
        if in_place:
            scores[..., 1:, 0] = -torch.inf
            return None
        return torch.cat((scores[..., :1].where(torch.arange(12)[:, None] == 0, -torch.inf), scores[..., 1:]), dim=-1)

    _, clean = tiny.run_with_cache(tokens)
    with tiny.hooks([(SCORES, forbid_the_first_key)]):
        logits, edited = tiny.run_with_cache(tokens)
    expected = clean[SCORES].clone()
    expected[..., 1:, 0] = -torch.inf
    torch.testing.assert_close(edited[PATTERN], expected.softmax(-1))
    assert (logits - clean["logits"]).abs().max() > 1e-2


def test_a_pattern_set_to_uniform_gives_the_mean_of_the_values(tiny: GPT, tokens: Tensor) -> None:
    uniform = torch.ones(12, 12).tril() / torch.arange(1, 13)[:, None]
    with tiny.hooks([(PATTERN, lambda x, hook: uniform.expand_as(x))]):
        _, cache = tiny.run_with_cache(tokens)
    means = cache["v", 1].cumsum(1) / torch.arange(1, 13)[:, None, None]
    torch.testing.assert_close(cache["z", 1], means)


def test_every_on_demand_place_is_there_as_soon_as_it_is_named(tiny: GPT, tokens: Tensor) -> None:
    """No switch has to be thrown first, and no request for one comes back empty."""
    for tap in ON_DEMAND:
        for layer in range(2):
            name = str(tap.at(layer))
            assert list(tiny.run_with_cache(tokens, name)[1]) == [name]
            assert not torch.equal(tiny.run_with_hooks(tokens, [(name, lambda x, hook: x * 0)]), tiny(tokens))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_results_of_heads_work_in_every_number_format(make_gpt: MakeGPT, tokens: Tensor, dtype: torch.dtype) -> None:
    gpt = make_gpt(biases=True).to(dtype)
    _, cache = gpt.run_with_cache(tokens, [RESULT, "blocks.1.hook_attn_out"])
    total = cache[RESULT].double().sum(2) + gpt.b_O[1].double()
    allowed = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    assert (total - cache["attn_out", 1].double()).abs().max() < allowed
    halved = gpt.run_with_hooks(tokens, [(RESULT, lambda x, hook: x / 2)])
    assert halved.dtype is dtype
    assert not torch.equal(halved, gpt(tokens))


# --- what a config says is what is built ------------------------------------------------------------------------------


def test_every_placement_of_the_norms_is_another_function(make_gpt: MakeGPT, tokens: Tensor) -> None:
    logits = [make_gpt(norm=norm)(tokens) for norm in Norm]
    for one, other in ((a, b) for a in range(len(logits)) for b in range(a)):
        assert (logits[one] - logits[other]).abs().max() > 1e-2, (list(Norm)[one], list(Norm)[other])
    with pytest.raises(ConfigError, match="postnorm"):
        make_gpt(norm="postnorm")


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_model_has_one_matrix_and_counts_it_once(make_gpt: MakeGPT, tied: bool) -> None:
    gpt = make_gpt(tie_embeddings=tied)
    assert (gpt.unembed.weight.data_ptr() == gpt.embed.weight.data_ptr()) is tied
    assert sum(parameter.numel() for parameter in gpt.parameters()) == gpt.config.n_params
    assert gpt.config.n_params == make_gpt().config.n_params + (0 if tied else 50 * 32)


def test_biases_and_dropout_are_choices(make_gpt: MakeGPT, tokens: Tensor) -> None:
    bare, biased = make_gpt(), make_gpt(biases=True)
    assert not any(name.endswith("bias") for name, _ in bare.named_parameters())
    assert {name.split(".")[-2] for name, _ in biased.named_parameters() if name.endswith(".bias")} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "out_proj")
    }
    for where in ("blocks.0.hook_attn_out", "blocks.0.hook_mlp_out", "blocks.0.hook_resid_pre", "blocks.0.attn.hook_z"):
        dropped, _ = (make_gpt(dropout=0.5).train().run_with_cache(tokens, where)[1][where] for _ in range(2))
        assert not torch.equal(dropped, bare.run_with_cache(tokens, where)[1][where])


def test_train_and_eval_reach_every_part(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(dropout=0.5)
    for is_training in (True, False):
        gpt.train(is_training)
        assert all(module.training is is_training for module in gpt.modules())
        assert torch.equal(gpt(tokens), gpt(tokens)) is not is_training


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda gpt, tokens: gpt(tokens, bogus=1),
        lambda gpt, tokens: gpt.loss(tokens, bogus=1),
        lambda gpt, tokens: gpt.run_with_cache(tokens, bogus=1),
        lambda gpt, tokens: gpt.run_with_hooks(tokens, bogus=1),
        lambda gpt, tokens: gpt.hooks(bogus=1),
        lambda gpt, tokens: gpt.add_hook("hook_embed", print, bogus=1),
        lambda gpt, tokens: gpt.generate(tokens, bogus=1),
        lambda gpt, tokens: GPTConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=4, d_vocab=4, bogus=1),
        lambda gpt, tokens: gpt.config.varied(bogus=1),
    ],
)
def test_an_unknown_keyword_is_an_error_in_every_call(tiny: GPT, tokens: Tensor, call: Callable[..., Any]) -> None:
    with pytest.raises((TypeError, ConfigError), match="bogus"):
        call(tiny, tokens)


def test_every_call_reads_the_tokens_that_it_was_given(tiny: GPT, tokens: Tensor) -> None:
    """Nothing is put before them, and nothing taken away."""
    logits, cache = tiny.run_with_cache(tokens, "hook_embed")
    assert torch.equal(cache["embed"], tiny.W_E[tokens])
    assert torch.equal(logits, tiny(tokens))
    assert torch.equal(tiny.run_with_hooks(tokens), logits)
    assert tiny.generate(tokens, max_new_tokens=2)[:, :12].equal(tokens)


def test_the_same_call_gives_the_same_bits_however_often(tiny: GPT, tokens: Tensor) -> None:
    names = tiny.named_sites()
    edits = [(name, lambda x, hook: x * 1.5) for name in names if name.endswith(("_input", "result", "mlp_in"))]
    runs = [tiny.run_with_hooks(tokens, edits) for _ in range(4)]
    caches = [tiny.run_with_cache(tokens, names)[1] for _ in range(4)]
    assert all(torch.equal(run, runs[0]) for run in runs)
    assert all(torch.equal(cache[name], caches[0][name]) for cache in caches for name in names)


def test_sampling_depends_on_its_seed_alone(tiny: GPT, tokens: Tensor) -> None:
    texts = []
    for elsewhere in (0, 1):
        torch.manual_seed(elsewhere)
        before = torch.random.get_rng_state()
        texts.append(tiny.generate(tokens, max_new_tokens=8, temperature=5.0, seed=3))
        assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(*texts)


def test_each_generated_token_costs_one_position(tiny: GPT, tokens: Tensor) -> None:
    lengths: list[int] = []
    with tiny.hooks([("blocks.1.hook_resid_pre", lambda x, hook: lengths.append(x.shape[1]))]):
        tiny.generate(tokens, max_new_tokens=6)
        assert lengths == [12, 1, 1, 1, 1, 1]
        lengths.clear()
        tiny.generate(tokens, max_new_tokens=6, use_kv_cache=False)
        assert lengths == [12, 13, 14, 15, 16, 17]


# --- caches -----------------------------------------------------------------------------------------------------------


def test_an_in_place_edit_rewrites_nothing_that_was_cached_before_it(tiny: GPT, tokens: Tensor) -> None:
    """At every place in turn: what stands before it in the pass is as without the edit; what stands there is new."""
    names = tiny.named_sites()
    _, clean = tiny.run_with_cache(tokens, names)
    for place, edited in enumerate(names):
        with tiny.hooks([(edited, lambda x, hook: x.fill_(1000.0))]):
            _, cache = tiny.run_with_cache(tokens, names)
        assert (cache[edited] == 1000).all()
        assert all(torch.equal(cache[name], clean[name]) for name in names[:place]), edited


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_edit_in_place_is_the_edit_that_is_returned(make_gpt: MakeGPT, tokens: Tensor, norm: str) -> None:
    """A hook's tensor is its own: what it writes there reaches the place, and nothing else that shares its memory."""
    gpt = make_gpt(norm=norm, n_layers=1)
    for name in gpt.named_sites():
        in_place, returned = (
            gpt.run_with_hooks(tokens, [(name, edit)]) for edit in (lambda x, hook: x.mul_(2), lambda x, hook: x * 2)
        )
        assert torch.equal(in_place, returned), name


def test_what_is_done_to_a_cached_tensor_stays_there(tiny: GPT, tokens: Tensor) -> None:
    logits, cache = tiny.run_with_cache(tokens, tiny.named_sites())
    kept = {name: parameter.clone() for name, parameter in tiny.named_parameters()}
    for tensor in cache.values():
        tensor.fill_(7.0)
    assert all(torch.equal(parameter, kept[name]) for name, parameter in tiny.named_parameters())
    with tiny.explicit_attention():
        assert torch.equal(tiny(tokens), logits)


def test_an_in_place_patch_lets_gradients_pass(tiny: GPT, tokens: Tensor) -> None:
    """Into what was put there, and past it into the weights, at a view of the place too."""
    patch = torch.zeros(32, requires_grad=True)

    def put(x: Tensor, hook: Hook) -> None:
        x[:, 2:4][:, 0] = patch

    tiny.run_with_hooks(tokens, [("blocks.1.hook_resid_pre", put)], return_type="loss").backward()
    assert patch.grad is not None
    assert (patch.grad != 0).all()
    assert (tiny.blocks[0].mlp.out_proj.weight.grad != 0).any()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_an_edit_that_leaves_what_is_not_a_number_as_it_was_is_no_edit(
    make_gpt: MakeGPT, tokens: Tensor, broken: float, dtype: torch.dtype
) -> None:
    """Also where edits of two places beside the pass would exclude each other."""
    gpt = make_gpt().to(dtype)
    gpt.blocks[0].attn.W_Q[0, 0, 0] = broken
    everywhere = [(lambda name: True, lambda x, hook: None)]
    with torch.no_grad(), gpt.explicit_attention():
        clean, edited = gpt(tokens), gpt.run_with_hooks(tokens, everywhere)
        assert clean.isnan().any()
        assert torch.equal(clean.nan_to_num(7), edited.nan_to_num(7))
        mended = gpt.run_with_hooks(tokens, [("ln_final.hook_normalized", lambda x, hook: x.nan_to_num())])
    assert mended.isfinite().all(), "an edit that changes such bits is one"


@pytest.mark.parametrize(
    "name", ["blocks.0.ln1.hook_scale", "ln_final.hook_normalized", RESULT, "blocks.1.hook_mlp_in"]
)
def test_a_vector_of_zeros_and_a_mask_of_ones_can_be_learned(tiny: GPT, tokens: Tensor, name: str) -> None:
    """Also at the places that take part only if they are changed, where a first step changes nothing."""
    for start, combine in ((torch.zeros, torch.add), (torch.ones, torch.mul)):
        learned = start(tiny.run_with_cache(tokens, name)[1][name].shape, requires_grad=True)
        tiny.run_with_hooks(
            tokens, [(name, lambda x, hook, f=combine, p=learned: f(x, p))], return_type="loss"
        ).backward()
        assert learned.grad is not None
        assert (learned.grad != 0).any()


def test_a_cache_can_go_elsewhere_while_the_model_stays(tiny: GPT, tokens: Tensor) -> None:
    _, cache = tiny.run_with_cache(tokens, device="meta")
    assert all(tensor.is_meta for tensor in cache.values())
    assert {parameter.device.type for parameter in tiny.parameters()} == {"cpu"}
    tiny(tokens)


def test_a_cache_is_where_the_model_is(tiny: GPT) -> None:
    gpt = tiny.to("meta")
    _, cache = gpt.run_with_cache(torch.zeros(3, 12, 32, device="meta"), start_at_layer=0)
    assert len(cache) > 40
    assert all(tensor.is_meta for tensor in cache.values())


def test_decoding_under_gradients_still_gives_the_full_passs_logits(tiny: GPT, tokens: Tensor) -> None:
    past = KeyValueCache(tiny.config, 3, device=tiny.device, dtype=tiny.dtype)
    parts = [tiny(tokens[:, start : start + 4], kv_cache=past) for start in (0, 4, 8)]
    torch.testing.assert_close(torch.cat(parts, dim=1), tiny(tokens), rtol=1e-4, atol=1e-4)
