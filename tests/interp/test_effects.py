"""One ablation's effect: known on a planted circuit, held against matched sets, and said only where it is there."""

from __future__ import annotations

import doctest
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interp import wording
from interp.controls import control_p
from interp.effects import AblationEffect, Control, OutcomeEffect, ablate
from interp.matched_places import matched_places
from interp.places import Intervention, parse_places, print_places
from interp.stats import Interval
from interp.wording import control_phrase, effect_sentences, harm_phrase, nats
from model.config import GPTConfig
from model.errors import InputError, UnknownNameError
from model.lab import Lab
from tests.planted_run import planted_lab

CONFIG = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=11)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("runs") / "planted"
    return planted_lab(folder)


@pytest.fixture(scope="module")
def induction(lab: Lab) -> AblationEffect:
    return ablate(lab, "L1H2", n_sequences=16)


def outcome(mean: float, low: float, high: float, *, clean: float = 1.0, scale: float = 5.0) -> OutcomeEffect:
    interval = Interval(mean=mean, low=low, high=high, n=64, level=0.95, method="percentile")
    gain, shared = scale - clean, None
    if gain > 0:
        shared = replace(interval, mean=mean / gain, low=low / gain, high=high / gain)
    return OutcomeEffect(
        name="copy_loss", meaning="loss on X", clean=clean, harm=interval, p=0.01, scale=scale, share_interval=shared
    )


def control(*harms: float, p: float | None) -> Control:
    return Control(
        harm=torch.tensor(harms, dtype=torch.float64),
        shared=torch.zeros(len(harms), dtype=torch.long),
        n_possible=len(harms),
        p=p,
        note=f"all {len(harms)} other sets" if harms else "no control: there is none",
    )


def test_without_the_planted_induction_head_nothing_is_copied(induction: AblationEffect):
    assert induction.effect.clean < 0.01
    assert induction.harm.low > 2.5  # close to ln 19, the loss of knowing nothing
    assert induction.effect.p < 0.01
    assert induction.effect.share == pytest.approx(1.0, abs=0.1)


def test_the_bystanders_are_the_control_and_cost_nothing(induction: AblationEffect):
    assert induction.control.harm.tolist() == [0.0, 0.0, 0.0]
    assert induction.control.p == induction.control.smallest_p == 0.25
    assert induction.control.is_exceeded
    assert induction.control.is_beaten is None  # three sets cannot say more than p = 0.25


def test_a_bystander_is_not_held_to_matter(lab: Lab):
    effect = ablate(lab, "L1H3:zero", n_sequences=16)
    assert (effect.harm.low, effect.harm.high) == (0.0, 0.0)
    assert effect.control.is_exceeded is False
    assert "does not change" in " ".join(effect_sentences(effect))
    assert effect.sources == ()


def test_the_intervention_given_applies_where_the_place_states_none(lab: Lab):
    effect = ablate(lab, "L0H1,L1H2:mean,L1H3", intervention="zero", n_sequences=4, n_controls=2)
    assert effect.places == "L0H1:mean,L1H2:mean,L1H3:zero"
    assert [source.split(" other")[0] for source in effect.sources] == ["means over 4", "means over 4"]


def test_every_outcome_is_measured_whatever_the_metric(lab: Lab):
    effect = ablate(lab, "L1H2", metric="text_loss", n_sequences=8)
    assert [each.name for each in effect.outcomes] == ["copy_loss", "first_copy_loss", "text_loss", "new_token_loss"]
    assert effect.effect is effect.text


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(lab: Lab, induction: AblationEffect):
    assert ablate(lab, "L1H2", n_sequences=16).harm == induction.harm
    assert ablate(lab, "L1H2", n_sequences=16, seed=1).harm != induction.harm


def test_what_cannot_be_asked_is_refused_before_any_work(lab: Lab):
    with pytest.raises(UnknownNameError, match="no L7H0"):
        ablate(lab, "L7H0")
    with pytest.raises(UnknownNameError, match=r'no metric "loss"'):
        ablate(lab, "L1H2", metric="loss")
    with pytest.raises(InputError, match=r'no intervention "man"'):
        ablate(lab, "L1H2", intervention="man")
    with pytest.raises(InputError, match="period of 40 needs 81 positions"):
        ablate(lab, "L1H2", period=40)


def test_too_little_held_out_text_is_said(tmp_path: Path):
    with pytest.raises(InputError, match="few has 3 held-out rows, too few"):
        ablate(planted_lab(tmp_path / "few", n_rows=3), "L1H2", n_sequences=4)


def test_matched_sets_keep_layers_and_interventions_and_share_what_they_say():
    matched = matched_places(parse_places("L1H0:zero,L0H2:mean"), CONFIG, limit=100, seed=0)
    assert len(matched.sets) == matched.n_possible == 4 * 4 - 1
    for places, shared in zip(matched.sets, matched.shared, strict=True):
        assert [(place.layer, place.intervention) for place in places] == [
            (0, Intervention.MEAN),
            (1, Intervention.ZERO),
        ]
        assert shared == sum(place.label in ("L1H0", "L0H2") for place in places)
    assert "L0H2:mean,L1H0:zero" not in map(print_places, matched.sets)


