"""Outcomes count the positions they name, decided by the past alone, and agree with the model's own loss."""

from __future__ import annotations

import doctest
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from interp import outcomes
from interp.outcomes import (
    NEW_TOKEN,
    TEXT,
    Outcome,
    copy_outcome,
    copy_targets,
    first_copy_outcome,
    first_copy_targets,
    fitting_batch,
    get_outcome,
    share_of_scale,
    token_losses,
    unigram_loss,
)
from model.config import GPTConfig
from model.errors import InputError, UnknownNameError
from model.gpt import GPT


@pytest.fixture
def gpt() -> GPT:
    return GPT(GPTConfig(n_layers=1, n_heads=2, d_model=16, n_ctx=24, d_vocab=30, embed_std=1.0)).eval()


def repeated(n: int, period: int, *, bos: bool) -> Tensor:
    segment = torch.randint(1, 30, (n, period), generator=torch.Generator().manual_seed(0))
    start = torch.zeros(n, 1 if bos else 0, dtype=torch.long)
    return torch.cat([start, segment, segment], dim=1)


def test_the_examples_in_the_module_hold():
    assert doctest.testmod(outcomes).failed == 0


def test_text_loss_is_the_loss_of_the_model_per_sequence(gpt: GPT):
    tokens = repeated(5, 8, bos=True)
    losses = TEXT.of_logits(gpt(tokens), tokens)
    torch.testing.assert_close(losses, gpt.loss(tokens, per_token=True).mean(dim=1))
    assert losses.shape == (5,)


@pytest.mark.parametrize("bos", [True, False])
def test_the_two_copies_and_the_first_token_of_the_second_make_up_the_sequence(gpt: GPT, bos: bool):
    tokens, period = repeated(4, 8, bos=bos), 8
    first, second = first_copy_targets(tokens, period=period), copy_targets(tokens, period=period)
    assert not (first & second).any()
    unclaimed = ~(first | second)[0]
    assert unclaimed.nonzero().flatten().tolist() == [int(bos) + period - 1]  # its target opens the second copy
    logits = gpt(tokens)
    losses = token_losses(logits, tokens)
    second, first = (make(period).of_logits(logits, tokens) for make in (copy_outcome, first_copy_outcome))
    torch.testing.assert_close(second, losses[:, -(period - 1) :].mean(dim=1))
    torch.testing.assert_close(first, losses[:, : period - 1 + int(bos)].mean(dim=1))


def test_a_token_counts_as_new_once(gpt: GPT):
    tokens = torch.tensor([[4, 5, 4, 5, 6, 6, 7]])
    logits = gpt(tokens)
    losses = token_losses(logits, tokens)
    torch.testing.assert_close(NEW_TOKEN.of_logits(logits, tokens), losses[:, [0, 1, 4]].mean(dim=1))


@given(st.lists(st.integers(0, 5), min_size=3, max_size=20), st.integers(0, 5))
def test_whether_a_position_counts_does_not_depend_on_its_target(row: list[int], other: int):
    tokens = torch.tensor([row])
    changed = tokens.clone()
    changed[0, -1] = other
    assert torch.equal(NEW_TOKEN.targets(tokens), NEW_TOKEN.targets(changed))


@pytest.mark.parametrize(("n_pos", "period"), [(12, 8), (18, 8), (7, 1), (9, 5)])
def test_what_is_not_a_repeated_segment_is_refused(n_pos: int, period: int):
    with pytest.raises(InputError, match=r"are not a segment of \d+ tokens repeated"):
        copy_targets(torch.zeros(1, n_pos, dtype=torch.long), period=period)


def test_more_than_two_copies_are_all_predictable_after_the_first():
    tokens = torch.cat([torch.zeros(1, 1, dtype=torch.long), torch.tensor([[3, 4, 5]]).repeat(1, 3)], dim=1)
    assert copy_targets(tokens, period=3).int().tolist() == [[0, 0, 0, 0, 1, 1, 1, 1, 1]]


def test_the_unigram_of_uniform_tokens_costs_the_logarithm_of_their_number():
    uniform = torch.randint(30, (400, 24), generator=torch.Generator().manual_seed(1))
    assert unigram_loss(uniform[:200], uniform[200:], d_vocab=30) == pytest.approx(math.log(30), abs=0.02)
    assert unigram_loss(uniform[:200] * 0, uniform[200:] * 0, d_vocab=30) < 0.01


@pytest.mark.parametrize("outcome", [TEXT, NEW_TOKEN])
def test_the_unigrams_loss_is_that_of_its_logits_without_forming_them(outcome: Outcome):
    tokens, reference = (torch.randint(30, (6, 24), generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    counts = torch.bincount(reference[:, 1:].flatten(), minlength=30).double() + 1
    logits = (counts / counts.sum()).log().expand(6, 24, 30)
    expected = float(outcome.of_logits(logits, tokens).mean())
    assert unigram_loss(tokens, reference, d_vocab=30, outcome=outcome) == pytest.approx(expected, rel=1e-12)
    many = 10**7  # [6, 24, many] in fp64 would be 11 GB
    assert math.isfinite(unigram_loss(tokens, reference, d_vocab=many, outcome=outcome))


def test_a_token_the_reference_never_held_costs_a_finite_loss():
    assert math.isfinite(unigram_loss(torch.tensor([[0, 3, 3]]), torch.tensor([[0, 1, 1]]), d_vocab=5, outcome=TEXT))


def test_no_share_is_given_on_a_scale_that_the_model_does_not_beat():
    assert share_of_scale(0.1, clean=5.54, scale=5.55) is None
    assert share_of_scale(0.1, clean=7.0, scale=5.55) is None


def test_batches_shrink_where_logits_are_many(gpt: GPT):
    wide = SimpleNamespace(config=gpt.config.varied(d_vocab=50_257))
    assert [fitting_batch(wide, n_pos) for n_pos in (64, 1024, 8192)] == [32, 2, 1]


def test_an_unknown_metric_is_named_with_the_known_ones():
    with pytest.raises(
        UnknownNameError, match=r'no metric "copy_los"\. Did you mean "copy_loss".*Metrics: copy_loss, first_copy_loss'
    ):
        get_outcome("copy_los", period=8)
