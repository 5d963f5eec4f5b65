"""Importance by gates is Michel's formula, per sequence, and agrees with finite differences of whole runs."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.harm import measure_harms
from interp.importance import head_importance
from interp.loss_gradients import at_the_end, final_stream
from interp.outcomes import TEXT, Outcome, copy_outcome, get_outcome
from interp.places import Head, every_head, head
from model import GPT, GPTConfig
from model.errors import InputError, UnknownNameError
from model.sites import Tap
from tests import planted
from tests.conftest import make_gpt_with

Make = Callable[..., GPT]
STEP = 1e-5


def doubled(**changes: Any) -> GPT:
    """A tiny model in fp64, where a finite difference has digits to spare."""
    return make_gpt_with(**changes).double()


def gated(gpt: GPT, tokens: Tensor, gates: dict[Head, float], outcome: Outcome = TEXT) -> Tensor:
    """Each sequence's outcome in a run of its own with z times a gate: nothing of the code under test."""

    def times(layer: int) -> Any:
        def edit(z: Tensor, hook: Any) -> Tensor:
            factors = torch.ones(gpt.config.n_heads, dtype=z.dtype)
            for (at, index), gate in gates.items():
                if at == layer:
                    factors[index] = gate
            return z * factors[:, None]

        return edit

    hooks = [(Tap.Z.at(layer), times(layer)) for layer in range(gpt.config.n_layers)]
    with torch.no_grad():
        return outcome.of_logits(gpt.run_with_hooks(tokens, hooks), tokens)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "post"}, {"norm": "sandwich"}, {"positions": "alibi"}, {"n_kv_heads": 2}, {"ffn": "none"}],
)
def test_the_gate_gives_output_times_gradient(changes: dict[str, Any], tokens: Tensor):
    """I_h = |Att^T dL/dAtt|, from the heads' own outputs and their gradients."""
    gpt = doubled(**changes)
    found = head_importance(gpt, tokens).heads
    for row in range(len(tokens)):
        _, cache = gpt.run_with_cache(
            tokens[row : row + 1], lambda name: name.endswith("hook_result"), incl_bwd=True, return_type="loss"
        )
        for layer in range(gpt.config.n_layers):
            site = Tap.RESULT.at(layer)
            by_head = (cache[site] * cache[f"{site}_grad"]).sum((0, 1, 3))
            torch.testing.assert_close(found[row, layer], by_head.double(), atol=1e-10, rtol=1e-8)


def test_in_single_precision_it_is_the_same_to_a_few_millionths(tokens: Tensor, tiny: GPT):
    found = head_importance(tiny, tokens)
    _, cache = tiny.run_with_cache(
        tokens, "blocks.0.attn.hook_result", incl_bwd=True, loss_fn=lambda logits: TEXT.of_logits(logits, tokens).sum()
    )
    by_head = (cache["result", 0] * cache["result", 0, "grad"]).sum((1, 3))
    torch.testing.assert_close(found.heads[:, 0], by_head.double(), atol=2e-6, rtol=2e-6)
    assert (found.size - found.heads.abs().mean(0)).abs().max() == 0


@pytest.mark.parametrize("outcome", [TEXT, get_outcome("new_token_loss", period=3)])
def test_the_gate_gives_what_closing_it_a_little_costs(outcome: Outcome, tokens: Tensor):
    gpt = doubled()
    found = head_importance(gpt, tokens, outcome).heads
    for at in every_head(2, 4):
        more, less = (gated(gpt, tokens, {at: 1 + step}, outcome) for step in (STEP, -STEP))
        torch.testing.assert_close(found[:, at[0], at[1]], (more - less) / (2 * STEP), atol=1e-7, rtol=1e-5)


def test_the_others_are_judged_in_the_model_without_the_removed_ones(tokens: Tensor):
    gpt, removed = doubled(), {(0, 1): 0.0, (1, 3): 0.0}
    found = head_importance(gpt, tokens, removed=list(removed))
    for at in [(0, 0), (1, 2), (0, 1)]:
        centre = removed.get(at, 1.0)
        more, less = (gated(gpt, tokens, removed | {at: centre + step}) for step in (STEP, -STEP))
        torch.testing.assert_close(found.heads[:, at[0], at[1]], (more - less) / (2 * STEP), atol=1e-7, rtol=1e-5)
    assert set(found.order()) == set(every_head(2, 4)) - set(removed)


