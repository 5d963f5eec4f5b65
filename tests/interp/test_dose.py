"""Harm by how much is taken out: the curve of a planted head, against runs with gates of their own, and paired."""

from __future__ import annotations

import pytest
import torch

from apps.ablation_lines import dose_lines
from interp.ablation import ablated, ablation_of
from interp.dose import DoseResponse, dose_response
from interp.effects import benches_for, effect_of
from interp.outcomes import copy_outcome
from interp.trials import Bench
from model.errors import InputError
from model.lab import Lab
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


@pytest.fixture(scope="module")
def bench(lab: Lab) -> Bench:
    return benches_for(lab, ablation_of("L1H2:zero", lab.config), metric="copy_loss", n_sequences=8)[0]


@pytest.fixture(scope="module")
def curve(bench: Bench) -> DoseResponse:
    return dose_response(bench, "L1H2:zero", metric="copy_loss")


def test_nothing_is_lost_while_all_of_it_stays_and_more_with_every_part_taken(curve: DoseResponse) -> None:
    assert curve.gates == (1.0, 0.75, 0.5, 0.25, 0.0)
    assert float(curve.harm.mean[0]) == float(curve.harm.high[0]) == 0.0
    assert float(curve.p[0]) == 1.0
    assert (curve.harm.mean.diff() > 0).all()


def test_every_gate_is_the_loss_of_a_run_with_that_much_left(lab: Lab, bench: Bench, curve: DoseResponse) -> None:
    tokens, outcome = bench.trials[0].measured, copy_outcome(19)
    with torch.no_grad():
        clean = outcome.of_logits(lab.gpt(tokens), tokens)
        for place, gate in enumerate(curve.gates):
            with ablated(lab.gpt, ablation_of("L1H2:zero", lab.config, gate=gate)):
                naive = outcome.of_logits(lab.gpt(tokens), tokens) - clean
            assert float(curve.harm.mean[place]) == pytest.approx(float(naive.mean()), abs=1e-5)


def test_a_softmax_that_is_sure_loses_less_than_in_proportion_at_first(curve: DoseResponse) -> None:
    """With 20 logits to spare a half is hardly missed; the line between the ends says so with an interval."""
    half = curve.bend[curve.gates.index(0.5)]
    assert half.high < -0.5
    assert (curve.bend[0].mean, curve.bend[-1].mean) == (0.0, 0.0)


def test_its_ends_are_those_of_the_effect_on_the_same_sequences(bench: Bench, curve: DoseResponse) -> None:
    effect = effect_of(bench, "L1H2:zero", metric="copy_loss", seed=0, n_controls=0)
    assert curve.harm[-1].mean == pytest.approx(effect.harm.mean)
    assert curve.harm[-1].low == pytest.approx(effect.harm.low)


def test_gate_0_is_always_among_the_gates_and_none_comes_twice(bench: Bench) -> None:
    assert dose_response(bench, "L1H2:zero", metric="copy_loss", gates=(0.5,)).gates == (0.5, 0.0)
    with pytest.raises(InputError, match="name one twice"):
        dose_response(bench, "L1H2:zero", metric="copy_loss", gates=(0.5, 0.5))
    with pytest.raises(InputError, match="gate=1.5 is more than all of it, which means something beside zeros only"):
        dose_response(bench, "L1H2:mean", metric="copy_loss", gates=(1.5,))
    with pytest.raises(InputError, match="no counterfactual on held-out text"):
        dose_response(bench, "L1H2:counterfactual", metric="text_loss")


def test_what_is_multiplied_has_a_curve_from_nothing_through_all_of_it_to_more(lab: Lab, bench: Bench) -> None:
    """Twice a sure induction head costs nothing; half of it and none of it cost what they do under zeros."""
    curve = dose_response(bench, "L1H2:times=2", metric="copy_loss")
    assert (str(curve.ablation), curve.gates) == ("L1H2:zero", (2.0, 1.5, 1.0, 0.75, 0.5, 0.25, 0.0))
    plain = dose_response(bench, "L1H2:zero", metric="copy_loss")
    torch.testing.assert_close(curve.harm.mean[2:], plain.harm.mean)
    twice = effect_of(bench, "L1H2:times=2", metric="copy_loss", seed=0, n_controls=0)
    assert curve.harm[0].mean == pytest.approx(twice.harm.mean)
    assert curve.bend[0].mean == pytest.approx(twice.harm.mean + plain.harm[-1].mean)
    assert dose_response(bench, "L1H2:zero", metric="copy_loss", gates=(2.0,)).harm[0].mean == curve.harm[0].mean
    opposite = dose_response(bench, "L1H2:times=-1", metric="copy_loss")
    assert (str(opposite.ablation), opposite.gates[0]) == ("L1H2:times=-1", 1.0)
    lines = dose_lines(curve, 100)
    assert lines[0].startswith("How much of it there is")
    assert lines[2].startswith("200%")
