"""The effect of an ablation on each token of a text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interp.ablation import Frozen
from interp.token_effects import token_effects
from model.errors import InputError
from model.lab import Lab
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def test_without_the_induction_head_the_repeated_letters_are_lost_and_no_others(lab: Lab):
    effects = token_effects(lab, "abcdeabcde", "L1H2:zero")
    assert effects.strings == ("<bos>", *"abcdeabcde")
    repeated = torch.arange(10) >= 6  # targets b c d e of the second copy; its a is still news
    assert (effects.harm[repeated] > 2.5).all()
    assert effects.clean_top[6:10] == ("b", "c", "d", "e")
    assert effects.source is None


def test_the_losses_are_those_of_the_model_and_their_difference_the_harm(lab: Lab):
    tokens = lab.tokens("hello")[:, :4]
    effects = token_effects(lab, tokens, "L0H1:mean@pos")
    torch.testing.assert_close(effects.clean, lab.gpt.loss(tokens, per_token=True)[0].detach())
    torch.testing.assert_close(effects.harm, effects.ablated - effects.clean)
    assert effects.source == "24 held-out rows"
    assert str(effects.ablation) == "L0H1:mean@pos"


def test_the_text_itself_is_never_among_the_rows_that_means_come_from(lab: Lab):
    assert token_effects(lab, lab.eval_tokens[:1], "L0H1").source == "23 held-out rows"


def test_one_token_predicts_nothing(lab: Lab):
    with pytest.raises(InputError, match="has no second token"):
        token_effects(lab, "", "L0H1")


def test_nothing_stays_behind(lab: Lab, tmp_path: Path):
    tokens = lab.tokens("abcabc")
    before = lab.gpt(tokens)
    token_effects(lab, "abcabc", "L0.attn:zero")
    assert torch.equal(lab.gpt(tokens), before)


def test_the_likeliest_tokens_of_both_runs_are_kept_with_both_chances(lab: Lab):
    effects = token_effects(lab, "abcdeabcde", "L1H2:zero")
    intact, without = lab.gpt(lab.tokens("abcdeabcde"))[0].softmax(-1), effects.ablated_chance
    torch.testing.assert_close(effects.clean_chance, intact.gather(-1, effects.candidates).detach())
    assert [lab.str_tokens(row)[0] for row in effects.candidates[6:10, :1]] == ["b", "c", "d", "e"]
    assert (effects.clean_chance[6:10, 0] > 0.99).all()
    assert (without[6:10, 0] < 0.1).all()  # and nothing else is promoted in their place


def test_with_patterns_held_a_head_that_only_steers_others_loses_nothing(lab: Lab):
    held = token_effects(lab, "abcdeabcde", "L0H1:zero", frozen=Frozen.PATTERNS)
    assert held.harm.abs().max() < 1e-5 < token_effects(lab, "abcdeabcde", "L0H1:zero").harm.max()
