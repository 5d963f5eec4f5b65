"""`cutaway audit`: what it says of a sound run, of each kind of damage, and how it exits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from apps.cli import app
from interp.audit.record import CLAIMS
from model.checkpoint import checkpoint_path
from model.lab import Lab, open_run
from model.tokenizer import CharTokenizer
from model.training.eval_rows import EvalRows
from tests.conftest import make_gpt_with
from tests.planted_run import LETTERS, planted_lab

FOUND_ON_DISK = {"checkpoint files", "weights", "run config", "tokenizer"}


def cutaway(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)


def audited(run: Path) -> dict[str, Any]:
    return json.loads(cutaway("audit", run, "--json", "--device", "cpu").stdout)


def verdicts(run: Path) -> dict[str, bool | None]:
    return {check["name"]: check["passed"] for check in audited(run)["checks"]}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sound"
    planted_lab(folder, make_gpt_with(d_vocab=len(LETTERS) + 1, n_ctx=24))
    return folder


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    """A copy of the sound run, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "run"))


def test_a_sound_run_passes_and_the_last_line_says_so(sound: Path) -> None:
    result = cutaway("audit", f"{sound}@8", "--device", "cpu")
    assert result.exit_code == 0
    *lines, last = result.stdout.splitlines()
    assert last == "All 34 checks that apply passed."
    assert all(any(line.strip().startswith(name) for line in lines) for name in CLAIMS)
    assert lines[0].startswith("sound@8: 2 layers x 4 heads, pre-norm (rmsnorm), rope positions")
    assert lines[1].startswith("Run on 4 sequences of 24 held-out tokens in")


def test_every_check_is_in_the_json_with_its_error_tolerance_and_reason(sound: Path) -> None:
    report = audited(sound)
    assert [check["name"] for check in report["checks"]] == list(CLAIMS)
    assert report["passed"] is True
    assert report["seed"] == 0
    scores = next(check for check in report["checks"] if check["name"] == "scores")
    assert 0 < scores["error"] < scores["tolerance"] < 1e-5
    assert scores["claim"] == CLAIMS["scores"]
    assert "relative to the terms added" in scores["unit"]
    assert scores["reason"] == ""
    assert report["checkpoint"] == f"{sound}@8"
    assert scores["where"] in ("L0", "L1")


def test_what_does_not_apply_stands_there_with_its_reason(tmp_path: Path) -> None:
    planted_lab(tmp_path / "post", make_gpt_with(d_vocab=len(LETTERS) + 1, norm="post"))
    result = cutaway("audit", tmp_path / "post", "--device", "cpu")
    assert result.exit_code == 0
    assert "Does not apply: additive stream, additive heads, attribution (post-norm: not additive;" in result.stdout
    assert result.stdout.splitlines()[-1] == "All 31 checks that apply passed (3 do not apply)."


