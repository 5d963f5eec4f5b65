"""Gradient flow: the paper's depth laws appear, pairs are compared honestly, and what is absent is denied."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from analyses import gradient_flow
from analyses.gradient_flow import Config, Result
from analyses.gradients import initialization as gradient_initialization
from analyses.gradients.findings import _direction, _slope_opening
from analyses.gradients.initialization import Initialization, Sweep, measured_initialization
from analyses.gradients.runs import differing_settings, training_map
from analyses.gradients.tables import SUMMARY
from analyses.records import decode, encode, same
from analyses.registry import Finding
from analyses.study import SavedResult, run_study
from interp.gradients import GradientNorms, gradient_norms
from interp.stats import Interval
from model import GPT, Norm
from model.errors import ConfigError, InputError, UnknownNameError
from model.lab import open_run, read_run
from model.presets import get_preset
from model.settings import with_settings
from model.training import train
from tests.unchecked import unchecked

SMALL = Sweep(
    placements=(Norm.PRE, Norm.POST), depths=(2, 4), n_seeds=3, d_model=32, d_vocab=50, n_sequences=2, n_pos=16
)
QUICK = Config(initialization=False, n_sequences=8, n_groups=4)


@pytest.fixture(scope="module")
def laws() -> Initialization:
    """A sweep large enough for the laws to show."""
    sweep = Sweep(placements=(Norm.PRE, Norm.POST, Norm.DEEPNORM), depths=(4, 8, 16), n_seeds=4, n_sequences=3)
    with unchecked():
        return measured_initialization(sweep, seed=0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pre-norm run, its post-norm twin, and one that differs in more."""
    root = tmp_path_factory.mktemp("runs")
    base = ["data.stdlib_bytes=60000", "train.steps=24", "train.checkpoint_every=12", "train.log_every=6"]
    variants = {"pre": [], "post": ["model.norm=post"], "other": ["model.norm=post", "train.seed=3", "optim.lr=0.002"]}
    with unchecked():
        for name, settings in variants.items():
            train(with_settings(get_preset("tiny"), [*base, *settings]), root / name)
    return root


def scaling(laws: Initialization, norm: Norm) -> Any:
    return next(each for each in laws.scalings if each.placement is norm)


def test_post_norms_last_gradient_does_not_depend_on_depth_and_pre_norms_falls_as_its_root(
    laws: Initialization,
) -> None:
    assert scaling(laws, Norm.POST).exponent.mean == pytest.approx(0, abs=0.12)
    assert scaling(laws, Norm.PRE).exponent.mean == pytest.approx(-0.5, abs=0.1)
    assert scaling(laws, Norm.DEEPNORM).exponent.mean == pytest.approx(-0.5, abs=0.1)


def test_deepnorms_gradient_is_the_same_in_every_layer(laws: Initialization) -> None:
    w_out = laws.profile(Norm.DEEPNORM, 16).w_out.mean(dim=0)
    assert 0.95 < float(w_out[-1] / w_out[0]) < 1.05


def test_the_stream_grows_linearly_in_pre_norm_and_stays_one_in_post_norm(laws: Initialization) -> None:
    pre = scaling(laws, Norm.PRE)
    assert pre.linearity > 0.95
    squares = laws.profile(Norm.PRE, 16).mean_square.mean(dim=0)
    layers = torch.arange(17)
    assert (squares[2:] >= 0.95 * (1 + layers[2:] / 2)).all()  # Xiong's lemma 2, at Xavier's slightly smaller weights
    assert (squares <= 1 + 1.5 * layers + 0.1).all()
    assert (laws.profile(Norm.POST, 16).mean_square[:, 1:] - 1).abs().max() < 1e-4


def test_the_slope_over_layers_is_larger_in_post_norm_than_in_pre_norm(laws: Initialization) -> None:
    for depth in (8, 16):
        difference = laws.slope_difference(Norm.POST, Norm.PRE, depth)
        assert difference.mean > 0.05
        assert difference.low > 0


def test_findings_about_initialization_affirm_the_laws(laws: Initialization) -> None:
    said = gradient_flow.findings(Result(seed=0, initialization=laws, run=None, pair=None, checkpoint=None))
    assert [finding.found for finding in said] == [True, True, True]
    assert all("n = 4 seeds from 0, 95% intervals over seeds" in finding.sentence for finding in said)
    assert "-1/2 in pre-norm" in said[0].sentence
    assert "here pre-norm falls towards the output" in said[2].sentence


def interval(low: float, high: float) -> Interval:
    return Interval(mean=(low + high) / 2, low=low, high=high, n=4, level=0.95, method="")


