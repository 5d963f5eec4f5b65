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


def test_prefix_matching_counts_every_earlier_copy_and_the_token_after_it() -> None:
    """Four copies of three tokens behind a BOS: of 9 rows, three have one target, three have two, three have three."""
    tokens = repeated_tokens(3, 3, 40, n_copies=4, seed=1, bos=40)
    n_pos = tokens.shape[1]
    targets = scores.induction_targets(tokens, ignore=40)
    assert targets[0].sum(-1).tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert targets[0, 4].nonzero().tolist() == [[2]]  # the token after position 1, where row 4's token stood first
    drawn = torch.rand(3, 2, n_pos, n_pos, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tril()
    found = scores.prefix_matching(drawn, 3, start=1)
    torch.testing.assert_close(found, scores.on_targets(drawn, targets))
    spread = targets[:, None].double() / targets.sum(-1).clamp(min=1)[:, None, :, None]
    torch.testing.assert_close(scores.prefix_matching(spread, 3, start=1), torch.ones(3, 1, dtype=torch.float64))
    before = torch.nn.functional.pad(spread[..., 1:], (0, 1))  # on the copy itself: offset 0 is not what is meant
    assert (scores.prefix_matching(before, 3, start=1) == 0).all()
    even = scores.prefix_matching(scores.even_pattern(n_pos), 3, start=1)
    expected = sum(((row - 1) // 3) / (row + 1) for row in range(4, 13)) / 9
    assert float(even) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("distance", "local"), [(0, 1.0), (1, 1.0), (7, 1.0), (8, 0.0), (12, 0.0)])
def test_the_last_eight_keys_are_local_and_the_rest_is_far_but_for_position_0(distance: int, local: float) -> None:
    pattern = planted(distance)
    rows = torch.arange(scores.far_start(), N)
    assert torch.equal(scores.local_mass(pattern), torch.full((3, 2), local))
    reached = (rows > distance).double().mean()  # the others rest on position 0
    far = torch.full((3, 2), (1 - local) * float(reached))
    torch.testing.assert_close(scores.far_mass(pattern), far)
    whole = scores.local_mass(pattern) + scores.far_mass(pattern) + scores.first_position(pattern, start=9)
    torch.testing.assert_close(whole, torch.ones(3, 2))


def test_local_and_far_mass_of_even_attention_are_their_shares_of_the_keys() -> None:
    rows = torch.arange(9, N, dtype=torch.float64)
    even_rows = scores.even_pattern(N)
    assert float(scores.local_mass(even_rows)) == pytest.approx(float((8 / (rows + 1)).mean()), abs=1e-14)
    assert float(scores.far_mass(even_rows)) == pytest.approx(float(((rows - 8) / (rows + 1)).mean()), abs=1e-14)


def test_where_no_key_is_far_there_is_no_score() -> None:
    for short in (3, 7, 9):
        assert scores.local_mass(scores.even_pattern(short)).isnan().all()
        assert scores.far_mass(scores.even_pattern(short)).isnan().all()
    assert scores.far_mass(scores.even_pattern(10)).isfinite().all()


def test_the_profile_holds_the_stripes_of_the_same_rows() -> None:
    profile = scores.offset_profile(planted(5), 8, start=9)
    assert torch.equal(profile[0, 0], torch.nn.functional.one_hot(torch.tensor(5), 9).float())
    even_profile = scores.offset_profile(scores.even_pattern(N), 12, start=13)
    torch.testing.assert_close(even_profile, torch.full((1, 1, 13), scores.chance(13, N), dtype=torch.float64))


def test_a_distance_is_measured_where_it_was_not_chosen() -> None:
    """Head 0 is always 3 back. Head 1 is wherever chance has it: its best distance elsewhere is worth no more."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randint(0, 9, (2000,), generator=generator)
    fixed = torch.nn.functional.one_hot(torch.full((2000,), 3), 9)
    profiles = torch.stack([fixed, torch.nn.functional.one_hot(drawn, 9)], 1)[:, None].float()
    offsets, measured = scores.best_offsets(profiles)
    assert int(offsets[0, 0]) == 3
    assert measured.shape == (1000, 1, 2)
    assert (measured[:, 0, 0] == 1).all()
    small = [scores.best_offsets(profiles[first : first + 20])[1][:, 0, 1].mean() for first in range(0, 2000, 20)]
    assert float(torch.stack(small).mean()) == pytest.approx(1 / 9, abs=0.03)
    flattered = [profiles[first : first + 10, 0, 1].mean(0).max() for first in range(0, 2000, 20)]
    assert float(torch.stack(flattered).mean()) > 0.25


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
