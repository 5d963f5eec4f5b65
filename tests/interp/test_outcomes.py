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

from interp import outcomes, targets
from interp.measures import Measure
from interp.outcomes import (
    COPY_OUTCOMES,
    NEW_TOKEN,
    OUTCOMES,
    TEXT,
    TEXT_OUTCOMES,
    Outcome,
    copy_outcome,
    copy_targets,
    first_copy_outcome,
    first_copy_targets,
    fitting_batch,
    get_outcome,
    mean_over,
    share_of_scale,
    token_losses,
    unigram_loss,
    user_outcome,
)
from interp.targets import copy_distractors, late_minus_early
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
    assert doctest.testmod(outcomes).failed == doctest.testmod(targets).failed == 0


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
    with pytest.raises(InputError, match=r"are not whole copies of \d+ tokens"):
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


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_name_leads_to_its_outcome_a_weighted_sum_of_what_is_read_by_token(gpt: GPT, name: str):
    tokens, other = repeated(4, 8, bos=True), GPT(gpt.config, seed=1).eval()
    outcome, logits, intact = get_outcome(name, period=8), gpt(tokens), other(tokens)
    values = outcome.by_token(logits, tokens, intact=intact)
    weights = outcome.weights(tokens).to(values)
    assert outcome.name == name
    assert (name in COPY_OUTCOMES) is not (name in TEXT_OUTCOMES)
    torch.testing.assert_close(outcome.of_logits(logits, tokens, intact=intact), (values * weights).sum(-1))
    assert torch.equal(outcome.targets(tokens), weights != 0)
    total = 0 if name == "icl_score" else 1
    torch.testing.assert_close(weights.sum(-1), torch.full((4,), total, dtype=weights.dtype), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", OUTCOMES)
def test_harm_is_what_a_random_model_has_more_of_than_a_right_one(name: str):
    """Worse is positive: logits that know the next token, against none at all."""
    tokens = repeated(4, 8, bos=True)
    right = 9.0 * torch.nn.functional.one_hot(tokens.roll(-1, dims=1), 30)
    outcome = get_outcome(name, period=8)
    blind = right.clone()
    blind[:, 7:] = 0  # from late in the first copy on, so that late losses are the worse ones
    good, bad = (outcome.of_logits(each, tokens, intact=right) for each in (right, blind))
    harm = outcome.sign * (bad - good)
    assert (harm > 0).all()


def test_the_score_of_context_is_late_minus_early_loss():
    tokens = torch.arange(41)[None].expand(2, -1)
    losses = torch.linspace(4.0, 2.0, 40).expand(2, -1)  # each target a little easier
    score = get_outcome("icl_score", period=8).of_values(losses, tokens)
    weights = late_minus_early(tokens)
    late, early = (weights[0] > 0).nonzero()[:, 0], (weights[0] < 0).nonzero()[:, 0]
    assert (len(late), len(early)) == (4, 4)
    assert (float(late.double().mean()), float(early.double().mean())) == (35.5, 3.5)  # 0.9 and 0.1 of 40, each +-2
    torch.testing.assert_close(score, (losses[:, late].mean(1) - losses[:, early].mean(1)))
    with pytest.raises(InputError, match="too few to tell late from early"):
        late_minus_early(tokens[:, :9])


@pytest.mark.parametrize("bos", [True, False])
def test_a_distractor_is_another_token_of_the_segment(bos: bool):
    segment = torch.stack([torch.randperm(29)[:8] + 1 for _ in range(5)])
    tokens = torch.cat([torch.zeros(5, int(bos), dtype=torch.long), segment, segment], dim=1)
    others = copy_distractors(tokens, period=8)
    chosen = copy_targets(tokens, period=8)
    assert (others != tokens[:, 1:])[:, int(not bos) :].all()
    assert (others[:, :, None] == segment[:, None]).any(-1)[chosen].all()


def test_a_function_of_ones_own_is_an_outcome_like_any_other(gpt: GPT):
    tokens = repeated(3, 8, bos=True)
    logits = gpt(tokens)
    last = user_outcome(
        "last", "logit of 7 at the end", lambda logits, _: logits[:, -1, 7], unit="logits", lower_is_better=False
    )
    torch.testing.assert_close(last.of_logits(logits, tokens), logits[:, -1, 7])
    assert (last.unit, last.sign, last.has_unigram) == ("logits", -1, False)
    with pytest.raises(InputError, match="last is one number for each sequence, so it has none for each token"):
        last.by_token(logits, tokens)
    weights = copy_outcome(8).weights
    own = user_outcome("own", "loss", token_losses, unit="nats", lower_is_better=True, weights=weights)
    torch.testing.assert_close(own.of_logits(logits, tokens), copy_outcome(8).of_logits(logits, tokens))


def test_a_sequence_without_a_target_has_no_mean():
    none_in_the_second = mean_over(lambda tokens: tokens[:, 1:] > 0)
    with pytest.raises(InputError, match="sequence 1 has no target that counts"):
        none_in_the_second(torch.tensor([[0, 1, 2], [3, 0, 0]]))


def test_a_value_that_counts_for_nothing_may_be_anything():
    tokens = torch.tensor([[0, 1, 1, 2]])
    values = torch.tensor([[1.0, 3.0, math.inf]])
    assert NEW_TOKEN.of_values(values, tokens).tolist() == [2.0]


def test_distractors_and_logit_differences_come_together():
    with pytest.raises(InputError, match="a logit difference is one from a distractor"):
        Outcome(name="x", meaning="", weights=TEXT.weights, measure=Measure.LOGIT_DIFFERENCE)
    with pytest.raises(InputError, match="nothing else takes one"):
        Outcome(name="x", meaning="", weights=TEXT.weights, distractors=lambda tokens: tokens[:, 1:])


def test_what_is_no_loss_has_no_unigram():
    tokens = torch.zeros(2, 17, dtype=torch.long)
    for name in set(OUTCOMES) - {"copy_loss", "first_copy_loss", "text_loss", "new_token_loss", "icl_score"}:
        outcome = get_outcome(name, period=8)
        assert not outcome.has_unigram
        with pytest.raises(InputError, match="is no loss, so token frequencies are no scale for it"):
            unigram_loss(tokens, tokens, d_vocab=30, outcome=outcome)


def test_an_unknown_metric_is_named_with_the_known_ones():
    with pytest.raises(
        UnknownNameError, match=r'no metric "copy_los"\. Did you mean "copy_loss".*Metrics: copy_loss, first_copy_loss'
    ):
        get_outcome("copy_los", period=8)
