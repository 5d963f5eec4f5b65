"""Claims tested on a planted circuit, whose every effect is known: verdicts, controls, Holm, refusals, records."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from analyses import hypotheses
from analyses.claims import measuring
from analyses.claims.ablating import Ablating, reaches, text_counterpart
from analyses.claims.bounds import Bound, Standing, parse_bound
from analyses.claims.controls import compare, matched_for
from analyses.claims.files import Claim
from analyses.claims.ground import Deltas, Ground
from analyses.claims.measuring import subject_of
from analyses.claims.paths import Feeding
from analyses.claims.records import Record, load_record, save_record
from analyses.claims.statement import ControlKind
from analyses.claims.verdicts import Beside, Checkpoint, Measured, Verdict, corrected, decide
from analyses.claims.wording import since_phrase
from analyses.hypotheses import check, holds_from, load_claims, sentence, steps_of, verdicts_of_run, verdicts_on
from interp.ablation import ablation_of
from interp.controls import control_p
from interp.head_roles import HeadRoles, find_head_roles
from interp.optimal import Fitting, Optima, fit_optimal
from interp.outcomes import NEW_TOKEN, get_outcome, new_token_targets
from model import GPT
from model.checkpoint import save_checkpoint
from model.errors import CheckpointError, InputError, UnknownNameError
from model.lab import Lab, open_run
from tests import planted
from tests.analyses.claim_texts import INDUCTION, PATH, claim, write
from tests.analyses.test_claim_bounds import of, spread
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The planted induction circuit at step 8, and random weights at step 0."""
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", planted.induction_model(n_ctx=24))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same with 20 heads in a layer, so that 19 other sets allow p = 1/20."""
    return planted_lab(tmp_path_factory.mktemp("runs") / "wide", planted.induction_model(n_heads=20, n_ctx=24))


def claims_of(tmp_path: Path, *keys: dict[str, Any]) -> tuple[Claim, ...]:
    named = [claim(**{"name": f"claim-{number}", "sequences": 16} | each) for number, each in enumerate(keys)]
    return load_claims([write(tmp_path / "some.toml", *named)])


def verdict_on(tmp_path: Path, lab: Lab, **keys: Any) -> Verdict:
    (only,) = claims_of(tmp_path, keys)
    return hypotheses.test_claim(only, lab)


# --- planted effects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "standing"),
    [
        ({"effect": "harm >= 30"}, "refuted"),
        ({"effect": "harm <= 0.05"}, "refuted"),
        ({"effect": "share >= 0.5"}, "supported"),
        ({"effect": "share >= 0.5", "gate": 0.5}, "refuted"),
        ({"effect": "harm >= 2.0", "control": "text"}, "supported"),
        ({"effect": "harm >= 2.0", "control": "step0"}, "supported"),
        ({"effect": "harm >= 0.5", "metric": "copy_accuracy", "control": "text"}, "supported"),
        ({"effect": "harm >= 4.0"}, "supported"),
        ({"effect": "harm >= 4.0", "positions": [4]}, "refuted"),
        ({"effect": "|harm| <= 0.05", "ablate": "L1H0,L1H2", "gate": 0.5}, "supported"),
        ({"effect": "harm <= 0.05", "ablate": "L1H2:zero", "gate": 0.4}, "supported"),
        ({"effect": "harm <= 0.05", "gate": 0.5, "metric": "copy_kl"}, "supported"),
        ({"effect": "harm <= 15", "gate": 0.5, "metric": "copy_logit_difference"}, "supported"),
        ({"effect": "harm <= 0.7", "positions": [4], "metric": "copy_accuracy"}, "supported"),
        ({"effect": "gain >= 0.1", "gate": 0.5}, "refuted"),
        ({"effect": "harm >= 2.0", "ablate": "L0H1"}, "supported"),
        ({"effect": "harm >= 2.0", "sequential": True, "sequences": 64}, "supported"),
        (PATH, "supported"),
        ({**PATH, "control": "inputs"}, "supported"),
        ({**PATH, "control": "step0", "effect": "harm >= 1"}, "supported"),
        ({**PATH, "input": "v"}, "refuted"),
        ({**PATH, "input": "q", "effect": "harm <= 0.05"}, "supported"),
        ({**PATH, "sender": "L0H1", "receivers": "L1H2", "intervention": "mean@pos"}, "supported"),
    ],
    ids=str,
)
def test_what_was_planted_comes_out(tmp_path: Path, lab: Lab, keys: dict[str, Any], standing: str):
    found = verdict_on(tmp_path, lab, **keys)
    assert found.standing == standing, sentence(found)


def test_the_rules_find_the_planted_heads(tmp_path: Path, lab: Lab):
    ablated, fed = verdicts_on(claims_of(tmp_path, {}, PATH), lab)
    assert ablated.measured is not None and fed.measured is not None
    assert ablated.measured.subject == "L1H2:mean ablated"
    assert fed.measured.subject == "L0H1 patched where K of L1H2 reads it"
    assert fed.measured.judged.interval.mean == pytest.approx(1.0, abs=1e-3), "there is no other way"


