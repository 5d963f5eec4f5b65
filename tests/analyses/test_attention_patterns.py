"""The study finds the planted circuit, denies everything of a random model, and is not fooled by a learned distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses import attention_patterns as study
from analyses.attention_figure import matrix_rows
from analyses.attention_readings import BY_CONTENT, SHARES, Kind
from analyses.attention_stimuli import Stimulus, choose_periods
from analyses.records import decode, encode, same
from analyses.study import load_result, run_study
from model import GPT, GPTConfig
from model.errors import ConfigError, InputError
from model.lab import Lab
from tests.planted import D_VOCAB, INDUCTION_HEAD, N_CTX, PREVIOUS_HEAD
from tests.planted_run import planted_lab

QUICK = study.Config(n_sequences=12, n_text=12, n_resamples=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "planted"
    planted_lab(path)
    return path


@pytest.fixture(scope="module")
def result(folder: Path) -> study.Result:
    return study.run(planted_lab(folder.parent / "again"), QUICK)


@pytest.fixture
def random_lab(tmp_path: Path, make_gpt: Callable[..., GPT]) -> Callable[..., Lab]:
    def build(**overrides: Any) -> Lab:
        gpt = make_gpt(n_ctx=N_CTX, d_vocab=D_VOCAB, **overrides)
        return planted_lab(tmp_path / "random", gpt)

    return build


def test_the_planted_heads_are_found_and_no_others(result: study.Result) -> None:
    assert study.found_heads(result, Kind.INDUCTION) == [INDUCTION_HEAD]
    assert study.found_heads(result, Kind.PREVIOUS) == [PREVIOUS_HEAD]
    for kind in (Kind.DUPLICATE, Kind.CURRENT, Kind.FIRST, Kind.LATER):
        assert study.found_heads(result, kind) == [], kind


def test_the_planted_induction_head_scores_one_at_every_period_and_follows_content(result: study.Result) -> None:
    periods = [reading for reading in result.readings if reading.stimulus is Stimulus.REPEATS]
    assert [(reading.period, reading.trained) for reading in periods] == [(8, True), (16, False), (19, False)]
    for reading in periods:
        assert reading[Kind.INDUCTION].intervals[INDUCTION_HEAD].low == pytest.approx(1, abs=1e-4)
    assert result.headline.period == 19
    assert result.control[Kind.INDUCTION].intervals[INDUCTION_HEAD].mean < 0.2
    assert result.control[Kind.MATCH].intervals[INDUCTION_HEAD].mean == pytest.approx(1, abs=1e-3)


def test_heads_that_attend_evenly_score_chance_on_every_kind(result: study.Result) -> None:
    for reading in result.readings:
        for kind in (*SHARES, Kind.ENTROPY, Kind.DISTANCE):
            measure = reading[kind]
            assert float(measure.intervals.mean[1, 0]) == pytest.approx(measure.chance, rel=2e-2), (reading.title, kind)


def test_step_zero_stands_beside_and_is_left_out_where_it_is_the_subject(folder: Path, result: study.Result) -> None:
    first = result.headline_at_step_zero
    assert first is not None
    assert float(first[Kind.INDUCTION].intervals.mean.max()) < 0.2
    alone = study.run(planted_lab(folder.parent / "zero", step=0), QUICK)
    assert alone.at_step_zero is None
    torch.testing.assert_close(
        alone.headline[Kind.INDUCTION].intervals.mean, first[Kind.INDUCTION].intervals.mean, rtol=0, atol=0
    )


def test_findings_affirm_what_was_planted_with_all_that_supports_it(result: study.Result) -> None:
    sentences = [finding.sentence for finding in study.findings(result) if finding.found]
    assert sentences[0].startswith(
        "One induction head (L1H2): at period 19, outside training's 4 to 12, L1H2 puts 1.00"
    )
    for part in (
        "0.03 by chance",
        "re-ordered control",
        "at step 0",
        "n = 12 sequences",
        "seed 0",
        "again@8",
        "[1.00, ",
    ):
        assert part in sentences[0]
    assert any("follows the content" in sentence for sentence in sentences)
    assert any(sentence.startswith("One previous-token head (L0H1)") for sentence in sentences)


@pytest.mark.parametrize("overrides", [{"embed_std": 0.02, "init": "gpt2"}, {}, {"norm": "post"}])
def test_findings_of_a_random_model_deny_everything(random_lab: Callable[..., Lab], overrides: dict[str, Any]) -> None:
    result = study.run(random_lab(**overrides), QUICK)
    findings = study.findings(result)
    assert len(findings) >= 5
    assert not any(finding.found for finding in findings)
    assert all(finding.sentence.startswith("No ") for finding in findings)


def test_a_head_that_learned_a_distance_is_not_found(result: study.Result) -> None:
    shortcut = _with_control_mean(result, result.headline[Kind.INDUCTION].intervals.mean)
    assert study.found_heads(shortcut, Kind.INDUCTION) == []
    sentence = study.findings(shortcut)[0].sentence
    assert sentence.startswith("No induction head")
    assert "1.00 at that distance in the re-ordered control" in sentence


def _with_control_mean(result: study.Result, mean: torch.Tensor) -> study.Result:
    control = result.control
    measure = control[Kind.INDUCTION]
    changed = replace(measure, intervals=replace(measure.intervals, mean=mean))
    edited = replace(control, measures=control.measures | {Kind.INDUCTION.value: changed})
    return replace(result, readings=tuple(edited if each is control else each for each in result.readings))


def test_at_a_trained_period_nothing_that_needs_a_match_counts(folder: Path) -> None:
    seen = study.run(planted_lab(folder.parent / "seen"), replace(QUICK, periods=(8,)))
    for kind in BY_CONTENT:
        assert study.found_heads(seen, kind) == []
    assert "a learned distance cannot be told from a match" in study.findings(seen)[0].sentence
    assert study.found_heads(seen, Kind.PREVIOUS) == [PREVIOUS_HEAD]


def test_a_result_comes_back_equal_and_draws_the_same(result: study.Result) -> None:
    back = decode(study.Result, *encode(result))
    assert same(back, result)
    assert back.headline.stimulus is Stimulus.REPEATS
    assert study.figure(back).to_dict() == study.figure(result).to_dict()


def test_the_runner_saves_it_and_the_saved_result_says_the_same(folder: Path) -> None:
    settings = ["n_sequences=12", "n_text=12", "n_resamples=200"]
    seen: list[tuple[int, int]] = []
    saved = run_study(
        "attention-patterns", f"{folder}@8", settings, progress=lambda done, total, _: seen.append((done, total))
    )
    again = load_result(saved.path)
    assert again.findings()[0].sentence.startswith("One induction head (L1H2)")
    assert again.provenance.weights_sha256 is not None
    assert (saved.path / "figure.svg").read_text().startswith("<svg")
    assert seen[-1] == (10, 10)


def test_every_checkpoint_can_be_studied(folder: Path) -> None:
    from analyses.study import run_everywhere

    settings = ["n_sequences=4", "n_text=4", "n_resamples=100"]
    results = run_everywhere("attention-patterns", f"{folder}@all", settings)
    assert [saved.result.step for saved in results] == [0, 8]


def test_the_table_has_a_row_for_each_head_reading_and_kind(result: study.Result) -> None:
    table = study.table(result)
    top = table[(table["stimulus"] == "repeats") & (table["period"] == 19) & (table["kind"] == "induction")]
    assert len(top) == 8
    best = top[top["rank"] == 1].iloc[0]
    assert (best["head"], best["n"]) == ("L1H2", 12)
    assert best["low"] <= best["mean"] <= best["high"]
    assert sorted(top["rank"]) == list(range(1, 9))
    assert not table.duplicated(["stimulus", "period", "kind", "head"]).any()


def test_the_figure_shows_every_head_on_one_scale_and_outlines_what_was_found(result: study.Result) -> None:
    rows = matrix_rows(result)
    assert rows["value"].between(0, 1 + 1e-6).all()
    assert list(rows[rows["found"]][["kind", "name"]].itertuples(index=False, name=None)) == [
        ("previous token", "L0H1"),
        ("induction", "L1H2"),
    ]
    assert set(rows["reading"]) == {
        "period 19, unseen", "period 19, re-ordered", "held-out text", "period 19, step 0",
    }  # fmt: skip


def test_the_example_is_the_strongest_induction_heads_pattern(result: study.Result) -> None:
    example = result.example
    assert (example.layer, example.head) == INDUCTION_HEAD
    assert len(example.tokens) == 39
    assert example.tokens[0] == "<bos>"
    torch.testing.assert_close(example.pattern.sum(-1), torch.ones(39))


def test_a_model_of_many_heads_can_be_drawn(tmp_path: Path) -> None:
    gpt = GPT(GPTConfig(n_layers=14, n_heads=16, d_model=32, n_ctx=N_CTX, d_vocab=D_VOCAB)).eval()
    wide = study.run(planted_lab(tmp_path / "wide", gpt), study.Config(n_sequences=2, n_text=2, n_resamples=100))
    assert len(matrix_rows(wide)) > 5000  # above Altair's limit for tables
    assert study.figure(wide).to_dict()


def test_running_it_changes_neither_weights_nor_logits(folder: Path) -> None:
    lab = planted_lab(folder.parent / "untouched")
    tokens = lab.eval_tokens[:2]
    before, weights = lab.gpt(tokens), lab.weights_sha256
    study.run(lab, QUICK)
    assert torch.equal(lab.gpt(tokens), before)
    assert lab.weights_sha256 == weights


def test_the_same_seed_gives_the_same_result(folder: Path, result: study.Result) -> None:
    assert same(study.run(planted_lab(folder.parent / "again"), QUICK), result)


@pytest.mark.parametrize(
    ("longest", "trained", "periods"),
    [
        (31, (6, 24), (15, 28, 31)),
        (16, (6, 24), (5, 15)),
        (31, None, (15, 31)),
        (24, (2, 30), (16,)),
        (25, (6, 24), (15, 25)),
    ],
)
def test_periods_hold_one_that_training_showed_and_one_that_it_did_not(
    longest: int, trained: tuple[int, int] | None, periods: tuple[int, ...]
) -> None:
    assert choose_periods(longest, trained) == periods


def test_a_period_longer_than_the_context_allows_says_which_fit(folder: Path) -> None:
    lab = planted_lab(folder.parent / "long")
    with pytest.raises(InputError, match=r"period of 24 needs 49 positions .* n_ctx=48; choose a period from 2 to 23"):
        study.run(lab, replace(QUICK, periods=(24,)))


def test_a_config_without_sequences_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"n_sequences=1, .* too few for an interval"):
        study.Config(n_sequences=1)


def test_a_bidirectional_model_is_refused(random_lab: Callable[..., Lab]) -> None:
    with pytest.raises(InputError, match="random attends in both directions"):
        study.run(random_lab(attention="bidirectional"), QUICK)
