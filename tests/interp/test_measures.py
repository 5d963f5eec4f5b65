"""What is read off logits is what its definition says, wherever the model is sure, tied or broken."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from interp.measures import Measure, UserMeasure, read
from model.errors import InputError

LOGITS = 3 * torch.randn(4, 6, 9, generator=torch.Generator().manual_seed(0))
INTACT = 3 * torch.randn(4, 6, 9, generator=torch.Generator().manual_seed(1))
TARGETS = torch.randint(9, (4, 6), generator=torch.Generator().manual_seed(2))
OTHERS = (TARGETS + 3) % 9


def test_a_loss_is_the_cross_entropy():
    expected = F.cross_entropy(LOGITS.flatten(0, 1), TARGETS.flatten(), reduction="none").view(4, 6)
    torch.testing.assert_close(read(Measure.LOSS, LOGITS, TARGETS), expected)
    assert float(read(Measure.LOSS, torch.tensor([[1e4, 0.0]]), torch.tensor([1]))) == 1e4


def test_an_accuracy_counts_the_likeliest_token():
    assert read(Measure.ACCURACY, torch.tensor([[0.0, 2.0, 1.0]] * 2), torch.tensor([1, 2])).tolist() == [1.0, 0.0]


def test_a_divergence_is_that_of_the_model_from_the_intact_one_and_0_from_itself():
    expected = F.kl_div(LOGITS.log_softmax(-1), INTACT.log_softmax(-1), log_target=True, reduction="none").sum(-1)
    torch.testing.assert_close(read(Measure.KL, LOGITS, TARGETS, intact=INTACT), expected)
    assert (read(Measure.KL, INTACT, TARGETS, intact=INTACT) == 0).all()
    assert not torch.allclose(expected, read(Measure.KL, INTACT, TARGETS, intact=LOGITS)), "it has a direction"


def test_a_logit_difference_is_linear_in_the_logits():
    found = read(Measure.LOGIT_DIFFERENCE, LOGITS, TARGETS, distractors=OTHERS)
    by_hand = [[LOGITS[i, j, TARGETS[i, j]] - LOGITS[i, j, OTHERS[i, j]] for j in range(6)] for i in range(4)]
    torch.testing.assert_close(found, torch.tensor(by_hand))
    doubled = read(Measure.LOGIT_DIFFERENCE, 2 * LOGITS + 5, TARGETS, distractors=OTHERS)
    torch.testing.assert_close(doubled, 2 * found, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("measure", Measure)
def test_targets_and_intact_logits_serve_every_leading_row(measure: Measure):
    beside = {"distractors": OTHERS[0], "intact": INTACT[0]}
    together = read(measure, LOGITS, TARGETS[0], **beside)
    for row, logits in enumerate(LOGITS):
        torch.testing.assert_close(together[row], read(measure, logits, TARGETS[0], **beside))


@pytest.mark.parametrize("measure", Measure)
def test_half_precision_is_read_in_fp32_and_fp64_stays(measure: Measure):
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        found = read(measure, LOGITS.to(dtype), TARGETS, distractors=OTHERS, intact=INTACT.to(dtype))
        assert found.dtype == expected


def test_what_a_measure_needs_is_asked_for():
    with pytest.raises(InputError, match="KL is a distance from the intact model"):
        read(Measure.KL, LOGITS, TARGETS)
    with pytest.raises(InputError, match="give one token for each target"):
        read(Measure.LOGIT_DIFFERENCE, LOGITS, TARGETS)


@pytest.mark.parametrize("wrong", [lambda logits, tokens: logits, lambda logits, tokens: 1.0])
def test_a_function_of_the_wrong_shape_is_refused_with_the_right_ones(wrong: object):
    tokens = torch.zeros(4, 6, dtype=torch.long)
    measure = UserMeasure(function=wrong, unit="", lower_is_better=True)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"one number for each sequence, \(4,\), or for each target, \(4, 5\)"):
        measure.read(LOGITS, tokens)


def test_every_measure_says_its_unit_and_which_way_is_better():
    said = {measure: (measure.unit, measure.lower_is_better) for measure in Measure}
    assert said == {
        Measure.LOSS: ("nats", True),
        Measure.ACCURACY: ("of the targets", False),
        Measure.KL: ("nats", True),
        Measure.LOGIT_DIFFERENCE: ("logits", False),
    }


def test_a_gradient_goes_through_what_has_one():
    for measure in (Measure.LOSS, Measure.KL, Measure.LOGIT_DIFFERENCE):
        logits: Tensor = LOGITS.clone().requires_grad_()
        read(measure, logits, TARGETS, distractors=OTHERS, intact=INTACT).sum().backward()
        assert logits.grad is not None
        assert logits.grad.abs().sum() > 0