def test_a_verdict_is_what_ablate_says(tmp_path: Path, lab: Lab):
    """Parity with the command of one ablation: the same draws, the same numbers."""
    from interp.effects import ablate

    found = verdict_on(tmp_path, lab, seed=3).measured
    effect = ablate(lab, "L1H2:mean", n_sequences=16, seed=3, n_controls=0)
    assert found is not None
    assert found.harm == effect.harm
    assert found.clean == effect.effect.clean


def test_a_clear_effect_ends_at_the_first_look_and_an_unclear_one_takes_all(tmp_path: Path, lab: Lab):
    """16 of 64 sequences may spend a quarter of alpha; a mean on its own bound is never told from it."""
    looks = {"sequential": True, "sequences": 64, "effect": "|harm| <= 0.5"}
    whole = verdict_on(tmp_path, lab, **{**looks, "sequential": False}).measured
    assert whole is not None
    clear, unclear = verdicts_on(claims_of(tmp_path, looks, {**looks, "effect": f"harm >= {whole.harm.mean}"}), lab)
    assert clear.measured is not None and unclear.measured is not None
    assert (clear.standing.value, clear.measured.n, clear.measured.looks) == ("refuted", 16, 1)
    assert clear.measured.judged.interval.level == pytest.approx(1 - 0.05 / 4)
    assert clear.measured.judged.p == pytest.approx(4 * 0.0001)
    assert (unclear.standing.value, unclear.measured.n, unclear.measured.looks) == ("undecided", 64, 3)
    assert unclear.measured.harm.mean == pytest.approx(whole.harm.mean)


def test_where_no_head_passes_the_rule_nothing_is_decided(tmp_path: Path, lab: Lab):
    found = verdict_on(tmp_path, open_run(f"{lab.path}@0"))
    assert (found.standing, found.measured, found.p) == ("undecided", None, None)
    assert "no head passes `induction >= 0.4 and induction >= 2 * reordered` on the discovery sequences" in found.reason
    assert "the highest induction score is 0." in found.reason


def test_a_path_without_later_receivers_is_undecided(tmp_path: Path, lab: Lab):
    found = verdict_on(tmp_path, lab, **PATH | {"sender": "induction >= 0.4 and top 1"})
    assert found.standing == "undecided"
    assert "no receiver (induction >= 0.4 and induction >= 2 * reordered) is in a later layer" in found.reason


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "the intact model's advantage over token frequencies"),
        ({"metric": "text_loss"}, "the intact model's advantage over token frequencies"),
        ({"metric": "copy_accuracy"}, "the intact model's lead over always guessing the commonest token"),
        ({"metric": "text_accuracy"}, "the intact model's lead over always guessing the commonest token"),
        ({"metric": "copy_kl"}, "the intact model's advantage over token frequencies (the loss on the same targets)"),
        ({"metric": "text_kl"}, "the intact model's advantage over token frequencies (the loss on the same targets)"),
        ({"metric": "copy_logit_difference"}, "the intact model's own difference"),
        ({**PATH, "sender": "L0H1", "receivers": "L1H2"}, "the sender's total effect"),
    ],
    ids=str,
)
def test_nothing_can_be_lost_where_nothing_was_learned(tmp_path: Path, lab: Lab, keys: dict[str, Any], said: str):
    """At step 0 a claim of absence would hold of anything, whatever it is measured by."""
    usual = {"ablate": "L1H2"} if "sender" not in keys else {}
    found = verdict_on(tmp_path, open_run(f"{lab.path}@0"), **usual | keys | {"effect": "harm <= 0.5"})
    assert found.measured is not None
    assert parse_bound("harm <= 0.5").holds(found.measured.harm), "the interval alone would support it"
    assert found.standing == "undecided"
    assert found.reason.startswith(f"{said} is ")
    assert found.reason.endswith("so that little more than 0.5 could be lost")


@pytest.mark.parametrize(
    "keys",
    [
        {"effect": "|harm| <= 0.05", "ablate": "L1H0,L1H1"},
        {"effect": "harm <= 0.05", "ablate": "L0H0:zero"},
        {"effect": "gain >= 0.1", "ablate": "L1H0"},
        {"effect": "harm >= 2.0", "freeze": "patterns", "ablate": "L0H1"},
        {"effect": "harm <= 0.05", "ablate": "L0H1", "positions": [0], "intervention": "mean@pos"},
        {"effect": "|harm| <= 0.05", "ablate": "L1H0", "sequential": True, "sequences": 64},
    ],
    ids=str,
)
def test_an_ablation_that_changes_nothing_at_all_decides_nothing(tmp_path: Path, lab: Lab, keys: dict[str, Any]):
    """Heads that write nothing here, and the mean of a BOS in the place of a BOS: as if nothing had been tried."""
    found = verdict_on(tmp_path, lab, **keys)
    assert found.standing == "undecided"
    assert found.reason.startswith("the ablation changed nothing")


