"""The head-circuits study finds the planted way, denies it about random models, and survives saving."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses import head_circuits
from analyses.circuits.figure import draw, estimate_rows, path_rows, total_rows, weight_rows
from analyses.circuits.measuring import Question, reordered_first_copy
from analyses.head_circuits import PATHS, Config, Measured, Result
from analyses.records import decode, encode, same
from analyses.study import run_study
from interp.approximation import bootstrap_spearman
from interp.attribution_patching import Method
from interp.composition import Null
from interp.head_roles import RoleRule
from interp.stats import Intervals
from model import GPT
from model.checkpoint import checkpoint_path
from model.config import Norm
from model.errors import ConfigError
from model.lab import Lab
from model.settings import with_settings
from tests import planted
from tests.planted_run import planted_lab

CONFIG = Config(n_sequences=6)
FEW = Config(n_sequences=4, most_patched=4)  # one layer is truly patched: the paths are what is asked about
LAX = RoleRule(least_score=0.0, times_chance=0.0, times_reordered=0.0)
K = PATHS.index("K")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def bare_lab(folder: Path, gpt: GPT | None = None) -> Lab:
    """The same without step 0, which is half of the work."""
    lab = planted_lab(folder, gpt)
    shutil.rmtree(checkpoint_path(folder, 0))
    return lab


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return bare_lab(tmp_path_factory.mktemp("runs") / "planted")


@pytest.fixture(scope="module")
def result(lab: Lab) -> Result:
    return head_circuits.run(lab, CONFIG)


@pytest.fixture(scope="module")
def of_means(bare: Lab) -> Result:
    """The other corruption, and one control only."""
    return head_circuits.run(bare, replace(with_settings(FEW, ["corruption=mean@pos"]), most_senders=2))


def random_model(**changes: Any) -> GPT:
    return GPT(planted.induction_model().config.varied(**({"n_heads": 2} | changes)), seed=9)


def test_the_planted_head_feeds_the_keys_with_all_of_its_effect(result: Result):
    assert (result.senders, result.receivers) == (("L0H1", "L0H0", "L0H2", "L0H3"), ("L1H2",))
    assert result.has_previous
    paths = result.by("copy_loss")
    assert paths is not None
    assert paths.total[0].mean > 2
    assert paths.share[0, K].mean == pytest.approx(1.0, abs=1e-5)
    assert float(paths.unexplained[0, K]) == pytest.approx(0.0, abs=1e-5)
    others = [column for column in range(len(PATHS)) if column != K]
    assert float(paths.effect.mean[0, others].abs().max()) < 1e-6
    assert float(paths.effect.mean[1:].abs().max()) < 1e-6
    assert paths.lead is not None
    assert paths.lead[K].mean == pytest.approx(paths.effect[0, K].mean)


def test_the_weights_show_the_same_pair_and_input(result: Result):
    weights = result.weights
    assert weights is not None
    assert int(weights.rank[K, 0, 0]) == 0
    assert float(weights.z[K, 0, 0]) > 10
    assert float(weights.z[[0, 2], 0, 0].max()) < 1


def test_the_qk_fix_finds_what_the_saturated_softmax_hides(result: Result):
    blind = result.estimated("k", Method.LINEAR, "noising")
    mended = result.estimated("k", Method.QK_FIX, "noising")
    place = (blind.layers.index(1), 2)
    assert float(blind.true[place]) < -10
    assert abs(float(blind.estimate[place])) < 0.01
    assert float(mended.estimate[place]) == pytest.approx(float(mended.true[place]), rel=1e-3)


def test_step_0_stands_beside_and_shows_nothing(result: Result):
    first = result.at_step_zero
    assert first is not None
    assert abs(first.gap.mean) < 0.05
    paths = first.by("copy_loss")
    assert paths is not None
    assert float(paths.total.mean.abs().max()) < 0.05
    assert first.weights is not None
    assert float(first.weights.z[K, 0].abs().max()) < 5


def test_the_findings_on_the_planted_circuit_affirm_it_with_their_numbers(result: Result):
    corruption, feeding, others, weights, *estimates = head_circuits.findings(result)
    assert [each.found for each in (corruption, feeding, others, weights)] == [True, True, False, True]
    for finding in (corruption, feeding, others, weights, *estimates):
        assert "planted@8" in finding.sentence
        assert "seed 0" in finding.sentence
        assert "step 0" in finding.sentence
    assert feeding.sentence.startswith("The previous-token head L0H1 feeds the induction head L1H2 through its keys: ")
    assert "(100% [100%, 100%])" in feeding.sentence
    assert "of 3 other heads of earlier layers" in feeding.sentence
    assert "Of 3 other heads of earlier layers, none moves copying by 0.05 nats" in others.sentence
    assert "rank 1 of 16 pairs at best" in weights.sentence


def transposed() -> GPT:
    """The previous-token head feeds the query of L1H2, which then repeats the token before (and copies nothing)."""
    gpt = planted.induction_model()
    attention = gpt.layers[1].attn
    attention.W_Q[2], attention.W_K[2] = attention.W_K[2].clone(), attention.W_Q[2].clone()
    return gpt


@pytest.mark.whole
def test_a_head_that_reads_by_its_queries_is_not_said_to_be_fed_through_its_keys(tmp_path: Path):
    """By a lax rule L1H2 is a receiver; the weights show Q and deny K, and no sentence affirms anything."""
    lab = bare_lab(tmp_path / "transposed", transposed())
    found = head_circuits.run(lab, replace(FEW, rule=LAX))
    weights = found.weights
    assert weights is not None
    place = found.senders.index("L0H1"), found.receivers.index("L1H2")
    assert float(weights.z[(0, *place)]) > 10
    assert float(weights.z[(K, *place)]) < 1
    said = head_circuits.findings(found)
    assert not any(finding.found for finding in said)
    assert "The weights do not show it: L0H1 does not K-compose" in said[-3].sentence


@pytest.mark.whole
def test_a_random_model_is_denied_every_finding(tmp_path: Path):
    lab = bare_lab(tmp_path / "random", random_model(embed_std=1.0))
    result = head_circuits.run(lab, FEW)
    found = head_circuits.findings(result)
    assert not any(finding.found for finding in found)
    text = " ".join(finding.sentence for finding in found)
    assert "There is no copying to take apart" in text
    assert "No head is an induction head by the rule" in text
    assert "So there is nothing to feed." in text
    draw(result)
    assert len(head_circuits.table(result))


@pytest.mark.whole
def test_a_random_model_whose_heads_pass_a_lax_rule_is_still_denied(tmp_path: Path):
    lab = bare_lab(tmp_path / "random", random_model(embed_std=1.0))
    result = head_circuits.run(lab, replace(FEW, rule=LAX))
    assert result.paths
    found = head_circuits.findings(result)
    assert not any(finding.found for finding in found)
    assert "There is no copying to take apart" in found[0].sentence
    draw(result)


@pytest.mark.whole
def test_a_post_norm_model_says_why_no_path_was_patched(tmp_path: Path):
    lab = bare_lab(tmp_path / "post", random_model(norm=Norm.POST, embed_std=1.0))
    result = head_circuits.run(lab, replace(FEW, rule=LAX))
    assert result.paths == ()
    assert result.no_paths is not None
    found = head_circuits.findings(result)
    assert not any(finding.found for finding in found)
    assert found[1].found is None
    assert "needs a residual stream that is a sum" in found[1].sentence
    draw(result)


@pytest.mark.whole
def test_grouped_heads_name_who_reads_along(tmp_path: Path, result: Result):
    lab = planted_lab(tmp_path / "grouped", random_model(n_heads=4, n_kv_heads=2, embed_std=1.0))
    asked = Question.of(lab, replace(FEW, rule=LAX, most_receivers=1))
    [(layer, index)] = asked.receivers
    assert asked.shared(lab) == (f"L{layer}H{index ^ 1}",)
    sentence = head_circuits.findings(replace(result, shared=("L1H3",)))[1].sentence
    assert "L1H3 shares keys and values with them and reads along" in sentence
    of_keys = replace(result.estimated("k", Method.LINEAR, "noising"), group=2)
    assert (of_keys.name(1, 1), of_keys.heads(1, 1)) == ("L1 kv 1", ("L1H2", "L1H3"))
    of_z = replace(result.estimated("z", Method.LINEAR, "noising"), group=2)
    assert (of_z.name(1, 1), of_z.heads(1, 1)) == ("L1H1", ("L1H1",))


def moved(result: Result, change: Callable[[Intervals], Intervals], **parts: str) -> Result:
    """The result with one part of its paths on copy loss changed."""
    [name] = parts.values()
    paths = tuple(
        replace(each, **{name: change(getattr(each, name))}) if each.metric == "copy_loss" else each
        for each in result.paths
    )
    return replace(result, paths=paths)


def spread(low: float, mean: float, high: float, column: int | None = None) -> Callable[[Intervals], Intervals]:
    """The first sender's interval made another one, at one path or altogether."""

    def change(given: Intervals) -> Intervals:
        place = (0,) if column is None else (0, column)
        parts = {name: getattr(given, name).clone() for name in ("low", "mean", "high")}
        for name, value in (("low", low), ("mean", mean), ("high", high)):
            parts[name][place] = value
        return replace(given, **parts)

    return change


