"""What is said of an effect: a sure one by its size, however small; none only where that is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from interp.ablation import ablation_of
from interp.effects import AblationEffect, Control, OutcomeEffect
from interp.sequential import Decision, Look, decide
from interp.stats import Interval
from interp.wording import (
    control_phrase,
    decision_sentence,
    effect_sentences,
    fine,
    harm_phrase,
    p_phrase,
    shared_phrase,
)
from model.config import GPTConfig

CONFIG = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=64, d_vocab=11)


def outcome(mean: float, low: float, high: float, **changes: object) -> OutcomeEffect:
    harm = Interval(mean=mean, low=low, high=high, n=64, level=0.95, method="percentile")
    made = OutcomeEffect(name="copy_loss", meaning="loss on X", clean=1.0, harm=harm, p=0.0123, scale=None)
    return replace(made, **changes)


def effect_on(*outcomes: OutcomeEffect, places: str = "L1H1", **changes: object) -> AblationEffect:
    control = Control(
        harm=torch.empty(0), shared=torch.empty(0, dtype=torch.long), n_possible=0, p=None,
        note="no control: a whole sublayer has no equal in its layer",
    )  # fmt: skip
    made = AblationEffect(
        checkpoint="r@1", ablation=ablation_of(places, CONFIG), metric=outcomes[0].name, outcomes=outcomes,
        control=control, sources=(), notes=(), seed=0, kinds=(),
    )  # fmt: skip
    return replace(made, **changes)


def with_n(effect: OutcomeEffect, n: int, level: float = 0.95) -> OutcomeEffect:
    return replace(effect, harm=replace(effect.harm, n=n, level=level))


def test_a_sure_change_is_said_with_its_size_where_it_is_less_than_the_bound() -> None:
    sure = outcome(0.19, 0.16, 0.23)
    assert harm_phrase(sure, floor=0.5) == (
        "the loss on X rises by 0.19 nats [0.16, 0.23], less than the 0.5 that matters, from 1.00 to 1.19"
    )
    assert harm_phrase(sure, floor=0.2) == (
        "the loss on X rises by 0.19 nats [0.16, 0.23], not shown to reach the 0.2 that matters, from 1.00 to 1.19"
    )
    assert "falls by 0.19 nats [0.16, 0.23], less than" in harm_phrase(outcome(-0.19, -0.23, -0.16), floor=0.5)
    assert "matters" not in harm_phrase(sure, floor=0.1)
    assert "0.0010 nats [0.0003, 0.0018], less than the 0.05 that matters, from 1.0000 to 1.0010" in harm_phrase(
        outcome(0.001, 0.0003, 0.0018), floor=0.05
    )


def test_what_may_be_nothing_keeps_its_sign_and_has_ends_and_share_as_well() -> None:
    share = Interval(mean=-0.001, low=-0.004, high=0.002, n=64, level=0.95, method="percentile")
    open_ = outcome(-0.01, -0.04, 0.02, share_interval=share, scale=11.0)
    assert harm_phrase(open_, floor=0.05) == (
        "the loss on X does not change by 0.05 nats or more: -0.01 nats [-0.04, 0.02], from 1.00 to 0.99 "
        "(-0.1% [-0.4%, 0.2%] of the model's advantage of 10.00 nats over token frequencies)"
    )


@pytest.mark.parametrize(
    ("numbers", "texts"),
    {
        (0.0021, 0.0014, 0.0029): ("0.002", "0.001", "0.003"),
        (0.0004, -0.0002, 0.0009): ("0.0004", "-0.0002", "0.0009"),
        (0.01, 0.0021, 0.018): ("0.010", "0.002", "0.018"),
        (-0.0003, -0.0004, -0.0002): ("-0.0003", "-0.0004", "-0.0002"),
        (-0.0001, -0.2, 0.2): ("0.00", "-0.20", "0.20"),
        (0.0, 0.0, 0.0): ("0.00", "0.00", "0.00"),
        (-1e-9, -2e-9, -1e-10): ("0.00", "0.00", "0.00"),
        (0.61, 0.55, 0.66): ("0.61", "0.55", "0.66"),
    }.items(),
)
def test_a_small_effect_that_is_surely_there_never_reads_as_nothing(
    numbers: tuple[float, float, float], texts: tuple[str, ...]
) -> None:
    assert fine(*numbers) == texts


def test_the_bound_is_the_metrics_and_no_other_units() -> None:
    asked = outcome(3.0, 2.9, 3.1, name="copy_logit_difference", unit="logits", lower_is_better=False)
    beside = outcome(0.61, 0.55, 0.66, name="text_loss", meaning="loss on text")
    said = effect_sentences(effect_on(asked, beside), floor=2.0)
    assert not [line for line in said if "matters" in line or "2 nats" in line]
    weighty = effect_sentences(effect_on(beside, replace(beside, name="new_token_loss")), floor=2.0)
    assert all("less than the 2 that matters" in line for line in (weighty[0], weighty[-1]))


def test_controls_are_called_so_and_no_word_is_doubled() -> None:
    text = outcome(0.1, 0.08, 0.12, name="new_token_loss", meaning="loss on text where the current token is new")
    first, control, second = effect_sentences(effect_on(outcome(1.0, 0.9, 1.1), text))
    assert first.endswith("(r@1, n = 64 sequences, seed 0, 95% intervals, p = 0.012 by sign flips).")
    assert control == "No control: a whole sublayer has no equal in its layer."
    assert second.startswith("Second control, where nothing can be copied: the loss on text where the current")


def test_a_p_that_no_effect_could_make_smaller_is_said_to_be_at_most_that() -> None:
    """9999 drawn patterns give no p below 1/10000; a look that spends half of alpha doubles that."""
    assert p_phrase(0.0001, 0.0001) == "p <= 0.0001"
    assert p_phrase(0.0002, 0.0001) == "p = 0.0002"
    surely = effect_on(outcome(1.0, 0.9, 1.1, p=0.0001))
    assert "p <= 0.0001 by sign flips" in effect_sentences(surely)[0]
    look = Look(n=64, interval=surely.harm, p=(0.0001,), spent=0.025)
    decided = Decision(bounds=(0.0,), looks=(look,), most=128, alpha=0.05)
    for p, said in ((0.0002, "p <= 0.0002"), (0.0003, "p = 0.0003")):
        after = effect_on(outcome(1.0, 0.9, 1.1, p=p), decision=decided)
        assert f"{said} by sign flips" in effect_sentences(after)[0]


def test_a_set_that_gains_stands_beside_sets_that_gain() -> None:
    control = Control(
        harm=torch.tensor([0.1, -0.1, -0.3]), shared=torch.tensor([0, 0, 1]), n_possible=3, p=0.25, note="all 3 sets",
        gains=True,
    )  # fmt: skip
    assert control_phrase(control) == (
        "all 3 sets gain 0.10 nats (median) and at most 0.30, the 2 sets that contain none of these heads at most 0.10 "
        "(p <= 0.25, the share of sets that gain at least as much, this one counted; 3 allow no p below 0.25, too few "
        "to decide at 0.05)"
    )


@pytest.mark.parametrize(("shared", "said"), [
    ([0, 0], ""), ([0, 1], "1 of them shares heads with it"), ([2, 1], "2 of them share heads with it"),
])  # fmt: skip
def test_matched_sets_that_share_heads_with_the_ablated_one_are_counted(shared: list[int], said: str) -> None:
    control = Control(harm=torch.tensor([0.1, 0.2]), shared=torch.tensor(shared), n_possible=2, p=0.5, note="all 2")
    assert shared_phrase(effect_on(outcome(0.2, 0.1, 0.3), places="L1H1,L1H2", control=control)) == said


def test_sets_that_gain_where_the_set_costs_are_not_said_to_cost_a_negative_amount() -> None:
    harm = torch.tensor([-0.1, -0.2, -0.3])
    control = Control(harm=harm, shared=torch.zeros(3, dtype=torch.int64), n_possible=3, p=0.25, note="all 3 sets")
    assert control_phrase(control).startswith("all 3 sets gain 0.20 nats (median) and at least 0.10 (p <= 0.25, ")
    gains = replace(control, harm=-harm, gains=True)
    assert control_phrase(gains).startswith("all 3 sets cost 0.20 nats (median) and at least 0.10 (p <= 0.25, ")
    mixed = replace(control, harm=torch.tensor([-0.1, -0.2, 0.3]))
    assert control_phrase(mixed).startswith("all 3 sets gain 0.10 nats (median) and cost at most 0.30 (p <= 0.25, ")


def test_a_divergence_has_no_p_since_it_is_never_below_zero() -> None:
    said = effect_sentences(effect_on(outcome(1.0, 0.9, 1.1, name="copy_kl")))[0]
    assert "p =" not in said


def test_fewer_sequences_of_text_and_other_levels_are_explained_where_they_stand() -> None:
    asked = with_n(outcome(1.0, 0.9, 1.1), 256, 0.975)
    said = effect_sentences(
        effect_on(asked, outcome(0.1, 0.08, 0.12, name="text_loss"), start=(outcome(0.0, 0.0, 0.0),))
    )
    assert "97.5% intervals" in said[0]
    assert said[2].endswith("(n = 64, fixed beforehand, 95% intervals).")
    assert said[3].endswith(
        "(n = 64, half of the held-out rows, as the other half gives the replacements, 95% intervals)."
    )


def test_constants_of_step_0_are_said_to_be_its_own() -> None:
    start = (outcome(0.0, 0.0, 0.0),)
    said = effect_sentences(effect_on(outcome(1.0, 0.9, 1.1), start=start, places="L1H1:optimal"))
    assert said[2].endswith("(n = 64; constants fitted anew there).")
    assert "fitted" not in effect_sentences(effect_on(outcome(1.0, 0.9, 1.1), start=start))[2]


def test_all_sequences_are_not_so_many_of_so_many() -> None:
    decision = decide(lambda start, stop: torch.ones(stop - start) + 0.01 * torch.arange(start, stop), 0.05, most=8)
    assert "was known after all 8 sequences (1 look;" in decision_sentence(decision, "nats")
