"""The head-ablation study finds a planted circuit, denies everything about a random model, and survives saving."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses import attention_patterns, head_ablation
from analyses.ablation.figure import control_rows, draw, map_rows, ranking_rows, set_rows
from analyses.figures import about_zero
from analyses.head_ablation import Config, Result
from analyses.records import decode, encode, same
from analyses.registry import Finding
from analyses.study import run_study
from interp.effects import Control
from interp.head_roles import RoleRule
from interp.places import Intervention
from interp.stats import Interval
from model import GPT
from model.config import Norm
from model.errors import ConfigError
from model.lab import Lab
from tests import planted
from tests.planted_run import planted_lab

CONFIG = Config(n_sequences=16)
FEW_PATTERNS = attention_patterns.Config(n_sequences=4, n_text=4, n_resamples=100, n_tokens=512, max_ablated=1)
"""Of that study only the periods, and whether there is text, are asked here."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


@pytest.fixture(scope="module")
def result(lab: Lab) -> Result:
    return head_ablation.run(lab, CONFIG)


def test_the_planted_heads_are_the_ones_that_copying_needs(result: Result):
    harm = result.single("copy_loss").harm.mean
    needed = {planted.PREVIOUS_HEAD, planted.INDUCTION_HEAD}
    for intervention in harm:
        assert {(layer, index) for layer, index in (intervention > 1).nonzero().tolist()} == needed
        assert (intervention.flatten().sort().values[:-2] == 0).all()


def test_the_planted_heads_are_found_confirmed_and_ablated_together(result: Result):
    induction, previous = result.set_of("induction"), result.set_of("previous-token")
    assert induction is not None
    assert previous is not None
    assert (induction.heads, previous.heads) == (("L1H2",), ("L0H1",))
    assert result.confirmation.induction_heads == result.discovery.induction_heads
    assert induction.effect.harm.low > 2.5
    assert induction.effect.control.largest == 0


def test_step_0_stands_beside_and_shows_no_effect(result: Result):
    for ablated in result.sets:
        assert ablated.at_step_zero is not None
        assert abs(ablated.at_step_zero.harm.mean) < 0.05


def test_every_finding_on_the_planted_circuit_is_affirmed_with_its_numbers(result: Result):
    found = head_ablation.findings(result)
    assert all(finding.found for finding in found)
    for finding in found:
        assert "planted@8" in finding.sentence
        assert "n = 1" in finding.sentence
        assert "seed 0" in finding.sentence
    induction = found[2].sentence
    assert "the induction head L1H2 replaced by the mean" in induction
    assert "all 3 other heads of layer 1 " in induction
    assert "; 3 allow no p below 0.25, too few to decide at 0.05" in induction
    assert "The effect is larger than that of all 3 matched sets, but so few sets cannot decide at 0.05" in induction
    assert "at step 0 the same cost 0.00 nats" in induction


def random_model(**changes: Any) -> GPT:
    return GPT(planted.induction_model().config.varied(**changes), seed=9)


@pytest.mark.whole
@pytest.mark.parametrize("changes", [{}, {"embed_std": 1.0}, {"norm": Norm.POST, "embed_std": 1.0}])
def test_a_random_model_is_denied_every_finding(changes: dict[str, Any], tmp_path: Path):
    lab = planted_lab(tmp_path / "random", random_model(**changes))
    found = head_ablation.findings(head_ablation.run(lab, CONFIG))
    assert len(found) >= 4
    assert not any(finding.found for finding in found)
    text = " ".join(finding.sentence for finding in found)
    assert "The model does not copy" in text
    assert "No head is an induction head by the rule" in text


@pytest.mark.whole
def test_a_random_model_whose_heads_pass_a_lax_rule_is_still_denied(tmp_path: Path):
    """Sets of arbitrary heads are ablated, and the text says that nothing rests on them."""
    lab = planted_lab(tmp_path / "random", random_model(embed_std=1.0))
    lax = Config(n_sequences=16, rule=RoleRule(least_score=0.0, times_chance=0.0, times_reordered=0.0))
    result = head_ablation.run(lab, lax)
    assert result.set_of("induction") is not None
    found = head_ablation.findings(result)
    assert not any(finding.found for finding in found)
    assert "no other set has as many heads in each layer" in found[2].sentence  # every head passes: nothing to match
    assert "the model is not shown to copy, so this is no evidence" in found[2].sentence
    draw(result)


