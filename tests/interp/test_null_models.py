"""Null models: fresh weights that are no run's start, and every value of a layer with another key."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from interp.null_models import dealt_orders, reinitialised, values_dealt
from model import GPT
from model.errors import InputError
from tests.conftest import make_gpt_with

VARIANTS = [{}, {"ffn": "swiglu", "biases": True}, {"norm": "post", "tie_embeddings": False}]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_model_they_are_made_of_stays_as_it_is(variant: dict[str, Any]) -> None:
    gpt = make_gpt_with(**variant)
    before = {name: weights.clone() for name, weights in gpt.state_dict().items()}
    for made in (reinitialised(gpt, 0), values_dealt(gpt, 0)):
        assert made.config == gpt.config
        for parameter in made.parameters():
            parameter.data.zero_()
    assert all(torch.equal(weights, before[name]) for name, weights in gpt.state_dict().items())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_dealing_keeps_every_value_of_a_layer_and_all_else_in_place(variant: dict[str, Any]) -> None:
    gpt = make_gpt_with(**variant)
    made, orders = values_dealt(gpt, 3), dealt_orders(gpt, 3)
    for name, weights in gpt.state_dict().items():
        assert torch.equal(made.state_dict()[name], weights) is ("out_proj.weight" not in name), name
    for own, dealt, order in zip(gpt.W_out, made.W_out, orders, strict=True):
        assert torch.equal(dealt, own[order])
        assert sorted(order.tolist()) == list(range(gpt.config.ffn_width))
    assert not torch.equal(*orders)  # each layer is dealt by itself


def test_a_seed_names_one_null_and_another_seed_another() -> None:
    gpt = make_gpt_with()
    for make in (reinitialised, values_dealt):
        first, again, other = (make(gpt, seed).W_out for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_a_fresh_model_is_not_the_step_zero_of_a_run_with_that_seed() -> None:
    gpt = make_gpt_with()
    assert not torch.equal(reinitialised(gpt, 0).W_in, GPT(gpt.config, seed=0).W_in)


def test_nulls_are_in_the_format_of_the_model_and_in_evaluation_mode() -> None:
    gpt = make_gpt_with(dropout=0.5).double().train()
    for made in (reinitialised(gpt, 0), values_dealt(gpt, 0)):
        assert made.dtype == torch.float64
        assert not made.training
        assert made.unembed.weight is made.embed.weight  # tied, as the config says


def test_hooks_of_the_model_do_not_reach_its_null() -> None:
    gpt = make_gpt_with()
    gpt.add_hook("blocks.0.mlp.hook_post", lambda tensor, hook: tensor * 0)
    assert not values_dealt(gpt, 0).hooked


def test_every_deal_is_as_likely_as_any_other() -> None:
    gpt = make_gpt_with(d_ff=3, n_layers=1)
    deals = [tuple(dealt_orders(gpt, seed)[0].tolist()) for seed in range(600)]
    counts = torch.tensor([deals.count(each) for each in set(deals)], dtype=torch.float64)
    assert len(counts) == 6
    assert ((counts - 100) ** 2 / 100).sum() < 20.5  # chi-square, 5 degrees of freedom, p = 0.001


def test_a_model_without_an_ffn_has_no_values_to_deal() -> None:
    with pytest.raises(InputError, match="attention-only"):
        values_dealt(make_gpt_with(ffn="none"), 0)
