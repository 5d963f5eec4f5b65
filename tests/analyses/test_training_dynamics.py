"""Heads planted at known steps are found between the checkpoints about them; of a run that forms none all is denied."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from analyses import attention_patterns
from analyses import training_dynamics as study
from analyses.attention.kinds import Kind
from analyses.dynamics.axis import PICKED, Along, Time, looked_at
from analyses.dynamics.formation import formed, largest_of_others, previous_before_induction, rises
from analyses.dynamics.lines import heads_figure, losses_figure, position_figure
from analyses.dynamics.losses import Change, change
from analyses.dynamics.result import Result, attention_at, frames, scores_over_training
from analyses.dynamics.tables import (
    formation_rows,
    head_rows,
    loss_rows,
    position_rows,
    runs_together,
    score_rows,
)
from analyses.dynamics.wording import unseen
from analyses.records import decode, encode, same
from analyses.registry import Finding
from analyses.study import run_study
from interp.stats import Interval, Intervals, bootstrap_means
from model import GPT
from model.checkpoint import checkpoint_path
from model.errors import ConfigError, InputError, UnknownNameError
from model.lab import Lab, open_run
from tests.analyses.training_runs import INDUCTION, PREVIOUS, STEPS, grown
from tests.planted import INDUCTION_HEAD, PREVIOUS_HEAD
from tests.planted_run import planted_lab
from tests.unchecked import unchecked
from tests.undrawn import undrawn

QUICK = study.Config(n_sequences=10, n_text=6, n_judged=12, n_resamples=200)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Previous-token attention forms at step 16, induction attention and copying at step 32; nobody changes it."""
    return grown(tmp_path_factory.mktemp("runs") / "grown", {PREVIOUS: 16, INDUCTION: 32})


@pytest.fixture(scope="module")
def result(run: Lab) -> Result:
    return asked(run)


def asked(lab: Lab, config: study.Config = QUICK) -> Result:
    """The study's answer; whole runs are asked without checks of types, which other tests make."""
    with unchecked():
        return study.run(lab, config)


def said(result: Result, start: str) -> Finding:
    """The one finding that begins like this, or is about this."""
    with unchecked():
        (found,) = [each for each in study.findings(result) if re.match(start, each.sentence)]
    return found


def with_curve(result: Result, name: str, curve: tuple[float, ...], spread: float = 0.01) -> Result:
    """The result with another loss over training, the same for every sequence but for a little noise."""
    n = result.losses[name].values.shape[1]
    noise = torch.randn(len(curve), n, generator=torch.Generator().manual_seed(0)) * spread
    values = torch.tensor(curve, dtype=torch.float64)[:, None] + noise
    loss = replace(result.losses[name], values=values, intervals=bootstrap_means(values.T, 100))
    return replace(result, losses={**result.losses, name: loss})


def with_score(result: Result, kind: Kind, head: tuple[int, int], curve: tuple[float, ...]) -> Result:
    """The result with another score of one head over training, the same for every sequence."""
    reading = result.repeats
    score = reading.scores[kind.value]
    assert score.values is not None
    values, ends = score.values.clone(), [each.clone() for each in (score.mean, score.low, score.high)]
    for at, level in enumerate(curve):
        values[at, :, head[0], head[1]] = level
        for end in ends:
            end[at, head[0], head[1]] = level
    mean, low, high = ends
    changed = replace(score, values=values, intervals=replace(score.intervals, mean=mean, low=low, high=high))
    scores = {**reading.scores, kind.value: changed}
    return replace(result, readings={**result.readings, "repeats": replace(reading, scores=scores)})


def without_before(result: Result, step: int) -> Result:
    """The result of a run whose checkpoints before `step` were deleted."""
    first = result.steps.index(step)

    def later(known: Intervals) -> Intervals:
        return replace(known, mean=known.mean[first:], low=known.low[first:], high=known.high[first:])

    return replace(
        result,
        steps=result.steps[first:],
        tokens_seen=result.tokens_seen[first:],
        readings={
            name: replace(
                reading,
                scores={
                    kind: replace(
                        each,
                        intervals=later(each.intervals),
                        values=None if each.values is None else each.values[first:],
                    )
                    for kind, each in reading.scores.items()
                },
            )
            for name, reading in result.readings.items()
        },
        losses={
            name: replace(each, values=each.values[first:], intervals=later(each.intervals))
            for name, each in result.losses.items()
        },
        text_by_position=None,
    )