@pytest.mark.whole
def test_two_induction_heads_are_ablated_together_and_sets_with_one_of_them_are_controls(tmp_path: Path):
    gpt = planted.induction_model()
    attention = gpt.layers[1].attn
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attention, name)[1] = getattr(attention, name)[2]
    result = head_ablation.run(planted_lab(tmp_path / "twin", gpt), CONFIG)
    induction = result.set_of("induction")
    assert induction is not None
    assert induction.heads == ("L1H1", "L1H2")
    assert induction.effect.control.n_possible == 5
    assert induction.effect.control.shared.tolist().count(1) == 4
    assert result.single("copy_loss").harm.mean[:, 1].abs().max() < 1e-6  # alone, each is stood in for by its twin
    assert induction.effect.harm.mean > 3
    assert head_ablation.findings(result)[2].found


def test_a_set_that_costs_no_more_than_other_sets_is_not_credited(result: Result):
    induction = result.sets[0]
    control = replace(induction.effect.control, harm=induction.effect.control.harm + 10, p=1.0)
    doubted = replace(induction, effect=replace(induction.effect, control=control))
    finding = head_ablation.findings(replace(result, sets=(doubted, *result.sets[1:])))[2]
    assert not finding.found
    assert "Other sets cost as much, so the effect is not shown to be special to this head." in finding.sentence


def doctored(result: Result, harm: Interval, control: Control | None = None) -> Finding:
    """What is said of the induction head with another harm to copying, and another control."""
    induction = result.sets[0]
    outcomes = tuple(
        replace(each, harm=harm) if each.name == "copy_loss" else each for each in induction.effect.outcomes
    )
    effect = replace(induction.effect, outcomes=outcomes, control=control or induction.effect.control)
    return head_ablation.findings(replace(result, sets=(replace(induction, effect=effect), *result.sets[1:])))[2]


def interval(mean: float, low: float, high: float) -> Interval:
    return Interval(mean=mean, low=low, high=high, n=16, level=0.95, method="bca")


@pytest.mark.parametrize(
    ("harm", "found", "said"),
    [
        (interval(0.3, -0.1, 0.7), None, "So it is not shown that copying rests on this head."),
        (interval(0.0, -0.01, 0.01), False, "So copying does not rest on this head."),
        (interval(-0.3, -0.4, -0.2), False, "So copying does not rest on this head."),
    ],
)
def test_an_interval_that_leaves_it_open_is_no_evidence_that_a_head_does_not_matter(
    result: Result, harm: Interval, found: bool | None, said: str
):
    finding = doctored(result, harm)
    assert finding.found is found
    assert said in finding.sentence


def test_copying_that_the_interval_leaves_open_is_neither_affirmed_nor_denied(result: Result):
    for copying, found, said in (
        (interval(0.4, -0.1, 0.9), None, "That the model copies is not shown: "),
        (interval(0.0, -0.01, 0.01), False, "The model does not copy: "),
    ):
        first, second, third, *_ = head_ablation.findings(replace(result, copying=copying))
        assert first.sentence.startswith(said)
        assert (first.found, second.found, third.found) == (found, found, found)


def test_many_matched_sets_decide_and_no_set_at_all_is_said(result: Result):
    known = result.sets[0].effect.control
    many = replace(known, harm=torch.zeros(40), shared=torch.zeros(40, dtype=torch.long), n_possible=40, p=1 / 41)
    decided = doctored(result, result.sets[0].effect.harm, many)
    assert decided.found
    assert "; the smallest that 40 allow)" in decided.sentence
    assert "cannot decide" not in decided.sentence
    none = replace(many, harm=torch.zeros(0), shared=torch.zeros(0, dtype=torch.long), n_possible=0, p=None, note="no")
    bare = doctored(result, result.sets[0].effect.harm, none)
    assert bare.sentence.endswith("Without a control, that the effect is special to this head is not shown.")


@pytest.mark.whole
def test_at_too_short_a_period_the_rule_is_not_said_to_have_found_nothing(tmp_path: Path):
    result = head_ablation.run(planted_lab(tmp_path / "short"), replace(CONFIG, n_sequences=8, period=5))
    finding = head_ablation.findings(result)[2]
    assert finding.found is None
    assert finding.sentence.startswith("Whether a head is an induction head cannot be told at so short a period")
    assert "the highest score is 1.00, of L1H2" in finding.sentence


@pytest.mark.whole
def test_head_ablation_and_attention_patterns_decide_at_the_same_period(tmp_path: Path):
    lab = planted_lab(tmp_path / "told", copy_period=16)
    scores = attention_patterns.run(lab, FEW_PATTERNS)
    ablations = head_ablation.run(lab, replace(CONFIG, n_sequences=4))
    assert (scores.headline.period, scores.control.period, ablations.period) == (16, 16, 16)
    shown = [each.period for each in scores.readings if each.stimulus.value == "repeats"]
    assert shown == [8, 16, 19]


