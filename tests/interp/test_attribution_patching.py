"""Estimates are exact where the model is linear, blind where a softmax is saturated, and mended there by the QK fix."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from interp.approximation import approximation
from interp.attribution_patching import Estimates, Method, attribution_patching
from interp.metrics import copy_logit, divergence, logit_difference
from interp.outcomes import copy_targets
from interp.patching import Direction, activation_patching, patch_grid, redrawn_first_copy
from interp.stimuli import repeated_tokens
from model import GPT, GPTConfig
from model.errors import InputError, UndefinedError
from model.sites import Tap
from tests import planted
from tests.conftest import make_gpt_with

PERIOD = 8
IDS = range(1, planted.D_VOCAB)


def estimates_by(found: list[Estimates]) -> dict[tuple[Tap, Method], Tensor]:
    return {(each.tap, each.method): each.effect for each in found}


def nearby(gpt: GPT, tokens: Tensor) -> tuple[GPT, Tensor]:
    """Another prompt that is nearly the same: two embeddings are made almost alike, and their tokens exchanged."""
    with torch.no_grad():
        generator = torch.Generator().manual_seed(3)
        noise = torch.randn(gpt.config.d_model, generator=generator, dtype=gpt.dtype)
        gpt.embed.weight[1] = gpt.embed.weight[0] + 1e-5 * noise
    first = tokens.clone()
    first[:, 2:5] = 0
    second = first.clone()
    second[:, 2:5] = 1
    return gpt, torch.stack([first, second])


@pytest.mark.parametrize(
    ("changes", "direction"),
    [
        ({}, Direction.NOISING),
        ({}, Direction.DENOISING),
        ({"n_kv_heads": 1, "norm_kind": "layernorm", "biases": True}, Direction.NOISING),
        ({"positions": "alibi", "norm": "post"}, Direction.NOISING),
        ({"positions": "learned", "qk_norm": True, "smeared_keys": True}, Direction.NOISING),
    ],
)
def test_for_a_small_change_every_estimate_is_the_true_effect(changes: dict, direction: Direction, tokens: Tensor):
    """First order is all there is; the QK fix agrees with it there, under every placement and kind of position."""
    gpt, (clean, corrupted) = nearby(make_gpt_with(n_heads=2, tie_embeddings=False, **changes).double(), tokens)
    metric = logit_difference(tokens[:, 0] + 2, tokens[:, 1] + 1)
    estimates = attribution_patching(gpt, clean, corrupted, metric, direction=direction, batch_size=2)
    assert [(each.tap, each.method) for each in estimates] == [
        (Tap.Q, Method.LINEAR), (Tap.Q, Method.QK_FIX), (Tap.K, Method.LINEAR), (Tap.K, Method.QK_FIX),
        (Tap.V, Method.LINEAR), (Tap.Z, Method.LINEAR),
    ]  # fmt: skip
    for each in estimates:
        grid = patch_grid(gpt.config, each.tap)
        true = activation_patching(gpt, clean, corrupted, grid, metric, direction=direction).effect[..., 0]
        assert float(true.abs().max()) > 1e-8
        torch.testing.assert_close(each.effect, true, rtol=1e-2, atol=1e-3 * float(true.abs().max()))


def test_a_saturated_head_is_a_false_negative_that_the_qk_fix_finds():
    """T24: the planted induction head attends with all its attention, so its keys have no gradient."""
    gpt = planted.induction_model()
    clean = repeated_tokens(8, PERIOD, IDS, seed=1, bos=0)
    corrupted = redrawn_first_copy(clean, PERIOD, IDS, seed=2)
    metric = copy_logit(clean, PERIOD)
    found = estimates_by(attribution_patching(gpt, clean, corrupted, metric, taps=[Tap.K]))
    true = activation_patching(gpt, clean, corrupted, patch_grid(gpt.config, Tap.K), metric).effect[..., 0].mean(0)
    assert float(true[planted.INDUCTION_HEAD]) < -10
    blind, mended = (found[Tap.K, method].mean(0) for method in (Method.LINEAR, Method.QK_FIX))
    assert abs(float(blind[planted.INDUCTION_HEAD])) < 0.01
    assert float(mended[planted.INDUCTION_HEAD]) == pytest.approx(float(true[planted.INDUCTION_HEAD]), rel=1e-3)
    assert approximation(mended, true, top=1).false_negatives == 0
    assert approximation(mended, true, top=8).pearson == pytest.approx(1.0)


def test_the_fixed_pattern_is_the_one_that_a_patched_run_has(tokens: Tensor):
    """In the last layer, with a metric linear in the logits and no norm or FFN after it, the QK fix is exact."""
    gpt = make_gpt_with(norm="none", ffn="none", embed_std=0.3, n_kv_heads=2).double()
    other, metric = (tokens + 17) % 50, logit_difference(tokens[:, 0], tokens[:, 1])
    found = estimates_by(attribution_patching(gpt, tokens, other, metric))
    for tap in (Tap.Q, Tap.K):
        true = activation_patching(gpt, tokens, other, patch_grid(gpt.config, tap, layers=[1]), metric).effect[..., 0]
        torch.testing.assert_close(found[tap, Method.QK_FIX][:, 1:], true)
        assert not torch.allclose(found[tap, Method.LINEAR][:, 1:], true, rtol=1e-2)
    for tap in (Tap.V, Tap.Z):
        true = activation_patching(gpt, tokens, other, patch_grid(gpt.config, tap, layers=[1]), metric).effect[..., 0]
        torch.testing.assert_close(found[tap, Method.LINEAR][:, 1:], true)


def test_sequences_have_gradients_of_their_own(tokens: Tensor):
    gpt = make_gpt_with()
    other, metric = (tokens + 17) % 50, logit_difference(tokens[:, 0], tokens[:, 1])
    together = attribution_patching(gpt, tokens, other, metric, taps=[Tap.Z])[0].effect
    alone = attribution_patching(gpt, tokens, other, metric, taps=[Tap.Z], batch_size=1)[0].effect
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-6)
    assert all(parameter.grad is None for parameter in gpt.parameters())


def test_what_cannot_be_estimated_is_refused(tokens: Tensor):
    gpt, metric = make_gpt_with(), logit_difference(tokens[:, 0], tokens[:, 1])
    with pytest.raises(InputError, match=re.escape("attribution patching is of heads' Q, K, V and Z")):
        attribution_patching(gpt, tokens, tokens, metric, taps=[Tap.MLP_OUT])
    with pytest.raises(InputError, match=re.escape("methods=['qk fix'] estimate nothing at Z")):
        attribution_patching(gpt, tokens, tokens, metric, taps=[Tap.Z], methods=["qk fix"])
    with pytest.raises(InputError, match="n_steps=0 leads nowhere"):
        attribution_patching(gpt, tokens, tokens, metric, methods=["integrated"], n_steps=0)
    with pytest.raises(UndefinedError, match="a model of one layer has no other layer to leave out"):
        attribution_patching(make_gpt_with(n_layers=1), tokens, tokens, metric, methods=["grad drop"])


def cancelling() -> GPT:
    """L0H0 writes 3 along logit 5 at token 1, and 0 at token 2. An FFN memory of layer 1 takes away what of it lies
    above 2. So one more unit is worth nothing at token 1, while token 2 in its place takes 2 away.
    """
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "n_ctx": 8, "d_vocab": 8, "d_ff": 4}
    kinds = {"norm": "none", "ffn": "relu", "biases": True, "tie_embeddings": False}
    gpt = GPT(GPTConfig(**sizes, **kinds)).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.zero_()
        gpt.embed.weight[:, :8] = torch.eye(8)
        gpt.unembed.weight[:, 8:] = torch.eye(8)
        gpt.layers[0].attn.W_V[0][1, 0] = 3.0
        gpt.layers[0].attn.W_O[0][0, 8 + 5] = 1.0
        memories = gpt.layers[1].mlp
        memories.in_proj.weight[0, 8 + 5], memories.in_proj.bias[0] = 1.0, -2.0
        memories.out_proj.weight[8 + 5, 0] = -1.0
    return gpt


def test_grad_drop_finds_what_cancels_in_the_gradient():
    gpt, clean, corrupted = cancelling(), torch.tensor([[1, 3], [1, 4]]), torch.tensor([[2, 3], [2, 4]])
    metric = logit_difference(torch.tensor([5, 5]), torch.tensor([6, 6]), position=0)
    methods = ["linear", "grad drop"]
    found = estimates_by(attribution_patching(gpt, clean, corrupted, metric, taps=[Tap.Z], methods=methods))
    true = activation_patching(gpt, clean, corrupted, patch_grid(gpt.config, Tap.Z), metric).effect[..., 0]
    assert true[:, 0, 0].tolist() == [-2.0, -2.0]
    assert found[Tap.Z, Method.LINEAR].abs().max() == 0  # blind
    assert found[Tap.Z, Method.GRAD_DROP][:, 0, 0].tolist() == [3.0, 3.0]  # by itself it is worth 3
    assert found[Tap.Z, Method.GRAD_DROP].sum() == 6  # and no other head anything


def test_leaving_a_layer_out_is_to_hold_what_it_writes(tokens: Tensor):
    """An independent way: the same estimates in a model whose sublayers' outputs are cut from the graph."""
    gpt = make_gpt_with(n_layers=3).double()
    other, metric = (tokens + 17) % 50, logit_difference(tokens[:, 0], tokens[:, 1])
    found = estimates_by(attribution_patching(gpt, tokens, other, metric, taps=[Tap.Z, Tap.K], methods=["grad drop"]))
    sizes: dict[tuple[Tap, Method], Tensor] = {}
    for layer in range(3):
        cut = [(tap.at(layer), lambda out, hook: out.detach()) for tap in (Tap.ATTN_OUT, Tap.MLP_OUT)]
        with gpt.hooks(fwd_hooks=cut):
            held = estimates_by(attribution_patching(gpt, tokens, other, metric, taps=[Tap.Z, Tap.K]))
        for key, effect in held.items():
            sizes[key] = sizes.get(key, torch.zeros(())) + effect.abs() / 2
    torch.testing.assert_close(found[Tap.Z, Method.GRAD_DROP], sizes[Tap.Z, Method.LINEAR])
    torch.testing.assert_close(found[Tap.K, Method.GRAD_DROP], sizes[Tap.K, Method.QK_FIX])


