"""The demo from end to end, with models so small that it takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyses.study import STUDIES, SavedResult
from apps.demo import Question, run_demo
from model.checkpoint import checkpoint_steps
from model.config import Norm
from model.presets import tiny
from model.settings import with_settings
from model.training.config import RunConfig

QUESTIONS = (
    Question(study="attention-patterns", settings=("n_sequences=4", "n_text=4", "n_resamples=100")),
    Question(study="head-ablation", settings=("n_sequences=4", "n_controls=2")),
    Question(study="ffn-memories"),
    Question(study="gradient-flow", settings=("initialization=false", "n_sequences=4", "n_groups=2")),
)


def configs() -> tuple[RunConfig, RunConfig]:
    small = with_settings(tiny(), ["train.steps=4", "train.batch_size=2", "data.stdlib_bytes=60000"])
    return small, with_settings(small, [f"model.norm={Norm.POST.value}"])


def run(out: Path) -> list[SavedResult]:
    return run_demo(out, device="cpu", configs=configs(), questions=QUESTIONS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "demo"
    run(out)
    return out


def test_it_leaves_two_matched_runs(finished: Path) -> None:
    assert checkpoint_steps(finished) == checkpoint_steps(finished.with_name("demo-post")) == [0, 1, 2, 4]


def test_every_study_has_an_answer_in_the_run(finished: Path) -> None:
    assert {path.name for path in (finished / "studies").iterdir()} == set(STUDIES)


def test_it_leaves_a_report_of_one_file(finished: Path) -> None:
    text = (finished / "report.html").read_text(encoding="utf-8")
    assert "What was found in demo" in text
    assert text.count("<figure") == len(QUESTIONS) + 2, "every question, the pair, and the training curve"


def test_a_second_call_reuses_what_is_complete(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _files_but_the_report(finished.parent)
    run(finished)
    said = capsys.readouterr().out
    assert "is there already" in said
    assert _files_but_the_report(finished.parent) == before


def test_it_says_what_it_found_and_how_to_look_further(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = run(finished)
    said = capsys.readouterr().out
    for result in results:
        for finding in result.findings():
            assert finding.sentence in said
    assert str(finished / "report.html") in said
    assert f"cutaway dashboard {finished.parent}" in said


def _files_but_the_report(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with when it was written and how large it is."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "report.html"]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