def test_a_failed_check_is_named_explained_and_exits_with_1(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = open_run

    def untied(*arguments: Any) -> Lab:
        lab = original(*arguments)
        lab.gpt.unembed.weight = torch.nn.Parameter(lab.gpt.embed.weight.detach().clone())
        return lab

    monkeypatch.setattr("interp.audit.run_files.open_run", untied)
    monkeypatch.setattr("interp.audit.run_files._check_run", lambda lab, ledger: None)  # cannot name such weights
    result = cutaway("audit", run, "--device", "cpu")
    assert result.exit_code == 1
    assert f"tied matrix: {CLAIMS['tied matrix']}: this does not hold" in result.stdout
    assert result.stdout.splitlines()[-1] == "2 of 31 checks failed: parameters, tied matrix."


def test_every_check_fits_a_line_of_80_columns_and_claims_are_told_on_request(sound: Path) -> None:
    brief, full = (cutaway("audit", sound, "--device", "cpu", *more).stdout for more in ((), ("--verbose",)))
    assert max(len(line) for line in brief.splitlines()[2:]) <= 80
    assert not any(claim in brief for claim in CLAIMS.values())
    assert all(claim in full for claim in CLAIMS.values())
    assert [line for line in full.splitlines() if line.startswith(" ")] != []


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_end_in_a_report_and_not_in_a_wall_of_failures(
    broken: float, tmp_path: Path
) -> None:
    gpt = make_gpt_with(d_vocab=len(LETTERS) + 1, n_ctx=24)
    gpt.layers[0].attn.W_Q[0, 0, 0] = broken
    planted_lab(tmp_path / "broken", gpt)
    result = cutaway("audit", tmp_path / "broken", "--device", "cpu")
    assert result.exit_code == 1
    told = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    assert told[0].startswith(
        "FAILED finite weights: every weight is a finite number: this does not hold. The error is 1"
    )
    assert told[-1].startswith("FAILED with finite weights, their errors being no numbers: ")
    assert len(told) < 6
    report = json.loads(cutaway("audit", tmp_path / "broken", "--json", "--device", "cpu").stdout)
    assert {check["name"]: check["passed"] for check in report["checks"]}["finite weights"] is False


def test_ids_without_a_token_are_counted_and_may_not_be_held_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = open_run

    def padded(last: int) -> Callable[..., Lab]:
        def opened(*arguments: Any) -> Lab:
            lab = original(*arguments)
            unused = next(token for token in range(20) if (token in lab.eval_tokens) == bool(last))
            lab.tokenizer.ids_without_token = (unused,)  # pyright: ignore[reportAttributeAccessIssue]
            return lab

        return opened

    rows = EvalRows.load(run / "eval.safetensors")
    EvalRows(tokens=rows.tokens.clamp(min=1), offsets=rows.offsets).save(run / "eval.safetensors")
    for last, passed in ((0, True), (1, False)):
        monkeypatch.setattr("interp.audit.run_files.open_run", padded(last))
        check = next(check for check in audited(run)["checks"] if check["name"] == "tokenizer")
        assert check["passed"] is passed
        assert check["reason"] == "20 ids, of which 19 stand for a token"


def flip_a_bit(run: Path) -> None:
    file = checkpoint_path(run, 8) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def cut_the_manifest(run: Path) -> None:
    file = checkpoint_path(run, 8) / "manifest.json"
    file.write_text(file.read_text().replace('"step": 8', '"step": 9'))


def lose_run_json(run: Path) -> None:
    (run / "run.json").write_text("{")


def damage_the_tokenizer(run: Path) -> None:
    (run / "tokenizer.json").write_text('{"kind": "runes"}')


def take_another_tokenizer(run: Path) -> None:
    CharTokenizer(LETTERS[:-2]).save(run / "tokenizer.json")


def hold_out_strange_tokens(run: Path) -> None:
    rows = EvalRows.load(run / "eval.safetensors")
    EvalRows(tokens=rows.tokens + 1000, offsets=rows.offsets).save(run / "eval.safetensors")


def change_the_recorded_model(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    record["config"]["model"] |= {"norm": "post", "rope_base": 5000.0}
    (run / "run.json").write_text(json.dumps(record))


def forget_the_recorded_model(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    del record["config"]["model"]
    (run / "run.json").write_text(json.dumps(record))


DAMAGE: dict[Callable[[Path], None], tuple[set[str], str]] = {
    flip_a_bit: ({"checkpoint files"}, "model.safetensors was altered or cut short"),
    cut_the_manifest: ({"checkpoint files"}, "manifest.json is not as it was written"),
    damage_the_tokenizer: ({"tokenizer"}, "describes no tokenizer"),
    take_another_tokenizer: ({"tokenizer"}, "the tokenizer has 18 tokens, the model 20"),
    hold_out_strange_tokens: ({"tokenizer"}, "tokens that one of the two does not know"),
    change_the_recorded_model: ({"run config"}, "norm, rope_base"),
    forget_the_recorded_model: ({"run config"}, "does not say what the model is"),
    lose_run_json: ({"run config"}, "run.json"),
}


@pytest.mark.parametrize(("damage", "expected"), DAMAGE.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_damage_on_disk_fails_the_check_of_the_damaged_part(
    damage: Callable[[Path], None], expected: tuple[set[str], str], run: Path
) -> None:
    damage(run)
    names, sentence = expected
    assert {name for name, passed in verdicts(run).items() if passed is False} == names
    result = cutaway("audit", run, "--device", "cpu")
    assert result.exit_code == 1
    assert sentence in result.stdout


def test_what_only_looks_like_a_checkpoint_is_passed_over(run: Path) -> None:
    (run / "checkpoints" / "step-00000099.bak").mkdir()
    (run / "checkpoints" / "step-99999999").write_text("")
    assert audited(run)["checkpoint"] == f"{run}@8"


def test_without_a_step_the_newest_checkpoint_is_audited_be_it_damaged(run: Path) -> None:
    assert audited(run)["subject"].startswith("run@8:")
    (checkpoint_path(run, 8) / "config.json").unlink()
    report = audited(run)
    assert report["summary"] == (
        "Failed: checkpoint files. The model could not be opened, so that nothing else was checked."
    )
    assert report["checkpoint"] == f"{run}@8"
    told = cutaway("audit", run, "--device", "cpu").stdout
    assert "Run on" not in told
    assert ".." not in told
    assert report["subject"].endswith("step-00000008, not opened")


def test_weights_other_than_those_recorded_are_noticed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = open_run

    def touched(*arguments: Any) -> Lab:
        lab = original(*arguments)
        lab.gpt.layers[0].attn.W_Q[0, 0, 0] += 1e-3
        return lab

    monkeypatch.setattr("interp.audit.run_files.open_run", touched)
    assert {name for name, passed in verdicts(run).items() if passed is False} == {"weights"}


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        ("nowhere", 'There is no run "nowhere"'),
        ("{run}@5", "has no checkpoint at step 5; the nearest is"),
        ("{run}@all", "names every checkpoint, and one is opened at a time"),
        ("{run}@soon", '"soon" in'),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_sentence_and_exits_with_2(
    sound: Path, subject: str, sentence: str
) -> None:
    result = cutaway("audit", subject.format(run=sound), "--device", "cpu")
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_the_help_states_the_exit_statuses() -> None:
    told = " ".join(cutaway("audit", "--help").stdout.split())
    for status in ("Exits with 0 if everything", "with 1 if a check failed", "with 2 if the audit could not"):
        assert status in told.replace("│", "").replace("  ", " ")