def test_each_head_is_found_from_its_step_on_and_half_way_between_the_checkpoints_about_it(result: Result) -> None:
    assert result.steps == STEPS
    assert result.tokens_seen == tuple(100 * step for step in STEPS)
    for kind, head, step in ((Kind.PREVIOUS, PREVIOUS_HEAD, 16), (Kind.INDUCTION, INDUCTION_HEAD, 32)):
        assert [formed(result, kind, index) for index in range(len(STEPS))] == [
            [head] if at >= step else [] for at in STEPS
        ]
        (rise,) = [each for each in rises(result) if each.what == kind.value]
        assert rise.crossing is not None
        assert (rise.crossing.after, rise.crossing.by) == (step - 8, step)
        assert step - 8 < rise.crossing.at.low <= rise.crossing.at.high <= step
        assert rise.last.mean == pytest.approx(1, abs=1e-4)


def test_it_says_what_formed_when_and_in_which_order(result: Result) -> None:
    copying = said(result, "Copying formed between")
    assert copying.found
    assert copying.sentence.startswith("Copying formed between the checkpoints 24 and 32: ")
    induction = said(
        result, "One head came to attend like an induction head, half way up between the checkpoints 24 and 32"
    )
    assert induction.found
    assert "L1H2" in induction.sentence
    assert "at the old distance with the second copy re-ordered at most 0.0" in induction.sentence
    assert "no other head passed" in induction.sentence
    order = said(result, "Previous-token attention rose before induction attention")
    assert order.found
    assert "with a checkpoint between" in order.sentence
    assert said(result, "Copying and induction attention formed in the same stretch:").found
    assert all("one training seed (0)" in each.sentence for each in study.findings(result))
    unknown = study.findings(replace(result, training_seed=None))
    assert all("one training run" in each.sentence for each in unknown)


def test_where_both_form_by_one_checkpoint_the_order_is_left_open(tmp_path: Path) -> None:
    both = asked(grown(tmp_path / "at_once", {PREVIOUS: 24, INDUCTION: 24}))
    order = said(both, "Whether previous-token attention rose before induction attention cannot be told")
    assert order.found is None
    assert "no checkpoint lies surely between" in order.sentence


def test_a_reversed_order_is_denied(result: Result) -> None:
    reading = result.readings["repeats"]
    previous = reading.scores["previous"]
    assert previous.values is not None
    late = replace(previous, values=previous.values[[0, 0, 0, 0, 0, 5]])  # half way between 32 and 40
    scores = {**reading.scores, "previous": late}
    other_way = replace(result, readings={**result.readings, "repeats": replace(reading, scores=scores)})
    denied = said(other_way, "Previous-token attention did not rise before induction attention")
    assert denied.found is False
    assert "by straight lines -8 " in denied.sentence


def test_a_run_in_which_nothing_forms_gives_denials_only(tmp_path: Path) -> None:
    lab = grown(tmp_path / "nothing", {}, n_rows=12)
    findings = study.findings(asked(lab))
    assert [each.found for each in findings] == [False] * len(findings)
    openings = " ".join(each.sentence for each in findings)
    for denial in ("Copying did not form", "No head came to attend like an induction head", "No head came to attend "
                   "like a previous-token head", "More context did not come to help"):  # fmt: skip
        assert denial in openings


def test_a_head_that_came_and_went_is_not_said_to_stand(result: Result) -> None:
    last = len(STEPS) - 1
    reading = result.readings["repeats"]
    score = reading.scores["previous"]
    mean, low, high = (each.clone() for each in (score.mean, score.low, score.high))
    for end in (mean, low, high):
        end[last] = end[0]
    gone = replace(score, intervals=replace(score.intervals, mean=mean, low=low, high=high))
    changed = replace(
        result, readings={**result.readings, "repeats": replace(reading, scores={**reading.scores, "previous": gone})}
    )
    assert formed(changed, Kind.PREVIOUS) == []
    largest = largest_of_others(changed, Kind.PREVIOUS, [])
    assert largest is not None
    assert largest.head == PREVIOUS_HEAD
    denied = said(changed, "No head came to attend like a previous-token head")
    assert denied.found is False
    assert re.search(r"L0H1 at step (16|24|32)", denied.sentence), "what it reached is said"