@pytest.mark.parametrize("text", ["L1H1:zero,L1H3:mean", "L1H3:zero,L1H1:mean"])
def test_where_heads_of_a_layer_have_different_interventions_a_set_says_which_gets_which(text: str):
    """Zero may stand on either of two heads: 4 * 3 assignments, of which one is claimed."""
    places = parse_places(text)
    matched = matched_places(places, CONFIG, limit=100, seed=0)
    sets = [tuple(sorted((place.intervention, place.index) for place in each)) for each in matched.sets]
    assert len(set(sets)) == len(sets) == matched.n_possible == 11
    own = tuple(sorted((place.intervention, place.index) for place in places))
    swapped = tuple(sorted((how, index) for (how, _), (_, index) in zip(own, reversed(own), strict=True)))
    assert own not in sets
    assert swapped in sets
    assert matched.shared[sets.index(swapped)] == 2
    assert matched.note == "all 11 other sets with as many heads of each intervention in each layer"


def test_every_assignment_is_drawn_as_often_as_any_other():
    found = [
        [(place.intervention, place.index) for place in each]
        for seed in range(600)
        for each in matched_places(parse_places("L1H3:zero,L1H1:mean"), CONFIG, limit=2, seed=seed).sets
    ]
    zeroed = [next(index for how, index in each if how is Intervention.ZERO) for each in found]
    counts = torch.bincount(torch.tensor(zeroed), minlength=4) / len(zeroed)
    expected = torch.tensor([3, 3, 3, 2]) / 11  # the claimed one is left out
    torch.testing.assert_close(counts, expected, atol=0.04, rtol=0)


def test_the_p_of_an_assignment_chosen_at_random_is_valid():
    """Harm depends on which head is zeroed: whichever of 12 assignments is claimed, each p is as likely as another."""
    harm = {Intervention.ZERO: 1.0, Intervention.MEAN: 0.1}
    ps = []
    for zero, mean in itertools.permutations(range(4), 2):
        claimed = parse_places(f"L1H{zero}:zero,L1H{mean}:mean")
        sets = [claimed, *matched_places(claimed, CONFIG, limit=100, seed=0).sets]
        costs = [sum(harm[place.intervention] * place.index for place in each) for each in sets]  # type: ignore
        ps.append(control_p(costs[0], costs[1:]))
    assert sorted(ps) == pytest.approx([rank / 12 for rank in range(1, 13)])


def test_memories_are_matched_with_memories():
    matched = matched_places(parse_places("L1M3:zero,L1M4:zero"), CONFIG, limit=20, seed=0)
    assert len(matched.sets) == 20
    assert all(place.label.startswith("L1M") for places in matched.sets for place in places)
    assert matched.note.startswith("20 random ones of the 8,127 other sets with as many memories")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("L1.attn:zero", "a whole sublayer has no equal"),
        ("L1H1:zero,L1.ffn:zero", "a whole sublayer has no equal"),
        ("L1H0,L1H1,L1H2,L1H3:zero", "no other set has as many heads in each layer"),
    ],
)
def test_where_no_matched_set_exists_it_is_said(text: str, why: str):
    matched = matched_places(parse_places(text), CONFIG, limit=20, seed=0)
    assert matched.sets == ()
    assert why in matched.note


def test_no_control_where_none_was_asked_for_is_not_put_down_to_the_model(lab: Lab):
    effect = ablate(lab, "L1H2", n_sequences=4, n_controls=0)
    assert control_phrase(effect.control) == "no control: none was asked for (n_controls=0)"
    with pytest.raises(InputError, match="n_controls=-1 is no number of matched sets"):
        ablate(lab, "L1H2", n_sequences=4, n_controls=-1)


def test_held_out_repeats_are_not_called_text_in_any_sentence(tmp_path: Path):
    effect = ablate(planted_lab(tmp_path / "repeats", is_text=False), "L1H2", n_sequences=4)
    said = " ".join(effect_sentences(effect))
    assert "loss on held-out repeats" in said
    assert "text" not in said


@pytest.mark.parametrize("harm", [(0.0, 0.0, 0.0), (0.03, -0.01, 0.049), (-0.03, -0.04, 0.02), (0.0, -0.049, 0.049)])
def test_no_change_is_said_only_where_the_whole_interval_is_small(harm: tuple[float, float, float]):
    assert harm_phrase(outcome(*harm), floor=0.05).startswith("the loss on X does not change by 0.05 nats or more: ")


