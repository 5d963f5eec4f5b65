"""What stands beside an effect: sets ablated alike, step 0, text, other outcomes, and a stop once it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from interp.ablation import Ablation, Frozen, ablation_of
from interp.effects import AblationEffect, ablate, benches_for, effect_of
from interp.outcomes import user_outcome
from interp.trials import Bench
from interp.wording import effect_sentences
from model.errors import InputError
from model.lab import Lab
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def alone(lab: Lab, places: str | Ablation, metric: str = "copy_loss", **asked: Any) -> AblationEffect:
    """An effect without step 0, which most of these tests have no need of."""
    ablation = ablation_of(places, lab.config)
    bench, _ = benches_for(lab, ablation, metric=metric, n_sequences=asked.pop("n", 8))
    return effect_of(bench, ablation, metric=metric, **{"seed": 0, "n_controls": 0, **asked})


def test_matched_sets_carry_gate_positions_and_held_patterns(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = ablation_of("L0H1", lab.config, gate=0.25, positions=(3, 4, 5), frozen=Frozen.PATTERNS)
    asked: list[Sequence[Ablation]] = []
    harms = Bench.harms

    def seen(self: Bench, trial: Any, ablations: Sequence[Ablation], *rest: Any, **more: Any) -> Any:
        asked.append(ablations)
        return harms(self, trial, ablations, *rest, **more)

    monkeypatch.setattr(Bench, "harms", seen)
    effect = alone(lab, ablation, n_controls=9)
    (sets,) = [each for each in asked if len(each) > 1]
    assert [each.places[0].label for each in sets] == ["L0H0", "L0H2", "L0H3"]
    assert {(each.gate, each.positions, each.frozen) for each in sets} == {(0.25, (3, 4, 5), Frozen.PATTERNS)}
    assert effect.control.harm.tolist() == [0.0, 0.0, 0.0]


def test_a_gate_and_positions_change_the_harm_as_they_should(lab: Lab) -> None:
    whole, half = alone(lab, "L1H2:zero"), alone(lab, ablation_of("L1H2:zero", lab.config, gate=0.5))
    early = alone(lab, ablation_of("L1H2:zero", lab.config, positions=tuple(range(20))))
    assert 0 < half.harm.mean < whole.harm.mean
    assert early.harm.mean == 0.0  # the second copy is predicted from position 20 on
    assert "(gate 0.5) ablated" in effect_sentences(half)[0]


def test_without_what_feeds_it_the_induction_head_is_lost_unless_its_pattern_is_held(lab: Lab) -> None:
    """The previous-token head matters by the pattern of the next layer alone (K-composition)."""
    free = alone(lab, "L0H1:zero")
    held = alone(lab, ablation_of("L0H1:zero", lab.config, frozen=Frozen.PATTERNS))
    assert free.harm.low > 2.5
    assert held.harm.mean == pytest.approx(0.0, abs=1e-4)


def test_the_counterfactual_is_another_first_copy_and_text_has_none(lab: Lab) -> None:
    effect = alone(lab, "L1H2:counterfactual")
    assert effect.harm.low > 2.5
    assert not effect.has("text_loss")
    assert effect.sources == (
        "the twin of each sequence: the same second copy behind a first copy of other tokens, so that nothing can be "
        "copied",
    )
    assert effect.notes == (
        "There is no counterfactual on held-out text: nothing says which tokens of held-out text to change, so it has "
        "no corrupted twins.",
    )
    assert effect_sentences(effect)[-1] == effect.notes[0]
    with pytest.raises(InputError, match="text_loss was not measured; measured were copy_loss, first_copy_loss"):
        _ = effect.text
    with pytest.raises(InputError, match="text_loss cannot be measured with L1H2:counterfactual ablated. There is no"):
        alone(lab, "L1H2:counterfactual", metric="text_loss")


def test_positions_that_a_kind_of_sequences_does_not_have_are_said(lab: Lab) -> None:
    there = ablation_of("L1H2:zero", lab.config, positions=(45, 46))
    effect = alone(lab, there, metric="text_loss")
    assert effect.notes == (
        "Nothing is replaced on random tokens repeated after 19, whose 39 positions end before 45.",
    )
    with pytest.raises(InputError, match=r"copy_loss cannot be measured .*Ask for a metric that can: text_loss"):
        alone(lab, there)


def test_too_few_sequences_to_resample_from_are_said_before_anything_runs(lab: Lab) -> None:
    with pytest.raises(InputError, match="takes 8 other sequences for each, and there are 4 of random tokens"):
        alone(lab, "L1H2:resample", n=4)
    assert alone(lab, "L1H2:resample", n=9).harm.low > 2.5


@pytest.mark.parametrize("kind", ["mean@seq", "mean@pos", pytest.param("optimal", marks=pytest.mark.slow)])
def test_every_other_replacement_loses_the_copy_as_well(lab: Lab, kind: str) -> None:
    effect = alone(lab, f"L1H2:{kind}")
    assert effect.harm.low > 1.0
    assert effect.has("text_loss")


def test_what_falls_when_it_gets_worse_is_a_harm_all_the_same(lab: Lab) -> None:
    effect = alone(lab, "L1H2:zero", metric="copy_accuracy")
    found = effect.effect
    assert (found.unit, found.lower_is_better, found.scale, found.share) == ("of the targets", False, None, None)
    assert found.clean == 1.0
    assert found.harm.low > 0.8
    assert found.ablated == pytest.approx(1 - found.harm.mean)
    said = effect_sentences(effect)[0]
    assert "the share of the second copy of random tokens that is predicted right falls by " in said
    assert " of the targets [" in said
    assert [each.name for each in effect.outcomes][2] == "copy_accuracy"


def test_a_divergence_starts_from_nothing_and_a_logit_difference_has_its_unit(lab: Lab) -> None:
    assert alone(lab, "L1H2:zero", metric="copy_kl").effect.clean == 0.0
    assert alone(lab, "L1H2:zero", metric="copy_logit_difference").harm.mean == pytest.approx(20.0, abs=1.0)


def test_the_score_of_in_context_learning_has_the_unigram_as_its_scale(lab: Lab) -> None:
    found = alone(lab, "L1H2:zero", metric="icl_score").effect
    assert found.scale is not None
    assert abs(found.scale) < 0.5


def test_an_outcome_of_ones_own_is_asked_for_like_any_other(lab: Lab) -> None:
    mine = user_outcome(
        "top", "largest logit", lambda logits, tokens: logits.amax(-1).mean(1), unit="logits", lower_is_better=False
    )
    ablation = ablation_of("L1H2:zero", lab.config)
    bench, _ = benches_for(lab, ablation, metric="copy_loss", n_sequences=8)
    copying = replace(bench.trials[0], outcomes=(mine,), scales=(None,))
    effect = effect_of(replace(bench, trials=(copying, bench.trials[1])), ablation, metric="top", seed=0, n_controls=3)
    assert effect.effect.unit == "logits"
    assert effect.harm.low > 5
    assert effect.control.is_exceeded


def test_the_same_heads_cost_nothing_at_step_0_and_it_is_said(lab: Lab) -> None:
    effect = ablate(lab, "L1H2:zero", n_sequences=8, n_controls=0)
    start = effect.at_start("copy_loss")
    assert start is not None
    assert abs(start.harm.mean) < 0.5 < effect.harm.mean
    assert [each.name for each in effect.start] == [each.name for each in effect.outcomes]
    assert any(line.startswith("At step 0 the same ablation costs ") for line in effect_sentences(effect))
    at_zero = replace(lab, step=0)
    assert ablate(at_zero, "L1H2:zero", n_sequences=4, n_controls=0).at_start("copy_loss") is None


def test_a_large_harm_is_decided_at_the_first_look_and_everything_beside_it_has_as_many(lab: Lab) -> None:
    effect = alone(lab, "L1H2:zero", n=200, n_controls=3, until=0.05)
    assert effect.decision is not None
    assert (effect.decision.sides, effect.decision.most) == ((True, True), 200)
    assert effect.harm.n == effect.decision.n == 16
    assert effect.harm == effect.decision.interval
    assert effect.harm.level == pytest.approx(1 - 0.05 * 16 / 200)
    assert effect.on("first_copy_loss").harm.n == 16
    assert effect.text.harm.n == 12  # all the held-out text there is
    assert effect.control.p == 0.25
    assert effect_sentences(effect)[1] == (
        "Decided: the side of -0.05 and 0.05 nats was known after 16 of 200 sequences (1 look; each look has its share "
        "of an error of 0.05)."
    )
    with pytest.raises(InputError, match="until=-1 is no bound"):
        alone(lab, "L1H2:zero", until=-1.0)


def test_what_is_measured_look_by_look_is_what_is_measured_at_once(lab: Lab) -> None:
    ablation = ablation_of("L1H2:mean,L1H1:counterfactual", lab.config)
    bench, _ = benches_for(lab, ablation, metric="copy_loss", n_sequences=40)
    trial = bench.trials[0]
    whole = bench.harms(trial, [ablation]).harm
    parts = [bench.harms(trial, [ablation], rows=rows).harm for rows in ((0, 16), (16, 40))]
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=0)


def test_where_nothing_can_be_told_all_sequences_are_used_and_it_is_said(lab: Lab) -> None:
    effect = alone(lab, "L1H2:zero", metric="text_loss", until=100.0, n=12)
    assert effect.decision is not None
    assert effect.decision.is_decided  # within 100 nats
    noisy = alone(lab, "L1H2:zero", metric="new_token_loss", until=abs(effect.new_token.harm.mean), n=12)
    assert noisy.decision is not None
    assert not noisy.decision.is_decided
    assert effect_sentences(noisy)[1].startswith("Not decided: the side of")


def test_means_come_from_at_most_64_sequences_however_many_are_measured(lab: Lab) -> None:
    bench, _ = benches_for(lab, ablation_of("L1H2", lab.config), metric="copy_loss", n_sequences=100)
    assert len(bench.trials[0].measured) == 100
    assert len(bench.trials[0].reference) == 64
    assert bench.supplies[0].source.startswith("64 other sequences")


def test_a_metric_is_refused_by_a_bench_that_does_not_measure_it(lab: Lab, tmp_path: Path) -> None:
    bench, _ = benches_for(lab, ablation_of("L1H2", lab.config), metric="copy_loss", n_sequences=4)
    with pytest.raises(InputError, match="text_kl is not measured here; this bench has copy_loss, first_copy_loss"):
        effect_of(bench, "L1H2", metric="text_kl", seed=0, n_controls=0)