def subject(lab: Lab, tmp_path: Path, **keys: Any) -> Any:
    """What one claim is about, ready to be measured."""
    (only,) = claims_of(tmp_path, keys)
    return subject_of(only, Ground.of(lab, only.stated))


def test_rules_see_the_discovery_sequences_and_no_others(tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch):
    seen = []

    def spy(gpt: GPT, tokens: Tensor, **keys: Any) -> HeadRoles:
        seen.append(tokens)
        return find_head_roles(gpt, tokens, **keys)

    monkeypatch.setattr("analyses.claims.ground.find_head_roles", spy)
    task = subject(lab, tmp_path, ablate=INDUCTION).ground.task
    (tokens,) = seen
    assert torch.equal(tokens, task.discovery)
    others = {tuple(row) for draw in (task.trial.measured, task.trial.reference) for row in draw.tolist()}
    assert not others & {tuple(row) for row in tokens.tolist()}


def test_what_could_be_lost_is_counted_by_sequence(tmp_path: Path, lab: Lab):
    """A share's whole varies with the text that a sequence happens to hold; so does what guessing would get."""
    loss = subject(lab, tmp_path, ablate="L1H2", metric="text_loss")
    trial, deltas = loss.ground.trial("text_loss"), loss.deltas(2, 9)
    counts = trial.reference[:, 1:].flatten().bincount(minlength=planted.D_VOCAB).double() + 1
    unigram = -(counts / counts.sum()).log()[trial.measured[2:9, 1:]].mean(1)
    assert unigram.std() > 0
    torch.testing.assert_close(deltas.whole, unigram - deltas.clean)
    assert torch.equal(deltas.at_stake, deltas.whole)
    hits = subject(lab, tmp_path, ablate="L1H2", metric="text_accuracy").deltas(2, 9)
    guessed = (trial.measured[2:9, 1:] == counts.argmax()).double().mean(1)
    torch.testing.assert_close(hits.at_stake, hits.clean - guessed)
    assert hits.whole is None
    copied = subject(lab, tmp_path, ablate="L1H2").deltas(2, 9)
    diverged = subject(lab, tmp_path, ablate="L1H2", metric="copy_kl").deltas(2, 9)
    assert torch.equal(diverged.at_stake, copied.whole)


# --- where an edit can be felt ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("places", "positions", "targets", "felt"),
    [
        ("L1H0", [0], [3, 4], False),
        ("L1H0", [3], [3, 4], True),
        ("L1.attn", [2, 5], [3, 4], False),
        ("L0H0", [0], [3, 4], True),
        ("L0H0", [4], [3, 4], True),
        ("L0H0", [5], [3, 4], False),
        ("L0H0,L1H1", [0], [3, 4], True),
        ("L0H0:mean@seq", [0], [3, 4], False),
        ("L0H0:mean@seq", [0, 1], [3, 4], True),
        ("L0H0:mean@seq,L0H1:zero", [0], [3, 4], True),
        ("L1H0:mean@seq", None, [0], False),
        ("L1H0", None, [0], True),
    ],
)
def test_an_edit_is_felt_at_its_position_and_by_attention_later(
    lab: Lab, places: str, positions: list[int] | None, targets: list[int], felt: bool
):
    weighed = torch.zeros(8, dtype=torch.bool)
    weighed[targets] = True
    made = ablation_of(places, lab.config, positions=positions)
    assert reaches(made, weighed, n_layers=2) is felt


# --- optimal constants ------------------------------------------------------------------------------------------------