def test_its_scores_are_those_of_attention_patterns_at_the_last_step(result: Result, run: Lab) -> None:
    with unchecked():
        patterns = attention_patterns.run(
            run,
            attention_patterns.Config(
                n_sequences=10,
                n_text=6,
                n_resamples=200,
                max_ablated=1,
                n_tokens=64,
                periods=(int(result.repeats.period or 0),),
            ),
        )
    own = attention_at(result, len(STEPS) - 1)
    compared = 0
    for mine in own.readings:
        theirs = next(
            each for each in patterns.readings if (each.stimulus, each.period) == (mine.stimulus, mine.period)
        )
        first = patterns.first(theirs)
        assert first is not None
        for name, measure in mine.measures.items():
            assert torch.equal(measure.intervals.mean, theirs.measures[name].intervals.mean), name
            torch.testing.assert_close(measure.intervals.low, theirs.measures[name].intervals.low, rtol=0, atol=1e-9)
            assert measure.chance == theirs.measures[name].chance
            zero = result.readings[mine.stimulus.value].scores[name].mean[0]
            assert torch.equal(zero, first.measures[name].intervals.mean), name
            compared += 1
    assert compared >= 25
    for kind in (Kind.INDUCTION, Kind.PREVIOUS, Kind.DUPLICATE, Kind.FIRST):
        assert torch.equal(attention_patterns.found(own, kind), attention_patterns.found(patterns, kind))


@pytest.mark.parametrize(
    ("curve", "sudden"),
    [
        ((0.0, 0.0, 0.0, 4.8, 5.0, 5.0), True),  # one gap, a fifth of all steps
        ((0.0, 0.0, 0.0, 2.5, 5.0, 5.0), None),  # two gaps, of which little may be needed
        ((0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0), False),
    ],
)
def test_a_change_is_called_sudden_only_where_checkpoints_are_fine_enough(
    result: Result, curve: tuple[float, ...], sudden: bool | None
) -> None:
    every = tuple(round(40 * at / (len(curve) - 1)) for at in range(len(curve)))
    found = change(with_curve(replace(result, steps=every), "copying", curve))
    assert found is not None
    assert found.sudden is sudden


def test_what_does_not_grow_has_no_stretch(result: Result) -> None:
    assert change(with_curve(result, "copying", (1.0, 0.8, 0.6, 0.4, 0.2, 0.1))) is None


def test_sudden_is_said_only_where_the_whole_interval_is_narrow() -> None:
    def found(mean: float, low: float, high: float) -> bool | None:
        width = Interval(mean=mean, low=low, high=high, n=10, level=0.95, method="percentile")
        return Change(start=8, end=16, share=0.7, width=width, least_width=0.0).sudden

    assert found(0.15, 0.1, 0.2) is True
    assert found(0.15, 0.1, 0.3) is None


def test_a_change_that_may_be_smaller_than_asked_has_no_step(result: Result) -> None:
    """0.6 nats, give or take 0.3: more than the 0.5 that are asked, but not surely."""
    unsure = with_curve(result, "copying", (0.0, 0.0, 0.0, 0.1, 0.6, 0.6), spread=0.5)
    assert said(unsure, "Whether copying formed cannot be told").found is None
    assert change(unsure) is None
    assert rises(unsure)[0].crossing is None
    unsure = with_curve(result, "icl_score", (0.0, 0.0, 0.0, -0.1, -0.12, -0.12), spread=0.1)
    assert said(unsure, "Whether more context came to help on text by 0.1 nats cannot be told").found is None
    assert rises(unsure)[1].crossing is None


