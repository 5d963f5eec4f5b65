"""What goes wrong with padding and key-value caches elsewhere, and what holds here (docs/known-pitfalls.md)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, KeyValueCache, Positions
from tests.model.variants import POSITIONS, name_of

MakeGPT = Callable[..., GPT]


def spread_out(tokens: Tensor, mask: Tensor) -> Tensor:
    """Each row's tokens where the mask is true, and a token that must not matter elsewhere."""
    padded = torch.full(mask.shape, 49)
    padded[mask] = tokens.flatten()
    return padded


def left(n_pad: int) -> Tensor:
    return torch.arange(12 + n_pad).expand(3, -1) >= n_pad


def gaps() -> Tensor:
    """Padding before, between and behind, elsewhere in each row."""
    mask = torch.ones(3, 18, dtype=torch.bool)
    for row, holes in enumerate(([0, 4, 5, 6, 11, 17], [3, 4, 8, 9, 16, 17], [0, 1, 2, 12, 13, 14])):
        mask[row, holes] = False
    return mask


MASKS = {"none": left(0), "1 left": left(1), "3 left": left(3), "8 left": left(8), "right": left(5).flip(1)}
MASKS["gaps"] = gaps()


@pytest.mark.parametrize(
    ("mask", "explicit"),
    [*((mask, False) for mask in MASKS.values()), (MASKS["gaps"], True)],
    ids=[*MASKS, "gaps, explicit"],
)
@pytest.mark.parametrize(
    "variant", [*POSITIONS, {"n_kv_heads": 2, "norm": "post"}, {"smeared_keys": True}], ids=name_of
)
def test_positions_count_tokens_and_never_padding(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], mask: Tensor, explicit: bool
) -> None:
    gpt, padded = make_gpt(**variant), spread_out(tokens, mask)
    expected = gpt(tokens)
    with gpt.explicit_attention() if explicit else nullcontext():
        found = gpt(padded, mask)
    torch.testing.assert_close(found[mask].view_as(expected), expected, rtol=1e-4, atol=2e-5)
    if bool((mask[:, 1:] | ~mask[:, :-1]).all()):  # left padding only: the same next tokens are predicted
        assert gpt.loss(padded, mask).item() == pytest.approx(gpt.loss(tokens).item(), abs=1e-5)


@pytest.mark.parametrize("positions", Positions)
def test_a_prefilled_cache_and_a_mask_go_together(make_gpt: MakeGPT, tokens: Tensor, positions: Positions) -> None:
    """Five positions at once, then four, with a mask over all nine, then one by one."""
    gpt, mask = make_gpt(positions=positions), torch.arange(12) >= torch.tensor([[0], [2], [4]])
    full = gpt(tokens, mask)
    cache = KeyValueCache(gpt.config, 3, device=gpt.device, dtype=gpt.dtype)
    parts, start = [], 0
    for n_new in (5, 4, 1, 1, 1):
        end = start + n_new
        parts.append(gpt(tokens[:, start:end], mask[:, :end], kv_cache=cache))
        start = end
    found = torch.cat(parts, dim=1)
    torch.testing.assert_close(found[mask], full[mask], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", ["rope", "learned", "alibi"])
def test_sixty_four_cached_steps_give_the_logits_of_one_pass(make_gpt: MakeGPT, positions: str) -> None:
    gpt = make_gpt(positions=positions, n_ctx=64, n_layers=1)
    tokens = torch.randint(0, 50, (2, 64), generator=torch.Generator().manual_seed(2))
    cache = KeyValueCache(gpt.config, 2, device=gpt.device, dtype=gpt.dtype)
    with torch.no_grad():
        steps = torch.cat([gpt(tokens[:, at : at + 1], kv_cache=cache) for at in range(64)], dim=1)
        torch.testing.assert_close(steps, gpt(tokens), rtol=1e-5, atol=1e-5)
