"""Edges: small changes as path patching finds them, exact where all is linear, and seen where a divergence is flat."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from interp.edge_attribution import edge_attribution
from interp.metrics import divergence, logit_difference
from interp.outcomes import copy_targets
from interp.patching import redrawn_first_copy
from interp.path_patching import path_effects
from interp.paths import Input, Path, Receiver
from interp.recordings import record
from interp.stimuli import repeated_tokens
from model import GPT
from model.errors import InputError, NotAdditiveError
from model.sites import Tap
from tests import planted
from tests.conftest import make_gpt_with
from tests.interp.test_attribution_patching import IDS, PERIOD, even, nearby


def into(index: int, each: Input) -> Path:
    return Path(receivers=(Receiver(layer=1, head=index, input=each),))


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


def test_edges_are_exact_where_all_is_linear_by_either_gradient(tokens: Tensor):
    gpt = even(make_gpt_with(norm="none", ffn="none", embed_std=0.3)).double()
    other, metric = (tokens + 17) % 50, logit_difference(tokens[:, 0], tokens[:, 1])
    paths = {str(index): into(index, Input.V) for index in range(4)}
    source = record(gpt, other, [Tap.Z.at(0)], source="others")
    true = path_effects(gpt, tokens, [(0, index) for index in range(4)], paths, metric, source=source).effect.mean(0)
    for n_steps in (None, 1, 5):
        found = edge_attribution(gpt, tokens, other, metric, n_steps=n_steps).by_input
        torch.testing.assert_close(found[Input.V][0, :, 1], true)
        assert found[Input.Q][0, :, 1].abs().max() == 0  # nobody looks anywhere


def softened() -> GPT:
    """The planted circuit with an induction head that is sure, yet not beyond all gradients."""
    gpt = planted.induction_model()
    with torch.no_grad():
        gpt.layers[1].attn.W_Q.mul_(0.02)
    return gpt


def test_under_a_divergence_only_integrated_gradients_find_the_circuits_edge():
    gpt = softened()
    clean = repeated_tokens(8, PERIOD, IDS, seed=1, bos=0)
    corrupted = redrawn_first_copy(clean, PERIOD, IDS, seed=2)
    metric = divergence(gpt(clean).detach(), functional.pad(copy_targets(clean, period=PERIOD), (0, 1)))
    sender, receiver = planted.PREVIOUS_HEAD[1], planted.INDUCTION_HEAD[1]
    source = record(gpt, corrupted, [Tap.Z.at(0)], source="other first copies")
    paths = {each.name: into(receiver, each) for each in Input}
    true = path_effects(gpt, clean, [planted.PREVIOUS_HEAD], paths, metric, source=source).effect.mean(0)[0]
    assert int(true.argmax()) == 1  # the keys
    assert float(true[1]) > 3
    plain = edge_attribution(gpt, clean, corrupted, metric).by_input
    assert max(float(score.nan_to_num().abs().max()) for score in plain.values()) < 1e-4
    found = edge_attribution(gpt, clean, corrupted, metric, n_steps=5).by_input
    best = {each: float(score.nan_to_num().abs().max()) for each, score in found.items()}
    assert max(best, key=lambda each: best[each]) is Input.K
    # Its size, not its sign: half-way embeddings hold both tokens, and to find the wrong one better makes things worse.
    assert abs(float(found[Input.K][0, sender, 1, receiver])) == pytest.approx(best[Input.K])
    assert best[Input.K] > 1


def test_what_has_no_edges_is_refused(tokens: Tensor):
    gpt, metric = make_gpt_with(), logit_difference(tokens[:, 0], tokens[:, 1])
    with pytest.raises(InputError, match=re.escape("clean prompts have shape (3, 12) and corrupted ones (3, 11)")):
        edge_attribution(gpt, tokens, tokens[:, 1:], metric)
    with pytest.raises(NotAdditiveError, match="path patching needs heads that write into the stream as they are"):
        edge_attribution(make_gpt_with(norm="sandwich"), tokens, tokens, metric)
    with pytest.raises(InputError, match="a model of one layer has no later head that could read an earlier one"):
        edge_attribution(make_gpt_with(n_layers=1), tokens, tokens, metric)
    with pytest.raises(InputError, match="n_steps=0 leads nowhere"):
        edge_attribution(gpt, tokens, tokens, metric, n_steps=0)