def test_an_ffn_has_a_gate_of_its_own(tokens: Tensor):
    gpt = doubled(biases=True)
    found = head_importance(gpt, tokens).ffns
    assert found is not None
    for layer in range(2):
        more, less = (
            TEXT.of_logits(gpt.run_with_hooks(tokens, [(Tap.MLP_POST.at(layer), lambda x, _, g=g: x * g)]), tokens)
            for g in (1 + STEP, 1 - STEP)
        )
        torch.testing.assert_close(found[:, layer], (more - less).detach() / (2 * STEP), atol=1e-7, rtol=1e-5)
    assert head_importance(doubled(ffn="none"), tokens).ffns is None


def test_sequences_on_which_a_head_helps_and_hurts_do_not_cancel(tokens: Tensor):
    found = head_importance(doubled(), tokens)
    alone = torch.cat([head_importance(doubled(), tokens[row : row + 1]).heads for row in range(len(tokens))])
    torch.testing.assert_close(found.heads, alone)
    mixed = (found.heads > 0).any(0) & (found.heads < 0).any(0)
    assert mixed.any()
    assert (found.size > found.heads.mean(0).abs() + 1e-9)[mixed].all()
    interval, of_ffns = found.intervals(), found.ffn_intervals()
    assert ((interval.low <= found.size) & (found.size <= interval.high)).all()
    assert found.ffns is not None
    assert of_ffns is not None
    torch.testing.assert_close(of_ffns.mean, found.ffns.abs().mean(0))
    assert (found.ffns < 0).any()


def trained(n_steps: int, seed: int) -> tuple[GPT, Tensor]:
    """A model of 16 heads that has seen a little Python, byte by byte, and rows of it that it has not seen."""
    text = torch.tensor(list(inspect.getsource(argparse).encode("ascii", "ignore")))
    gpt = GPT(GPTConfig(n_layers=4, n_heads=4, d_model=32, n_ctx=32, d_vocab=128), seed=seed).train()
    generator, held_out = torch.Generator().manual_seed(seed), int(0.9 * len(text))

    def rows(n: int, start: int, stop: int) -> Tensor:
        first = torch.randint(start, stop - 32, (n, 1), generator=generator)
        return text[first + torch.arange(32)]

    optimizer = torch.optim.AdamW(gpt.parameters(), lr=6e-3, weight_decay=0.0)
    scale = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20) * (1 - step / n_steps))
    for _ in range(n_steps):
        optimizer.zero_grad()
        TEXT.of_logits(gpt(batch := rows(16, 0, held_out)), batch).mean().backward()
        optimizer.step()
        scale.step()
    return gpt.eval(), rows(64, held_out, len(text))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_in_a_trained_model_the_gradient_ranks_heads_on_text_as_taking_them_out_does(seed: int):
    """Importance is first-order; that it still orders heads by |dL| is an empirical claim, made of trained models."""
    gpt, tokens = trained(300, seed)  # after 100 steps the rank correlation is still anything from 0.3 to 1
    heads = every_head(4, 4)
    found = head_importance(gpt, tokens).size.flatten()
    harm = measure_harms(gpt, tokens, [[head(*each, "zero")] for each in heads], [TEXT]).harm[..., 0].mean(0).abs()
    ranks = torch.stack([found.argsort().argsort(), harm.argsort().argsort()]).double()
    assert float(torch.corrcoef(ranks)[0, 1]) >= 0.7
    assert float(harm.max()) > 0.05, "a model in which no head matters orders nothing"


def test_a_silenced_head_is_of_no_importance_and_the_first_to_go(tokens: Tensor):
    gpt = doubled()
    planted.silence(gpt, layer=1, head=2)
    found = head_importance(gpt, tokens)
    assert found.size[1, 2] == 0
    assert found.order()[0] == (1, 2)
    assert (found.size > 0).sum() == 7