def test_constants_are_fitted_once_however_many_looks_there_are(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    fits = []

    def spy(*given: Any, **keys: Any) -> Optima:
        fits.append(given[3].name)
        return fit_optimal(*given, **keys, fitting=Fitting(n_steps=2, n_looks=1))

    monkeypatch.setattr("analyses.claims.ablating.fit_optimal", spy)
    monkeypatch.setattr("interp.trials.fit_optimal", None)
    about = subject(lab, tmp_path, ablate="L1H2:optimal", metric="copy_accuracy")
    assert all(about.deltas(start, start + 8).harm.mean() > 0.5 for start in (0, 8))
    assert fits == ["copy_loss"], "fitted for a loss, whatever is measured"


@pytest.mark.parametrize(("intervention", "n"), [("mean", 99), ("optimal", 19)])
def test_constants_are_fitted_for_no_more_matched_sets_than_alpha_takes(
    tmp_path: Path, wide: Lab, intervention: str, n: int
):
    sets = matched_for(subject(wide, tmp_path, ablate="L1H0,L1H2", intervention=intervention), alpha=0.05)
    assert len(sets.sets) == n
    assert ("constants of its own" in sets.note) is (intervention == "optimal")


def test_a_share_of_next_to_nothing_is_undecided(tmp_path: Path, lab: Lab):
    """L0H0 writes nothing, so its total effect is zero."""
    found = verdict_on(tmp_path, lab, **PATH | {"sender": "L0H0", "receivers": "L1H2"})
    assert found.standing == "undecided"
    assert "the sender's total effect is 0.00" in found.reason


# --- controls ---------------------------------------------------------------------------------------------------------


def test_a_control_that_is_not_beaten_makes_support_impossible_and_refutes_nothing(tmp_path: Path, lab: Lab):
    """At step 0 there is no earlier one; the same claim without that control is judged by its bound."""
    first = open_run(f"{lab.path}@0")
    keys = {"ablate": "L1.attn:zero", "effect": "harm >= 0.0"}
    beside, alone = verdicts_on(claims_of(tmp_path, {**keys, "control": "step0"}, keys), first)
    assert beside.measured is not None
    assert beside.measured.beside.beaten is False
    assert beside.standing == "undecided" or alone.standing != "supported"


@pytest.mark.parametrize(("beaten", "standing"), [(True, "supported"), (False, "undecided"), (None, "supported")])
def test_the_control_decides_whether_a_met_bound_is_support(beaten: bool | None, standing: str):
    said, reason = decide(measured(2.0, beaten=beaten), bound("harm >= 1"), 0.001)
    assert said == standing
    assert reason == ("the control is not beaten: others cost as much" if standing == "undecided" else "")


@pytest.mark.parametrize("beaten", [True, False, None])
def test_a_refuted_claim_is_refuted_whatever_the_control(beaten: bool | None):
    assert decide(measured(0.5, beaten=beaten), bound("harm >= 1"), 0.001) == ("refuted", "")


def test_matched_sets_rank_the_planted_head_among_bystanders(tmp_path: Path, wide: Lab):
    keys = {"control": "matched", "sequences": 8}
    found, null, path, small, early = verdicts_on(
        claims_of(
            tmp_path,
            keys,
            {**keys, "ablate": "L1H0", "effect": "harm >= 0.0"},
            {**PATH, **keys},
            {**keys, "effect": "harm <= 30"},
            {**keys, "sequential": True, "sequences": 64, "alpha": 0.06},
        ),
        wide,
    )
    assert found.measured is not None and null.measured is not None and path.measured is not None
    assert found.measured.beside.p == path.measured.beside.p == pytest.approx(1 / 20)
    assert (found.standing, path.standing) == ("supported", "supported")
    assert null.measured.beside.beaten is False
    assert null.standing == "undecided"
    assert small.measured is not None and early.measured is not None
    assert small.measured.beside.p == 1.0, "of all it costs most, so nothing speaks for `<=`"
    assert small.standing == "undecided"
    assert (early.standing, early.measured.n) == ("supported", 16)
    assert "on all 64 sequences" in early.measured.beside.said


def test_matched_sets_are_tried_on_as_many_sequences_whenever_the_claimed_set_was_decided(
    tmp_path: Path, wide: Lab, monkeypatch: pytest.MonkeyPatch
):
    """A number of sequences that the claimed set's own noise chose would flatter that set."""
    about = subject(wide, tmp_path, ablate="L1H2", control="matched", sequential=True, sequences=64)
    asked, noise = [], torch.randn(64, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def deltas(_: object, start: int, stop: int) -> Deltas:
        asked.append((start, stop))
        return toy_deltas(noise[start:stop, 0] + 2)

    monkeypatch.setattr(Ablating, "deltas", deltas)
    monkeypatch.setattr(Ablating, "others", lambda _, sets, stop, counted: 2 + noise[:stop, 1:].mean(0))
    bound = parse_bound("harm >= 0.5")
    found = measuring.measured(about, bound, first=None)
    assert found.n == 16
    assert asked == [(0, 16), (0, 64)]
    assert found.beside.p == control_p(float(noise[:, 0].mean()), noise[:, 1:].mean(0))


@pytest.mark.parametrize(
    ("text", "own", "others", "p"),
    [
        ("harm <= 0.5", 0.1, 1.0, 1 / 20),  # the least of all
        ("harm <= 0.5", 0.4, 0.1, 1.0),
        ("harm >= 0.05", 0.1, 1.0, 1.0),
        ("harm >= 0.05", 1.0, 0.1, 1 / 20),
        ("gain >= 0.1", -1.0, -0.1, 1 / 20),
        ("gain >= 0.1", -1.0, -2.0, 1.0),
    ],
)
def test_matched_sets_are_ranked_by_what_speaks_for_the_claim(
    tmp_path: Path, wide: Lab, monkeypatch: pytest.MonkeyPatch, text: str, own: float, others: float, p: float
):
    """Little harm speaks for `harm <=`, and a gain for `gain >=`: then the sets' harms change their sign as well."""
    about = subject(wide, tmp_path, ablate="L1H2", control="matched")
    monkeypatch.setattr(Ablating, "others", lambda *_: torch.full((19,), others, dtype=torch.float64))
    harm = torch.full((8,), own, dtype=torch.float64)
    beside = compare(about, parse_bound(text), toy_deltas(harm), first=None, level=0.95)
    assert beside.p == pytest.approx(p)
    assert beside.beaten is (p <= 0.05)


def toy_deltas(harm: Tensor) -> Deltas:
    return Deltas(harm=harm, clean=torch.ones_like(harm), whole=None, at_stake=5 + harm)


@pytest.mark.parametrize(("sd", "beaten"), [(0.1, True), (3.0, False)])
def test_step_0_is_beaten_by_the_whole_interval_of_the_difference(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, sd: float, beaten: bool
):
    about = subject(lab, tmp_path, ablate="L1H2", control="step0")
    monkeypatch.setattr(Ablating, "deltas", lambda *_: toy_deltas(0.5 + torch.zeros(32)))
    deltas = toy_deltas(spread(1.0, sd=sd))
    found = compare(about, parse_bound("harm >= 1"), deltas, first=open_run(f"{lab.path}@0"), level=0.99)
    assert found.interval is not None
    assert (found.interval.mean, found.interval.level) == (pytest.approx(0.5), 0.99)
    assert found.beaten is beaten


@pytest.mark.parametrize(("there", "beaten"), [(0.5, True), (0.95, False), (1.5, False)])
def test_text_is_beaten_by_an_interval_that_lies_beyond_its_own(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, there: float, beaten: bool
):
    about = subject(lab, tmp_path, ablate="L1H2", control="text")
    monkeypatch.setattr(Ablating, "on_text", lambda _: (NEW_TOKEN, spread(there, sd=0.5, seed=1)))
    found = compare(about, parse_bound("harm >= 1"), toy_deltas(spread(1.0, sd=0.5)), first=None, level=0.95)
    assert found.beaten is beaten


@pytest.mark.parametrize(("larger", "beaten"), [(0.5, True), (1.5, False)])
def test_of_the_other_inputs_the_larger_must_be_beaten(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, larger: float, beaten: bool
):
    about = subject(lab, tmp_path, **PATH, control="inputs")
    ways = {"Q": spread(0.0, seed=1), "V": spread(larger, seed=2)}
    monkeypatch.setattr(Feeding, "by_other_inputs", lambda *_: ways)
    found = compare(about, parse_bound("harm >= 1"), toy_deltas(spread(1.0)), first=None, level=0.95)
    assert found.beaten is beaten
    assert "the difference from V" in found.said


@pytest.mark.parametrize("metric", ["copy_loss", "copy_accuracy", "copy_kl"])
def test_the_text_control_looks_where_there_is_nothing_to_copy(lab: Lab, metric: str):
    """Only after a token that has not occurred before: other text repeats itself."""
    counterpart = text_counterpart(metric)
    tokens = lab.eval_tokens
    assert counterpart is not None
    assert torch.equal(counterpart.targets(tokens), new_token_targets(tokens))
    assert counterpart.measure == get_outcome(metric, period=5).measure
    assert counterpart.meaning.endswith("where the current token is new")


# --- together ---------------------------------------------------------------------------------------------------------


def test_claims_tested_together_share_their_error(tmp_path: Path, lab: Lab):
    one, several = (
        claims_of(tmp_path, {}),
        claims_of(tmp_path, *[{"effect": f"harm >= {each}"} for each in (1, 2, 1.5)]),
    )
    alone, first = verdicts_on(one, lab)[0], verdicts_on(several, lab)[0]
    assert alone.p is not None
    assert first.p == pytest.approx(3 * alone.p)
    assert (alone.n_together, first.n_together) == (1, 3)


def test_what_could_not_be_measured_counts_in_the_correction():
    p = [measured(2.0, p=0.02), None, measured(2.0, p=0.04)]
    assert corrected(p) == pytest.approx([0.06, 1.0, 0.08])


def test_a_correction_can_leave_a_clear_interval_undecided():
    said, reason = decide(measured(2.0), bound("harm >= 1"), 0.08)
    assert (said, reason) == ("undecided", "after Holm's correction p = 0.08 is above 0.05")


# --- refused before anything runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"ablate": "L1H9"}, "no L1H9: layer 1 has 4 heads"),
        ({"ablate": "L2H0"}, "no L2H0: this model has 2 layers"),
        ({"ablate": "L0.ffn"}, "attention-only"),
        ({"ablate": "L1H1,L1H1"}, "already covered"),
        ({"ablate": "induction >= 0.4 and layer = 2"}, "asks for a layer that this model does not have"),
        ({"effect": "share >= 0.5", "metric": "copy_accuracy"}, "copy_accuracy does not have"),
        ({"effect": "harm >= 1.2", "metric": "copy_accuracy"}, "impossible: copy_accuracy lies between 0 and 1"),
        ({"effect": "harm <= 2", "metric": "text_accuracy"}, "impossible: text_accuracy"),
        ({"effect": "|harm| <= 1", "metric": "copy_accuracy"}, "cannot be missed: copy_accuracy"),
        ({"effect": "gain >= 0.1", "metric": "copy_kl"}, "impossible: nothing is nearer to the intact model"),
        ({"ablate": "L1H2", "positions": [0]}, "copy_loss cannot change: .* Choose other positions"),
        ({"ablate": "L0H1", "positions": [0], "intervention": "mean@seq"}, "copy_loss cannot change"),
        ({"ablate": "L0H1", "positions": [6]}, "copy_loss cannot change"),
        ({"ablate": "L1H2:optimal", "positions": [4]}, "a constant that was fitted for something else"),
        ({"ablate": "L1H2:optimal", "freeze": "patterns"}, "a constant that was fitted for something else"),
        ({"intervention": "optimal", "freeze": "patterns"}, "a constant that was fitted for something else"),
        ({"control": "text", "metric": "text_loss"}, "which does not exist"),
        ({"control": "text", "metric": "copy_logit_difference"}, "which does not exist"),
        ({"control": "text", "intervention": "counterfactual"}, "no counterfactual on held-out text"),
        ({"positions": [48]}, "48"),
        ({"period": 40}, "period"),
        (
            {"ablate": "L1H1", "control": "matched"},
            'control="matched" cannot reach alpha=0.05.* 3 allow no p',
        ),
        ({"ablate": "L1.attn", "control": "matched"}, "cannot reach alpha.* whole sublayer"),
        ({"sequences": 4}, "4 sequences .* allow no sign-flip p below 0.125"),
        ({"sequences": 64, "alpha": 1e-5}, "allow no sign-flip p below 0.0001"),
        ({"sequences": 64, "alpha": 3e-4, "sequential": True}, "sequential=true looks first after 16 of 64"),
        ({**PATH, "sender": "L0H4"}, "no L0H4"),
        ({**PATH, "sender": "L1H0"}, "no receiver is in a later layer"),
        ({**PATH, "receivers": "L0H1"}, "no receiver is in a later layer"),
        ({**PATH, "control": "matched"}, 'control="matched" cannot reach alpha.* 3 other heads'),
    ],
    ids=str,
)
def test_what_cannot_be_tested_is_refused_and_nothing_runs(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], said: str
):
    def run(*_: object, **__: object) -> None:
        raise AssertionError("the model ran")

    monkeypatch.setattr(GPT, "forward", run)
    monkeypatch.setattr(GPT, "run_with_cache", run)
    with pytest.raises(InputError, match=said) as refusal:
        check(claims_of(tmp_path, {"sequences": 32}, keys), lab)
    assert str(refusal.value).startswith(f'{tmp_path / "some.toml"}, claim "claim-1": ')


