"""`cutaway test`: what it prints, what it writes, and with which status it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analyses.claims.records import load_record
from apps.cli import app
from tests import planted
from tests.analyses.claim_texts import PATH, claim, write
from tests.planted_run import planted_lab

pytestmark = pytest.mark.whole

FEW = {"sequences": 16}


def cutaway(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["test", *map(str, arguments), "--device", "cpu"], catch_exceptions=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose last checkpoint is the planted circuit."""
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", planted.induction_model(n_ctx=24)).path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "planted")


def test_supported_claims_end_with_0_and_a_line_and_a_sentence_each(run: Path, tmp_path: Path):
    file = write(tmp_path / "claims/some.toml", claim(**FEW), claim(name="path", **FEW | PATH))
    said = cutaway(tmp_path / "claims", "--run", run)
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    assert lines[0].split() == [
        "verdict",
        "claim",
        "checkpoint",
        "effect",
        "claimed",
        "p",
        "control",
        "n",
        "its",
        "file",
    ]
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["supported", "carry", "planted@8"],
        ["supported", "path", "planted@8"],
    ]
    assert lines[3].startswith("carry is supported at planted@8: with L1H2:mean ablated")
    assert load_record(run / "claims/some/carry/00000008.json").verdict.file == str(file)


def test_a_refuted_claim_ends_with_1(run: Path, tmp_path: Path):
    said = cutaway(write(tmp_path / "some.toml", claim(**FEW, effect="harm <= 0.05")), "--run", run)
    assert said.exit_code == 1
    assert "expected: supported" in said.stdout


def test_the_status_says_whether_a_claim_was_refuted_and_the_table_whether_it_should_be(run: Path, tmp_path: Path):
    fine = cutaway(write(tmp_path / "a.toml", claim(**FEW, effect="harm <= 0.05", expected="refuted")), "--run", run)
    wrong = cutaway(write(tmp_path / "b.toml", claim(**FEW, expected="refuted")), "--run", run)
    assert (fine.exit_code, wrong.exit_code) == (1, 0)
    assert "as expected" in fine.stdout
    assert "expected: refuted" in wrong.stdout


def test_an_undecided_claim_is_no_failure(run: Path, tmp_path: Path):
    said = cutaway(write(tmp_path / "some.toml", claim(**FEW)), "--run", f"{run}@0")
    assert said.exit_code == 0
    assert "carry is undecided at planted@0: no head passes" in said.stdout
    assert "no head passes" in said.stdout.splitlines()[1], "the table says why, too"


@pytest.mark.parametrize(
    ("keys", "options", "said"),
    [
        ({"ablate": "L1H9"}, (), 'claim "carry": no L1H9: layer 1 has 4 heads'),
        ({"metrik": "copy_loss"}, (), 'Did you mean "metric"'),
        ({}, ("--step", "5"), "no checkpoint at step 5"),
        ({}, ("--step", "first"), "no choice of checkpoints"),
    ],
)
def test_what_cannot_be_tested_ends_with_2_and_one_sentence(
    run: Path, tmp_path: Path, keys: dict[str, str], options: tuple[str, ...], said: str
):
    found = cutaway(write(tmp_path / "some.toml", claim(**FEW | keys)), "--run", run, *options)
    assert found.exit_code == 2
    assert said in found.stderr
    assert found.stdout == ""
    assert not (run / "claims").exists()


def test_no_run_and_no_file_end_with_2(tmp_path: Path):
    file = write(tmp_path / "some.toml", claim())
    assert "no run is named" in cutaway(file).stderr
    assert "There is no run" in cutaway(file, "--run", tmp_path / "none").stderr
    assert cutaway(tmp_path / "none.toml", "--run", tmp_path).exit_code == 2


def test_a_file_may_name_its_run(run: Path, tmp_path: Path):
    assert cutaway(write(tmp_path / "some.toml", claim(**FEW, run=str(run)))).exit_code == 0


def test_every_step_has_a_line_and_it_is_said_from_which_on_a_claim_holds(run: Path, tmp_path: Path):
    said = cutaway(write(tmp_path / "some.toml", claim(**FEW)), "--run", run, "--step", "all")
    assert said.exit_code == 0
    lines = said.stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["undecided", "carry", "planted@0"],
        ["supported", "carry", "planted@8"],
    ]
    assert lines[3] == "carry holds from step 8 on, at every later one of the 2 checkpoints tested."


def test_json_is_the_records_and_nothing_else(run: Path, tmp_path: Path):
    out = tmp_path / "out/verdicts.json"
    file = write(tmp_path / "some.toml", claim(**FEW, control="text"))
    said = cutaway(file, "--run", run, "--json", "--out", out)
    (record,) = json.loads(said.stdout)
    assert record == json.loads(out.read_text())[0]
    assert record == json.loads((run / "claims/some/carry/00000008.json").read_text())
    assert record["verdict"]["standing"] == "supported"
    assert record["verdict"]["measured"]["beside"]["beaten"] is True
    assert record["sentence"].startswith("carry is supported at planted@8")
