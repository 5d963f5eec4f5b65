"""Rules: which heads of planted scores pass them, and what is refused."""

from __future__ import annotations

import doctest

import pytest
import torch

from analyses.claims import rules
from analyses.claims.rules import parse_rule
from interp.head_roles import HeadRoles
from model import GPTConfig
from model.errors import InputError, UnknownNameError

ROLES = HeadRoles(
    induction=torch.tensor([[0.05, 0.45, 0.10], [0.90, 0.50, 0.42]]),
    reordered=torch.tensor([[0.05, 0.40, 0.10], [0.10, 0.10, 0.30]]),
    previous=torch.tensor([[0.95, 0.60, 0.10], [0.10, 0.99, 0.20]]),
    induction_chance=0.02,
    previous_chance=0.1,
    induction_heads=(),
    previous_head=None,
)


@pytest.mark.parametrize(
    ("rule", "heads"),
    [
        ("induction >= 0.4", [(0, 1), (1, 0), (1, 1), (1, 2)]),
        ("induction >= 0.4 and induction >= 2 * reordered", [(1, 0), (1, 1)]),
        ("induction >= 0.4  and  layer = 1", [(1, 0), (1, 1), (1, 2)]),
        ("induction > 0.4 and layer < 1", [(0, 1)]),
        ("induction >= 0.4 and top 2", [(1, 0), (1, 1)]),
        ("induction >= 0.4 and reordered <= 0.2 and top 1", [(1, 0)]),
        ("previous_token >= 0.4 and layer = 0 and top 1", [(0, 0)]),
        ("previous_token >= 0.4 and induction < 0.4 and top 3", [(0, 0)]),
        ("previous_token >= 9 * chance", [(0, 0), (1, 1)]),
        ("induction >= 25 * chance", [(1, 0), (1, 1)]),
        ("induction >= reordered and layer = 0", [(0, 0), (0, 1), (0, 2)]),
        ("induction >= 0.95", []),
        ("reordered >= 0.3", [(0, 1), (1, 2)]),
    ],
)
def test_a_rule_finds_the_heads_that_satisfy_all_of_it(rule: str, heads: list[tuple[int, int]]):
    assert list(parse_rule(rule).heads(ROLES)) == heads


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "is no part of a rule"),
        ("induction", "is no part of a rule.*induction >= 0.4"),
        ("induction >= 0.4 or layer = 1", "is no part of a rule"),
        ("inductoin >= 0.4", '"inductoin".* is no score. Did you mean "induction"'),
        ("induction >= 2 * reorderd", '"reorderd".* Did you mean "reordered"'),
        ("chance >= 0.4", '"chance".* is no score'),
        ("induction >= 1.4", "for every head or for none"),
        ("induction >= 0", "for every head or for none"),
        ("induction = 0.4", "exactly"),
        ("layer = reordered", "compares a layer"),
        ("layer = 0.5", "compares a layer"),
        ("induction >= 0.4 and top 0", "top 0"),
        ("induction >= 0.4 and top 1 and top 2", "give one `top N`"),
        ("layer = 1 and top 1", "ranks by no score"),
    ],
)
def test_a_malformed_rule_is_refused(rule: str, said: str):
    with pytest.raises(InputError, match=said):
        parse_rule(rule)


def test_a_layer_that_the_model_has_not_is_refused():
    config = GPTConfig(n_layers=2, n_heads=2, d_model=8, n_ctx=8, d_vocab=9)
    parse_rule("induction >= 0.4 and layer = 1").require_in_model(config)
    with pytest.raises(UnknownNameError, match="layers run from 0 to 1"):
        parse_rule("induction >= 0.4 and layer = 2").require_in_model(config)
    with pytest.raises(UnknownNameError, match="layers run from 0 to 1"):
        parse_rule("induction >= 0.4 and layer > 1").require_in_model(config)


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(rules).failed == 0