def test_all_faults_of_all_claims_are_said_at_once_and_sound_claims_are_left_out(tmp_path: Path, lab: Lab):
    asked = claims_of(
        tmp_path,
        {"ablate": "L7H0", "metric": "copy_kl", "effect": "gain >= 0.1"},
        {},
        {"sequences": 4},
        {**PATH, "sender": "L1H0"},
    )
    with pytest.raises(InputError) as refusal:
        check(asked, lab)
    said = [line.removeprefix(f"{tmp_path / 'some.toml'}, claim ") for line in str(refusal.value).splitlines()]
    assert [line.partition(":")[0] for line in said] == ['"claim-0"', '"claim-0"', '"claim-3"', '"claim-2"']
    for line, words in zip(said, ("impossible", "no L7H0", "later layer", "no sign-flip p below 0.125"), strict=True):
        assert words in line


def test_too_many_claims_for_so_few_sequences_are_refused(tmp_path: Path, lab: Lab):
    """8 sequences allow p = 2/2^8: enough for 6 claims at 0.05, and not for 7."""
    check(claims_of(tmp_path, *[{"sequences": 8}] * 6), lab)
    with pytest.raises(InputError, match="0.0547 among 7 claims tested together"):
        check(claims_of(tmp_path, *[{"sequences": 8}] * 7), lab)


