"""The rule that gives heads their roles finds the planted ones and no others."""

from __future__ import annotations

import pytest
import torch

from interp.head_roles import RoleRule, find_head_roles
from interp.stimuli import repeated_tokens
from model.config import GPTConfig
from model.gpt import GPT
from tests import planted

BOS = planted.D_VOCAB - 1
RULE = RoleRule()


def test_the_planted_heads_are_found_with_full_scores():
    tokens = repeated_tokens(8, 15, planted.D_VOCAB, bos=BOS)
    roles = find_head_roles(planted.induction_model(), tokens, period=15, rule=RULE)
    assert roles.induction_heads == (planted.INDUCTION_HEAD,)
    assert roles.previous_head == planted.PREVIOUS_HEAD
    assert roles.induction[planted.INDUCTION_HEAD] == pytest.approx(1.0, abs=1e-4)
    assert roles.reordered[planted.INDUCTION_HEAD] < 0.2


def test_a_random_model_has_no_role():
    gpt = GPT(GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=40, d_vocab=50), seed=1).eval()
    roles = find_head_roles(gpt, repeated_tokens(8, 19, 50, bos=49), period=19, rule=RULE)
    assert roles.induction_heads == ()
    assert roles.previous_head is None


def test_a_head_that_has_learned_a_distance_is_no_induction_head():
    """It looks 14 tokens back whatever is there: a full stripe at period 15, re-ordered or not."""
    gpt = planted.induction_model()
    attention = gpt.layers[1].attn
    n_ctx, distance = planted.N_CTX, 14
    position = slice(planted.D_VOCAB, planted.D_VOCAB + n_ctx)
    back = torch.diag(torch.ones(n_ctx - distance), -distance)
    back[torch.arange(distance), torch.arange(distance)] = 1.0
    head = planted.INDUCTION_HEAD[1]
    attention.W_Q[head].zero_()
    attention.W_K[head].zero_()
    attention.W_Q[head][position] = 400.0 * back * attention.d_head**0.5
    attention.W_K[head][position] = torch.eye(n_ctx)
    roles = find_head_roles(gpt, repeated_tokens(8, 15, planted.D_VOCAB, bos=BOS), period=15, rule=RULE)
    assert roles.induction[planted.INDUCTION_HEAD] > 0.9
    assert roles.reordered[planted.INDUCTION_HEAD] > 0.9
    assert roles.induction_heads == ()


def test_a_score_below_the_rule_is_no_role():
    tokens = repeated_tokens(8, 15, planted.D_VOCAB, bos=BOS)
    strict = RoleRule(least_score=1.1)
    assert find_head_roles(planted.induction_model(), tokens, period=15, rule=strict).induction_heads == ()
    assert str(strict).startswith("an induction score of at least 1.1 and 10 times chance")


def test_on_short_sequences_a_score_that_even_attention_comes_near_is_no_role():
    """Even attention gives the token before 0.22 of these rows' attention: 0.4 is little, and 0.42 is asked for."""
    gpt, tokens = planted.induction_model(), repeated_tokens(8, 3, planted.D_VOCAB, bos=BOS)
    roles = find_head_roles(gpt, tokens, period=3, rule=RULE)
    assert roles.previous_chance == pytest.approx((1 / 3 + 1 / 4 + 1 / 5 + 1 / 6 + 1 / 7) / 5)
    assert RULE.least_previous(roles.previous_chance) == pytest.approx(roles.previous_chance + 0.2)
    assert roles.previous_head == planted.PREVIOUS_HEAD
    attention = gpt.layers[0].attn
    attention.W_Q[planted.PREVIOUS_HEAD[1]] *= 0.0023  # now 0.41 of its attention goes to the token before
    weak = find_head_roles(gpt, tokens, period=3, rule=RULE)
    assert 0.4 < float(weak.previous.max()) < RULE.least_previous(weak.previous_chance)
    assert weak.previous_head is None
    assert find_head_roles(gpt, tokens, period=3, rule=RoleRule(margin=0.0)).previous_head == planted.PREVIOUS_HEAD


def test_where_the_copies_are_too_short_the_rule_says_that_it_cannot_decide():
    """Of a perfect head as well: ten times chance is more attention than there is."""
    tokens = repeated_tokens(8, 5, planted.D_VOCAB, bos=BOS)
    roles = find_head_roles(planted.induction_model(), tokens, period=5, rule=RULE)
    assert roles.induction[planted.INDUCTION_HEAD] == pytest.approx(1.0, abs=1e-4)
    assert roles.induction_heads == ()
    assert not RULE.can_decide(roles.induction_chance)
    assert RULE.can_decide(
        find_head_roles(
            planted.induction_model(), repeated_tokens(8, 9, planted.D_VOCAB, bos=BOS), period=9, rule=RULE
        ).induction_chance
    )
