"""Patterns are read in a stream without keeping them, and reading changes nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from interp import scores
from interp.patterns import pattern_of, pattern_scores
from interp.stimuli import repeated_tokens
from model import GPT
from model.errors import InputError
from tests.planted import D_VOCAB, INDUCTION_HEAD, PREVIOUS_HEAD, induction_model


def test_the_planted_circuit_scores_one_and_nothing_else_does() -> None:
    gpt = induction_model()
    tokens = repeated_tokens(4, 8, D_VOCAB - 1, bos=D_VOCAB - 1)
    found = pattern_scores(
        gpt,
        tokens,
        {
            "previous": lambda pattern, _: scores.previous_token(pattern),
            "induction": lambda pattern, _: scores.induction_stripe(pattern, 8, start=9),
        },
    )
    for name, planted_head in (("previous", PREVIOUS_HEAD), ("induction", INDUCTION_HEAD)):
        mean = found[name].mean(0)
        assert float(mean[planted_head]) == pytest.approx(1, abs=1e-4)
        mean[planted_head] = 0
        assert float(mean.max()) <= scores.chance(2 if name == "previous" else 9, 17) + 0.02


def test_scores_are_those_of_the_cached_patterns_whatever_the_batches(tiny: GPT) -> None:
    tokens = torch.randint(50, (7, 12), generator=torch.Generator().manual_seed(0))
    _, cache = tiny.run_with_cache(tokens)
    expected = torch.stack([scores.entropy(cache["pattern", layer]) for layer in range(2)], dim=1)
    for batch_size in (None, 1, 3):
        found = pattern_scores(tiny, tokens, {"entropy": lambda p, _: scores.entropy(p)}, batch_size=batch_size)
        assert found["entropy"].shape == (7, 2, 4)
        torch.testing.assert_close(found["entropy"], expected)


def test_each_score_gets_the_tokens_of_its_own_batch(tiny: GPT) -> None:
    tokens = torch.randint(50, (5, 12), generator=torch.Generator().manual_seed(0))
    seen: list[Tensor] = []

    def remember(pattern: Tensor, batch: Tensor) -> Tensor:
        seen.append(batch)
        return pattern.mean((-1, -2))

    pattern_scores(tiny, tokens, {"mean": remember}, batch_size=2)
    assert torch.equal(torch.cat(seen[::2]), tokens)


def test_never_more_than_one_layer_of_one_batch_is_alive(tiny: GPT) -> None:
    patterns: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def count(pattern: Tensor, _: Tensor) -> Tensor:
        patterns.append(weakref.ref(pattern))
        alive.append(sum(each() is not None for each in patterns))
        return pattern.mean((-1, -2))

    tokens = torch.randint(50, (12, 24), generator=torch.Generator().manual_seed(0))
    pattern_scores(tiny, tokens, {"mean": count}, batch_size=3)
    assert alive == [1] * 8


def test_one_heads_pattern_is_the_cached_one(tiny: GPT) -> None:
    tokens = torch.randint(50, (12,), generator=torch.Generator().manual_seed(0))
    _, cache = tiny.run_with_cache(tokens[None])
    torch.testing.assert_close(pattern_of(tiny, tokens, 1, 2), cache["pattern", 1][0, 2])


def test_reading_leaves_no_hook_and_no_gradient(tiny: GPT, tokens: Tensor) -> None:
    before = tiny(tokens)
    found = pattern_scores(tiny, tokens, {"previous": lambda p, _: scores.previous_token(p)})
    assert torch.equal(tiny(tokens), before)
    assert not found["previous"].requires_grad


def test_progress_counts_sequences(tiny: GPT, tokens: Tensor) -> None:
    seen: list[tuple[int, int]] = []
    mean = partial(torch.mean, dim=(-1, -2))
    pattern_scores(tiny, tokens, {"mean": lambda p, _: mean(p)}, batch_size=2, progress=lambda *step: seen.append(step))
    assert seen == [(2, 3), (3, 3)]


def test_a_model_with_live_dropout_is_refused(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    dropping = make_gpt(dropout=0.1).train()
    for read in (lambda: pattern_scores(dropping, tokens, {}), lambda: pattern_of(dropping, tokens[0], 0, 0)):
        with pytest.raises(InputError, match=r"dropout=0\.1, .* call gpt\.eval\(\)"):
            read()


def test_a_model_that_sees_later_keys_is_refused(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    """Half of its attention falls where the scores do not look, and chance is not 1/(i+1)."""
    with pytest.raises(InputError, match="chance levels are for causal attention; use a causal model"):
        pattern_scores(make_gpt(attention="bidirectional"), tokens, {})