def test_a_missing_step_0_is_no_control(tmp_path: Path):
    folder = planted_lab(tmp_path / "run").path
    shutil.rmtree(folder / "checkpoints" / "step-00000000")
    with pytest.raises(InputError, match='control="step0" needs a checkpoint of step 0'):
        check(claims_of(tmp_path, {"control": "step0"}), open_run(folder))


def test_paths_of_a_model_without_edges_are_refused(tmp_path: Path):
    gpt = GPT(replace(planted.induction_model().config, norm="post"), seed=0).eval()
    with pytest.raises(InputError, match="path patching"):
        check(claims_of(tmp_path, PATH), planted_lab(tmp_path / "post", gpt))


def test_positions_where_found_heads_are_not_read_are_refused_before_any_ablation(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    """The rule may find a head of any layer, and finds one of the last."""
    (only,) = claims_of(tmp_path, {"positions": [0]})
    check([only], lab)
    monkeypatch.setattr("interp.trials.Bench.harms", None)
    with pytest.raises(
        InputError, match='claim "claim-0": With L1H2:mean .at position 0. ablated, copy_loss cannot change'
    ):
        hypotheses.test_claim(only, lab)
    (excused,) = verdicts_on([only], lab, excuse=True)
    assert excused.standing == "undecided"


def test_a_claim_that_takes_nothing_out_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="gate=1.0 is not allowed; give a number from 0 up to, not including, 1"):
        claims_of(tmp_path, {"gate": 1.0})