def about_growth(laws: Initialization, growth: Interval, linearity: float) -> Finding:
    pre = replace(scaling(laws, Norm.PRE), growth=growth, linearity=linearity)
    scalings = tuple(pre if each.placement is Norm.PRE else each for each in laws.scalings)
    changed = replace(laws, scalings=scalings)
    return gradient_flow.findings(Result(seed=0, initialization=changed, run=None, pair=None, checkpoint=None))[1]


@pytest.mark.parametrize(
    ("growth", "linearity", "said"),
    [
        (interval(0.7, 0.9), 0.997, "the mean square of the stream grows linearly with the layer"),
        (interval(0.7, 0.9), 0.8, "the mean square of the stream grows but not linearly"),
        (interval(-0.72, 2.34), 0.997, "the mean square of the stream is not shown to grow, nor not to"),
        (interval(-0.05, 0.05), 0.2, "the mean square of the stream does not grow by 0.1 per layer"),
        (interval(-0.9, -0.7), 0.997, "the mean square of the stream falls with the layer"),
    ],
)
def test_growth_is_claimed_denied_or_left_open_by_its_whole_interval(
    laws: Initialization, growth: Interval, linearity: float, said: str
) -> None:
    finding = about_growth(laws, growth, linearity)
    assert said in finding.sentence
    assert finding.found == ("grows linearly" in said)


@pytest.mark.parametrize(
    ("slopes", "said"),
    [
        ([interval(0.03, 0.07)], "rises towards the output"),
        ([interval(-0.07, -0.03), interval(-0.2, -0.1)], "falls towards the output"),
        ([interval(-0.01, 0.01)], "is flat"),
        ([interval(-0.128, 0.424)], "cannot at every depth be told from flat"),
        ([interval(-0.2, -0.1), interval(0.1, 0.2)], "cannot at every depth be told from flat"),
    ],
)
def test_a_slope_is_said_to_go_where_it_goes(slopes: list[Interval], said: str) -> None:
    assert _direction(slopes) == said


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (interval(0.05, 0.1), "the gradient of W_out rises more"),
        (interval(-0.01, 0.01), "the gradient of W_out does not rise more"),
        (interval(-0.128, 0.424), "that the gradient of W_out rises more from layer to layer in post-norm"),
    ],
)
def test_slopes_that_cannot_be_told_apart_are_not_denied(difference: Interval, said: str) -> None:
    assert _slope_opening({8: difference}).startswith(said)


def test_findings_deny_laws_that_do_not_hold(laws: Initialization) -> None:
    swapped = {Norm.PRE: Norm.POST, Norm.POST: Norm.PRE, Norm.DEEPNORM: Norm.DEEPNORM}
    wrong = replace(
        laws,
        profiles=tuple(replace(p, placement=swapped[p.placement]) for p in laws.profiles),
        scalings=tuple(replace(s, placement=swapped[s.placement]) for s in laws.scalings),
    )
    said = gradient_flow.findings(Result(seed=0, initialization=wrong, run=None, pair=None, checkpoint=None))
    assert not any(finding.found for finding in said)
    assert "does not scale with depth" in said[0].sentence


def test_what_was_not_measured_is_neither_affirmed_nor_denied() -> None:
    only_pre = measured_initialization(replace(SMALL, placements=(Norm.PRE,)), seed=0)
    said = gradient_flow.findings(Result(seed=0, initialization=only_pre, run=None, pair=None, checkpoint=None))
    assert [finding.found for finding in said] == [None, None, None]
    assert "was not measured" in said[0].sentence
    assert "was not compared" in said[1].sentence


def test_a_sweep_is_the_same_every_time() -> None:
    first, second = (measured_initialization(SMALL, seed=1) for _ in range(2))
    assert same(first, second)
    assert not same(first, measured_initialization(SMALL, seed=2))


def test_the_study_runs_without_a_model() -> None:
    result = gradient_flow.run(None, Config(sweep=SMALL))
    assert result.checkpoint is result.pair is result.run is None
    assert len(gradient_flow.table(result)) == 4
    assert gradient_flow.figure(result).to_dict()


def test_a_matched_pair_says_so_and_shares_one_colour_scale(runs: Path) -> None:
    result = gradient_flow.run(open_run(runs / "pre"), replace(QUICK, twin=str(runs / "post")))
    assert result.pair is not None
    assert result.pair.matched
    assert "share seed 0, data, and every setting but the norm's placement" in result.pair.spoken()
    chart = gradient_flow.figure(result).to_dict()
    maps = [part for part in chart["vconcat"] if str(part.get("title", "")).find("Over training") >= 0]
    assert len(maps) == 2
    for part in maps:
        left, right = part["hconcat"]
        assert left["encoding"]["color"]["scale"] == right["encoding"]["color"]["scale"]
        assert left["encoding"]["color"]["scale"]["type"] == "log"
    assert list(gradient_flow.table(result).columns) == list(SUMMARY)


