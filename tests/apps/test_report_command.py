"""`cutaway report`: the page it writes, what it says of it, and how it fails."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analyses.results import RECORD
from analyses.shelf import shelf
from analyses.study import STUDIES, run_study
from apps.cli import app
from model.presets import tiny
from model.settings import with_settings
from model.training.loop import train
from tests.undrawn import undrawn

pytestmark = pytest.mark.whole

QUICK = ("n_sequences=4", "n_controls=2")
OTHER = ("n_sequences=5", "n_controls=2")
ASKED = (("head-ablation", 0, QUICK), ("head-ablation", 1, QUICK), ("head-ablation", 2, QUICK),
         ("head-ablation", 2, OTHER), ("probes", 2, ("tasks=previous-token", "sites=resid_post", "n_train=100",
                                                     "n_validation=30", "n_test=50")))  # fmt: skip
"""What was asked of the run: one study at three steps, at the last with two settings, and another at the last."""


def cutaway(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: one that studies were asked of, and one that was only trained."""
    root = tmp_path_factory.mktemp("work")
    few = ["train.steps=2", "train.batch_size=2", "data.stdlib_bytes=60000"]
    train(with_settings(tiny(), few), root / "runs/asked", device="cpu")
    shutil.copytree(root / "runs/asked", root / "runs/bare")
    with undrawn():
        for study, step, settings in ASKED:
            run_study(study, f"{root}/runs/asked@{step}", settings)
        run_study(
            "gradient-flow", None, ["sweep.depths=2,3", "sweep.n_seeds=2", "sweep.placements=pre"], runs=root / "runs"
        )
    return root


@pytest.fixture
def work(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_the_page_beside_the_run_and_says_what_it_holds(work: Path) -> None:
    result = cutaway("report", "asked")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Wrote runs/asked/report.html: 4 results of 2 studies.",
        "head-ablation        step 2 (2 results), beside step 0",
        "probes               step 2",
    ]
    text = unescape(Path("runs/asked/report.html").read_text(encoding="utf-8"))
    assert "What was found in asked" in text
    assert text.count("<figure") == 4, "three results at the last step, and the training curve"
    for study, step, count in (("head-ablation", 2, 2), ("head-ablation", 0, 1), ("probes", 2, 1)):
        held = [saved for saved in shelf(Path("runs/asked"), study).results if saved.provenance.step == step]
        assert len(held) == count
        assert all(finding.sentence in text for saved in held for finding in saved.findings())
        assert all(saved.command in text for saved in held)
    assert "asked@1 " not in text, "neither the last checkpoint nor the first"


def test_it_writes_where_it_is_told_to_and_nowhere_else(work: Path) -> None:
    before = sorted(work.rglob("*"))
    result = cutaway("report", "runs/asked", "--out", "pages/one.html")
    assert result.exit_code == 0
    assert result.stdout.startswith("Wrote pages/one.html: 4 results")
    assert sorted(set(work.rglob("*")) - set(before)) == [work / "pages", work / "pages/one.html"]


def test_a_result_that_can_no_longer_be_read_is_left_out_and_named(work: Path) -> None:
    (old,) = (work / "runs/asked/studies/probes").iterdir()
    record = json.loads((old / RECORD).read_text(encoding="utf-8"))
    del record["result"]["sites"]
    (old / RECORD).write_text(json.dumps(record), encoding="utf-8")
    result = cutaway("report", "asked")
    assert result.exit_code == 0
    assert "3 results of 1 study." in result.stdout
    said = (
        r"1 result saved by another version of probes is left out; .cutaway run probes runs/asked@\d+.* makes it again."
    )
    assert re.search(said, " ".join(result.stderr.split()))
    assert "saved by another version of probes" in Path("runs/asked/report.html").read_text(encoding="utf-8")


def test_a_run_that_no_study_was_asked_of_is_told_which_commands_ask_one(work: Path) -> None:
    result = cutaway("report", "bare")
    assert result.exit_code == 2
    assert result.stdout == ""
    said = result.stderr.replace("\n", " ")
    assert "There is nothing to report on runs/bare: no study of it is saved" in said
    assert "make one with `cutaway run STUDY runs/bare`" in said
    assert all(study in said for study in STUDIES)
    assert not Path("runs/bare/report.html").exists()


def test_a_run_of_which_nothing_can_be_read_is_told_why(work: Path) -> None:
    shutil.rmtree("runs/asked/studies/head-ablation")
    (only,) = Path("runs/asked/studies/probes").iterdir()
    (only / RECORD).write_text("{", encoding="utf-8")
    result = cutaway("report", "asked")
    assert result.exit_code == 2
    assert "No result saved under runs/asked can be read" in result.stderr
    assert f"{only.name}/{RECORD} cannot be read" in result.stderr


MISTAKES = {
    "a step": (("report", "asked@1"), "A report is on a whole run, .* write runs/asked"),
    "every step": (("report", "asked@all"), "A report is on a whole run"),
    "a run that is not there": (("report", "askd"), 'There is no run "askd".*Did you mean "asked"'),
    "a folder in place of a file": (("report", "asked", "--out", "runs"), "runs could not be written"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_a_sentence_and_exit_2(mistake: str, work: Path) -> None:
    arguments, expected = MISTAKES[mistake]
    result = cutaway(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert re.search(expected, result.stderr.replace("\n", " ")), result.stderr