def test_what_fell_back_is_measured_by_what_is_left_and_said(result: Result) -> None:
    fallen = with_curve(result, "copying", (0.0, 0.0, 5.0, 5.0, 5.0, 1.0))
    copying = said(fallen, "Copying formed between the checkpoints 8 and 16")
    assert copying.found
    assert "it had been 5.0" in copying.sentence
    assert "and fell back" in copying.sentence
    assert "half of the change was there at step 9 " in copying.sentence, "half of 1, not of 5"
    (share,) = re.findall(r"suddenly: (\d+)% of what it earned at the end", said(fallen, "Copying formed sud").sentence)
    assert 90 <= int(share) <= 100
    lost = said(with_curve(result, "copying", (0.0, 0.0, 5.0, 5.0, 5.0, 0.1)), "Copying formed, but did not stay")
    assert lost.found is False
    assert change(with_curve(result, "copying", (0.0, 0.0, 5.0, 5.0, 5.0, 0.1))) is None
    dipped = said(with_curve(result, "icl_score", (0.0, -1.0, -1.0, -1.0, -1.0, -0.3)), "More context came to help on")
    assert dipped.found
    assert re.search("had been -1.0.*fell back; half of that change was there .* 8 .by straight", dipped.sentence)
    worse = said(with_curve(result, "icl_score", (0.0, 0.0, 0.5, 1.0, 1.0, 1.0)), "More context did not come to help")
    assert "fell back" not in worse.sentence


def test_what_the_first_checkpoint_has_already_is_not_said_to_have_formed_or_not(result: Result) -> None:
    pruned = without_before(result, 32)
    assert attention_at(pruned, 1).at_step_zero is None, "the first checkpoint that is left is not step 0"
    with unchecked():
        findings, later = study.findings(pruned), study.findings(without_before(result, 16))
    assert [each.found for each in findings if "text" not in each.sentence[:60]] == [None] * 3
    assert "Copying was there already at the first checkpoint, step 32, so when it formed cannot be told" in " ".join(
        each.sentence for each in findings
    )
    assert "L1H2 did not surely rise by 0.20 since the first checkpoint, step 32" in " ".join(
        each.sentence for each in findings
    )
    assert [each.crossing for each in rises(pruned)] == [None] * 4
    assert change(pruned) is None
    assert [each.found for each in later if re.match("Copying|One head came to attend like an ind", each.sentence)] == [
        True
    ] * 3, "what formed after the first checkpoint is told"
    assert not any("rose before" in each.sentence for each in later), "the other kind was there at the first"
    creeping = with_score(result, Kind.INDUCTION, INDUCTION_HEAD, (0.0, 0.0, 0.0, 0.0, 0.8, 0.85))
    assert [each.crossing for each in rises(without_before(creeping, 32)) if each.what == "induction"] == [None]
    another = with_score(result, Kind.PREVIOUS, (0, 0), (0.0, 0.0, 0.0, 0.0, 0.0, 0.9))
    assert len(formed(without_before(another, 16), Kind.PREVIOUS)) == 2
    assert previous_before_induction(without_before(another, 16)) is None, "one of the two was there at the first"
    level = with_curve(result, "copying", (5.0,) * 6)
    assert said(level, "Copying was there already at the first checkpoint, step 0").found is None


def test_a_period_is_called_unseen_only_where_it_is_on_record_what_training_showed(result: Result) -> None:
    shown = replace(result, trained_periods=(4, 8))
    assert result.repeats.trained is False
    assert unseen(shown) == ", unseen in training"
    assert unseen(replace(shown, trained_periods=None)) == ""
    learned = replace(result.repeats, trained=True)
    assert unseen(replace(shown, readings={**result.readings, "repeats": learned})) == ""


def test_in_one_stretch_is_said_only_where_the_whole_interval_lies_in_it(result: Result) -> None:
    reading = result.repeats
    score = reading.scores["induction"]
    assert score.values is not None
    values = score.values.clone()
    values[4, :, *INDUCTION_HEAD] = 0.53 + 0.2 * torch.linspace(-1, 1, values.shape[1])  # half at about step 32
    readings = {**result.readings, "repeats": replace(reading, scores={**reading.scores, "induction": replace(
        score, values=values)})}  # fmt: skip
    unsure = said(replace(result, readings=readings), "Whether copying and induction attention formed in the same")
    assert unsure.found is None
    assert "between the checkpoints 24 and 40" in unsure.sentence