def test_where_the_loss_is_flat_the_gradient_sees_nothing_of_the_heads_that_do_everything():
    """The planted circuit copies without loss: without a head of it all is lost, a little more of it gains nothing."""
    gpt, generator = planted.induction_model(), torch.Generator().manual_seed(0)
    segment = torch.stack([1 + torch.randperm(planted.D_VOCAB - 1, generator=generator)[:12] for _ in range(4)])
    tokens = torch.cat([torch.zeros(4, 1, dtype=torch.long), segment, segment], 1)
    outcome = copy_outcome(12)
    found = head_importance(gpt, tokens, outcome)
    clean, without = gated(gpt, tokens, {}, outcome), gated(gpt, tokens, {planted.INDUCTION_HEAD: 0.0}, outcome)
    assert (without - clean).mean() > 2
    assert found.size.max() < 1e-3


def test_layers_are_normalized_only_on_request(tokens: Tensor):
    found = head_importance(doubled(), tokens)
    torch.testing.assert_close(found.layer_normalized.norm(dim=1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(found.layer_normalized * found.size.norm(dim=1, keepdim=True), found.size)


def test_how_much_is_remembered_at_a_time_changes_no_number(tiny: GPT, tokens: Tensor):
    little, much = (head_importance(tiny, tokens, memory=memory).heads for memory in (1, 2**28))
    torch.testing.assert_close(little, much, atol=1e-7, rtol=1e-5)


def test_blocks_of_logits_give_the_gradient_of_all_of_them(tokens: Tensor):
    gpt, outcome = doubled(), get_outcome("new_token_loss", period=3)
    final = final_stream(gpt, tokens, [])
    whole = outcome.of_logits(gpt(tokens), tokens)
    (gradient,) = torch.autograd.grad(outcome.of_logits(gpt.unembed_stream(final), tokens).sum(), final)
    for n_rows in (1, 7, 1000):
        end = at_the_end(gpt, final, tokens, outcome, n_rows=n_rows)
        torch.testing.assert_close(end.value, whole.detach())
        torch.testing.assert_close(end.gradient, gradient)
    with torch.no_grad():
        assert at_the_end(gpt, final, tokens, outcome, n_rows=7).gradient.isnan().all()


def test_hooks_in_force_count_also_those_on_the_logits(tokens: Tensor):
    gpt = doubled()
    planted.silence(gpt, layer=0, head=3)
    hooks = [(Tap.LOGITS.at(), lambda logits, _: 2 * logits), (Tap.Z.at(1), lambda z, _: z * 0.5)]
    with gpt.hooks(fwd_hooks=hooks):
        found = head_importance(gpt, tokens).heads
        more, less = (gated(gpt, tokens, {(0, 2): 1 + step}) for step in (STEP, -STEP))
    torch.testing.assert_close(found[:, 0, 2], (more - less) / (2 * STEP), atol=1e-7, rtol=1e-5)
    assert (found[:, 0, 3] == 0).all()


def test_it_leaves_the_model_as_it_was(tiny: GPT, tokens: Tensor):
    before = tiny(tokens)
    head_importance(tiny, tokens)
    assert torch.equal(before, tiny(tokens))
    assert all(parameter.grad is None for parameter in tiny.parameters())


@pytest.mark.parametrize(
    ("changes", "given", "error", "said"),
    [
        ({"attention": "bidirectional"}, {}, InputError, "sees the next token"),
        ({"dropout": 0.1}, {}, InputError, "call gpt.eval()"),
        ({}, {"removed": [(2, 0)]}, UnknownNameError, "no L2H0"),
        ({}, {"removed": [(1, 0), (1, 0)]}, InputError, "Name every component once"),
        ({}, {"outcome": get_outcome("text_kl", period=3)}, InputError, "text_kl is not made of next-token losses"),
        ({}, {"memory": 0}, InputError, "memory=0 holds nothing"),
    ],
)
def test_what_cannot_be_differentiated_is_refused(
    changes: dict[str, Any], given: dict[str, Any], error: type[Exception], said: str, make_gpt: Make, tokens: Tensor
):
    gpt = make_gpt(**changes)
    if "dropout" in changes:
        gpt.train()
    with pytest.raises(error, match=said.replace("(", r"\(").replace(")", r"\)")):
        head_importance(gpt, tokens, **given)
