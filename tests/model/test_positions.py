"""Rotation depends on distance alone, in every precision; ALiBi and sinusoids are the papers' numbers."""

from __future__ import annotations

import math

import torch

from model import GPT
from model.positions import Rotation, alibi_bias, alibi_slopes, sinusoids


def rotated(x: torch.Tensor, positions: torch.Tensor, base: float = 10_000.0) -> torch.Tensor:
    """Rows of x, each at its own position: [pos, d_head]."""
    return Rotation.of(positions[None], x.shape[-1], base, x.dtype)(x[None, :, None])[0, :, 0]


def test_a_rotated_product_depends_on_the_distance_alone_up_to_position_4090() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(64, generator=generator).to(torch.bfloat16).float() for _ in range(2))
    positions = torch.arange(4090)
    products = (rotated(q.expand(4090, -1), positions + 5) * rotated(k.expand(4090, -1), positions)).sum(-1) / 8
    assert products.std() <= 1e-4
    # After the cast to bf16 the spread is at most 1.2 times what rounding exactly rotated vectors costs.
    exact_q = rotated(q.double().expand(4090, -1), positions + 5).to(torch.bfloat16).double()
    exact_k = rotated(k.double().expand(4090, -1), positions).to(torch.bfloat16).double()
    ours_q = rotated(q.to(torch.bfloat16).expand(4090, -1), positions + 5).double()
    ours_k = rotated(k.to(torch.bfloat16).expand(4090, -1), positions).double()
    assert (ours_q * ours_k).sum(-1).std() <= 1.2 * (exact_q * exact_k).sum(-1).std()


def test_rotation_keeps_norms_and_leaves_position_0_alone() -> None:
    x = torch.randn(10, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(rotated(x, torch.arange(10)).norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(rotated(x, torch.arange(10))[0], x[0])


def test_rotation_pairs_the_two_halves() -> None:
    """Dimension i turns with i + d_head / 2 (Llama), not with its neighbour: the two are not interchangeable."""
    turned = rotated(torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([3]))[0]
    torch.testing.assert_close(turned, torch.tensor([math.cos(3), 0, math.sin(3), 0]))


def test_casting_the_model_does_not_cast_the_angles(tiny: GPT) -> None:
    assert not list(tiny.buffers())
    positions = torch.tensor([[4001]])
    assert Rotation.of(positions, 8, 10_000.0, torch.bfloat16).cos.dtype is torch.float32
    assert Rotation.of(positions, 8, 10_000.0, torch.float64).cos.dtype is torch.float64


def test_alibi_slopes_are_the_papers() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    bias = alibi_bias(torch.arange(4)[None], torch.arange(4)[None], 2, torch.float32)
    assert bias[0, 0, 3].tolist() == [-3 / 16, -2 / 16, -1 / 16, 0]


def test_sinusoids_are_the_papers() -> None:
    table = sinusoids(torch.tensor([[0, 7]]), 6)[0]
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    angle = 7 / 10_000 ** (2 / 6)
    torch.testing.assert_close(table[1, 2:4], torch.tensor([math.sin(angle), math.cos(angle)], dtype=torch.float64))
