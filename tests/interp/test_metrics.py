"""What patched runs are judged by: the numbers by hand, and what does not fit refused in a sentence."""

from __future__ import annotations

import re

import pytest
import torch

from interp.metrics import copy_logit, logit_difference, measured, split_rows
from interp.stimuli import repeated_tokens
from model.errors import InputError

LOGITS = torch.arange(2 * 3 * 5, dtype=torch.float64).reshape(2, 3, 5).pow(2)
ROWS = torch.arange(2)
CORRECT, WRONG = torch.tensor([4, 3]), torch.tensor([0, 1])


def test_a_logit_difference_is_read_at_its_position():
    found = logit_difference(CORRECT, WRONG, position=1)(LOGITS, ROWS)
    assert found.tolist() == [9**2 - 5**2, 23**2 - 21**2]
    last = logit_difference(CORRECT, WRONG)
    assert torch.equal(last(LOGITS, ROWS), logit_difference(CORRECT, WRONG, position=2)(LOGITS, ROWS))
    assert torch.equal(last(LOGITS[1:], ROWS[1:]), last(LOGITS, ROWS)[1:])


@pytest.mark.parametrize(
    ("correct", "wrong", "position", "sentence"),
    [
        (CORRECT, torch.tensor([0, 5]), -1, "5 is no token of this vocabulary; tokens run from 0 to 4"),
        (torch.tensor([-1, 3]), WRONG, -1, "-1 is no token of this vocabulary"),
        (CORRECT, WRONG, 3, "position 3 is none of the prompts' 3; choose from -3 to 2"),
        (CORRECT, WRONG, -4, "position -4 is none of the prompts' 3"),
        (CORRECT[:1], WRONG[:1], -1, "there are 1 pairs of tokens and at least 2 sequences"),
    ],
)
def test_what_does_not_fit_the_prompts_is_refused(correct, wrong, position: int, sentence: str):
    with pytest.raises(InputError, match=re.escape(sentence)):
        logit_difference(correct, wrong, position=position)(LOGITS, ROWS)


def test_the_copy_logit_is_the_mean_lead_of_the_copied_targets():
    """A model that lifts every right next token by 3, in a vocabulary of 12: 3 less its share in the mean."""
    tokens = repeated_tokens(2, 4, 12, seed=0)
    logits = 3.0 * torch.nn.functional.one_hot(tokens.roll(-1, 1), 12).double()
    found = copy_logit(tokens, 4)(logits, torch.arange(2))
    assert found.tolist() == pytest.approx([3 - 3 / 12] * 2)
    only_second = logits.clone()
    only_second[:, :3] = 0  # what the first copy predicts does not count
    assert torch.equal(copy_logit(tokens, 4)(only_second, torch.arange(2)), found)


def test_a_metric_gives_one_number_for_each_sequence():
    with pytest.raises(InputError, match="the metric gave float; it must give one number for each of the 2 sequences"):
        measured(lambda logits, rows: 1.0, LOGITS, ROWS)
    assert [rows.tolist() for rows in split_rows(5, 2)] == [[0, 1], [2, 3], [4]]