@pytest.mark.parametrize(
    ("part", "change", "found", "said"),
    [
        ("total", spread(-0.01, 0.0, 0.01), False, "The previous-token head L0H1 does not feed the induction head"),
        (
            "total",
            spread(-0.5, 1.0, 2.5),
            None,
            "That the previous-token head L0H1 feeds the induction head L1H2 is not",
        ),
        ("share", spread(0.1, 0.2, 0.3, K), False, "does not feed the induction head L1H2 through its keys"),
        ("share", spread(0.3, 0.6, 0.9, K), None, "through its keys, and more than other heads, is not shown"),
        ("share", spread(0.3, 0.6, 0.9, 0), None, "through its keys, and more than other heads, is not shown"),
    ],
)
def test_what_an_interval_leaves_open_is_neither_affirmed_nor_denied(
    result: Result, part: str, change: Callable[[Intervals], Intervals], found: bool | None, said: str
):
    finding = head_circuits.findings(moved(result, change, part=part))[1]
    assert finding.found is found
    assert said in finding.sentence


def test_a_control_that_does_as_much_takes_the_credit_away(result: Result):
    def nothing_more(lead: Intervals) -> Intervals:
        return replace(lead, low=lead.low * 0 - 1, mean=lead.mean * 0, high=lead.high * 0 + 1)

    finding = head_circuits.findings(moved(result, nothing_more, part="lead"))[1]
    assert finding.found is None