@pytest.mark.parametrize("harm", [(0.3, -0.1, 0.7), (0.04, -0.01, 0.06), (-0.3, -0.7, 0.1), (0.0, -0.05, 0.05)])
def test_an_interval_that_leaves_it_open_is_no_evidence_that_nothing_changes(harm: tuple[float, float, float]):
    phrase = harm_phrase(outcome(*harm), floor=0.05)
    assert phrase.startswith("no change of the loss on X by 0.05 nats or more could be shown: ")
    assert f"{harm[0]:.2f} nats [{harm[1]:.2f}, {harm[2]:.2f}]" in phrase


def test_opposite_harms_never_read_the_same():
    for size in ((0.03, 0.02, 0.04), (0.5, 0.4, 0.6), (0.3, -0.1, 0.7)):
        mean, low, high = size
        assert harm_phrase(outcome(*size), floor=0.05) != harm_phrase(outcome(-mean, -high, -low), floor=0.05)
    assert nats(outcome(-0.5, -0.6, -0.4).harm) == "-0.50 nats [-0.60, -0.40]"
    assert "falls by 0.50 nats [0.40, 0.60]" in harm_phrase(outcome(-0.5, -0.6, -0.4), floor=0.05)


def test_a_harm_is_said_with_interval_ends_and_share():
    assert harm_phrase(outcome(0.61, 0.55, 0.66), floor=0.05) == (
        "the loss on X rises by 0.61 nats [0.55, 0.66], from 1.00 to 1.61 "
        "(15% [14%, 16%] of the model's advantage of 4.00 nats over token frequencies)"
    )
    assert harm_phrase(outcome(-0.5, -0.6, -0.4, clean=6.0), floor=0.05) == (
        "the loss on X falls by 0.50 nats [0.40, 0.60], from 6.00 to 5.50"
    )
    assert harm_phrase(outcome(-0.5, -0.6, -0.4), floor=0.05).endswith(
        " (12% [10%, 15%] of the model's advantage of 4.00 nats over token frequencies)"
    )


def test_a_share_above_the_whole_is_said_in_words_and_zero_has_no_sign():
    assert harm_phrase(outcome(8.0, 7.0, 9.0), floor=0.05).endswith(
        "(200% [175%, 225%] of the model's advantage of 4.00 nats over token frequencies, more than all of it)"
    )
    assert "0.00 nats [0.00, 0.00]" in harm_phrase(outcome(-1e-9, -1e-8, 1e-8), floor=0.05)
    assert doctest.testmod(wording).failed == 0


def test_a_control_is_said_with_its_p_and_the_smallest_it_allows():
    assert control_phrase(control(0.1, 0.2, 0.3, p=0.25)) == (
        "all 3 other sets cost 0.20 nats (median) and at most 0.30 "
        "(p <= 0.25, the share of sets that cost at least as much, this one counted; 3 allow no p below 0.25, too few "
        "to decide at 0.05)"
    )
    many = control(*[0.1] * 24, p=0.04)
    assert control_phrase(many).endswith("this one counted; the smallest that 24 allow)")
    assert control_phrase(replace(many, p=0.08)).endswith(
        "(p = 0.08, the share of sets that cost at least as much, this one counted)"
    )
    assert control_phrase(control(p=None)) == "no control: there is none"
    assert control(p=None).is_beaten is None
    assert control(p=None).is_exceeded is None


@pytest.mark.parametrize(
    ("n_sets", "p", "is_beaten"),
    [(1, 0.5, None), (18, 1 / 19, None), (18, 1.0, None), (19, 0.05, True), (19, 0.1, False), (100, 0.05, True)],
)
def test_only_sets_enough_for_a_small_p_can_be_beaten(n_sets: int, p: float, is_beaten: bool | None):
    """A lone control that costs less gives p = 0.5: that is no evidence."""
    assert control(*[0.1] * n_sets, p=p).is_beaten is is_beaten


def test_whether_a_set_exceeds_all_others_is_told_for_few_sets_as_well():
    assert control(0.1, p=0.5).is_exceeded is True
    assert control(0.1, p=1.0).is_exceeded is False


def test_sets_that_share_a_component_are_told_from_those_that_share_none():
    mixed = replace(control(0.1, 0.2, 3.0, p=0.25), shared=torch.tensor([0, 0, 1]))
    assert "at most 3.00, the 2 sets that contain none of these heads at most 0.20 (p <= 0.25" in control_phrase(mixed)


def test_every_number_is_said_with_its_n_seed_and_checkpoint(induction: AblationEffect):
    first, *rest = effect_sentences(induction)
    assert first.startswith("With L1H2:mean ablated, the loss on the second copy of random tokens rises by")
    assert first.endswith(
        f"(planted@8, n = 16 sequences, seed 0, 95% intervals, p <= {induction.effect.p:.2g} by sign flips)."
    )
    assert any(line.startswith("Control: all 3 other heads of layer 1") for line in rest)
    assert rest[-1] == (
        "Replacements: means over 16 other sequences of random tokens repeated after 19; means over 12 other sequences "
        "of held-out text."
    )
