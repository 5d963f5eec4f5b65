"""The page of training: what it shows in full, where something is missing or damaged, and what each input does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from analyses.shelf import shelf_of_run
from apps.dashboard.training.grid import shown_rises
from tests.dashboard_pages import opened, pick, said, views
from tests.dashboard_runs import STEP, own_runs, whole_runs

__all__ = ["own_runs", "whole_runs"]  # fixtures

pytestmark = pytest.mark.whole

PANELS = {"losses", "icl", "head_lines", "training_grid", "formation"}


def test_it_shows_lines_the_grid_through_training_and_what_formed(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "training", monkeypatch, run="whole", step=str(STEP), head="L1H2")
    assert not at.exception
    assert not at.error
    text = said(at)
    assert f"whole, 7 checkpoints up to step {STEP}, training seed 0  ·  seed 0" in text, "below the losses"
    for shown in ("What formed when", "Over training", "Every head through training", "What was half way up when",
                  "Copying did not form", "n = 4 sequences of period", "one training seed (0)",
                  "95% over sequences"):  # fmt: skip
        assert shown in text, shown
    assert re.search(r"n = 4 sequences of \d+ tokens, .* 95% intervals over sequences\b", text)
    grid = views(at)["training_grid"]
    assert grid["frames"]["steps"] == [0, 1, 2, 4, 8, 16, STEP]
    assert grid["sparklines"] is True
    assert views(at)["training_grid"]["chosen"] == "L1H2"
    assert {panel.key for panel in _charts(at)} >= {"losses", "icl", "head_lines"}
    at.session_state["by_position"] = True
    at.run()
    assert not at.exception
    assert any("tokens before the target" in chart.spec for chart in _charts(at))


def test_letting_go_of_the_slider_chooses_the_checkpoint_and_an_early_step_is_covered_by_the_last_result(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "training", monkeypatch, run="whole", step=str(STEP))
    at = pick(at, "training_grid", {"step": "16"})
    assert not at.exception
    assert at.session_state["step"] == 16
    assert "whole@16" in said(at)
    assert views(at)["training_grid"]["step"] == 16
    assert "and not at step" not in said(at)


def test_score_sequences_and_axis_are_chosen_and_stand_in_the_address(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "training", monkeypatch, run="whole", step=str(STEP), kind="match", x="tokens", scale="log")
    assert not at.exception
    assert "re-ordered" in said(at), "a match is measured in the control only, so that is shown"
    assert at.session_state["training_on"] == "control"
    assert "symlog" in str(_charts(at)[0].spec)
    at.session_state["training_kind"] = "induction"
    at.run()
    assert "at the old distance, where the token after the earlier copy was" in said(at)
    assert views(at)["training_grid"]["label"].startswith("share of attention at the old distance")
    at.session_state["training_kind"] = "previous"
    at.run()
    assert at.session_state["training_on"] == "control", "the sequences stay where the new score is measured there too"
    at.session_state["training_on"] = "text"
    at.session_state["training_scale"] = "linear"
    at.run()
    assert not at.exception
    assert at.query_params["kind"] == "previous"
    assert at.query_params["on"] == "text"
    assert "scale" not in at.query_params
    assert "share of attention on the token before, on held-out text" in said(at)
    bad = opened(whole_runs, "training", monkeypatch, run="whole", step=str(STEP), kind="sideways")
    assert "there is no kind" in "\n".join(item.value for item in bad.warning).replace("\\", "")


def test_without_a_result_the_logged_curves_stand_and_the_command(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "training", monkeypatch, run="bare")
    assert not at.exception
    text = said(at)
    assert "there is no result yet" in text
    assert f"cutaway run training-dynamics {whole_runs / 'bare'}" in text
    assert "logged steps" in text
    (curve,) = _charts(at)
    assert "second copy of random tokens" in curve.spec


def test_another_run_is_laid_over_or_the_command_for_it_is_told(
    own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(own_runs, "training", monkeypatch, run="whole", step=str(STEP), b=f"bare@{STEP}")
    assert not at.exception
    assert "bare has no result of training-dynamics to be laid over this one" in said(at)
    assert f"cutaway run training-dynamics {own_runs / 'bare'}" in said(at)
    shutil.copytree(own_runs / "whole", own_runs / "again")
    for record in (own_runs / "again/studies/training-dynamics").glob("*/result.json"):
        record.write_text(record.read_text().replace('"run": "whole"', '"run": "again"'))
    at = opened(own_runs, "training", monkeypatch, run="whole", step=str(STEP), b="again@16")
    assert not at.exception
    assert views(at)["training_grid"]["names"] == [f"whole@{STEP}", "again@16"]
    titles = [each.value for each in at.header]
    assert "What formed when in whole" in titles and "What formed when in again" in titles
    assert f"dashed: again, 7 checkpoints up to step {STEP}, training seed 0" in said(at)
    formation = next(each.value for each in at.dataframe if "half way between" in each.value)
    assert set(formation["run"]) == {"whole", "again"}


def test_damaged_and_outdated_results_are_told_and_a_step_that_was_not_looked_at(
    own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = own_runs / "whole"
    first, last = shelf_of_run(run, "training-dynamics").results
    tensors = last.path / "result.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-8])
    at = opened(own_runs, "training", monkeypatch, run="whole", step=str(STEP))
    assert not at.exception
    text = said(at)
    assert "is not the file that result.json describes" in text
    assert f"and not at step {STEP}" in text, "that of step 0 is left, and it looked at one checkpoint"
    assert "has one checkpoint" in text
    for path in (first.path, last.path):
        record = path / "result.json"
        record.write_text(record.read_text().replace('"n_distinct"', '"n_different"'))
    at = opened(own_runs, "training", monkeypatch, run="whole", step="0")
    assert not at.exception
    assert "saved by another version of training-dynamics" in said(at)
    assert "there is no result yet" in said(at)
    for folder in (own_runs / "bare/checkpoints").glob("step-*[1-9]*"):
        shutil.rmtree(folder)
    alone = opened(own_runs, "training", monkeypatch, run="bare")
    assert not alone.exception
    assert "bare has one checkpoint, so nothing can be seen to form" in said(alone)
    assert "cutaway run" not in said(alone)


class _Chart:
    def __init__(self, part) -> None:
        self.key = part.proto.id.rsplit("-", 1)[-1]
        self.spec = part.proto.spec


def _charts(at) -> list[_Chart]:
    """The figures of the page, by key, in order."""
    return [_Chart(part) for part in at.get("vega_lite_chart")]


def test_a_step_by_straight_lines_stands_behind_the_checkpoints_it_lies_between() -> None:
    row = {"run": "demo", "what": "copying", "head": None, "half_way": 821.4, "low": 817.6, "high": 823.0,
           "after": 750, "by": 900, "first": 0.0, "last": 2.0}  # fmt: skip
    never = dict.fromkeys(("half_way", "low", "high", "after", "by"), float("nan"))
    told = shown_rises(pd.DataFrame([row, row | never | {"what": "icl_score"}]))
    assert list(told.columns) == ["what", "head", "half way between", "by straight lines", "first", "last"]
    assert list(told["half way between"]) == ["750 and 900", ""]
    assert list(told["by straight lines"]) == ["about 821 [818, 823]", ""]