@pytest.mark.whole
def test_an_unmatched_pair_lists_what_differs_and_finds_nothing(runs: Path) -> None:
    result = gradient_flow.run(open_run(runs / "pre"), replace(QUICK, twin=str(runs / "other")))
    assert result.pair is not None
    assert not result.pair.matched
    assert {d.setting for d in result.pair.unmatched} == {"train.seed", "optim.lr"}
    (said,) = [f for f in gradient_flow.findings(result) if "through training" in f.sentence]
    assert said.found is None
    assert "not a matched pair: they differ in" in said.sentence
    assert "train.seed (0 and 3)" in said.sentence


@pytest.mark.whole
def test_when_a_run_is_looked_at_is_no_difference(runs: Path) -> None:
    record = read_run(runs / "pre")
    other = json.loads(json.dumps(record))
    other["config"]["train"]["log_every"] = 7
    assert differing_settings(record, other) == ()
    other["config"]["data"]["seed"] = 5
    assert [str(d) for d in differing_settings(record, other)] == ["data.seed (0 and 5)"]


def test_maps_hold_what_was_logged(runs: Path) -> None:
    logged = training_map(runs / "pre", read_run(runs / "pre"))
    assert logged is not None
    rows = [json.loads(line) for line in (runs / "pre" / "metrics.jsonl").read_text().splitlines()]
    assert logged.steps.tolist() == [row["step"] for row in rows]
    column = logged.matrices.index("L1.W_out")
    assert logged.matrix_norms[:, column].tolist() == pytest.approx([row["grad_norms"]["L1.W_out"] for row in rows])
    assert logged.places[0] == "blocks.0.hook_resid_pre"
    assert logged.places[-1] == "blocks.1.hook_resid_post"
    assert torch.equal(logged.of_layers("W_out")[:, 1], logged.matrix_norms[:, column])


@pytest.mark.whole
def test_at_step_zero_nothing_is_said_to_have_changed(runs: Path) -> None:
    result = gradient_flow.run(open_run(f"{runs / 'pre'}@0"), QUICK)
    said = gradient_flow.findings(result)
    assert [finding.found for finding in said] == [None, None]
    assert "not known (this is step 0)" in said[-1].sentence
    assert "pre@0, n = 8 held-out sequences in 4 groups, 95% intervals over groups" in said[-1].sentence


@pytest.mark.whole
def test_without_step_zero_no_change_is_claimed(runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "pre", tmp_path / "pre"))
    shutil.rmtree(run / "checkpoints" / "step-00000000")
    said = gradient_flow.findings(gradient_flow.run(open_run(run), QUICK))
    assert [finding.found for finding in said] == [None, None]
    assert "step 0 is not saved" in said[-1].sentence


@pytest.mark.parametrize(
    ("change", "found", "said"),
    [
        ([0.9, 1.0, 1.1, 1.0], True, "Training changed how much"),
        ([0.36, 0.37, 0.38, 0.37], False, "Training changed by less than a factor of 1.5 how much"),
        ([-2.0, 4.0, 3.0, 2.0], False, "Whether training changed by a factor of 1.5 how much"),
    ],
)
def test_a_change_at_the_checkpoint_is_claimed_denied_or_left_open(
    runs: Path, change: list[float], found: bool, said: str
) -> None:
    result = gradient_flow.run(open_run(runs / "pre"), QUICK)
    checkpoint = result.checkpoint
    assert checkpoint is not None
    assert checkpoint.initial is not None
    now = replace(checkpoint.now, group_ratios=checkpoint.initial.group_ratios + torch.tensor(change))
    (*_, finding) = gradient_flow.findings(replace(result, checkpoint=replace(checkpoint, now=now)))
    assert finding.sentence.startswith(said)
    assert finding.found is found


@pytest.mark.whole
def test_a_saved_result_is_used_again_until_a_file_that_it_read_changes(runs: Path, tmp_path: Path) -> None:
    """The twin's log, its settings, the run's own, the held-out rows, step 0: each makes the saved comparison stale."""
    for name in ("pre", "post"):
        shutil.copytree(runs / name, tmp_path / name)
    first, twin = tmp_path / "pre", tmp_path / "post"
    settings = ["initialization=false", "n_sequences=8", "n_groups=4", f"twin={twin}"]

    def asked() -> SavedResult:
        return run_study("gradient-flow", f"{first}@16", settings)

    def touched(file: Path) -> None:
        text = file.read_text()
        again = text.splitlines()[-1] + "\n" if file.suffix == ".jsonl" else "\n"  # still the same run in every way
        file.write_text(text + again)

    saved = asked()
    assert asked().provenance == saved.provenance
    named = gradient_flow.inputs(open_run(f"{first}@16"), Config(twin=str(twin)))
    assert all(file.is_file() for file in named)
    for file in (twin / "metrics.jsonl", twin / "run.json", first / "metrics.jsonl", first / "run.json"):
        touched(file)
        again = asked()
        assert again.provenance.inputs_sha256 != saved.provenance.inputs_sha256
        saved = again
    shutil.rmtree(first / "checkpoints" / "step-00000000")
    assert asked().provenance.inputs_sha256 != saved.provenance.inputs_sha256
    assert gradient_flow.inputs(None, Config()) == []


