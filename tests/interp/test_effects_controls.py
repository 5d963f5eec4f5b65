"""What stands beside an effect: sets ablated alike, step 0, text, other outcomes, and a stop once it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ablation import Ablation, Frozen, ablation_of
from interp.effects import AblationEffect, ablate, benches_for, effect_of
from interp.optimal import Fitting, fit_optimal
from interp.outcome_effects import effects_on, share_of
from interp.outcomes import user_outcome
from interp.stats import bootstrap_ratios
from interp.token_effects import token_effects
from interp.trials import Bench, Trial
from interp.wording import effect_sentences
from model.errors import InputError
from model.lab import Lab
from tests.conftest import make_gpt_with
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def alone(lab: Lab, places: str | Ablation, metric: str = "copy_loss", **asked: Any) -> AblationEffect:
    """An effect without step 0, which most of these tests have no need of."""
    ablation = ablation_of(places, lab.config)
    bench, _ = benches_for(lab, ablation, metric=metric, n_sequences=asked.pop("n", 8))
    return effect_of(bench, ablation, metric=metric, **{"seed": 0, "n_controls": 0, **asked})


def trial_in(bench: Bench) -> Trial:
    """The copying task of a bench."""
    return bench.trials[0]


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
    assert [each.places[0].label for each in sets] == ["L0H1", "L0H0", "L0H2", "L0H3"]
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
    effect = ablate(lab, "L1H2:zero", metric=mine, n_sequences=8, n_controls=3)
    assert (effect.metric, effect.effect.unit, effect.effect.share) == ("top", "logits", None)
    assert [each.name for each in effect.outcomes][:3] == ["copy_loss", "first_copy_loss", "top"]
    assert effect.harm.low > 5
    assert effect.control.is_exceeded
    on_text = ablate(lab, "L1H2:zero", metric=mine, on_text=True, n_sequences=8, n_controls=0)
    assert [each.name for each in on_text.outcomes][-1] == "top"
    assert on_text.harm != effect.harm
    with pytest.raises(InputError, match='"copy_loss" is the name of a metric that is there already'):
        ablate(lab, "L1H2:zero", metric=replace(mine, name="copy_loss"))


def test_a_set_that_makes_the_model_better_is_held_against_sets_that_gain(lab: Lab) -> None:
    """Large logits called bad: whatever takes the copying away is then a gain."""
    mine = user_outcome(
        "smooth", "largest logit", lambda logits, tokens: logits.amax(-1).mean(1), unit="logits", lower_is_better=True
    )
    effect = ablate(lab, "L1H2:zero", metric=mine, n_sequences=8, n_controls=3)
    assert effect.harm.high < -5
    assert effect.control.gains
    assert (effect.control.p, effect.control.is_exceeded) == (0.25, True)
    assert effect.control.largest == float(effect.control.harm.min())
    bystander = ablate(lab, "L1H3:zero", metric=mine, n_sequences=8, n_controls=3)
    assert not bystander.control.gains
    assert bystander.control.p == 0.75  # two others cost nothing either, and one gains


def test_an_effect_is_shown_in_one_line(lab: Lab) -> None:
    effect = alone(lab, "L1H2:zero")
    harm = effect.harm
    size = f"{harm.mean:.3g} nats [{harm.low:.3g}, {harm.high:.3g}], n = 8"
    assert repr(effect) == f"AblationEffect(planted@8, L1H2:zero, copy_loss {size})"


def test_the_same_heads_cost_nothing_at_step_0_and_it_is_said(lab: Lab) -> None:
    effect = ablate(lab, "L1H2:zero", n_sequences=8, n_controls=0)
    start = effect.at_start("copy_loss")
    assert start is not None
    assert abs(start.harm.mean) < 0.5 < effect.harm.mean
    assert [each.name for each in effect.start] == [each.name for each in effect.outcomes]
    assert any(line.startswith("At step 0 the same ablation costs ") for line in effect_sentences(effect))
    at_zero = replace(lab, step=0)
    assert ablate(at_zero, "L1H2:zero", n_sequences=4, n_controls=0).at_start("copy_loss") is None


def test_a_large_harm_is_decided_at_the_first_look(lab: Lab) -> None:
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


def test_after_a_stop_every_outcome_of_those_sequences_allows_for_the_looks(lab: Lab) -> None:
    ablation = ablation_of("L1H2:mean", lab.config)
    bench, _ = benches_for(lab, ablation, metric="copy_loss", n_sequences=200)
    effect = effect_of(bench, ablation, metric="copy_loss", seed=0, n_controls=0, until=0.05)
    trial = bench.trials[0].rows(0, 16)
    plain = effects_on(trial, bench.harms(trial_in(bench), [ablation], rows=(0, 16)), 0, seed=0)
    assert effect.decision is not None
    assert effect.decision.n == 16
    spent = 0.05 * 16 / 200
    for found, naive in zip(effect.outcomes, plain, strict=False):
        assert found.name == naive.name
        assert found.harm.level == pytest.approx(1 - spent)
        assert found.p == pytest.approx(min(1.0, naive.p * 200 / 16))
        assert naive.harm.mean == pytest.approx(found.harm.mean)
    share, plainly = effect.effect.share_interval, plain[0].share_interval
    assert share is not None
    assert plainly is not None
    assert share.level == pytest.approx(1 - spent)
    assert share.low < plainly.low < plainly.high < share.high


def test_after_a_stop_sets_and_step_0_are_tried_on_a_number_that_was_fixed_beforehand(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that the claimed set's own noise chose would favour it: equal sets would be beaten too often."""
    monkeypatch.setattr("interp.effects.BESIDE", 24)
    ablation = ablation_of("L1H2:zero", lab.config)
    bench, before = benches_for(lab, ablation, metric="copy_loss", n_sequences=100)
    effect = effect_of(bench, ablation, metric="copy_loss", seed=0, n_controls=3, until=0.05, before=before)
    assert effect.harm.n == 16
    assert effect.control.n == 24
    whole = bench.harms(bench.trials[0], [ablation], rows=(0, 24)).harm[:, 0, 0]
    assert effect.control.own == pytest.approx(float(whole.mean()))
    start = effect.at_start("copy_loss")
    assert start is not None
    assert start.harm.n == 24
    said = next(line for line in effect_sentences(effect) if line.startswith("Control"))
    assert said.endswith(f", on 24 sequences, fixed beforehand, where the ablated set costs {whole.mean():.2f} nats.")
    plain = effect_of(bench, ablation, metric="copy_loss", seed=0, n_controls=3)
    assert plain.control.n == plain.harm.n == 100
    assert "beforehand" not in " ".join(effect_sentences(plain))