@pytest.mark.whole
def test_a_control_head_that_also_feeds_is_named(tmp_path: Path):
    """Two previous-token heads, each writing half: what one writes wrong draws attention, whichever it is."""
    gpt = planted.induction_model()
    attention = gpt.layers[0].attn
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attention, name)[3] = getattr(attention, name)[1]
    attention.W_O[[1, 3]] *= 0.5
    found = head_circuits.findings(head_circuits.run(bare_lab(tmp_path / "twin", gpt), replace(FEW, n_sequences=12)))
    assert found[2].found
    assert "1 also moves copying" in found[2].sentence
    assert not found[1].found


def test_without_a_previous_token_head_the_strongest_sender_is_told_and_nothing_affirmed(result: Result):
    roles = replace(result.discovery, previous_head=None)
    finding = head_circuits.findings(replace(result, discovery=roles, has_previous=False))[1]
    assert finding.found is False
    assert "No previous-token head feeds the induction head L1H2" in finding.sentence
    assert "The head that does most through its keys is L0H1" in finding.sentence


@pytest.mark.parametrize(
    ("part", "low", "high", "found"),
    [
        ("clean", 2.9, 3.1, False),  # ln 19 is 2.94: the right token is told no better than by chance
        ("clean", 2.0, 3.1, None),
        ("gap_reordered", -0.01, 0.01, False),  # the tokens do it, not their order: no match is used
        ("gap_reordered", 0.0, 0.4, None),
        ("gap", -0.01, 0.01, False),
    ],
)
def test_copying_is_better_than_chance_and_by_the_match(
    result: Result, part: str, low: float, high: float, found: bool | None
):
    given = replace(result.clean, low=low, mean=(low + high) / 2, high=high)
    said = head_circuits.findings(replace(result, **{part: given}))
    assert said[0].found is found
    assert "where a uniform guess costs 2.94" in said[0].sentence
    assert not said[1].found
    assert "as there is no copying shown" in said[1].sentence
    assert "as no copying is shown" in said[-1].sentence
    assert said[-1].found is None


def test_a_reordered_first_copy_has_the_same_tokens_and_leaves_the_second():
    tokens = torch.tensor([[9, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5], [9, 6, 7, 8, 1, 2, 6, 7, 8, 1, 2]])
    other = reordered_first_copy(tokens, 5, seed=1)
    assert torch.equal(other[:, [0, *range(6, 11)]], tokens[:, [0, *range(6, 11)]])
    assert torch.equal(other[:, 1:6].sort(1).values, tokens[:, 1:6].sort(1).values)
    assert not torch.equal(other, tokens)