def test_matched_sets_of_found_heads_are_counted_before_any_ablation(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    def harms(*_: object, **__: object) -> None:
        raise AssertionError("something was ablated")

    monkeypatch.setattr("interp.trials.Bench.harms", harms)
    (only,) = claims_of(tmp_path, {"control": "matched"})
    with pytest.raises(InputError, match='claim "claim-0": control="matched" cannot reach alpha=0.05'):
        hypotheses.test_claim(only, lab)
    (excused,) = verdicts_on([only], lab, excuse=True)
    assert excused.standing == "undecided"
    assert "cannot reach alpha" in excused.reason


# --- runs, steps, records ------------------------------------------------------------------------------------------


def test_at_every_step_a_claim_has_a_verdict_and_holds_from_one_on(tmp_path: Path, lab: Lab):
    folder = shutil.copytree(lab.path, tmp_path / "run")
    save_checkpoint(folder, planted.induction_model(n_ctx=24), step=4, tokens_seen=512)
    records = list(verdicts_of_run(claims_of(tmp_path, {}, {"step": 0}), folder, step="all"))
    mine = [each.verdict for each in records if each.verdict.claim == "claim-0"]
    assert [each.checkpoint.step for each in mine] == [0, 4, 8]
    assert [each.standing.value for each in mine] == ["undecided", "supported", "supported"]
    assert holds_from(mine) == 4
    assert len(list(folder.glob("claims/some/*/*.json"))) == 6


def test_a_claim_holds_from_where_it_never_fails_again():
    def at(step: int, standing: str) -> Verdict:
        return replace(TOY, standing=Standing(standing), checkpoint=replace(TOY.checkpoint, step=step))

    assert holds_from([at(0, "supported"), at(2, "undecided"), at(4, "supported"), at(8, "supported")]) == 4
    assert holds_from([at(8, "supported"), at(0, "refuted")]) == 8
    assert holds_from([at(0, "supported"), at(8, "undecided")]) is None
    assert holds_from([]) is None
    refuted = [at(0, "undecided"), at(2, "refuted"), at(4, "refuted")]
    assert since_phrase(refuted) == "toy is refuted from step 2 on, at every later one of the 3 checkpoints tested."
    assert since_phrase([*refuted, at(8, "undecided")]) == "toy is undecided at the last of 4 checkpoints."


def test_steps_are_those_of_the_command_or_else_of_the_file(tmp_path: Path, lab: Lab):
    claims = claims_of(tmp_path, {}, {"step": [0, 8]}, {"step": "all"})
    names = {step: [each.name for each in here] for step, here in steps_of(claims, lab.path).items()}
    assert names == {0: ["claim-1", "claim-2"], 8: ["claim-0", "claim-1", "claim-2"]}
    assert list(steps_of(claims, lab.path, "0")) == list(steps_of(claims, f"{lab.path}@0")) == [0]
    with pytest.raises(UnknownNameError, match="no checkpoint at step 5; there are 0, 8"):
        steps_of(claims, lab.path, "5")
    with pytest.raises(InputError, match="give one of them"):
        steps_of(claims, f"{lab.path}@0", "8")


def test_everything_is_checked_before_the_first_checkpoint_is_tested(tmp_path: Path, lab: Lab):
    with pytest.raises(InputError, match="no L1H9"):
        verdicts_of_run(claims_of(tmp_path, {}, {"ablate": "L1H9"}), lab.path, step="all")
    assert not (lab.path / "claims" / "some").exists()


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path, lab: Lab):
    folder = shutil.copytree(lab.path, tmp_path / "run")
    saved = list(
        verdicts_of_run(
            claims_of(tmp_path, {"control": "text"}, PATH, {"ablate": "induction >= 0.9999 and top 1 and layer = 0"}),
            folder,
        )
    )
    for record in saved:
        path = folder / "claims" / "some" / record.verdict.claim / "00000008.json"
        assert load_record(path) == record
        assert json.loads(path.read_text())["sentence"] == sentence(record.verdict)
    first = saved[0]
    assert first.verdict.checkpoint.weights_sha256 == lab.weights_sha256
    assert first.verdict.file_sha256 == load_claims([tmp_path / "some.toml"])[0].file_sha256
    assert first.together == ("claim-0", "claim-1", "claim-2")
    assert set(first.versions) == {"python", "torch", "numpy", "cutaway"}
    assert first.statement["ablate"] == INDUCTION
    assert not list(folder.glob("claims/**/.partial*"))


