"""Decay falls on matrices only, Muon gets the hidden ones, and a saved optimizer goes on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from model import GPT
from model.errors import CheckpointError
from model.training.config import OptimConfig
from model.training.muon import Float32Muon, orthogonalized
from model.training.optim import Optimizers

MakeGPT = Callable[..., GPT]
NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315), 5, 1e-7)


def descend(gpt: GPT, optimizers: Optimizers, tokens: Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizers.zero_grad()
        gpt.loss(tokens).backward()
        optimizers.step(1.0)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_decay_shrinks_matrices_and_leaves_norms_and_biases_alone(make_gpt: MakeGPT, optimizer: str) -> None:
    gpt = make_gpt(biases=True, norm_kind="layernorm", smeared_keys=True)
    before = {name: parameter.detach().clone() for name, parameter in gpt.named_parameters()}
    for parameter in gpt.parameters():
        parameter.grad = torch.zeros_like(parameter)
    Optimizers(gpt, OptimConfig(optimizer=optimizer, lr=0.1, muon_lr=0.1, weight_decay=0.5)).step(1.0)
    for name, parameter in gpt.named_parameters():
        shrunk = before[name] * (1 - 0.1 * 0.5) if parameter.ndim == 2 else before[name]
        torch.testing.assert_close(parameter.detach(), shrunk, msg=name)


@pytest.mark.parametrize("tied", [True, False])
def test_muon_gets_the_matrices_of_the_blocks_and_nothing_else(make_gpt: MakeGPT, tokens: Tensor, tied: bool) -> None:
    gpt = make_gpt(biases=True, positions="learned", tie_embeddings=tied, smeared_keys=True)
    optimizers = Optimizers(gpt, OptimConfig(optimizer="muon"))
    descend(gpt, optimizers, tokens, 1)
    by_muon = {key.removesuffix("/momentum_buffer") for key in optimizers.state() if key.endswith("momentum_buffer")}
    assert by_muon == {n for n, p in gpt.named_parameters() if n.startswith("blocks.") and p.ndim == 2}
    assert {key.rpartition("/")[0] for key in optimizers.state()} == {name for name, _ in gpt.named_parameters()}


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_the_fp32_muon_is_torchs_to_bfloat16_rounding(shape: tuple[int, int]) -> None:
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ours, theirs = (torch.nn.Parameter(weights.clone()) for _ in range(2))
    options = {"lr": 0.1, "weight_decay": 0.1}
    optimizers = Float32Muon([ours], **options), torch.optim.Muon([theirs], **options)
    for step in range(3):
        gradient = torch.randn(shape, generator=torch.Generator().manual_seed(step + 1))
        for matrix, optimizer in zip((ours, theirs), optimizers, strict=True):
            matrix.grad = gradient.clone()
            optimizer.step()
    moved = (ours - weights).norm()
    assert (ours - theirs).norm() < 0.02 * moved


@pytest.mark.parametrize("shape", [(16, 16), (8, 40), (40, 8)])
def test_orthogonalising_brings_every_singular_value_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    values = torch.linalg.svdvals(orthogonalized(matrix, *NEWTON_SCHULZ))
    assert ((values > 0.3) & (values < 1.3)).all()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_saved_state_goes_on_bit_for_bit(make_gpt: MakeGPT, tokens: Tensor, optimizer: str) -> None:
    config = OptimConfig(optimizer=optimizer, lr=0.01)
    straight, stopped = make_gpt(), make_gpt()
    descend(straight, Optimizers(straight, config), tokens, 5)
    first = Optimizers(stopped, config)
    descend(stopped, first, tokens, 3)
    kept = {name: tensor.clone() for name, tensor in first.state().items()}
    second = Optimizers(stopped, config)
    second.load_state(kept)
    descend(stopped, second, tokens, 2)
    for a, b in zip(straight.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_state_of_another_model_or_optimizer_is_refused(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(biases=True)
    adamw = Optimizers(gpt, OptimConfig())
    descend(gpt, adamw, tokens, 1)
    with pytest.raises(CheckpointError, match="does not belong to this run"):
        Optimizers(make_gpt(), OptimConfig()).load_state(adamw.state())
    lacking = {name: tensor for name, tensor in adamw.state().items() if not name.startswith("embed")}
    with pytest.raises(CheckpointError, match=r'"embed\.weight/exp_avg" has no counterpart'):
        Optimizers(make_gpt(biases=True), OptimConfig()).load_state(lacking)
    with pytest.raises(CheckpointError, match="does not belong to this run"):
        Optimizers(make_gpt(biases=True), OptimConfig(optimizer="muon")).load_state(adamw.state())


def test_each_optimizer_follows_the_schedule_from_its_own_peak(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt()
    before = {name: parameter.detach().clone() for name, parameter in gpt.named_parameters()}
    optimizers = Optimizers(gpt, OptimConfig(optimizer="muon", lr=0.1, muon_lr=0.01, weight_decay=0.0))
    gpt.loss(tokens).backward()
    optimizers.step(0.5)
    moved = {name: (parameter.detach() - before[name]) for name, parameter in gpt.named_parameters()}
    assert moved["embed.weight"].abs().max() == pytest.approx(0.1 * 0.5, rel=1e-3), (
        "Adam's first step has the rate's size"
    )
    assert torch.linalg.matrix_norm(moved["blocks.0.attn.q_proj.weight"], 2) == pytest.approx(0.01 * 0.5, rel=0.3)