def test_at_a_period_that_training_showed_no_head_has_the_name(result: Result):
    trained = replace(result, trained_periods=(2, result.period))
    corruption, feeding, others, weights, *_ = head_circuits.findings(trained)
    assert f"period {result.period} (among training's 2 to {result.period})" in corruption.sentence
    assert feeding.found is None
    assert "a learned distance cannot be told from finding the earlier copy" in feeding.sentence
    assert not any("the induction head" in each.sentence for each in (feeding, others, weights))
    assert "the induction head" not in draw(trained).to_dict()["title"]["text"]


def test_too_few_sequences_for_any_p_are_said_to_be_too_few(result: Result):
    """Six sequences and twelve effects: a control of 2 nats could not pass, and that is no evidence against it."""
    paths = moved(result, lambda given: replace(given, mean=given.mean + 2, high=given.high + 2), part="effect")
    others = head_circuits.findings(paths)[2]
    assert others.found is None
    assert "6 sequences are too few for any p below 0.05, as their smallest is 0.38" in others.sentence
    assert "2.00 nats" in others.sentence


def test_a_writer_less_read_than_its_null_is_told_as_not_read(result: Result):
    weights = result.weights
    assert weights is not None
    z = weights.z.clone()
    z[0, 0], z[2, 0] = -1.0, -9.0
    said = head_circuits.findings(replace(result, weights=replace(weights, z=z)))[3].sentence
    assert "by V its z is -9.00, less than the same writer turned at random: not read there" in said
    assert said.count("not read there") == 1


def judged(result: Result, low: float, high: float, **only: str) -> Result:
    """The estimates' rank correlations given an interval, all or those of one place."""
    estimates = tuple(
        replace(each, spearman=replace(each.spearman, low=low, mean=(low + high) / 2, high=high))
        if only.get("place", each.place) == each.place
        else each
        for each in result.estimates
    )
    return replace(result, estimates=estimates)


def test_an_estimate_is_affirmed_where_every_place_passes(result: Result):
    good = judged(result, 0.85, 0.95)
    assert [each.found for each in head_circuits.findings(good)[4:]] == [True, True]
    assert [each.found for each in head_circuits.findings(judged(result, 0.2, 0.6))[4:]] == [False, False]
    mixed = head_circuits.findings(judged(good, 0.2, 0.6, place="k"))[4]
    assert mixed.found is None
    assert "does not order heads as true patching does at 2 of 6 kinds of place: k 0.40 [0.20, 0.60]" in mixed.sentence
    undecided = head_circuits.findings(judged(good, 0.2, 0.9, place="k"))[4]
    assert undecided.found is None
    assert "does cannot be told at 2 of 6 kinds of place: k 0.55 [0.20, 0.90]" in undecided.sentence
    assert "8 places of 2 layers" in undecided.sentence
    undefined = head_circuits.findings(judged(good, math.nan, math.nan, place="k"))[4]
    assert undefined.found is None
    assert "k not defined" in undefined.sentence
    assert "nan" not in undefined.sentence


def test_few_places_are_ordered_by_chance(of_means: Result):
    for finding in head_circuits.findings(of_means)[-2:]:
        assert finding.found is None
        assert "4 places are too few for a rank correlation" in finding.sentence


def test_the_interval_of_a_rank_correlation_is_wide_where_there_is_nothing_to_order():
    drawn = torch.Generator().manual_seed(0)
    noise = torch.randn(24, 10, generator=drawn)
    clear = noise + 20 * torch.arange(10.0)
    assert bootstrap_spearman(clear, 3 * clear).low == 1.0
    vague = bootstrap_spearman(noise, torch.randn(24, 10, generator=drawn))
    assert vague.high - vague.low > 0.5
    assert math.isnan(bootstrap_spearman(clear, torch.zeros(24, 10)).mean)
    assert bootstrap_spearman(clear, torch.zeros(24, 10)).high == math.inf


def test_means_are_the_other_corruption(of_means: Result):
    paths = of_means.by("copy_loss")
    assert paths is not None
    assert paths.share[0, K].mean == pytest.approx(1.0, abs=1e-5)
    assert "replaced by its mean over other sequences" in head_circuits.findings(of_means)[1].sentence


def test_caps_are_kept_and_said(of_means: Result):
    assert of_means.senders == ("L0H1", "L0H0")
    feeding = head_circuits.findings(of_means)[1].sentence
    assert "of 1 other head of earlier layers (2 more were not tried)" in feeding
    assert "no step 0, which this run does not have" in feeding
    assert {each.layers for each in of_means.estimates} == {(0,)}


