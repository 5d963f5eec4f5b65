"""The held norm against the norm itself, and the two ways through it against one another."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.linear_norms import after_norm, before_norm
from model.config import GPTConfig, NormKind
from model.norms import NormLayer


def norm_of(kind: NormKind, dtype: torch.dtype = torch.float64) -> NormLayer:
    """A norm with gains, a bias where it may have one, and the shrinkage of the scaled placement."""
    generator = torch.Generator().manual_seed(0)
    norm = NormLayer(
        GPTConfig(n_layers=3, n_heads=2, d_model=8, n_ctx=8, d_vocab=8, norm_kind=kind, biases=True),
        "ln1",
        2,
        shrink=3**-0.5,
    )
    with torch.no_grad():
        for part in norm.parameters():
            part.copy_(torch.randn(8, generator=generator))
    return norm.to(dtype).requires_grad_(requires_grad=False)


@pytest.mark.parametrize("kind", list(NormKind))
def test_parts_through_a_held_norm_and_its_bias_sum_to_what_the_norm_makes_of_the_whole(kind: NormKind) -> None:
    norm, parts = norm_of(kind), _drawn(4, 3, 5, 8)
    whole = parts.sum(0)
    found = after_norm(norm, norm.scale(whole), parts).sum(0)
    bias = 0 if norm.b is None else norm.b * norm.shrink
    torch.testing.assert_close(found + bias, norm(whole), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", list(NormKind))
def test_a_direction_brought_before_the_norm_does_there_what_it_does_after_it(kind: NormKind) -> None:
    norm, part, direction = norm_of(kind), _drawn(3, 5, 8), _drawn(3, 5, 8, seed=1)
    scale = norm.scale(part)
    after = (after_norm(norm, scale, part) * direction).sum(-1)
    torch.testing.assert_close((part * before_norm(norm, scale, direction)).sum(-1), after, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", list(NormKind))
def test_half_precision_is_answered_in_kind_and_rounded_once(kind: NormKind) -> None:
    norm, part = norm_of(kind, torch.bfloat16), _drawn(3, 5, 8).bfloat16()
    scale = norm.scale(part)
    exact = norm_of(kind, torch.bfloat16).double()
    for through in (after_norm, before_norm):
        found = through(norm, scale, part)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, through(exact, scale.double(), part.double()).bfloat16())


def _drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
