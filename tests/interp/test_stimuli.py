"""Repeated random tokens are what they claim, and the control keeps the tokens while losing the distance."""

from __future__ import annotations

import json

import pytest
import torch

from interp.stimuli import (
    check_period,
    copy_start,
    longest_period,
    ordinary_ids,
    random_tokens,
    reordered,
    repeated_tokens,
)
from model.errors import InputError
from model.imported_tokenizer import ImportedTokenizer
from tests.model.interop import forge


def test_each_segment_has_distinct_tokens_and_comes_again_behind_the_bos() -> None:
    tokens = repeated_tokens(16, 9, 30, seed=3, bos=4)
    assert tokens.shape == (16, 19)
    assert (tokens[:, 0] == 4).all()
    first, second = tokens[:, 1:10], tokens[:, 10:]
    assert torch.equal(first, second)
    assert all(len(set(row.tolist())) == 9 for row in first)
    assert not (first == 4).any()


def test_segments_differ_between_sequences_and_seeds_and_repeat_for_the_same_seed() -> None:
    one, two = repeated_tokens(4, 6, 50, seed=1), repeated_tokens(4, 6, 50, seed=2)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, two)
    assert torch.equal(one, repeated_tokens(4, 6, 50, seed=1))


def test_tokens_come_from_the_ids_that_are_given_and_every_id_is_used() -> None:
    ids = torch.tensor([3, 7, 11, 40])
    assert set(repeated_tokens(8, 4, ids).unique().tolist()) == {3, 7, 11, 40}
    assert set(repeated_tokens(200, 3, range(10, 15)).unique().tolist()) == set(range(10, 15))


def test_more_copies_follow_one_another() -> None:
    tokens = repeated_tokens(2, 3, 10, n_copies=4)
    assert torch.equal(tokens.unflatten(1, (4, 3))[:, 0], tokens.unflatten(1, (4, 3))[:, 3])


def test_the_control_has_the_same_tokens_but_no_fixed_distance() -> None:
    tokens = repeated_tokens(200, 12, 40, bos=40)
    before = tokens.clone()
    control = reordered(tokens, 12, seed=1)
    assert torch.equal(tokens, before)
    assert torch.equal(control[:, :13], tokens[:, :13])
    assert torch.equal(control[:, 13:].sort(1).values, tokens[:, 13:].sort(1).values)
    aligned = (control[:, 13:] == tokens[:, 13:]).double().mean()
    assert aligned == pytest.approx(1 / 12, abs=0.02)


def test_the_start_of_the_copies_is_found_with_and_without_a_bos() -> None:
    assert copy_start(repeated_tokens(1, 7, 20, bos=0).shape[1], 7) == 1
    assert copy_start(repeated_tokens(1, 7, 20).shape[1], 7) == 0
    with pytest.raises(InputError, match="17 positions are not whole copies of 7"):
        copy_start(17, 7)


def test_a_period_that_does_not_fit_says_which_do() -> None:
    assert longest_period(64, bos=256) == 31
    assert longest_period(64, bos=None) == 32
    check_period(31, 64, bos=256)
    with pytest.raises(InputError, match=r"period of 32 needs 65 positions .* n_ctx=64.* from 2 to 31"):
        check_period(32, 64, bos=256)
    with pytest.raises(InputError, match="A period of 12 needs as many different tokens; the vocabulary has 9"):
        repeated_tokens(1, 12, 10, bos=3)
    with pytest.raises(InputError, match="repeat nothing"):
        repeated_tokens(1, 1, 10)


def test_random_segments_hold_no_special_token_and_no_id_without_a_token() -> None:
    plain = json.loads(forge.gpt2_definition())
    d_vocab = 7 + max(plain["model"]["vocab"].values())
    tokenizer = ImportedTokenizer(json.dumps(plain), d_vocab=d_vocab, bos=None)
    ids = ordinary_ids(tokenizer)
    silent = {token for token, raw in enumerate(tokenizer.token_bytes) if not raw}
    assert len(silent) >= 6
    assert silent.isdisjoint(ids.tolist())
    assert set(repeated_tokens(200, 20, ids).unique().tolist()) <= set(ids.tolist())


def test_a_segment_that_comes_once_has_distinct_tokens() -> None:
    tokens = random_tokens(16, 9, 30, seed=3, bos=4)
    assert tokens.shape == (16, 10)
    assert (tokens[:, 0] == 4).all()
    assert all(len(set(row.tolist())) == 9 for row in tokens[:, 1:])
    assert torch.equal(tokens, repeated_tokens(16, 9, 30, seed=3, bos=4)[:, :10])
    assert random_tokens(2, 9, 30).shape == (2, 9)
