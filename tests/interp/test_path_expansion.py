"""The sum over paths is the logits, to rounding, in every model that has paths; and planted paths are found."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor

from interp import path_expansion
from interp.outcomes import TEXT, copy_outcome
from interp.path_expansion import DIRECT, order_logits, order_losses, path_attribution
from interp.stimuli import repeated_tokens
from model.errors import InputError, NotAdditiveError
from tests import planted
from tests.conftest import make_gpt_with

ATTENTION_ONLY = {"ffn": "none", "n_layers": 3}
VARIANTS = {
    "no norm": {"norm": "none", "embed_std": 0.3},
    "pre": {},
    "scaled layernorm with biases": {"norm": "scaled", "norm_kind": "layernorm", "biases": True},
    "grouped heads, learned positions": {"n_kv_heads": 2, "positions": "learned"},
    "alibi and qk_norm, untied": {"positions": "alibi", "qk_norm": True, "tie_embeddings": False},
    "pre layernorm with biases": {"norm_kind": "layernorm", "biases": True},
}
OUTPUT_NORMS = {
    "sandwich with biases": {"norm": "sandwich", "norm_kind": "layernorm", "biases": True},
    "reordered": {"norm": "reordered"},
}


def relative(found: Tensor, wanted: Tensor) -> float:
    return float(((found - wanted).abs().max() / wanted.abs().max()).detach())


@pytest.mark.parametrize("changes", (VARIANTS | OUTPUT_NORMS).values(), ids=(VARIANTS | OUTPUT_NORMS).keys())
def test_the_orders_sum_to_the_logits(changes: dict, tokens: Tensor):
    """T1: 1e-5 in fp32, 1e-10 in fp64."""
    gpt = make_gpt_with(**ATTENTION_ONLY, **changes)
    by_order = order_logits(gpt, tokens)
    assert by_order.shape[0] == 4
    assert relative(by_order.sum(0), gpt(tokens)) < 1e-5
    assert all(float(order.abs().max()) > 1e-3 for order in by_order)
    exact = gpt.double()
    assert relative(order_logits(exact, tokens).sum(0), exact(tokens)) < 1e-10


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_paths_sum_to_the_logit_and_to_their_orders(changes: dict, tokens: Tensor):
    gpt = make_gpt_with(**ATTENTION_ONLY, **changes).double()
    logits, target = gpt(tokens).detach(), tokens.roll(-1, 1)
    found = path_attribution(gpt, tokens, target, against=3)
    wanted = logits.gather(2, target[..., None])[..., 0] - logits[..., 3]
    assert relative(found.total, wanted) < 1e-10
    assert found.orders.count(1) == 12
    assert found.orders.count(2) == 3 * 16
    assert found.labels[-1] == "order 3"
    by_order = order_logits(gpt, tokens)
    for order in range(4):
        wanted = by_order[order].gather(2, target[..., None])[..., 0] - by_order[order][..., 3]
        torch.testing.assert_close(found.of_order(order), wanted, rtol=1e-9, atol=1e-9)


def test_orders_are_what_dense_products_of_the_weights_give(tokens: Tensor):
    """An independent implementation: (V, V) tables and products of patterns, without norms, by listing the paths."""
    gpt = make_gpt_with(ffn="none", norm="none", embed_std=0.3).double()
    x = torch.nn.functional.one_hot(tokens, gpt.config.d_vocab).double()
    _, cache = gpt.run_with_cache(tokens)
    ov = torch.einsum("lhme,lhen->lhmn", gpt.W_V, gpt.W_O)
    tables = [x @ (gpt.W_E @ gpt.W_U), torch.zeros(*x.shape).double(), torch.zeros(*x.shape).double()]
    for first in range(4):
        for layer in range(2):
            tables[1] += cache["pattern", layer][:, first] @ x @ (gpt.W_E @ ov[layer, first] @ gpt.W_U)
        for second in range(4):
            both = cache["pattern", 1][:, second] @ cache["pattern", 0][:, first]
            tables[2] += both @ x @ (gpt.W_E @ ov[0, first] @ ov[1, second] @ gpt.W_U)
    torch.testing.assert_close(order_logits(gpt, tokens), torch.stack(tables), rtol=1e-9, atol=1e-9)


def test_padding_changes_no_term(tokens: Tensor):
    gpt = make_gpt_with(ffn="none").double()
    padded = torch.nn.functional.pad(tokens, (2, 0))
    mask = torch.nn.functional.pad(torch.ones_like(tokens), (2, 0)).bool()
    found = order_logits(gpt, padded, attention_mask=mask)[:, :, 2:]
    torch.testing.assert_close(found, order_logits(gpt, tokens), rtol=1e-9, atol=1e-9)


def test_the_planted_copy_goes_through_the_induction_head_and_no_composition():
    """The induction head is fed through its keys: no path through two heads carries a value (no V-composition)."""
    gpt = planted.induction_model()
    tokens = repeated_tokens(4, 8, range(1, planted.D_VOCAB), seed=1, bos=0)
    by_order = order_logits(gpt, tokens)
    assert float(by_order[0].abs().max()) == 0
    assert float(by_order[2].abs().max()) == 0
    found = path_attribution(gpt, tokens, tokens.roll(-1, 1), against=tokens)
    carried = found.of("L1H2")[:, 9:-1]
    assert float(carried.min()) > 10
    assert all(float(found.of(label).abs().max()) == 0 for label in found.labels if label != "L1H2")


def test_terms_of_order_one_and_below_make_the_planted_loss():
    gpt = planted.induction_model()
    tokens = repeated_tokens(4, 8, range(1, planted.D_VOCAB), seed=1, bos=0)
    losses = order_losses(gpt, tokens, copy_outcome(8), batch_size=3)
    assert losses.shape == (4, 3)
    torch.testing.assert_close(losses[:, 0], torch.full((4,), math.log(planted.D_VOCAB)).double())
    assert float(losses[:, 1].max()) < 1e-3
    assert torch.equal(losses[:, 1], losses[:, 2])


def test_the_last_order_is_the_models_own_loss(tokens: Tensor):
    gpt = make_gpt_with(**ATTENTION_ONLY)
    losses = order_losses(gpt, tokens, TEXT)
    own = TEXT.of_logits(gpt(tokens).detach(), tokens).double()
    torch.testing.assert_close(losses[:, -1], own, rtol=1e-5, atol=1e-5)


def test_order_losses_hold_the_logits_of_one_order_at_a_time(tokens: Tensor, monkeypatch: pytest.MonkeyPatch):
    """The batch is sized for one set of logits, however many orders there are."""
    unembedded, sizes = path_expansion._Frozen.unembedded, []

    def watched(frozen, streams: Tensor) -> Tensor:
        logits = unembedded(frozen, streams)
        sizes.append(logits.numel())
        return logits

    monkeypatch.setattr(path_expansion._Frozen, "unembedded", watched)
    order_losses(make_gpt_with(**ATTENTION_ONLY), tokens, TEXT)
    assert sizes == [tokens.numel() * 50] * 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("changes", [{}, VARIANTS["scaled layernorm with biases"]])
def test_in_half_precision_terms_are_in_full(dtype: torch.dtype, changes: dict, tokens: Tensor):
    """They sum to the model's own logit as far as the model's rounding goes, and to each other beyond that."""
    gpt = make_gpt_with(**ATTENTION_ONLY, **changes).to(dtype)
    found, by_order = path_attribution(gpt, tokens, 7), order_logits(gpt, tokens)
    assert found.values.dtype == by_order.dtype == torch.float32
    assert relative(by_order.sum(0), gpt(tokens).float()) < 0.05
    assert relative(found.total, by_order.sum(0)[..., 7]) < 1e-5


def test_elhages_passes_give_the_same_losses(tokens: Tensor):
    """Their own procedure: freeze patterns and scales, start from heads that write zero, and run again and again."""
    gpt = make_gpt_with(ffn="none", n_layers=3).double()
    _, clean = gpt.run_with_cache(tokens)
    held = [(name, lambda x, hook: clean[hook.name]) for name in clean if name.endswith(("hook_scale", "hook_pattern"))]
    by_order, z = order_logits(gpt, tokens), [torch.zeros_like(clean["z", layer]) for layer in range(3)]
    for order in range(4):
        fed = [(f"blocks.{layer}.attn.hook_z", lambda x, hook, z=z: z[hook.layer]) for layer in range(3)]
        with gpt.hooks([*held, *fed]):
            logits, seen = gpt.run_with_cache(tokens)
        torch.testing.assert_close(by_order[: order + 1].sum(0), logits.detach(), rtol=1e-9, atol=1e-9)
        z = [torch.einsum("bhqk,bkhe->bqhe", clean["pattern", layer], seen["v", layer]) for layer in range(3)]


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({}, NotAdditiveError, "path expansion needs an attention-only model: with ffn=gelu paths lead through"),
        ({"ffn": "none", "norm": "post"}, NotAdditiveError, "with norm=post it is not"),
        ({"ffn": "none", "skip_connections": False}, NotAdditiveError, "with skip_connections=false it is not"),
        (
            {"ffn": "none", "norm": "sandwich"},
            NotAdditiveError,
            "a path through a single head has no weight of its own",
        ),
    ],
)
def test_what_has_no_paths_is_refused_with_the_reason(changes: dict, error: type, sentence: str, tokens: Tensor):
    with pytest.raises(error, match=re.escape(sentence)):
        path_attribution(make_gpt_with(**changes), tokens, 0)


def test_dropout_and_unknown_paths_are_refused(tokens: Tensor):
    gpt = make_gpt_with(ffn="none", dropout=0.1)
    with pytest.raises(InputError, match="so runs differ by chance"):
        order_logits(gpt.train(), tokens)
    with pytest.raises(LookupError, match=re.escape('no path "L0H1>L1H9" was taken apart. Did you mean')):
        path_attribution(gpt.eval(), tokens, 0).of("L0H1>L1H9")
    assert path_attribution(gpt, tokens, 0).labels[0] == DIRECT
