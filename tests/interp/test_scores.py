"""Planted patterns score 1 on their own score and chance at most on the others; even attention scores exactly
chance."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from interp import scores
from interp.stimuli import reordered, repeated_tokens

PERIOD = 12
N = 1 + 2 * PERIOD
START = 1 + PERIOD
TOKENS = repeated_tokens(3, PERIOD, 40, bos=40)


def planted(distance: int) -> Tensor:
    """All attention on key i - distance, or on position 0 where there is no such key."""
    keys = (torch.arange(N) - distance).clamp(min=0)
    return torch.nn.functional.one_hot(keys, N).float().expand(3, 2, N, N).clone()


def even() -> Tensor:
    lower = torch.ones(N, N, dtype=torch.float64).tril()
    return (lower / lower.sum(-1, keepdim=True)).expand(3, 2, N, N).clone()


SCORES: dict[str, tuple[Callable[[Tensor], Tensor], float, int]] = {
    "previous": (scores.previous_token, scores.chance(2, N), 1),
    "duplicate": (lambda a: scores.duplicate_stripe(a, PERIOD, start=START), scores.chance(START, N), PERIOD),
    "induction": (lambda a: scores.induction_stripe(a, PERIOD, start=START), scores.chance(START, N), PERIOD - 1),
    "current": (scores.current_token, scores.chance(1, N), 0),
    "first": (scores.first_position, scores.chance(1, N), N),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_planted_pattern_scores_one_on_its_own_score(name: str) -> None:
    score, _, distance = SCORES[name]
    assert torch.equal(score(planted(distance)), torch.ones(3, 2))


@pytest.mark.parametrize("name", ["previous", "duplicate", "induction"])
def test_a_planted_pattern_scores_no_more_than_chance_on_the_others(name: str) -> None:
    pattern = planted(SCORES[name][2])
    for other in {"previous", "duplicate", "induction"} - {name}:
        score, chance, _ = SCORES[other]
        assert (score(pattern) <= chance + 0.02).all(), other


@pytest.mark.parametrize("name", SCORES)
def test_even_attention_scores_exactly_chance(name: str) -> None:
    score, chance, _ = SCORES[name]
    torch.testing.assert_close(score(even()), torch.full((3, 2), chance, dtype=torch.float64), rtol=0, atol=1e-14)


def test_target_masks_find_the_same_keys_as_the_stripes_on_repeated_tokens() -> None:
    duplicate = scores.duplicate_targets(TOKENS, ignore=40)
    induction = scores.induction_targets(TOKENS, ignore=40)
    rows = torch.arange(START, N)
    assert torch.equal(duplicate.nonzero()[:, 1:], torch.stack([rows, rows - PERIOD], 1).repeat(3, 1))
    assert torch.equal(induction.nonzero()[:, 1:], torch.stack([rows, rows - PERIOD + 1], 1).repeat(3, 1))


def test_target_masks_on_a_sentence_worked_by_hand() -> None:
    tokens = torch.tensor([[9, 1, 2, 1, 1, 2]])  # 9 is the BOS
    assert scores.duplicate_targets(tokens, ignore=9)[0].nonzero().tolist() == [[3, 1], [4, 1], [4, 3], [5, 2]]
    # after 1 at 1 comes 2; after 1 at 3 comes position 4, which is the query itself for query 4
    assert scores.induction_targets(tokens, ignore=9)[0].nonzero().tolist() == [[3, 2], [4, 2], [5, 3]]


def test_target_scores_are_one_for_a_matching_head_and_chance_for_even_attention() -> None:
    targets = scores.induction_targets(TOKENS, ignore=40)
    assert torch.equal(scores.on_targets(planted(PERIOD - 1), targets), torch.ones(3, 2))
    expected = scores.targets_chance(targets)
    torch.testing.assert_close(scores.on_targets(even(), targets), expected[:, None].expand(3, 2))
    assert expected[0] == pytest.approx(scores.chance(START, N))


def test_sequences_without_a_target_have_no_score() -> None:
    targets = scores.duplicate_targets(torch.arange(N)[None].expand(3, N))
    assert scores.on_targets(even(), targets).isnan().all()


def matching(tokens: Tensor) -> Tensor:
    """All attention on the token after the earlier copy of the query's, wherever that is; else on position 0."""
    targets = scores.induction_targets(tokens, ignore=40)
    return torch.nn.functional.one_hot(targets.int().argmax(-1), N).float()[:, None].expand(3, 2, N, N)


def test_the_control_tells_a_head_that_matches_from_one_that_learned_a_distance() -> None:
    """Both score 1 on repeats. Re-ordered, the one follows the content off the stripe and the other stays on it."""
    control = reordered(TOKENS, PERIOD, seed=5)
    by_content, by_distance = matching(TOKENS), planted(PERIOD - 1)
    rows = slice(START, None)  # before, there is nothing to match
    assert torch.equal(by_content[:, :, rows], by_distance[:, :, rows])
    by_content, targets = matching(control), scores.induction_targets(control, ignore=40)
    assert (scores.induction_stripe(by_content, PERIOD, start=START) < 0.4).all()
    assert (scores.on_targets(by_content, targets) == 1).all()
    assert (scores.induction_stripe(by_distance, PERIOD, start=START) == 1).all()
    assert (scores.on_targets(by_distance, targets) < 0.4).all()


def test_a_multiple_of_chance_is_out_of_reach_where_the_sequence_is_short() -> None:
    assert scores.can_reach(10, scores.chance(21, 41))
    assert not scores.can_reach(10, scores.chance(5, 9))
    assert doctest.testmod(scores).failed == 0


def test_entropy_is_one_for_even_attention_and_zero_for_a_single_key() -> None:
    torch.testing.assert_close(scores.entropy(even()), torch.ones(3, 2, dtype=torch.float64))
    assert torch.equal(scores.entropy(planted(1)), torch.zeros(3, 2))


def test_distance_is_counted_in_tokens() -> None:
    # rows 1 and 2 reach back to position 0 only
    assert torch.allclose(scores.distance(planted(3)), torch.tensor((1 + 2 + 3 * (N - 3)) / (N - 1)))
    torch.testing.assert_close(
        scores.distance(even()), torch.full((3, 2), scores.distance_chance(1, N), dtype=torch.float64)
    )


def test_scores_do_not_change_the_pattern() -> None:
    pattern = even()
    before = pattern.clone()
    for score, _, _ in SCORES.values():
        score(pattern)
    scores.on_targets(pattern, scores.induction_targets(TOKENS))
    scores.entropy(pattern)
    scores.distance(pattern)
    assert torch.equal(pattern, before)