@pytest.mark.whole
def test_a_run_without_text_is_studied_and_its_rows_are_not_called_text(tmp_path: Path):
    lab = planted_lab(tmp_path / "repeats", is_text=False)
    said = " ".join(finding.sentence for finding in head_ablation.findings(head_ablation.run(lab, CONFIG)))
    assert "loss on held-out repeats" in said
    assert "text" not in said
    scores = attention_patterns.run(lab, FEW_PATTERNS)
    assert scores.text is None


def test_a_set_without_an_effect_is_not_credited(result: Result):
    """The induction head takes the place of a bystander: its ablation costs nothing."""
    induction = result.sets[0]
    nothing = tuple(
        replace(each, harm=replace(each.harm, mean=0.0, low=0.0, high=0.0)) for each in induction.effect.outcomes
    )
    idle = replace(induction, effect=replace(induction.effect, outcomes=nothing))
    finding = head_ablation.findings(replace(result, sets=(idle, *result.sets[1:])))[2]
    assert not finding.found
    assert "does not change by 0.05 nats or more" in finding.sentence
    assert "So copying does not rest on this head." in finding.sentence


@pytest.mark.whole
def test_step_0_itself_has_no_earlier_step_beside_it(tmp_path: Path):
    lab = planted_lab(tmp_path / "planted", step=0)
    assert not any(finding.found for finding in head_ablation.findings(head_ablation.run(lab, CONFIG)))


def test_the_table_holds_every_head_outcome_and_set_once(result: Result):
    rows = head_ablation.table(result)
    singles = rows[rows["what"] == "head"]
    assert len(singles) == 8 * 2 * 3
    assert not singles.duplicated(["heads", "intervention", "outcome"]).any()
    assert set(rows["what"]) == {"head", "induction heads", "previous-token heads"}
    sets = rows[rows["what"] != "head"]
    assert len(sets) == 2 * 2 * 4
    assert sets.loc[sets["outcome"] == "copy_loss", "control_p"].notna().all()


def test_every_share_has_an_interval_that_holds_it_and_there_is_none_without_a_gain(result: Result):
    """A share's interval is of harm over gain drawn together, and its mean is one over the other."""
    single = result.single("copy_loss")
    assert single.shares is not None
    gain = single.scale - single.clean
    torch.testing.assert_close(single.shares.mean, single.harm.mean / gain, rtol=1e-6, atol=0)
    assert (single.shares.low <= single.shares.mean).all()
    assert (single.shares.mean <= single.shares.high).all()
    needed = single.share(0, *planted.PREVIOUS_HEAD)  # the costliest
    assert needed is not None
    assert 0 < needed.high - needed.low < 1
    rows = head_ablation.table(result)
    heads = rows[(rows["what"] == "head") & (rows["outcome"] == "copy_loss")]
    assert heads[["share", "share_low", "share_high"]].notna().all().all()
    assert f"{needed.mean:.0%} [" in head_ablation.findings(result)[1].sentence
    assert result.at_step_zero is not None
    assert result.at_step_zero.single("copy_loss").shares is None, "a model that gains nothing has no shares"


def test_the_figure_draws_what_the_result_holds(result: Result):
    ranking = ranking_rows(result)
    assert ranking["head"].iloc[0] == "L0H1"
    assert len(ranking) == 16
    assert len(map_rows(result)) == 24
    induction = result.set_of("induction")
    assert induction is not None
    assert set_rows(induction)["harm"].iloc[0] == induction.effect.harm.mean
    assert len(control_rows(induction)) == 3
    spec = draw(result).to_dict()
    assert "Copying loses 3.0" in spec["title"]["text"]
    assert "without the induction head" in spec["title"]["text"]


@pytest.mark.parametrize(("low", "high"), [(-0.03, 8.5), (0.0, 0.004), (-120.0, 2.0), (0.0, 0.0)])
def test_an_axis_about_zero_holds_every_value_and_keeps_small_ones_apart(low: float, high: float):
    scale, axis = (part.to_dict() for part in about_zero(low, high, linear=0.1))
    (start, stop), ticks = scale["domain"], axis["values"]
    assert start <= min(low, 0)
    assert max(high, 0) <= stop
    assert 0.0 in ticks
    assert all(start <= tick <= stop for tick in ticks)
    if max(high, -low) >= 1:
        assert {0.1, 1.0} <= set(ticks) or {-0.1, -1.0} <= set(ticks)
    assert (scale["type"], scale["constant"]) == ("symlog", 0.1)