def even(gpt: GPT) -> GPT:
    """All patterns even: without norms and FFNs the logits are then linear in the embeddings."""
    with torch.no_grad():
        for block in gpt.layers:
            block.attn.W_Q.zero_()
    return gpt


def test_integration_is_exact_where_the_model_is_linear_and_averages_what_is_not(tokens: Tensor):
    gpt = even(make_gpt_with(norm="none", ffn="none", embed_std=0.3)).double()
    other, metric = (tokens + 17) % 50, logit_difference(tokens[:, 0], tokens[:, 1])
    grid = patch_grid(gpt.config, Tap.Z)
    true = activation_patching(gpt, tokens, other, grid, metric)
    steps = {"taps": [Tap.Z], "methods": ["integrated"], "n_steps": 4}
    linear = attribution_patching(gpt, tokens, other, metric, **steps)[0].effect
    torch.testing.assert_close(linear, true.effect[..., 0])

    def squared(logits: Tensor, rows: Tensor) -> Tensor:
        return metric(logits, rows) ** 2

    bent = attribution_patching(gpt, tokens, other, squared, **steps)[0].effect
    between = true.corrupted + (true.clean - true.corrupted) * (1 + 2 + 3 + 4) / 16
    torch.testing.assert_close(bent, 2 * between[:, None, None] * linear)
    one = attribution_patching(gpt, tokens, other, squared, taps=[Tap.Z], methods=["integrated"], n_steps=1)[0]
    base = attribution_patching(gpt, tokens, other, squared, taps=[Tap.Z])[0]
    torch.testing.assert_close(one.effect, base.effect)  # the base run is the last step


def test_where_a_divergence_is_flat_only_the_way_there_says_something():
    """A divergence from the clean run has no gradient there, whatever the model."""
    gpt = planted.induction_model()
    clean = repeated_tokens(8, PERIOD, IDS, seed=1, bos=0)
    corrupted = redrawn_first_copy(clean, PERIOD, IDS, seed=2)
    metric = divergence(gpt(clean).detach(), functional.pad(copy_targets(clean, period=PERIOD), (0, 1)))
    methods = ["linear", "integrated"]
    found = estimates_by(attribution_patching(gpt, clean, corrupted, metric, taps=[Tap.Z], methods=methods))
    true = activation_patching(gpt, clean, corrupted, patch_grid(gpt.config, Tap.Z), metric).effect[..., 0].mean(0)
    assert float(true[planted.INDUCTION_HEAD]) > 4
    assert found[Tap.Z, Method.LINEAR].abs().max() < 1e-4
    integrated = found[Tap.Z, Method.INTEGRATED].mean(0)
    assert divmod(int(integrated.argmax()), 4) == planted.INDUCTION_HEAD
    assert float(integrated[planted.INDUCTION_HEAD]) > 1