def test_in_context_learning_is_affirmed_denied_and_left_open(result: Result) -> None:
    gained = with_curve(result, "icl_score", (0.0, 0.0, -0.1, -0.3, -0.4, -0.4))
    assert said(gained, "More context came to help on text").found
    level = with_curve(result, "icl_score", (0.0, 0.0, 0.0, 0.0, 0.0, -0.01))
    assert said(level, "More context did not come to help").found is False
    noisy = with_curve(result, "icl_score", (0.0, 0.0, 0.0, 0.0, 0.0, -0.1), spread=0.5)
    assert said(noisy, "Whether more context came to help on text").found is None


def test_damaged_and_incomplete_checkpoints_are_left_out_and_told(run: Lab, tmp_path: Path) -> None:
    folder = shutil.copytree(run.path, tmp_path / "damaged")
    weights = checkpoint_path(folder, 24) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    (checkpoint_path(folder, 8) / "config.json").unlink()
    found = asked(open_run(folder))
    assert found.steps == (0, 16, 32, 40)
    told = [each.sentence for each in study.findings(found) if each.found is None]
    assert any("Step 24 is left out" in each for each in told)
    assert any("Step 8 is left out: its checkpoint is incomplete" in each for each in told)


def test_steps_may_be_chosen_and_the_first_and_the_studied_one_belong_to_them(run: Lab) -> None:
    quicker = replace(QUICK, n_sequences=4, n_text=4, n_judged=4, n_resamples=100)
    assert asked(run, replace(quicker, steps=(24,))).steps == (0, 24, 40)
    assert asked(open_run(f"{run.path}@24"), quicker).steps == (0, 8, 16, 24)
    with pytest.raises(UnknownNameError, match="steps=7 is no checkpoint of grown up to step 40; there are 0, 8"):
        asked(run, replace(quicker, steps=(7,)))
    with pytest.raises(ConfigError, match="n_judged=1 is not allowed"):
        study.Config(n_judged=1)


def test_of_one_checkpoint_nothing_is_told(tmp_path: Path) -> None:
    lab = planted_lab(tmp_path / "one", step=0, n_rows=6)
    only = asked(lab)
    (finding,) = study.findings(only)
    assert finding.found is None
    assert "has one checkpoint up to step 0" in finding.sentence
    assert study.figure(only).to_dict()["vconcat"]
    assert len(study.table(only)) > 0
    assert [each.crossing for each in rises(only)] == [None, None]


def test_without_text_only_text_is_missing(tmp_path: Path) -> None:
    lab = planted_lab(tmp_path / "no_text", is_text=False)
    found = asked(lab)
    assert set(found.readings) == {"repeats", "control"}
    assert "text_loss" not in found.losses
    assert said(found, "Whether more context came to help on text cannot be told").found is None
    assert said(found, "Copying formed between").found
    with pytest.raises(UnknownNameError, match='There is no reading "text" here'):
        scores_over_training(found, Kind.INDUCTION, "text")


def test_a_bidirectional_model_is_refused(tmp_path: Path, make_gpt: Callable[..., GPT]) -> None:
    gpt = make_gpt(n_ctx=48, d_vocab=20, attention="bidirectional")
    with pytest.raises(InputError, match="attends in both directions"):
        asked(planted_lab(tmp_path / "both_ways", gpt))


def test_saved_it_is_read_back_as_it_was_and_is_new_where_another_checkpoint_is(run: Lab, tmp_path: Path) -> None:
    lab = open_run(shutil.copytree(run.path, tmp_path / "saved"))
    settings = ["n_sequences=4", "n_text=4", "n_judged=4", "n_resamples=100"]
    with undrawn(), unchecked():
        saved = run_study("training-dynamics", f"{lab.path}@40", settings)
        back = decode(Result, *encode(saved.result))
        assert same(back, saved.result)
        assert study.findings(back) == list(saved.findings())
        assert run_study("training-dynamics", f"{lab.path}@40", settings).provenance == saved.provenance
        grown(lab.path, {PREVIOUS: 16, INDUCTION: 40})
        again = run_study("training-dynamics", f"{lab.path}@40", settings)
    assert again.provenance.inputs_sha256 != saved.provenance.inputs_sha256
    assert "between the checkpoints 32 and 40" in said(again.result, "Copying formed between").sentence