def test_a_part_of_the_sequences_takes_its_own_twins(lab: Lab) -> None:
    """With random weights, where no two twins cost the same."""
    gpt = make_gpt_with(d_vocab=lab.config.d_vocab, n_ctx=lab.config.n_ctx)
    ablation = ablation_of("L0.attn,L1.attn:counterfactual", gpt.config)
    planted, _ = benches_for(lab, ablation_of("L1H2", lab.config), metric="copy_loss", n_sequences=12)
    bench = replace(planted, gpt=gpt)
    whole = bench.harms(trial_in(bench), [ablation]).harm[:, 0, 0]
    assert float((whole[:4] - whole[5:9]).abs().min()) > 1e-3, "another's twin would show"
    part = bench.harms(trial_in(bench), [ablation], rows=(5, 9)).harm[:, 0, 0]
    torch.testing.assert_close(part, whole[5:9], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("metric", "fits"), [("copy_accuracy", "copy_loss"), ("icl_score", "text_loss")])
def test_constants_are_fitted_on_the_reference_for_the_one_loss_of_their_kind(
    metric: str, fits: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked, and whichever outcomes stand first."""
    asked: list[tuple[Tensor, str]] = []

    def spied(gpt: Any, tokens: Tensor, sets: Any, outcome: Any, **more: Any) -> Any:
        asked.append((tokens, outcome.name))
        quick = Fitting(n_steps=1, n_looks=1)
        return fit_optimal(gpt, tokens, sets, outcome, fitting=quick, **more)

    monkeypatch.setattr("interp.trials.fit_optimal", spied)
    ablation = ablation_of("L1H2:optimal", lab.config)
    bench, _ = benches_for(lab, ablation, metric=metric, n_sequences=8)
    trial, row = bench.trial_of(metric)
    alone = replace(trial, outcomes=(trial.outcomes[row],))
    alone_bench = replace(bench, trials=(alone,), supplies=(bench.supplies[bench.trials.index(trial)],))
    effect = effect_of(alone_bench, ablation, metric=metric, seed=0, n_controls=1)
    assert {name for _, name in asked} == {fits}
    assert all(torch.equal(tokens, trial.reference) for tokens, _ in asked)
    assert effect.sources == (f"constants fitted for the {trial.fitting.meaning} on {trial.source}",)


@pytest.mark.parametrize("where", [{"positions": (3, 4)}, {"frozen": Frozen.PATTERNS}])
def test_an_optimal_constant_is_refused_where_it_was_fitted_for_something_else(where: Any, lab: Lab) -> None:
    other = ablation_of("L1H2:optimal,L0H1:zero", lab.config, **where)
    said = r"asks for a constant that was fitted for something else.*use L1H2:mean"
    with pytest.raises(InputError, match=said):
        Bench.of(lab, (), other)
    with pytest.raises(InputError, match=said):
        ablate(lab, other)
    with pytest.raises(InputError, match=said):
        token_effects(lab, "ab", other)
    bench, _ = benches_for(lab, ablation_of("L1H2", lab.config), metric="copy_loss", n_sequences=4)
    with pytest.raises(InputError, match=said):
        bench.harms(trial_in(bench), [other])


def test_the_share_has_an_interval_in_which_both_losses_vary_by_sequence(lab: Lab) -> None:
    ablation = ablation_of("L0H1,L1H2:zero", lab.config)
    bench, _ = benches_for(lab, ablation, metric="text_loss", n_sequences=12)
    trial = bench.trials[1]
    unigram = trial.unigram_of(trial.outcomes[0])
    assert unigram is not None
    assert unigram.shape == (12,)
    assert float(unigram.std()) > 0
    assert trial.scales[0] == pytest.approx(float(unigram.mean()))
    worse = replace(trial, surprise=20 + torch.arange(lab.config.d_vocab, dtype=torch.float64))
    found = bench.harms(trial, [ablation])
    (effect, _) = effects_on(worse, found, 0, seed=0)
    losses = torch.stack([worse.surprise[row[1:]].mean() for row in trial.measured])
    harm, gain = found.harm[:, 0, 0], losses - found.clean[:, 0]
    assert effect.share_interval is not None
    expected = bootstrap_ratios(harm[:, None], gain[:, None], seed=0)[0]
    assert effect.share_interval.low == pytest.approx(expected.low)
    assert effect.share_interval.high == pytest.approx(expected.high)
    assert effect.share == pytest.approx(float(harm.mean() / gain.mean()))
    constant = bootstrap_ratios(harm[:, None], gain.mean() + 0 * gain[:, None], seed=0)[0]
    assert effect.share_interval.low != pytest.approx(constant.low, rel=1e-3), "as if the unigram were one number"


def test_a_share_of_what_may_be_nothing_is_none(lab: Lab) -> None:
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(64, generator=generator, dtype=torch.float64)
    assert share_of(clean + 1, clean, clean + 0.1 + clean.abs().flip(0) * 0 + 2 * torch.sign(clean)) is None
    assert share_of(clean + 1, clean, None) is None
    surely = share_of(clean.abs(), clean, clean + 2)
    assert surely is not None
    assert surely.low < surely.mean < surely.high


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
