"""Estimates are exact where the model is linear, blind where a softmax is saturated, and mended there by the QK fix."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from interp.approximation import approximation
from interp.attribution_patching import Estimates, Method, attribution_patching, edge_attribution
from interp.metrics import copy_logit, logit_difference
from interp.patching import Direction, activation_patching, patch_grid, redrawn_first_copy
from interp.path_patching import path_effects
from interp.paths import Input, Path, Receiver
from interp.recordings import record
from interp.stimuli import repeated_tokens
from model import GPT
from model.errors import InputError, NotAdditiveError
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


@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 2, "norm_kind": "layernorm", "biases": True}])
def test_for_a_small_change_edges_are_what_path_patching_finds(changes: dict, tokens: Tensor):
    gpt, (clean, corrupted) = nearby(make_gpt_with(tie_embeddings=False, **changes).double(), tokens)
    metric = logit_difference(tokens[:, 0] + 2, tokens[:, 1] + 1)
    found = edge_attribution(gpt, clean, corrupted, metric, batch_size=2).by_input
    group = gpt.config.n_heads // gpt.config.kv_heads
    paths = {
        f"{each}{index}": Path(receivers=(Receiver(layer=1, head=index, input=each),))
        for each in Input
        for index in range(4)
    }
    source = record(gpt, corrupted, [Tap.Z.at(0)], source="nearby")
    heads = [(0, index) for index in range(4)]
    true = path_effects(gpt, clean, heads, paths, metric, source=source).effect.mean(0).unflatten(1, (3, 4))
    for row, each in enumerate(Input):
        assert found[each][1:].isnan().all()
        assert found[each][0, :, 0].isnan().all()
        step = 1 if each is Input.Q else group
        wanted = true[:, row, ::step]
        torch.testing.assert_close(found[each][0, :, 1], wanted, rtol=2e-2, atol=1e-3 * float(wanted.abs().max()))


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
    with pytest.raises(InputError, match=re.escape("clean prompts have shape (3, 12) and corrupted ones (3, 11)")):
        edge_attribution(gpt, tokens, tokens[:, 1:], metric)
    with pytest.raises(NotAdditiveError, match="path patching needs heads that write into the stream as they are"):
        edge_attribution(make_gpt_with(norm="sandwich"), tokens, tokens, metric)
    with pytest.raises(InputError, match="a model of one layer has no later head that could read an earlier one"):
        edge_attribution(make_gpt_with(n_layers=1), tokens, tokens, metric)