@pytest.mark.whole
def test_at_step_0_there_is_nothing_earlier(tmp_path: Path):
    result = head_circuits.run(planted_lab(tmp_path / "planted", step=0), FEW)
    assert result.at_step_zero is None
    found = head_circuits.findings(result)
    assert not any(each.found for each in found)
    assert "nothing earlier, this being step 0" in found[0].sentence


def test_a_result_survives_being_saved(result: Result):
    tree, tensors = encode(result)
    back = decode(Result, tree, tensors)
    assert same(back, result)
    assert head_circuits.findings(back) == head_circuits.findings(result)
    assert head_circuits.table(back).equals(head_circuits.table(result))


@pytest.mark.whole
def test_the_study_runs_saves_and_draws_by_name_and_the_same_seed_gives_the_same_result(bare: Lab):
    told: list[tuple[int, int, str]] = []
    saved = run_study(
        "head-circuits", f"{bare.path}@8", ["n_sequences=4", "most_patched=4", "ffns=recomputed"],
        progress=lambda *step: told.append(step),
    )  # fmt: skip
    assert saved.config.ffns.value == "recomputed"
    assert same(saved.result, head_circuits.run(bare, with_settings(FEW, ["ffns=recomputed"])))
    assert (saved.path / "figure.svg").read_text().startswith("<svg")
    assert all(0 < done <= total for done, total, _ in told)
    assert any("paths from every sender" in what for _, _, what in told)


def test_the_figure_draws_what_the_result_holds(result: Result):
    paths = result.by("copy_loss")
    assert paths is not None
    assert path_rows(result)["effect"].iloc[K] == paths.effect[0, K].mean
    assert total_rows(result)["effect"].iloc[0] == paths.total[0].mean
    assert weight_rows(result).set_index(["input", "sender"])["z"]["K", "L0H1"] > 10  # and no row for silent heads
    rows = estimate_rows(result, result.senders, result.receivers)
    assert set(rows["role"]) == {"receiver", "sender", "other head"}
    spec = draw(result).to_dict()
    assert spec["title"]["text"].startswith("L0H1 into the keys of the induction head L1H2: ")


def test_the_table_holds_every_path_pair_and_estimate(result: Result):
    rows = head_circuits.table(result)
    assert len(rows[rows["what"] == "path"]) == 2 * 4 * 5
    assert len(rows[rows["what"] == "composition"]) == 3 * 4
    assert len(rows[rows["what"] == "attribution"]) == 2 * 6 * 8
    agreement = rows[rows["what"] == "agreement"].set_index(["way", "method", "direction"])
    assert len(agreement) == 2 * 6
    found = result.estimated("z", Method.LINEAR, "denoising").agreement
    assert agreement["value"]["z", "linear", "denoising"] == found.spearman
    assert agreement["overlooked"]["z", "linear", "denoising"] == len(found.missed)
    assert rows.loc[rows["what"] != "attribution", "step_0"].notna().all()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_sequences": 1}, "n_sequences=1 is not allowed; give a number of at least 2"),
        ({"most_senders": 0}, "most_senders=0 is not allowed"),
        ({"floor": math.nan}, "floor=nan is not allowed"),
        ({"least_share": 1.5}, "least_share=1.5 is not allowed; give a number from 0 to 1"),
        ({"null": Null.UNTRAINED}, "null=untrained needs a second model"),
        ({"null": Null.PERMUTED}, "null=permuted ranks the few writers"),
        ({"rule": RoleRule(times_chance=-1.0)}, "rule.times_chance=-1.0 is not allowed"),
        ({"rule": RoleRule(margin=2.0)}, "rule.margin=2.0 is not allowed; give a number from 0 to 1"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_before_it_runs(changes: dict[str, Any], sentence: str):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        Config(**changes)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("corruption=noise", 'corruption="noise" is not one of redrawn, mean@pos'),
        ("ffns=melted", 'ffns="melted" is not one of frozen, recomputed'),
    ],
)
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(setting: str, sentence: str):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        with_settings(Config(), [setting])


@pytest.mark.parametrize("make", [head_circuits.table, head_circuits.figure, head_circuits.findings])
def test_drawing_needs_no_model_and_changes_nothing(result: Result, make: Callable[[Result], Any]):
    before, _ = encode(result)
    make(result)
    assert before == encode(result)[0]
    assert isinstance(result, Measured)
    assert torch.is_tensor(result.discovery.previous)
