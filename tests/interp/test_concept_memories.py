"""Values stand out for a concept as they would beside every other set of as many tokens."""

from __future__ import annotations

import itertools

import pytest
import torch

from interp.concept_memories import TokenSet, best_memories, chosen_concept, named_concept, standout
from interp.memory_values import value_scores
from model import GPT
from model.errors import ConfigError
from model.tokenizer import ByteTokenizer, CharTokenizer
from tests.conftest import make_gpt_with
from tests.planted import memory_model

BYTES = ByteTokenizer()


def about(gpt: GPT, layer: int, memory: int, text: str, size: float = 1.0) -> None:
    """Let a value promote the tokens of a text and nothing else in particular."""
    with torch.no_grad():
        gpt.layers[layer].mlp.W_out[memory] = size * gpt.W_E[BYTES.encode(text)].sum(0)


def test_standing_out_is_the_mean_in_standard_errors_of_all_sets_of_as_many_tokens() -> None:
    gpt = make_gpt_with(d_vocab=9, d_ff=5)
    member = torch.zeros(1, 9, dtype=torch.bool)
    member[0, [1, 4, 6]] = True
    found = standout(gpt, member)
    for layer in range(2):
        scores = value_scores(gpt, layer).double()
        every = torch.stack([scores[:, list(each)].mean(1) for each in itertools.combinations(range(9), 3)])
        slow = (scores[:, [1, 4, 6]].mean(1) - every.mean(0)) / every.std(0, unbiased=False)
        torch.testing.assert_close(found[0, layer], slow.float(), atol=1e-4, rtol=1e-4)


def test_the_size_of_a_value_changes_nothing_and_a_value_of_zero_stands_out_for_nothing() -> None:
    gpt, member = make_gpt_with(d_vocab=30), torch.arange(30)[None] < 4
    before = standout(gpt, member)
    with torch.no_grad():
        gpt.layers[0].mlp.W_out[3] *= 7
        gpt.layers[0].mlp.W_out[4] = 0
    after = standout(gpt, member)
    torch.testing.assert_close(after[0, 0, 3], before[0, 0, 3])
    assert after[0, 0, 4] == 0


def test_a_planted_memory_stands_out_for_its_token_and_no_other_does() -> None:
    gpt = memory_model(promoted=7, memory=2)
    found = standout(gpt, torch.eye(20, dtype=torch.bool))
    assert int(found[7, 0].argmax()) == 2
    assert float(found[7, 0, 2]) == pytest.approx((19 / 20) * 20 / (20 / 20) ** 0.5 / (19 / 20 * 20) ** 0.5, rel=1e-3)
    assert bool((found[7, 0, [0, 1, 3, 4, 5, 6, 7]] == 0).all())
    alive = torch.ones(1, 8, dtype=torch.bool)
    assert best_memories(found[7], alive, 1) == [(0, 2)]
    alive[0, 2] = False
    assert (0, 2) not in best_memories(found[7], alive, 8)
    assert len(best_memories(found[7], alive, 20)) == 7


def test_the_concept_that_values_are_about_is_chosen_if_the_text_uses_it() -> None:
    gpt = make_gpt_with(d_vocab=257, d_model=64)
    for memory in range(6):
        about(gpt, memory % 2, memory, "0123456789")
        about(gpt, memory % 2, 20 + memory, "([{}])abcdefgh", size=9.0)
    digits = torch.tensor([BYTES.encode("x = 10 + call(a) ")])
    chosen, found = chosen_concept(gpt, BYTES, digits, 6)
    assert (chosen.name, bytes(chosen.tokens.tolist())) == ("digits", b"0123456789")
    assert {(layer, memory) for layer, memory in best_memories(found, found > -99, 6)} == {
        (memory % 2, memory) for memory in range(6)
    }
    without = torch.tensor([BYTES.encode("x = aa + call(a) ")])
    assert chosen_concept(gpt, BYTES, without, 6)[0].name == "brackets"
    only = torch.tensor([BYTES.encode("1234567890")])
    with pytest.raises(ConfigError, match="no concept makes up 1% to 25% of the held-out tokens, so none can be"):
        chosen_concept(gpt, BYTES, only, 6)


def test_a_concept_is_named_or_given_as_a_text() -> None:
    digits = named_concept("digits", BYTES)
    assert digits.tokens.tolist() == list(range(48, 58))
    same = named_concept("text:9876543210", BYTES)
    assert torch.equal(digits.member, same.member)
    assert digits.share_of(torch.tensor(BYTES.encode("a1b2"))) == 0.5
    assert isinstance(same, TokenSet)


@pytest.mark.parametrize(
    ("name", "sentence"),
    {
        "digit": r'concept="digit" is none of this vocabulary\. Did you mean "digits"\? Concepts are .*text:0123456789',
        "text:": r'concept="text:" has no token',
    }.items(),
)
def test_what_is_no_concept_is_refused_with_those_there_are(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        named_concept(name, BYTES)


def test_a_concept_that_is_most_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'concept="text:abcde" has 5 of 7 tokens; name one with at most half'):
        named_concept("text:abcde", CharTokenizer("abcdef"))
