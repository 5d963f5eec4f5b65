"""The study finds the planted circuit, denies everything of a random model, and is not fooled by a learned distance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from analyses import attention_patterns as study
from analyses.attention.figure import matrix_rows
from analyses.attention.readings import BY_CONTENT, SHARES, Kind
from analyses.attention.stimuli import Stimulus, choose_periods
from analyses.heads.score_sources import scores
from analyses.heads.scores import HeadScores, meaning_of
from analyses.records import decode, encode, same
from analyses.study import load_result, run_study
from model import GPT, GPTConfig
from model.errors import ConfigError, InputError
from model.lab import Lab
from tests.analyses.attention_edits import with_intervals, with_score
from tests.planted import D_VOCAB, INDUCTION_HEAD, N_CTX, PREVIOUS_HEAD
from tests.planted_run import planted_lab
from tests.undrawn import undrawn

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
    assert [(reading.period, reading.trained) for reading in periods] == [(8, True), (13, False), (19, False)]
    for reading in periods:
        assert reading[Kind.INDUCTION].intervals[INDUCTION_HEAD].low == pytest.approx(1, abs=1e-4)
    assert result.headline.period == 19
    assert result.control[Kind.INDUCTION].intervals[INDUCTION_HEAD].mean < 0.2
    assert result.control[Kind.MATCH].intervals[INDUCTION_HEAD].mean == pytest.approx(1, abs=1e-3)


def test_heads_that_attend_evenly_score_chance_on_every_kind(result: study.Result) -> None:
    for reading in result.readings:
        for kind in {*SHARES, Kind.ENTROPY, Kind.DISTANCE} & {Kind(name) for name in reading.measures}:
            measure = reading[kind]
            assert float(measure.intervals.mean[1, 0]) == pytest.approx(measure.chance, rel=2e-2), (reading.title, kind)


@pytest.mark.whole
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
        "One head attends like an induction head (L1H2): at period 19, outside training's 4 to 12, L1H2 puts 1.00"
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
    assert any(sentence.startswith("One head attends like a previous-token head (L0H1)") for sentence in sentences)


@pytest.mark.whole
@pytest.mark.parametrize("overrides", [{"embed_std": 0.02, "init": "gpt2"}, {}, {"norm": "post"}])
def test_findings_of_a_random_model_deny_everything(random_lab: Callable[..., Lab], overrides: dict[str, Any]) -> None:
    result = study.run(random_lab(**overrides), QUICK)
    findings = study.findings(result)
    assert len(findings) >= 5
    assert not any(finding.found for finding in findings)
    denied = [finding.sentence for finding in findings if finding.found is False]
    assert len(denied) >= 6
    assert all(sentence.startswith("No ") for sentence in denied)
    unread = [finding.sentence for finding in findings if finding.found is None]
    assert all("is not seen" in sentence or "are not read" in sentence for sentence in unread)


def test_where_the_copy_is_re_ordered_the_old_distance_and_the_true_match_are_told_apart(result: study.Result) -> None:
    true_match = next(each.sentence for each in study.findings(result) if "follows the content" in each.sentence)
    assert "on the true match, the token after the earlier copy wherever it is now" in true_match
    shown = scores({"attention-patterns": result}, "induction", result.control.title)
    assert isinstance(shown, HeadScores)
    assert "at the old distance, where the token after the earlier copy was" in shown.label
    assert "at the old distance" not in meaning_of("induction", Stimulus.REPEATS)
    cells = pd.DataFrame(matrix_rows(result)).set_index(["kind", "reading"])["measured"]
    table = study.table(result).set_index(["kind", "stimulus"])["measured"]
    for measured in (cells.loc[("induction", result.control.title)], table.loc[("induction", "control")]):
        assert measured.str.startswith("attention at the old distance").all()


def test_a_head_that_learned_a_distance_is_not_found(result: study.Result) -> None:
    shortcut = with_intervals(result, result.control, Kind.INDUCTION, result.headline[Kind.INDUCTION].intervals)
    assert study.found_heads(shortcut, Kind.INDUCTION) == []
    sentence = study.findings(shortcut)[0].sentence
    assert sentence.startswith("No head attends like an induction head")
    assert "1.00 at that distance in the re-ordered control" in sentence


@pytest.mark.parametrize(
    ("low", "high", "found", "said"),
    [
        (0.30, 0.90, True, "still puts 0.60 [0.30, 0.90]"),
        (0.00, 0.01, False, "it does not follow the content"),
        (0.00, 0.90, None, "whether it follows the content cannot be told"),
    ],
)
def test_what_the_control_leaves_open_is_neither_affirmed_nor_denied(
    result: study.Result, low: float, high: float, found: bool | None, said: str
) -> None:
    mean = (low + high) / 2 if found is not None else 0.05
    doctored = with_score(result, result.control, Kind.MATCH, INDUCTION_HEAD, mean=mean, low=low, high=high)
    finding = study.findings(doctored)[1]
    assert finding.found is found
    assert said in finding.sentence
    assert "at step 0" in finding.sentence


@pytest.mark.parametrize(
    ("low", "high", "found", "said"),
    [
        (0.80, 0.90, True, "more than the"),
        (0.00, 0.01, False, ", no more than the"),
        (0.00, 0.90, None, "not told apart from the"),
    ],
)
def test_the_sentence_on_text_says_no_more_than_its_interval_with_seed_level_and_step_0(
    result: study.Result, low: float, high: float, found: bool | None, said: str
) -> None:
    assert result.text is not None
    doctored = with_score(result, result.text, Kind.INDUCTION, INDUCTION_HEAD, mean=high, low=low, high=high)
    finding = study.findings(doctored)[2]
    assert finding.found is found
    for part in (said, "at step 0", "n = 12 rows", "95% bootstrap", "seed 0", "again@8"):
        assert part in finding.sentence


def test_a_missing_step_0_is_said_with_its_reason(result: study.Result) -> None:
    of_kinds = slice(0, 7)
    dropped = study.findings(replace(result, at_step_zero=None))
    assert all("the run keeps no step 0" in finding.sentence for finding in dropped[of_kinds])
    first = study.findings(replace(result, at_step_zero=None, step=0))
    assert all("this is step 0" in finding.sentence for finding in first[of_kinds])


def test_little_more_than_even_or_untrained_attention_is_no_finding(result: study.Result) -> None:
    """Even attention scores 0.32 on a short sequence: 0.47 is then hardly a head that attends to its own token."""
    kind, head = Kind.CURRENT, (1, 0)
    strong = with_score(result, result.headline, kind, head, mean=0.5, low=0.47, high=0.53)
    assert study.found_heads(strong, kind) == [head]
    chance = replace(strong.headline[kind], chance=0.32)
    edited = replace(strong.headline, measures=strong.headline.measures | {kind.value: chance})
    short = replace(strong, readings=tuple(edited if each is strong.headline else each for each in strong.readings))
    assert study.found_heads(short, kind) == []
    same_at_start = replace(strong, at_step_zero=strong.readings)
    assert study.found_heads(same_at_start, kind) == []
    sentence = next(each.sentence for each in study.findings(same_at_start) if "current-token" in each.sentence)
    assert sentence.startswith("No head attends like a current-token head")
    assert "needed are 0.4 and an interval from 0.2 above chance and step 0 on" in sentence


def test_a_distance_of_0_or_1_is_no_evidence_for_or_against_a_positional_head(result: study.Result) -> None:
    """L0H1 attends one token back with all its attention: that has a name of its own, and is quoted in no denial."""
    measure = result.control[Kind.POSITIONAL]
    assert float(measure.intervals.mean[PREVIOUS_HEAD]) == pytest.approx(1, abs=1e-3)
    finding = next(each for each in study.findings(result) if "at one distance" in each.sentence)
    assert finding.found is False
    assert "the largest share of attention at one distance of two tokens or more is 0." in finding.sentence
    assert "tokens back)" in finding.sentence
    assert "L0H1" not in finding.sentence
    assert measure.offsets is not None
    nearest = replace(measure, offsets=torch.ones_like(measure.offsets))
    control = replace(result.control, measures=result.control.measures | {Kind.POSITIONAL.value: nearest})
    moved = replace(result, readings=tuple(control if each is result.control else each for each in result.readings))
    finding = next(each for each in study.findings(moved) if "at one distance" in each.sentence)
    assert finding.found is False
    assert "each attends most to the token itself or before" in finding.sentence


def test_text_is_asked_about_the_distance_that_the_control_found(result: study.Result) -> None:
    found = result.control[Kind.POSITIONAL].offsets
    assert found is not None
    for readings in (result.readings, result.at_step_zero or ()):
        text = next(each for each in readings if each.stimulus is Stimulus.TEXT)
        assert torch.equal(text[Kind.POSITIONAL].offsets, found)  # pyright: ignore[reportArgumentType]
    assert result.text is not None
    assert result.text[Kind.POSITIONAL].intervals.n == result.text.n_sequences


def test_a_wide_interval_is_no_denial(result: study.Result) -> None:
    unsure = with_score(result, result.headline, Kind.CURRENT, (1, 0), mean=0.45, low=0.1, high=0.9)
    finding = next(each for each in study.findings(unsure) if "current-token" in each.sentence)
    assert finding.found is None
    assert finding.sentence.startswith("Whether a head attends like a current-token head cannot be told")


@pytest.mark.whole
def test_at_a_trained_period_nothing_that_needs_a_match_counts(folder: Path) -> None:
    seen = study.run(planted_lab(folder.parent / "seen"), replace(QUICK, periods=(8,)))
    for kind in BY_CONTENT:
        assert study.found_heads(seen, kind) == []
    assert "a learned distance cannot be told from finding the earlier copy" in study.findings(seen)[0].sentence
    assert study.found_heads(seen, Kind.PREVIOUS) == [PREVIOUS_HEAD]


def test_a_result_comes_back_equal_and_draws_the_same(result: study.Result) -> None:
    back = decode(study.Result, *encode(result))
    assert same(back, result)
    assert back.headline.stimulus is Stimulus.REPEATS
    assert study.figure(back).to_dict() == study.figure(result).to_dict()


@pytest.mark.whole
def test_the_runner_saves_it_and_the_saved_result_says_the_same(folder: Path) -> None:
    settings = ["n_sequences=12", "n_text=12", "n_resamples=200"]
    seen: list[tuple[int, int]] = []
    saved = run_study(
        "attention-patterns", f"{folder}@8", settings, progress=lambda done, total, _: seen.append((done, total))
    )
    again = load_result(saved.path)
    assert again.findings()[0].sentence.startswith("One head attends like an induction head (L1H2)")
    assert again.provenance.weights_sha256 is not None
    assert (saved.path / "figure.svg").read_text().startswith("<svg")
    assert seen[-1] == (8, 8)


@pytest.mark.whole
def test_every_checkpoint_can_be_studied(folder: Path) -> None:
    from analyses.study import run_everywhere

    settings = ["n_sequences=4", "n_text=4", "n_resamples=100"]
    with undrawn():
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
    rows = pd.DataFrame(matrix_rows(result))
    measured = rows[rows["interval"] != "not measured"]
    assert measured["value"].between(0, 1 + 1e-6).all()
    assert len(rows) == 8 * len(rows["kind"].unique()) * len(rows["reading"].unique())
    assert list(rows[rows["found"]][["kind", "name"]].itertuples(index=False, name=None)) == [
        ("previous token", "L0H1"),
        ("induction", "L1H2"),
    ]
    assert set(rows["reading"]) == {
        "period 19, unseen", "period 19, re-ordered", "period 8", "period 13, unseen", "held-out text",
        "period 19, step 0",
    }  # fmt: skip
    distances = rows[(rows["kind"] == "one distance") & (rows["reading"] == "period 19, step 0")]
    assert not any(map(math.isnan, distances["value"]))


def test_the_example_is_the_strongest_induction_heads_pattern(result: study.Result) -> None:
    example = result.example
    assert (example.layer, example.head) == INDUCTION_HEAD
    assert len(example.tokens) == 39
    assert example.tokens[0] == "<bos>"
    torch.testing.assert_close(example.pattern.sum(-1), torch.ones(39))


@pytest.mark.slow
def test_a_model_of_many_heads_can_be_drawn(tmp_path: Path) -> None:
    gpt = GPT(GPTConfig(n_layers=8, n_heads=16, d_model=32, n_ctx=N_CTX, d_vocab=D_VOCAB)).eval()
    wide = study.run(planted_lab(tmp_path / "wide", gpt), study.Config(n_sequences=2, n_text=2, n_resamples=100))
    assert len(matrix_rows(wide)) > 5000  # above Altair's limit for tables
    assert study.figure(wide).to_dict()


@pytest.mark.whole
def test_running_it_changes_neither_weights_nor_logits(folder: Path) -> None:
    lab = planted_lab(folder.parent / "untouched")
    tokens = lab.eval_tokens[:2]
    before, weights = lab.gpt(tokens), lab.weights_sha256
    study.run(lab, QUICK)
    assert torch.equal(lab.gpt(tokens), before)
    assert lab.weights_sha256 == weights


@pytest.mark.whole
def test_the_same_seed_gives_the_same_result(folder: Path, result: study.Result) -> None:
    assert same(study.run(planted_lab(folder.parent / "again"), QUICK), result)


@pytest.mark.parametrize(
    ("judged_at", "longest", "trained", "periods"),
    [
        (28, 31, range(6, 25), (15, 28, 31)),
        (5, 16, range(6, 25), (4, 5, 15)),
        (31, 31, range(0), (15, 31)),
        (24, 24, range(2, 31), (16, 24)),
        (25, 25, range(6, 25), (5, 15, 25)),
    ],
)
def test_periods_hold_the_one_that_decides_one_that_training_showed_and_the_longest_it_did_not(
    judged_at: int, longest: int, trained: range, periods: tuple[int, ...]
) -> None:
    assert choose_periods(judged_at, longest, trained) == periods


@pytest.mark.whole
def test_the_period_that_was_re_ordered_decides(folder: Path) -> None:
    result = study.run(planted_lab(folder.parent / "three"), replace(QUICK, periods=(8, 16, 19)))
    assert [each.period for each in result.repeats] == [8, 16, 19]
    control = replace(result.control, period=16)
    moved = replace(result, readings=tuple(control if each is result.control else each for each in result.readings))
    assert moved.headline.period == 16
    assert "at period 16, outside" in study.findings(moved)[0].sentence
    table = study.table(moved)
    assert set(table.loc[table["decides"], "period"]) == {16}
    assert {8.0, 16.0, 19.0} <= set(table["period"])
    assert {"period 8", "period 16, unseen", "period 19, unseen"} <= {row["reading"] for row in matrix_rows(moved)}


def test_a_period_longer_than_the_context_allows_says_which_fit(folder: Path) -> None:
    lab = planted_lab(folder.parent / "long")
    with pytest.raises(InputError, match=r"period of 24 needs 49 positions .* n_ctx=48; choose a period from 2 to 23"):
        study.run(lab, replace(QUICK, periods=(24,)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_sequences": 1}, "n_sequences=1 is not allowed; give a number of at least 2"),
        ({"threshold": math.nan}, "threshold=nan is not allowed; give a number from 0 to 1"),
        ({"margin": 2.0}, "margin=2.0 is not allowed; give a number from 0 to 1"),
        ({"times_chance": math.inf}, "times_chance=inf is not allowed"),
        ({"level": 2.0}, "level=2.0 is not allowed; give a number between 0 and 1"),
        ({"level": 1.0}, "level=1.0 is not allowed"),
        ({"seed": -1}, "seed=-1 is not allowed; give a number from 0 to 2147483647"),
        ({"periods": (8, 1)}, "periods=1 is not allowed; give a number of at least 2"),
        ({"n_resamples": 10}, "n_resamples=10 is not allowed"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_before_it_runs(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        study.Config(**changes)


def test_a_bidirectional_model_is_refused(random_lab: Callable[..., Lab]) -> None:
    with pytest.raises(InputError, match="random attends in both directions"):
        study.run(random_lab(attention="bidirectional"), QUICK)