def test_every_mark_of_heads_alone_is_on_the_axis_that_is_labelled_symlog(result: Result):
    """One large head must not squeeze the others, and a bar of step 0 must not lie on another scale than its dot."""
    panel = draw(result).to_dict()["vconcat"][0]["hconcat"][0]
    axes = [layer["encoding"]["x"] for layer in panel["layer"] if "title" in layer["encoding"]["x"]]
    assert {axis["field"] for axis in axes} == {"harm", "step_0"}
    assert all(axis["scale"] == axes[0]["scale"] for axis in axes)
    assert axes[0]["scale"]["type"] == "symlog"
    assert all("symlog, linear below 0.1" in axis["title"] for axis in axes)


def test_a_result_survives_being_saved(result: Result):
    tree, tensors = encode(result)
    back = decode(Result, tree, tensors)
    assert same(back, result)
    assert head_ablation.findings(back) == head_ablation.findings(result)
    assert head_ablation.table(back).equals(head_ablation.table(result))


@pytest.mark.whole
def test_the_study_runs_saves_and_draws_by_name(lab: Lab):
    told: list[tuple[int, int, str]] = []
    saved = run_study(
        "head-ablation",
        f"{lab.path}@8",
        ["n_sequences=8", "rule.least_score=0.3"],
        progress=lambda *step: told.append(step),
    )
    assert saved.config.rule.least_score == 0.3
    assert (saved.path / "figure.svg").read_text().startswith("<svg")
    assert saved.provenance.step == 8
    assert all(0 < done <= total for done, total, _ in told)
    assert any("sets matched to the induction heads" in what for _, _, what in told)


@pytest.mark.whole
def test_the_same_seed_gives_the_same_result(lab: Lab, result: Result):
    assert same(head_ablation.run(lab, CONFIG), result)


def test_zero_and_mean_agree_in_sign_where_it_matters(result: Result):
    harm = result.single("copy_loss").harm.mean
    large = harm.abs() > 0.05
    assert torch.equal(harm.sign()[0] * large[0], harm.sign()[1] * large[0])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_sequences": 1}, "n_sequences=1 is not allowed; give a number of at least 2"),
        ({"n_controls": 0}, "n_controls=0 is not allowed"),
        ({"period": 1}, "period=1 is not allowed; give a number of at least 2"),
        ({"floor": math.nan}, "floor=nan is not allowed"),
        ({"alpha": 1.5}, "alpha=1.5 is not allowed; give a number between 0 and 1"),
        ({"seed": -1}, "seed=-1 is not allowed"),
        ({"rule": RoleRule(least_score=math.nan)}, "rule.least_score=nan is not allowed; give a number from 0 to 1"),
        ({"rule": RoleRule(times_chance=-1.0)}, "rule.times_chance=-1.0 is not allowed"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_before_it_runs(changes: dict[str, Any], sentence: str):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        Config(**changes)


def test_copying_and_every_single_head_stand_beside_step_0(lab: Lab, result: Result):
    alone = result.at_step_zero
    assert alone is not None
    first = head_ablation.run(planted_lab(lab.path.parent / "start", step=0), CONFIG)
    assert first.at_step_zero is None
    assert alone.copying == first.copying
    assert all("at step 0" in finding.sentence for finding in head_ablation.findings(result)[:2])
    assert all("this being step 0" in finding.sentence for finding in head_ablation.findings(first)[:2])
    dropped = head_ablation.findings(replace(result, at_step_zero=None))
    assert all("no step 0, which this run does not have" in finding.sentence for finding in dropped[:2])
    for outcome in ("copy_loss", "text_loss", "new_token_loss"):
        assert torch.equal(alone.single(outcome).harm.mean, first.single(outcome).harm.mean)
    rows = head_ablation.table(result)
    assert rows.loc[rows["what"] == "head", "step_0"].notna().all()
    assert ranking_rows(result)["step_0"].abs().max() < 0.05
    assert ranking_rows(first)["step_0"].isna().all()


def test_the_sets_hold_both_interventions_and_the_claim_is_on_the_mean(result: Result):
    assert [each.intervention for each in result.sets] == [Intervention.MEAN, Intervention.ZERO] * 2
    assert result.set_of("induction") is result.sets[0]


@pytest.mark.parametrize("make", [head_ablation.table, head_ablation.figure, head_ablation.findings])
def test_drawing_needs_no_model_and_changes_nothing(result: Result, make: Callable[[Result], Any]):
    before, _ = encode(result)
    make(result)
    after, _ = encode(result)
    assert before == after