def test_an_interval_without_ends_comes_back_too(tmp_path: Path):
    found = measured(2.0)
    endless = replace(found.judged.interval, low=-math.inf, high=math.inf)
    verdict = replace(TOY, measured=replace(found, judged=replace(found.judged, interval=endless)), p=1.0)
    record = Record(
        verdict=verdict, statement={}, together=("toy",), device="cpu", seconds=0.0, created="", versions={}
    )
    assert load_record(save_record(tmp_path, record)) == record


def test_a_record_from_before_claims_said_when_they_were_stated_is_read(tmp_path: Path):
    record = Record(
        verdict=TOY, statement={}, together=("toy",), device="cpu", seconds=0.0, created="", versions={}
    )  # fmt: skip
    path = save_record(tmp_path, record)
    tree = json.loads(path.read_text())
    del tree["verdict"]["stated"]
    path.write_text(json.dumps(tree))
    assert load_record(path) == record


def test_a_damaged_record_is_refused(tmp_path: Path):
    path = tmp_path / "some.json"
    path.write_text('{"format": 0}')
    with pytest.raises(CheckpointError, match="no verdict of format 1"):
        load_record(path)


def test_the_same_claim_gives_the_same_verdict_again(tmp_path: Path, lab: Lab):
    assert verdict_on(tmp_path, lab) == verdict_on(tmp_path, lab)


# --- sentences --------------------------------------------------------------------------------------------------------


def test_a_sentence_says_all_that_a_verdict_rests_on(tmp_path: Path, lab: Lab):
    text = sentence(verdict_on(tmp_path, lab, control="text", effect="harm >= 1", seed=5))
    for part in (
        "claim-0 is supported at planted@8", "L1H2:mean ablated", "nats", "claimed was `harm >= 1`",
        "p <= 0.0001 against a harm below the bound", "n = 16 sequences that no rule has seen", "seed 5", "level 0.95",
        "control beaten: the same costs",
    ):  # fmt: skip
        assert part in text, (part, text)
    assert "Holm" not in text, "it was tested alone"


def test_a_verdict_says_where_its_bound_may_have_been_picked_to_fit(tmp_path: Path, lab: Lab):
    late = verdict_on(tmp_path, lab, stated="after")
    assert sentence(late).endswith("; its bound was stated after numbers about it had been seen, perhaps these.")
    assert "no rule has seen" not in sentence(late)
    assert "not known whether its bound was stated before" in sentence(verdict_on(tmp_path, lab, stated="unknown"))
    (first, plain) = (verdict_on(tmp_path, lab, **keys) for keys in ({"stated": "before"}, {}))
    assert sentence(first) == sentence(plain)


@pytest.mark.parametrize(
    ("effect", "says"),
    [
        ("harm >= 100", "is refuted at planted@8.*against a harm above the bound"),
        ("harm <= 0.1", "is refuted at planted@8.*against a harm below the bound"),
        ("harm <= 100", "against a harm above the bound"),
        ("|harm| <= 0.1", "is refuted at planted@8.*against a size below the bound"),
        ("gain >= 0.1", "is refuted at planted@8.*against a gain above the bound"),
        ("share >= 0.9", "against a share (above|below) the bound"),
    ],
)
def test_a_p_says_what_it_speaks_against(tmp_path: Path, lab: Lab, effect: str, says: str):
    """A refuted claim's small p is no support for it."""
    assert re.search(says, sentence(verdict_on(tmp_path, lab, control="none", effect=effect)))


def test_an_undecided_sentence_says_why(tmp_path: Path, lab: Lab):
    text = sentence(verdict_on(tmp_path, open_run(f"{lab.path}@0")))
    assert text.startswith("claim-0 is undecided at planted@0: no head passes")
    assert text.endswith("(seed 0).")


def bound(text: str) -> Bound:
    return parse_bound(text)


def measured(mean: float, *, beaten: bool | None = None, p: float = 0.0001) -> Measured:
    """As of one claim `harm >= 1` whose deltas have this mean."""
    found = of("harm >= 1", spread(mean))
    kind = ControlKind.NONE if beaten is None else ControlKind.TEXT
    return Measured(
        subject="toy", meaning="loss", unit="nats", whole="", clean=1.0, harm=found.interval,
        judged=replace(found, p=p), alpha=0.05, n=32, looks=1, obstacle="",
        beside=Beside(kind=kind, beaten=beaten, said="others cost as much"),
    )  # fmt: skip


TOY = Verdict(
    claim="toy", says="", bound="harm >= 1", file="toy.toml", file_sha256="",
    checkpoint=Checkpoint(run="toy", step=1, tokens_seen=1, weights_sha256=""),
    standing=Standing.SUPPORTED, expected=Standing.SUPPORTED, reason="", measured=None, p=None, n_together=1,
    metric="copy_loss", seed=0, period=5,
)  # fmt: skip