@pytest.mark.whole
def test_a_run_without_logged_norms_is_no_twin(runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "post", tmp_path / "post"))
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(InputError, match="has logged no gradient norms"):
        gradient_flow.run(open_run(runs / "pre"), replace(QUICK, twin=str(run)))
    assert gradient_flow.run(open_run(run), QUICK).run is None


def test_twins_that_cannot_be_are_refused_with_a_sentence(runs: Path) -> None:
    lab = open_run(runs / "pre")
    with pytest.raises(InputError, match="is the run itself"):
        gradient_flow.run(lab, replace(QUICK, twin=str(runs / "pre")))
    with pytest.raises(UnknownNameError, match="There is no run"):
        gradient_flow.run(lab, replace(QUICK, twin=str(runs / "pots")))
    with pytest.raises(InputError, match="is the twin of no run"):
        gradient_flow.run(None, Config(sweep=SMALL, twin="runs/post"))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("sweep.n_seeds=0", "sweep.n_seeds=0 is not allowed; give a number of at least 2"),
        ("sweep.n_seeds=1", "sweep.n_seeds=1 is not allowed; give a number of at least 2"),
        ("sweep.depths=", "sweep.depths is nothing; give one or more"),
        ("sweep.depths=1", "sweep.depths=1 is not allowed; give a number of at least 2"),
        ("sweep.depths=4,4", "sweep.depths is 4,4; give one or more, each once"),
        ("sweep.placements=", "sweep.placements is nothing; give one or more"),
        ("sweep.n_pos=1", "sweep.n_pos=1 is not allowed; give a number of at least 2"),
        ("sweep.n_sequences=0", "sweep.n_sequences=0 is not allowed; give a number of at least 1"),
        ("sweep.n_heads=3", "n_heads"),
        ("seed=-1", "seed=-1 is not allowed"),
    ],
)
def test_sweeps_of_nothing_are_refused_with_a_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        with_settings(Config(), [setting])


@pytest.mark.whole
def test_one_depth_has_slopes_and_no_exponent() -> None:
    result = gradient_flow.run(None, Config(sweep=replace(SMALL, depths=(3,))))
    assert gradient_flow.findings(result)[0].found is None
    assert len(gradient_flow.table(result)) == 2
    assert gradient_flow.figure(result).to_dict()


@pytest.mark.whole
def test_drawn_models_run_where_they_are_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def spied(gpt: GPT, tokens: Tensor) -> GradientNorms:
        seen.add(str(gpt.device))
        return gradient_norms(gpt.to("cpu"), tokens)

    monkeypatch.setattr(gradient_initialization, "gradient_norms", spied)
    monkeypatch.setattr(GPT, "to", lambda gpt, device: seen.add(f"to {device}") or gpt)
    gradient_flow.run(None, Config(sweep=replace(SMALL, depths=(2, 3), n_seeds=2)), device="cuda:0")
    assert "to cuda:0" in seen


def test_groups_too_few_or_too_many_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_groups=1 cannot cut"):
        Config(n_groups=1)


def test_a_result_comes_back_whole_from_its_record(runs: Path) -> None:
    config = replace(QUICK, initialization=True, sweep=SMALL, twin=str(runs / "post"))
    result = gradient_flow.run(open_run(runs / "pre"), config)
    tree, tensors = encode(result)
    back = decode(Result, json.loads(json.dumps(tree, allow_nan=False)), tensors)
    assert same(result, back)
    assert gradient_flow.figure(back).to_dict() == gradient_flow.figure(result).to_dict()
    assert [f.sentence for f in gradient_flow.findings(back)] == [f.sentence for f in gradient_flow.findings(result)]


def test_settings_reach_into_the_sweep() -> None:
    config = with_settings(Config(), ["sweep.depths=4,8", "sweep.placements=pre,post", "initialization=false"])
    assert config.sweep.depths == (4, 8)
    assert config.sweep.placements == (Norm.PRE, Norm.POST)
    assert not config.initialization
