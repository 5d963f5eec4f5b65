"""Generation: the key-value cache changes the cost, never the text; and what cannot be generated is said."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, GPTConfig, Hook, KeyValueCache
from model.errors import InputError
from model.positions import Rotation
from tests.model.variants import PLACEMENTS, POSITIONS, name_of

MakeGPT = Callable[..., GPT]
VARIANTS = [*PLACEMENTS[::2], *POSITIONS, {"n_kv_heads": 2, "qk_norm": True}, {"ffn": "swiglu"}]
VARIANTS += [{"smeared_keys": True}, {"smeared_keys": True, "qk_norm": True, "n_kv_heads": 2, "positions": "none"}]


RAGGED = torch.tensor([0, 2, 4])[:, None] <= torch.arange(12)
"""Three prompts, padded on the left."""


def cache_for(gpt: GPT, n_batch: int) -> KeyValueCache:
    return KeyValueCache(gpt.config, n_batch, device=gpt.device, dtype=gpt.dtype)


def decoded(gpt: GPT, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """Logits of five positions at once and then of one at a time, through the cache."""
    cache = cache_for(gpt, len(tokens))
    parts, start = [], 0
    for end in (5, *range(6, tokens.shape[1] + 1)):
        parts.append(gpt(tokens[:, start:end], None if mask is None else mask[:, :end], kv_cache=cache))
        start = end
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_cached_decoding_equals_the_full_pass(make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any]) -> None:
    gpt = make_gpt(**variant)
    torch.testing.assert_close(decoded(gpt, tokens), gpt(tokens), rtol=1e-5, atol=1e-5)
    expected = gpt(tokens, RAGGED)
    torch.testing.assert_close(decoded(gpt, tokens, RAGGED)[RAGGED], expected[RAGGED], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", [*POSITIONS, {"smeared_keys": True}], ids=name_of)
@pytest.mark.parametrize("explicit", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("mask", [None, RAGGED], ids=["whole", "padded"])
def test_several_positions_after_a_past_see_it_and_not_each_other_s_future(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], mask: Tensor | None, *, explicit: bool
) -> None:
    """The mask is given once, with the prompt: the cache remembers it."""
    gpt = make_gpt(**variant)
    cache = cache_for(gpt, 3)
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    with torch.no_grad(), gpt.explicit_attention() if explicit else nullcontext():
        parts = [gpt(tokens[:, :5], None if mask is None else mask[:, :5], kv_cache=cache)]
        parts += [gpt(tokens[:, start:end], kv_cache=cache) for start, end in ((5, 8), (8, 9), (9, 12))]
        torch.testing.assert_close(torch.cat(parts, dim=1)[real], gpt(tokens, mask)[real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_rotations_looked_up_are_those_computed(dtype: torch.dtype) -> None:
    positions = torch.tensor([[-1, 0, 1, 511], [3, 2, 300, 7]])
    config = GPTConfig(n_layers=1, n_heads=1, d_model=16, n_ctx=512, d_vocab=5)
    found = KeyValueCache(config, 2, device=torch.device("cpu"), dtype=dtype).rotation(positions)
    expected = Rotation.of(positions, 16, 10_000.0, dtype)
    assert found is not None
    assert torch.equal(found.cos, expected.cos)
    assert torch.equal(found.sin, expected.sin)


def test_cached_decoding_equals_the_full_pass_under_hooks_that_go_by_position(
    make_gpt: MakeGPT, tokens: Tensor
) -> None:
    gpt = make_gpt().double()

    def silence_after_three(z: Tensor, hook: Hook) -> Tensor:
        late = (hook.positions > 3)[:, :, None]
        z[:, :, 1] = torch.where(late, 0.0, z[:, :, 1])
        return z

    clean = gpt(tokens)
    with gpt.hooks([("blocks.0.attn.hook_z", silence_after_three)]):
        torch.testing.assert_close(decoded(gpt, tokens), gpt(tokens), rtol=1e-9, atol=1e-9)
        assert (gpt(tokens) - clean)[:, 4:].abs().max() > 1e-3
        assert torch.equal(gpt(tokens)[:, :4], clean[:, :4])


@pytest.mark.parametrize("variant", [*POSITIONS, {"norm": "post"}, {"smeared_keys": True}], ids=name_of)
def test_the_cache_changes_no_token(make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any]) -> None:
    gpt = make_gpt(**variant)
    options = {"max_new_tokens": 10, "temperature": 0.8, "top_k": 20, "top_p": 0.95, "seed": 3}
    with_cache = gpt.generate(tokens, **options)
    assert torch.equal(with_cache, gpt.generate(tokens, **options, use_kv_cache=False))
    assert with_cache.shape == (3, 22)
    assert torch.equal(with_cache[:, :12], tokens)


@pytest.mark.parametrize("variant", [{}, {"smeared_keys": True}], ids=name_of)
def test_a_padded_batch_continues_like_each_prompt_alone(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any]
) -> None:
    gpt, short = make_gpt(**variant), tokens[1:2, :4]
    batch = torch.cat((tokens[:1, :7], torch.cat((torch.zeros(1, 3, dtype=torch.long), short), dim=1)))
    mask = torch.tensor([[1] * 7, [0] * 3 + [1] * 4]).bool()
    together = gpt.generate(batch, max_new_tokens=6, temperature=0.0, attention_mask=mask)
    assert torch.equal(together[0, 7:], gpt.generate(tokens[:1, :7], max_new_tokens=6, temperature=0.0)[0, 7:])
    assert torch.equal(together[1, 7:], gpt.generate(short, max_new_tokens=6, temperature=0.0)[0, 4:])


def test_a_seed_names_the_text(tiny: GPT, tokens: Tensor) -> None:
    torch.manual_seed(0)
    first = tiny.generate(tokens, max_new_tokens=8, temperature=5.0, seed=1)
    assert torch.equal(first, tiny.generate(tokens, max_new_tokens=8, temperature=5.0, seed=1))
    assert not torch.equal(first, tiny.generate(tokens, max_new_tokens=8, temperature=5.0, seed=2))


def test_sampling_draws_what_torch_draws(tiny: GPT, tokens: Tensor) -> None:
    text = tiny.generate(tokens, max_new_tokens=6, temperature=1.3, seed=4)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for end in range(12, 18):
            probabilities = (tiny(text[:, :end])[:, -1] / 1.3).softmax(-1)
            assert torch.equal(text[:, end], torch.multinomial(probabilities, 1, generator=generator)[:, 0])


def test_what_is_generated_and_what_hooks_saw_can_be_learned_from(tiny: GPT, tokens: Tensor) -> None:
    tiny.loss(tiny.generate(tokens, max_new_tokens=3)).backward()
    seen: list[Tensor] = []
    with tiny.hooks([("blocks.1.hook_resid_post", lambda x, hook: seen.append(x))]):
        text = tiny.generate(tokens, max_new_tokens=3)
    probe = torch.nn.Linear(32, 1)
    probe(torch.cat(seen, dim=1)).sum().backward()
    assert probe.weight.grad is not None
    tiny.loss(text).backward()


def test_top_k_and_top_p_keep_the_likeliest(tiny: GPT, tokens: Tensor) -> None:
    greedy = tiny.generate(tokens, max_new_tokens=5, temperature=0.0)
    assert torch.equal(greedy, tiny.generate(tokens, max_new_tokens=5, top_k=1))
    assert torch.equal(greedy, tiny.generate(tokens, max_new_tokens=5, top_p=1e-6))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_new_tokens": 14}, "12 tokens and 14 more exceed n_ctx=24; ask for at most 13"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 must be a whole number of at least 1"),
        ({"temperature": -1.0}, "temperature=-1.0 is negative"),
        ({"top_k": 51}, "top_k=51 is outside 1 to d_vocab=50"),
        ({"top_p": 0.0}, "top_p=0.0 is not a probability"),
        ({"attention_mask": torch.arange(12).expand(3, -1) < 10}, "pad shorter prompts on the left"),
        ({"attention_mask": torch.ones(3, 11)}, r"shape \(3, 11\); it must cover the prompts, \(3, 12\)"),
    ],
)
def test_what_cannot_be_generated_is_said(tiny: GPT, tokens: Tensor, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tiny.generate(tokens, **({"max_new_tokens": 1} | options))
    with pytest.raises(TypeError):
        tiny.generate(tokens, bogus=1)


def test_the_longest_continuation_fills_the_context(tiny: GPT, tokens: Tensor) -> None:
    assert tiny.generate(tokens, max_new_tokens=13).shape == (3, 25)


def test_a_full_cache_takes_no_more(tiny: GPT, tokens: Tensor) -> None:
    cache = cache_for(tiny, 3)
    tiny(tokens, kv_cache=cache)
    tiny(tokens, kv_cache=cache)
    with pytest.raises(InputError, match="25 positions exceed this model's n_ctx=24"):
        tiny(tokens[:, :1], kv_cache=cache)