def test_tables_hold_every_checkpoint_with_its_interval_and_chance(result: Result) -> None:
    rows = score_rows(result, Kind.INDUCTION)
    assert len(rows) == len(STEPS) * len(result.heads)
    assert bool((rows["low"] <= rows["mean"]).all())
    assert set(rows["n"]) == {10}
    head = head_rows(result, Kind.INDUCTION, "repeats", INDUCTION_HEAD)
    assert list(head["step"]) == list(STEPS)
    assert [step for step, _ in frames(result, Kind.INDUCTION)] == list(STEPS)
    assert frames(result, Kind.INDUCTION)[-1][1][INDUCTION_HEAD] == pytest.approx(head["mean"].iloc[-1])
    assert set(loss_rows(result)["loss"]) == {"copy_loss", "first_copy_loss", "copying", "text_loss", "icl_score"}
    both = runs_together([result, replace(result, run="other")], loss_rows)
    assert list(dict.fromkeys(both["run"])) == ["grown", "other"]
    positions = position_rows(result)
    assert len(positions) == len(STEPS) * 47, "a context of 48 has 47 targets"
    at_end = [row["mean"] for row in positions.to_dict("records") if row["step"] == STEPS[-1]]
    text_loss = float(result.losses["text_loss"].intervals.mean[-1])
    assert sum(at_end) / len(at_end) == pytest.approx(text_loss, rel=1e-5)
    assert len(position_rows(replace(result, text_by_position=None))) == 0
    assert len(position_figure(result, STEPS[:2]).to_dict()["layer"]) == 2
    (induction,) = [row for row in formation_rows(result).to_dict("records") if row["what"] == "induction"]
    assert (induction["after"], induction["by"]) == (24, 32)
    assert {"kind", "stimulus"} <= set(study.table(result).columns)


def test_figures_stand_above_one_another_on_one_axis_and_a_click_picks_a_checkpoint(result: Result) -> None:
    time = Time(along=Along.TOKENS, log=True, stretch=(24, 32))
    heads = heads_figure(result, Kind.INDUCTION, time, top=[INDUCTION_HEAD], other=replace(result, run="b"),
                         other_top=[PREVIOUS_HEAD]).to_dict()  # fmt: skip
    losses = losses_figure(result, time).to_dict()
    axes = [next(x["scale"]["domain"] for x in _axes(each) if "scale" in x) for each in (heads, losses)]
    assert axes[0] == axes[1]
    shown = looked_at(losses, result, time, step=24, beside=8, nth=3)
    assert len(losses["layer"]) + 3 == len(shown["layer"]), "what is remembered is not changed"
    rule, dashed, targets = shown["layer"][-3:]
    assert rule["data"]["values"] == [{"tokens": 2400}]
    assert dashed["data"]["values"] == [{"tokens": 800}]
    assert [row["step"] for row in targets["data"]["values"]] == list(STEPS)
    assert targets["params"][0]["name"] == PICKED
    assert {row["nth"] for row in targets["data"]["values"]} == {3}


def test_names_at_the_ends_of_lines_do_not_cover_one_another(result: Result) -> None:
    every = [(0, index) for index in range(4)]
    figure = heads_figure(result, Kind.INDUCTION, Time(), top=every).to_dict()
    (words,) = [layer for layer in figure["layer"] if layer["mark"].get("fontWeight") == 600]
    heights = sorted(row["at"] for row in figure["datasets"][words["data"]["name"]])
    assert all(high - low >= 0.06 for low, high in pairwise(heights))
    assert heights[0] >= 0
    assert heights[-1] <= 1


def _axes(figure: dict) -> list[dict]:
    return [layer["encoding"]["x"] for layer in figure["layer"] if "x" in layer.get("encoding", {})]
