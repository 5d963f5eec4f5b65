"""The detector gives TransformerLens's numbers on tensors worked by hand, and ours are 1 for a perfect head.

`tests/parity/test_head_detector.py` holds the first against the library itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.detector import (
    ErrorMeasure,
    Exclude,
    HeadPattern,
    detect_heads,
    match_heads,
    overlap,
    similarity,
    wanted_pattern,
)
from interp.scores import even_pattern
from interp.stimuli import repeated_tokens
from model import GPT
from model.errors import ConfigError, InputError
from tests.planted import D_VOCAB, INDUCTION_HEAD, PREVIOUS_HEAD, induction_model

SENTENCE = torch.tensor([9, 1, 2, 1, 1])
"""A BOS, and a token that stands three times, twice in a row."""

ATTENTION = torch.tensor(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.5, 0.5, 0.0, 0.0, 0.0],
        [0.2, 0.3, 0.5, 0.0, 0.0],
        [0.1, 0.2, 0.6, 0.1, 0.0],
        [0.0, 0.1, 0.4, 0.3, 0.2],
    ]
)
"""Each row sums to 1."""

REPEATS = repeated_tokens(4, 12, D_VOCAB - 1, seed=2, bos=D_VOCAB - 1)
NAMES = list(HeadPattern)


def test_the_wanted_patterns_of_a_sentence() -> None:
    assert wanted_pattern("previous_token_head", SENTENCE).nonzero().tolist() == [[1, 0], [2, 1], [3, 2], [4, 3]]
    assert wanted_pattern("duplicate_token_head", SENTENCE).nonzero().tolist() == [[3, 1], [4, 1], [4, 3]]
    # one to the right; the token after the copy at 3 is the query at 4 itself, which TransformerLens counts
    assert wanted_pattern("induction_head", SENTENCE).nonzero().tolist() == [[3, 2], [4, 2], [4, 4]]


@pytest.mark.parametrize(
    ("name", "measure", "exclude", "expected"),
    [
        # mul: (0.5 + 0.3 + 0.6 + 0.3) / 5
        ("previous_token_head", "mul", Exclude(), 0.34),
        # 0.2 + 0.1 + 0.3
        ("duplicate_token_head", "mul", Exclude(), 0.12),
        # 0.6 + 0.4 + 0.2
        ("induction_head", "mul", Exclude(), 0.24),
        # the first column holds 1.8 of the mass, and 0.5 of it on the pattern: 1.2 / 3.2
        ("previous_token_head", "mul", Exclude(bos=True), 0.375),
        # the diagonal holds 2.3, of which the pattern has 0.2: 1.0 / 2.7
        ("induction_head", "mul", Exclude(current_token=True), 1.0 / 2.7),
        # both, the corner once: 1.0 / (5 - 1.8 - 2.3 + 1)
        ("induction_head", "mul", Exclude(bos=True, current_token=True), 1.0 / 1.9),
        # abs, row by row: 1, then (0.5 + 0.5), (0.2 + 0.7 + 0.5), (0.1 + 0.2 + 0.4 + 0.1), (0.1 + 0.4 + 0.7 + 0.2)
        ("previous_token_head", "abs", Exclude(), 1 - 5.6 / 5),
        # without column 0, which holds 1 + 0.5 + 0.2 + 0.1
        ("previous_token_head", "abs", Exclude(bos=True), 1 - 3.8 / 5),
        # without the diagonal, which holds 1 + 0.5 + 0.5 + 0.1 + 0.2
        ("previous_token_head", "abs", Exclude(current_token=True), 1 - 3.3 / 5),
    ],
)
def test_numbers_of_transformer_lens_worked_by_hand(name: str, measure: str, exclude: Exclude, expected: float) -> None:
    found = similarity(ATTENTION, wanted_pattern(name, SENTENCE), error_measure=measure, exclude=exclude)
    assert float(found) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "measure", "exclude", "expected"),
    [
        # rows 3 and 4 have targets: 0.2 and 0.1 + 0.3
        ("duplicate_token_head", "mul", Exclude(), 0.3),
        # row 4 wants a half on each: 0.2 and 0.1 + 0.3
        ("duplicate_token_head", "abs", Exclude(), 0.3),
        # 0.6 and 0.4 + 0.2
        ("induction_head", "mul", Exclude(), 0.6),
        # 0.6 and min(0.4, 0.5) + min(0.2, 0.5)
        ("induction_head", "abs", Exclude(), 0.6),
        # the diagonal is no target any more, and what is left of rows 3 and 4 is 0.9 and 0.8
        ("induction_head", "mul", Exclude(current_token=True), (0.6 / 0.9 + 0.4 / 0.8) / 2),
        # row 1 has no target left
        ("previous_token_head", "mul", Exclude(bos=True), (0.3 / 0.8 + 0.6 / 0.9 + 0.3 / 1.0) / 3),
    ],
)
def test_our_numbers_worked_by_hand(name: str, measure: str, exclude: Exclude, expected: float) -> None:
    found = overlap(ATTENTION, wanted_pattern(name, SENTENCE), error_measure=measure, exclude=exclude)
    assert float(found) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("measure", list(ErrorMeasure))
def test_proportions_count_by_abs_only(measure: ErrorMeasure) -> None:
    """Two copies are wanted equally; a head that looks at one of them has half of what is wanted."""
    wanted = wanted_pattern("duplicate_token_head", SENTENCE)
    one = torch.eye(5)
    one[3], one[4] = torch.eye(5)[1], torch.eye(5)[1]
    both = one.clone()
    both[4] = torch.tensor([0, 0.5, 0, 0.5, 0])
    assert float(overlap(both, wanted, error_measure=measure)) == 1
    assert float(overlap(one, wanted, error_measure=measure)) == (1 if measure is ErrorMeasure.MUL else 0.75)


def planted(name: HeadPattern) -> Tensor:
    """Attention as wanted, spread over the targets of a row; on position 0 in rows without one."""
    wanted = wanted_pattern(name, REPEATS)
    rest = torch.zeros_like(wanted)
    rest[..., 0] = 1
    return torch.where(wanted.any(-1, keepdim=True), wanted / wanted.sum(-1, keepdim=True).clamp(min=1), rest)


@pytest.mark.parametrize("measure", list(ErrorMeasure))
@pytest.mark.parametrize("name", NAMES)
def test_a_planted_pattern_scores_one_on_its_own_and_no_more_than_chance_on_the_others(
    name: HeadPattern, measure: ErrorMeasure
) -> None:
    even = even_pattern(REPEATS.shape[1])[0]
    for other in NAMES:
        wanted = wanted_pattern(other, REPEATS)
        found = overlap(planted(name), wanted, error_measure=measure)
        chance = overlap(even, wanted, error_measure=measure)
        if other is name:
            torch.testing.assert_close(found, torch.ones(len(REPEATS)), rtol=0, atol=1e-6)
        else:
            assert (found < chance + 0.02).all(), other


@pytest.mark.parametrize("exclude", [Exclude(), Exclude(bos=True), Exclude(bos=True, current_token=True)])
def test_even_attention_scores_exactly_chance(exclude: Exclude) -> None:
    """A head whose scores are all zero attends evenly; its match is 1/(keys that count), averaged over rows."""
    gpt = induction_model()
    found = match_heads(
        gpt, REPEATS, "induction_head", exclude_bos=exclude.bos, exclude_current_token=exclude.current_token
    )
    rows = torch.arange(13, 25, dtype=torch.float64)
    expected = float((1 / (rows + 1 - int(exclude.bos) - int(exclude.current_token))).mean())
    assert found.chance == pytest.approx(expected, abs=1e-12)
    assert float(found.score[0, 0]) == pytest.approx(expected, abs=1e-6)
    assert float(found.excess[0, 0]) == pytest.approx(0, abs=1e-6)
    assert found.n_rows == len(REPEATS) * 12


def test_the_planted_heads_are_detected_and_theirs_counts_rows_without_a_target_against_them() -> None:
    gpt = induction_model()
    ours = match_heads(gpt, REPEATS, HeadPattern.INDUCTION)
    theirs = detect_heads(gpt, REPEATS, HeadPattern.INDUCTION)
    assert float(ours.score[INDUCTION_HEAD]) == pytest.approx(1, abs=1e-4)
    assert 0.45 < float(theirs[INDUCTION_HEAD]) < 0.55
    before = match_heads(gpt, REPEATS, "previous_token_head")
    assert float(before.score[PREVIOUS_HEAD]) == pytest.approx(1, abs=1e-4)


def test_several_sequences_are_the_mean_of_each_with_every_keyword_in_force(tiny: GPT) -> None:
    tokens = torch.cat([repeated_tokens(2, 8, 50, seed=1), repeated_tokens(2, 4, 50, n_copies=4, seed=1)])
    asked: dict[str, Any] = {"exclude_bos": True, "exclude_current_token": True, "error_measure": "abs"}
    alone = torch.stack([detect_heads(tiny, row, "duplicate_token_head", **asked) for row in tokens])
    together = detect_heads(tiny, tokens, "duplicate_token_head", **asked)
    torch.testing.assert_close(together, alone.mean(0), rtol=0, atol=1e-6)
    assert not torch.allclose(together, detect_heads(tiny, tokens, "duplicate_token_head"))


def test_a_pattern_of_ones_own_is_taken_as_it_is(tiny: GPT) -> None:
    tokens = repeated_tokens(2, 8, 50, seed=1)
    name = HeadPattern.PREVIOUS
    own = wanted_pattern(name, tokens[0])
    for measure in ErrorMeasure:
        named = detect_heads(tiny, tokens, name, error_measure=measure)
        assert torch.equal(detect_heads(tiny, tokens, own, error_measure=measure), named)
    third = own / 3
    torch.testing.assert_close(detect_heads(tiny, tokens, third), detect_heads(tiny, tokens, own) / 3)


def test_heads_that_are_not_asked_for_are_minus_one(tiny: GPT) -> None:
    tokens = repeated_tokens(1, 8, 50, seed=1)
    whole = detect_heads(tiny, tokens, "induction_head")
    some = detect_heads(tiny, tokens, "induction_head", heads=[(1, 2), (0, 0)])
    assert some[1, 2] == whole[1, 2]
    assert some[0, 0] == whole[0, 0]
    assert (some == -1).sum() == 6


def test_nothing_that_is_given_is_changed(tiny: GPT) -> None:
    tokens = repeated_tokens(2, 8, 50, seed=1)
    _, cache = tiny.run_with_cache(tokens)
    wanted = wanted_pattern("induction_head", tokens)[:, None]
    given = {"tokens": tokens, "wanted": wanted, **dict(cache)}
    before = {name: value.clone() for name, value in given.items()}
    exclude = Exclude(bos=True, current_token=True)
    for measure in ErrorMeasure:
        similarity(cache["pattern", 0], wanted, error_measure=measure, exclude=exclude)
        overlap(cache["pattern", 1], wanted, error_measure=measure, exclude=exclude)
        detect_heads(tiny, tokens, wanted[0, 0], error_measure=measure, exclude_bos=True, exclude_current_token=True)
        match_heads(tiny, tokens, wanted[0, 0], error_measure=measure, exclude_bos=True, exclude_current_token=True)
    assert all(torch.equal(given[name], before[name]) for name in given)


@pytest.mark.parametrize(
    ("pattern", "asked", "error", "said"),
    [
        ("induction", {}, ConfigError, r'"induction" is not one of previous_token_head, .* mean "induction_head"'),
        ("__import__('os')", {}, ConfigError, "is not one of previous_token_head"),
        (HeadPattern.INDUCTION, {"error_measure": "add"}, ConfigError, 'error_measure="add" is not one of mul, abs'),
        (torch.ones(16, 15), {}, InputError, r"shape \(16, 15\) cannot .* \(16, 16\), with zeros for keys after"),
        (torch.ones(16, 16), {}, InputError, "zeros for keys after the query"),
        (torch.full((16, 16), torch.nan).tril(), {}, InputError, "give finite numbers"),
        (NAMES[0], {"heads": [(0, 9)]}, InputError, r"no head \(0, 9\); give \(layer, head\) below \(2, 4\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_detected_is_said(
    tiny: GPT, pattern: Any, asked: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        detect_heads(tiny, repeated_tokens(2, 8, 50, seed=1), pattern, **asked)


def test_what_cannot_be_matched_is_said(tiny: GPT, make_gpt: Callable[..., GPT]) -> None:
    distinct, repeats = torch.arange(16)[None], repeated_tokens(2, 8, 50, seed=1)
    with pytest.raises(InputError, match="no row of these sequences has a target"):
        match_heads(tiny, distinct, "induction_head")
    with pytest.raises(InputError, match='for proportions use "abs"'):
        match_heads(tiny, repeats, torch.full((16, 16), 0.5).tril())
    with pytest.raises(InputError, match="no attention is negative"):
        match_heads(tiny, repeats, -torch.ones(16, 16).tril(), error_measure="abs")
    with pytest.raises(InputError, match="use a causal model"):
        detect_heads(make_gpt(attention="bidirectional"), repeats, "induction_head")
