"""Gradient norms are what autograd says they are, and slopes and exponents are found where they were planted."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from interp.gradients import (
    depth_exponent,
    fitting_rows,
    gradient_norms,
    layer_slope,
    stream_gradient_norms,
    stream_sites,
)
from model import GPT
from model.errors import InputError

PLACEMENTS = ["pre", "post", "sandwich", "reordered", "deepnorm", "scaled", "none"]


@pytest.mark.parametrize("norm", PLACEMENTS)
def test_norms_by_group_are_those_of_backward(make_gpt, tokens: Tensor, norm: str) -> None:
    gpt = make_gpt(norm=norm, biases=True)
    measured = gradient_norms(gpt, tokens)
    loss = gpt.loss(tokens)
    loss.backward()
    for group, members in gpt.parameter_groups().items():
        squares = sum(float(p.grad.double().square().sum()) for _, p in members if p.grad is not None)
        assert measured.parameters[group] == pytest.approx(math.sqrt(squares), rel=1e-5, abs=1e-9)
    assert measured.loss == pytest.approx(loss.item(), rel=1e-6)


def test_norms_on_the_stream_are_those_of_the_cache(tiny: GPT, tokens: Tensor) -> None:
    measured = gradient_norms(tiny, tokens)
    names = [str(site) for site in stream_sites(tiny)]
    _, cache = tiny.run_with_cache(tokens, names, incl_bwd=True, return_type="loss")
    assert list(measured.stream) == names
    for name in names:
        assert measured.stream[name] == pytest.approx(float(cache[f"{name}_grad"].norm()), rel=1e-5)
        assert measured.mean_square[name] == pytest.approx(float(cache[name].square().mean()), rel=1e-5)


@pytest.mark.parametrize("norm", PLACEMENTS)
def test_one_tokens_gradient_at_the_last_w_out_is_that_of_its_own_loss(make_gpt, tokens: Tensor, norm: str) -> None:
    gpt = make_gpt(norm=norm)
    weight = gpt.layers[-1].mlp.out_proj.weight
    logits = gpt(tokens)
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    squares = [float(torch.autograd.grad(each, weight, retain_graph=True)[0].square().sum()) for each in losses]
    expected = math.sqrt(sum(squares) / len(squares))
    assert gradient_norms(gpt, tokens).last_w_out_per_token == pytest.approx(expected, rel=1e-4)


def test_without_an_ffn_there_is_no_gradient_of_its_w_out(make_gpt, tokens: Tensor) -> None:
    measured = gradient_norms(make_gpt(ffn="none"), tokens)
    assert math.isnan(measured.last_w_out_per_token)
    assert not any("W_out" in group for group in measured.parameters)


def test_measuring_leaves_the_parameters_gradients_alone(tiny: GPT, tokens: Tensor) -> None:
    gradient_norms(tiny, tokens)
    assert all(parameter.grad is None for parameter in tiny.parameters())
    with torch.no_grad():  # also where gradients are switched off
        assert gradient_norms(tiny, tokens).loss > 0


@pytest.mark.parametrize("batch_size", [1, 2])  # of three rows: passes of unequal size too
def test_rows_in_several_passes_have_the_gradient_of_all_at_once(tiny: GPT, tokens: Tensor, batch_size: int) -> None:
    whole, parts = gradient_norms(tiny, tokens), gradient_norms(tiny, tokens, batch_size=batch_size)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    assert parts.last_w_out_per_token == pytest.approx(whole.last_w_out_per_token, rel=1e-5)
    assert stream_gradient_norms(tiny, tokens, batch_size=batch_size) == parts.stream
    for part in ("parameters", "stream", "mean_square"):
        assert getattr(parts, part) == pytest.approx(getattr(whole, part), rel=1e-5)


def test_a_large_model_takes_fewer_rows_at_once_and_a_small_one_all(tiny: GPT) -> None:
    assert fitting_rows(tiny.config, 8) > 1000
    large = tiny.config.varied(n_layers=30, d_vocab=49_152, n_heads=9, d_model=576, d_head=64, d_ff=1536)
    assert 1 < fitting_rows(large, 64) < 16
    assert fitting_rows(large, 100_000) == 1


def test_a_planted_slope_is_found_with_its_interval() -> None:
    noise = torch.tensor([[-0.1, 0.0, 0.1]]).T
    norms = torch.exp((0.3 + noise) * torch.arange(6) + 1.0)
    slope = layer_slope(norms)
    assert slope.mean == pytest.approx(0.3, abs=1e-6)
    assert slope.high - slope.mean == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-4)  # t(0.975, 2) s / sqrt(n)
    assert slope.excludes(0)


def test_a_planted_exponent_is_found() -> None:
    depths = [4, 8, 16]
    norms = torch.tensor([[5.0 * depth**-0.5 for depth in depths]] * 2)
    exponent = depth_exponent(depths, norms)
    assert exponent.mean == pytest.approx(-0.5, abs=1e-6)
    assert exponent.high - exponent.low == pytest.approx(0, abs=1e-5)


def test_a_model_with_live_dropout_has_no_one_gradient(make_gpt, tokens: Tensor) -> None:
    with pytest.raises(InputError, match=r"dropout=0\.1, so runs differ by chance; call gpt\.eval\(\)"):
        gradient_norms(make_gpt(dropout=0.1).train(), tokens)
