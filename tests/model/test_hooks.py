"""What can be asked of the named places: caches and their slices, spans of layers, gradients, split inputs, results.

Each place in turn, over every kind of model: test_every_hook.py. Whose hooks are seen where: test_hook_scopes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, Hook, Tap
from model.errors import InputError, UnknownSiteError
from model.hooks import hook_name
from model.sites import ON_DEMAND
from tests.model.variants import name_of

MakeGPT = Callable[..., GPT]


def test_gradients_need_no_trainable_parameter(tiny: GPT, tokens: Tensor) -> None:
    expected = tiny.run_with_cache(tokens, "blocks.1.hook_resid_pre", incl_bwd=True, return_type="loss")[1]
    tiny.requires_grad_(False)
    with torch.no_grad():
        _, cache = tiny.run_with_cache(tokens, "blocks.1.hook_resid_pre", incl_bwd=True, return_type="loss")
    assert torch.equal(cache["resid_pre", 1, "grad"], expected["resid_pre", 1, "grad"])


def test_a_backward_hook_sees_and_edits_the_gradient(tiny: GPT, tokens: Tensor) -> None:
    seen = []
    loss = tiny.run_with_hooks(
        tokens,
        bwd_hooks=[("blocks.1.hook_resid_mid", lambda grad, hook: seen.append(hook.name) or grad * 0)],
        return_type="loss",
    )
    loss.backward()
    assert seen == ["blocks.1.hook_resid_mid"]
    assert (tiny.blocks[1].attn.q_proj.weight.grad == 0).all()
    assert (tiny.blocks[1].mlp.in_proj.weight.grad != 0).any()


# --- cache ------------------------------------------------------------------------------------------------------------


def test_a_cached_tensor_is_a_copy(tiny: GPT, tokens: Tensor) -> None:
    def overwrite(x: Tensor, hook: Hook) -> None:
        x[:] = 1000.0

    with tiny.hooks([("blocks.1.hook_resid_pre", overwrite)]):
        _, cache = tiny.run_with_cache(tokens, ["blocks.0.hook_resid_post", "blocks.1.hook_resid_pre"])
    assert cache["resid_post", 0].abs().max() < 100
    assert (cache["resid_pre", 1] == 1000).all()


def test_equal_neighbours_share_one_snapshot(tiny: GPT, tokens: Tensor) -> None:
    _, cache = tiny.run_with_cache(tokens)
    assert cache["resid_post", 0].data_ptr() == cache["resid_pre", 1].data_ptr()
    assert cache.n_bytes < sum(tensor.nbytes for tensor in cache.values())


@pytest.mark.parametrize(
    "wanted",
    [
        "blocks.1.hook_resid_mid",
        Tap.RESID_MID.at(1),
        ["blocks.1.hook_resid_mid"],
        lambda n: n.endswith("1.hook_resid_mid"),
    ],
)
def test_a_names_filter_is_a_name_a_site_a_list_or_a_function(tiny: GPT, tokens: Tensor, wanted: Any) -> None:
    assert list(tiny.run_with_cache(tokens, wanted)[1]) == ["blocks.1.hook_resid_mid"]


def test_everything_leaves_out_what_is_computed_on_demand(tiny: GPT, tokens: Tensor) -> None:
    names = set(tiny.run_with_cache(tokens)[1])
    assert {tiny._sites[name].tap for name in set(tiny.named_sites()) - names} == ON_DEMAND
    with pytest.raises(UnknownSiteError, match="It is computed only when names_filter asks for it"):
        tiny.run_with_cache(tokens)[1]["result", 1]


@pytest.mark.parametrize("pos_slice", [-1, slice(2, 5), [0, 3]])
def test_a_position_slice_cuts_the_position_axis_of_every_place(tiny: GPT, tokens: Tensor, pos_slice: Any) -> None:
    _, whole = tiny.run_with_cache(tokens, tiny.named_sites())
    _, cut = tiny.run_with_cache(tokens, tiny.named_sites(), pos_slice=pos_slice)
    index = [pos_slice] if isinstance(pos_slice, int) else pos_slice
    for name in cut:
        axis = tiny._sites[name].tap.position_axis
        assert torch.equal(cut[name], whole[name][(slice(None),) * axis + (index,)]), name


def test_short_keys_and_sites_name_the_same_tensor(tiny: GPT, tokens: Tensor) -> None:
    _, cache = tiny.run_with_cache(tokens)
    assert cache["pattern", 1] is cache["blocks.1.attn.hook_pattern"] is cache[Tap.PATTERN.at(1)]
    assert cache["scale", 0, "ln2"] is cache["blocks.0.ln2.hook_scale"]
    assert cache["embed"] is cache["hook_embed"]
    assert cache.stack("resid_post").shape == (2, 3, 12, 32)
    assert torch.equal(cache.stack("scale", "ln2")[1], cache["scale", 1, "ln2"])
    with pytest.raises(UnknownSiteError, match=r'no layer has "scale" in this cache'):
        cache.stack("scale")
    for name in cache:
        assert hook_name(name) == name


def test_layers_of_a_short_key_count_from_the_end_of_the_model_whatever_was_cached(
    make_gpt: Any, tokens: Tensor
) -> None:
    gpt = make_gpt(n_layers=3)
    _, cache = gpt.run_with_cache(tokens)
    assert cache["resid_post", -1] is cache["resid_post", 2]
    assert cache["scale", -3, "ln2"] is cache["scale", 0, "ln2"]
    assert ("pattern", -2) in cache
    _, some = gpt.run_with_cache(tokens[:1], "blocks.1.hook_resid_post", remove_batch_dim=True, stop_at_layer=2)
    assert some["resid_post", -2] is some["blocks.1.hook_resid_post"]
    with pytest.raises(UnknownSiteError, match=r'"blocks.2.hook_resid_post" was not cached'):
        some["resid_post", -1]
    with pytest.raises(UnknownSiteError, match="no layer -4: this model has layers -3 to 2"):
        cache["resid_post", -4]
    with pytest.raises(UnknownSiteError, match="layer -1 counts from the end of a model, and none is known here"):
        hook_name(("resid_post", -1))


def test_remove_batch_dim_takes_one_sequence_only(tiny: GPT, tokens: Tensor) -> None:
    assert tiny.run_with_cache(tokens[:1], remove_batch_dim=True)[1]["pattern", 0].shape == (4, 12, 12)
    with pytest.raises(InputError, match="remove_batch_dim needs a batch of one sequence; this one has 3"):
        tiny.run_with_cache(tokens, remove_batch_dim=True)


def test_a_run_over_a_span_of_layers_continues_the_whole_run(tiny: GPT, tokens: Tensor) -> None:
    whole, cache = tiny.run_with_cache(tokens, lambda name: "resid" in name)
    middle, _ = tiny.run_with_cache(tokens, "blocks.0.hook_resid_post", stop_at_layer=1)
    assert torch.equal(middle, cache["resid_pre", 1])
    rest, later = tiny.run_with_cache(middle, "blocks.1.hook_resid_post", start_at_layer=1)
    assert torch.equal(rest, whole)
    assert torch.equal(later["resid_post", 1], cache["resid_post", 1])


def test_a_hook_outside_the_span_is_refused(tiny: GPT, tokens: Tensor) -> None:
    with pytest.raises(InputError, match="blocks.1.hook_resid_pre was hooked, but .* stop_at_layer=1 never reaches it"):
        tiny.run_with_hooks(tokens, [("blocks.1.hook_resid_pre", lambda x, hook: None)], stop_at_layer=1)
    with pytest.raises(UnknownSiteError, match='no hook "blocks.1.hook_resid_pre"'):
        tiny.run_with_cache(tokens, "blocks.1.hook_resid_pre", stop_at_layer=1)


def test_a_place_that_the_loss_does_not_depend_on_has_gradient_zero(tiny: GPT, tokens: Tensor) -> None:
    with tiny.hooks([("blocks.1.hook_attn_out", lambda x, hook: x.detach())]):
        _, cache = tiny.run_with_cache(tokens, "blocks.1.attn.hook_z", incl_bwd=True, return_type="loss")
    assert (cache["z", 1, "grad"] == 0).all()


# --- split inputs and results -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variant", [{}, {"n_kv_heads": 2, "biases": True}, {"norm": "post"}, {"norm": "reordered"}], ids=name_of
)
def test_split_inputs_are_the_stream_before_the_norm(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any]
) -> None:
    gpt = make_gpt(**variant)
    names = [f"blocks.1.hook_{part}" for part in ("resid_pre", "attn_in", "q_input", "k_input", "v_input")]
    _, cache = gpt.run_with_cache(tokens, names)
    for name in names[1:]:
        assert torch.equal(cache[name], cache["resid_pre", 1].unsqueeze(2).expand_as(cache[name]))


def test_a_change_of_one_heads_input_reaches_that_head_alone(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(biases=True)

    def move(x: Tensor, hook: Hook) -> None:
        x[:, :, 2] += 1.0

    _, clean = gpt.run_with_cache(tokens)
    with gpt.hooks([("blocks.0.hook_q_input", move)]):
        _, moved = gpt.run_with_cache(tokens)
    torch.testing.assert_close(moved["q", 0][:, :, [0, 1, 3]], clean["q", 0][:, :, [0, 1, 3]])
    assert (moved["q", 0][:, :, 2] - clean["q", 0][:, :, 2]).abs().max() > 1e-3
    assert torch.equal(moved["k", 0], clean["k", 0])


def test_the_ffn_input_moves_the_ffn_and_not_the_stream(tiny: GPT, tokens: Tensor) -> None:
    _, clean = tiny.run_with_cache(tokens)
    with tiny.hooks([("blocks.0.hook_mlp_in", lambda x, hook: x + 1)]):
        _, moved = tiny.run_with_cache(tokens)
    assert torch.equal(moved["resid_mid", 0], clean["resid_mid", 0])
    torch.testing.assert_close(moved["resid_post", 0], clean["resid_mid", 0] + moved["mlp_out", 0])
    assert not torch.equal(moved["mlp_out", 0], clean["mlp_out", 0])


def test_results_of_the_heads_sum_to_what_attention_writes(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(biases=True)
    _, cache = gpt.run_with_cache(tokens, ["blocks.0.attn.hook_result", "blocks.0.hook_attn_out"])
    torch.testing.assert_close(cache["result", 0].sum(2) + gpt.b_O[0], cache["attn_out", 0])
    removed = gpt.run_with_hooks(tokens, [("blocks.0.attn.hook_result", lambda x, hook: x * 0)])
    by_z = gpt.run_with_hooks(tokens, [("blocks.0.attn.hook_z", lambda x, hook: x * 0)])
    torch.testing.assert_close(removed, by_z)


@pytest.mark.parametrize("variant", [{"biases": True}, {"n_kv_heads": 2, "norm": "reordered"}], ids=name_of)
def test_a_result_is_what_its_own_head_writes(make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any]) -> None:
    gpt = make_gpt(**variant)
    _, cache = gpt.run_with_cache(tokens, ["blocks.0.attn.hook_z", "blocks.0.attn.hook_result"])
    for head in range(4):
        torch.testing.assert_close(cache["result", 0][:, :, head], cache["z", 0][:, :, head] @ gpt.W_O[0, head])

        def silence(x: Tensor, hook: Hook, head: int = head) -> None:
            x[:, :, head] = 0

        by_result, by_z = (
            gpt.run_with_hooks(tokens, [(f"blocks.0.attn.hook_{place}", silence)]) for place in ("result", "z")
        )
        torch.testing.assert_close(by_result, by_z)


def test_norm_and_split_input_edits_of_one_layer_exclude_each_other(tiny: GPT, tokens: Tensor) -> None:
    hooks = [("blocks.0.ln1.hook_scale", lambda x, hook: x), ("blocks.0.hook_q_input", lambda x, hook: x + 1)]
    with pytest.raises(InputError, match="blocks.0.ln1.hook_scale and the per-head inputs of layer 0 cannot be edited"):
        tiny.run_with_hooks(tokens, hooks)


# --- positions and refusals -------------------------------------------------------------------------------------------


def test_a_hook_is_told_its_layer_and_positions(tiny: GPT, tokens: Tensor) -> None:
    seen: list[Hook] = []
    mask = torch.arange(12).expand(3, -1) >= 2
    tiny.run_with_hooks(tokens, [(Tap.Z.at(1), lambda x, hook: seen.append(hook))], attention_mask=mask)
    assert (seen[0].layer, seen[0].name) == (1, "blocks.1.attn.hook_z")
    assert seen[0].positions[0].tolist() == [-1, -1, *range(10)]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("blocks.3.hook_resid_pre", r'no hook "blocks.3.hook_resid_pre" \(it has layers 0 to 1\)'),
        ("blocks.0.attn.hook_patern", 'Did you mean "blocks.0.attn.hook_pattern"'),
        (lambda name: "xyz" in name, "the filter matches none of this model's"),
        ([], "an empty list of hook names selects nothing"),
    ],
)
def test_a_name_that_means_nothing_raises(tiny: GPT, tokens: Tensor, name: Any, sentence: str) -> None:
    with pytest.raises(UnknownSiteError, match=sentence):
        tiny.run_with_cache(tokens, name)


def test_places_exist_exactly_where_their_part_exists(make_gpt: MakeGPT) -> None:
    post = make_gpt(norm="post").named_sites()
    assert not any("ln_final" in name for name in post)
    attention_only = make_gpt(ffn="none").named_sites()
    assert not any("mlp" in name or "resid_mid" in name or "ln2" in name for name in attention_only)
    assert "hook_pos_embed" in make_gpt(positions="learned").named_sites()
    assert not any("rot_q" in name for name in make_gpt(positions="alibi").named_sites())


def test_wrong_requests_are_refused_in_sentences(tiny: GPT, tokens: Tensor) -> None:
    with pytest.raises(InputError, match="incl_bwd needs a loss"):
        tiny.run_with_cache(tokens, incl_bwd=True)
    with pytest.raises(InputError, match="incl_bwd differentiates one number"):
        tiny.run_with_cache(tokens, incl_bwd=True, return_type="loss", loss_per_token=True)
    with pytest.raises(InputError, match=r"loss_fn must return a single number as a tensor; got shape \(3, 12\)"):
        tiny.run_with_cache(tokens, incl_bwd=True, loss_fn=lambda logits: logits.sum(-1))
    with pytest.raises(InputError, match="loss_fn is used for return_type"):
        tiny.run_with_cache(tokens, loss_fn=lambda logits: logits.sum())
    with pytest.raises(InputError, match="pos_slice=99 is outside the 12 positions"):
        tiny.run_with_cache(tokens, pos_slice=99)
    with pytest.raises(InputError, match="A residual needs start_at_layer"):
        tiny.run_with_cache(torch.zeros(1, 3, 32), "hook_embed")
    with pytest.raises(InputError, match="return_type='logit' is not one of"):
        tiny.run_with_hooks(tokens, return_type="logit")
    with pytest.raises(TypeError):
        tiny.run_with_cache(tokens, bogus=3)
    with pytest.raises(InputError, match="asked for under torch.no_grad"), torch.no_grad():
        tiny.run_with_hooks(tokens, bwd_hooks=[("hook_embed", lambda x, hook: None)])


def test_a_cache_is_a_mapping_of_what_it_holds(tiny: GPT, tokens: Tensor) -> None:
    _, cache = tiny.run_with_cache(tokens, "blocks.0.attn.hook_z")
    assert ("z", 0) in cache and ("z", 1) not in cache and ("nonsense", 0) not in cache
    assert cache.get("nonsense") is None and cache.get(("z", 0)) is cache["z", 0]


def test_a_short_name_is_answered_with_a_place(tiny: GPT, tokens: Tensor) -> None:
    with pytest.raises(UnknownSiteError, match=r'no hook "z" .* Did you mean "blocks\.0\.attn\.hook_z"\?'):
        tiny.run_with_cache(tokens, "z")
