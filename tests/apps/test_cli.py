"""The command: what it makes, what it says, and how it fails."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analyses.study import STUDIES
from apps.cli import app
from apps.console import remark, say, sentence_of
from apps.progress import Bar
from model.checkpoint import checkpoint_steps

SMALL = ("--set", "train.steps=3", "--set", "data.stdlib_bytes=60000", "--set", "train.batch_size=2", "--device", "cpu")


def cutaway(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert cutaway("train", "tiny", *SMALL, "--out", folder).exit_code == 0
    return folder


def test_training_leaves_a_run_with_its_checkpoints(run: Path) -> None:
    assert checkpoint_steps(run) == [0, 1, 2, 3]


def test_every_setting_is_visible_in_the_run(tmp_path: Path) -> None:
    assert cutaway("train", "tiny", *SMALL, "--set", "model.norm=post", "--out", tmp_path / "post").exit_code == 0
    config = json.loads((tmp_path / "post/run.json").read_text())["config"]
    assert config["model"]["norm"] == "post"
    assert config["train"]["steps"] == 3


def test_a_file_may_change_a_preset(tmp_path: Path) -> None:
    recipe = tmp_path / "wide.toml"
    recipe.write_text('preset = "tiny"\n[model]\nd_model = 48\n[data]\nsources = ["stdlib=1"]\n')
    assert cutaway("train", recipe, *SMALL, "--out", tmp_path / "wide").exit_code == 0
    config = json.loads((tmp_path / "wide/run.json").read_text())["config"]
    assert config["model"]["d_model"] == 48
    assert config["model"]["d_head"] == 12, "what follows from d_model follows it"
    assert config["data"]["sources"] == ["stdlib=1"]


def test_the_same_seed_generates_the_same_text(run: Path) -> None:
    said = [
        cutaway("generate", run, "--prompt", "def ", "--max-new-tokens", 8, "--seed", seed).stdout for seed in (1, 1, 2)
    ]
    assert said[0] == said[1] != said[2]
    assert said[0].startswith("def ")


def test_without_a_number_it_writes_what_fits(run: Path) -> None:
    result = cutaway("generate", run, "--prompt", "def ")
    assert result.exit_code == 0
    assert result.stdout.startswith("def ")


def test_runs_are_listed_with_how_far_they_got(run: Path) -> None:
    line = cutaway("runs", run.parent).stdout.splitlines()[-1]
    assert "tiny" in line
    assert "2 x 4" in line


@pytest.mark.parametrize("record", ['{"format": 1}', "{", "[]", '{"config": {"model": 3, "train": {"steps": null}}}'])
def test_a_damaged_run_costs_its_own_line_only(record: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "whole")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/run.json").write_text(record)
    result = cutaway("runs", tmp_path)
    assert result.exit_code == 0
    whole, damaged = (
        next(line for line in result.stdout.splitlines() if name in line) for name in ("whole", "damaged")
    )
    assert "2 x 4" in whole
    assert "cannot be read" in damaged


def test_a_run_whose_last_loss_is_not_known_is_listed(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "whole")
    with (tmp_path / "whole/metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": 9, "tokens": 9, "loss": None}) + "\n")
    assert "2 x 4" in cutaway("runs", tmp_path).stdout


@pytest.mark.parametrize("text", ["x[:key:]", "a\tb", "[red]a[/]", "\x07\x1b[1m", "a\r\nb  "])
def test_what_is_said_is_said_character_by_character(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(text)
    assert capsys.readouterr().out == text + "\n"


def test_remarks_keep_what_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    remark("[red] :key: [/]")
    assert "[red] :key: [/]" in capsys.readouterr().err


def test_every_study_is_listed_with_its_question() -> None:
    said = cutaway("studies").stdout
    assert all(name in said for name in STUDIES)
    assert said.count("?") >= len(STUDIES)


def test_an_ablation_comes_with_interval_and_control(run: Path) -> None:
    effect = json.loads(cutaway("ablate", run, "L1H1,L1H3:mean", "--json").stdout)
    assert effect["places"] == "L1H1:mean,L1H3:mean"
    harm = effect["harm"]
    assert harm["low"] <= harm["mean"] <= harm["high"]
    assert effect["control"]["n_possible"] == 5, "two of four heads in one layer, less the set itself"


def test_an_ablation_without_an_equal_says_so(run: Path) -> None:
    assert "a whole sublayer has no equal in its layer" in cutaway("ablate", run, "L0.ffn:zero").stdout


MISTAKES = {
    "an unknown preset": (("train", "tinny"), 'no preset "tinny".*Did you mean "tiny"'),
    "a study of no run": (
        ("run", "head-ablation"),
        "head-ablation studies a checkpoint; say which, as RUN or RUN@STEP",
    ),
    "an unknown setting": (("train", "tiny", "--set", "modl.norm=post"), 'no setting "modl".*Did you mean "model"'),
    "a wrong value": (("train", "tiny", "--set", "model.norm=pst"), 'model.norm="pst" is not one of pre, post'),
    "a head count that does not divide": (("train", "tiny", "--set", "model.n_heads=5"), "n_heads=5"),
    "a file that is not there": (("train", "nothing.toml"), "There is no file nothing.toml"),
    "a run that is there already": (("train", "tiny", "--out", "{run}"), "already holds a run; add --resume"),
    "a run that is not there": (("generate", "{run}x"), "There is no run .*tiny"),
    "a step that is not there": (("generate", "{run}@77"), "no checkpoint at step 77"),
    "a study that is not there": (
        ("run", "attention", "{run}"),
        'no study "attention".*Did you mean "attention-patterns"',
    ),
    "a key that a study has not": (("run", "attention-patterns", "{run}", "--set", "sed=1"), 'no setting "sed"'),
    "a head that is not there": (("ablate", "{run}", "L1H9"), "no L1H9: layer 1 has 4 heads"),
    "a place that is none": (("ablate", "{run}", "H9"), "H9"),
    "a metric that is none": (("ablate", "{run}", "L1H1", "--metric", "copyloss"), 'no metric "copyloss".*copy_loss'),
    "a prompt beyond the context": (("generate", "{run}", "--prompt", "x" * 99), "n_ctx=32"),
    "a folder that has no name": (("demo", "--out", "."), "--out . has no name of its own"),
    "a file in place of runs": (("dashboard", "{run}/run.json"), "is a file; name the folder that holds the runs"),
    "an empty folder of runs": (("runs", "{run}/checkpoints"), "There are no runs in"),
    "a device that is not there": (("generate", "{run}", "--device", "tpu"), 'no device "tpu"; take auto, cpu or cuda'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_a_sentence_and_exit_2(mistake: str, run: Path) -> None:
    arguments, expected = MISTAKES[mistake]
    result = cutaway(*(each.format(run=run) for each in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert _matches(expected, result.stderr), result.stderr


def _matches(pattern: str, text: str) -> bool:
    import re

    return re.search(pattern, text.replace("\n", " ")) is not None


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "[Dd]isk.*full|No space left"),
        (errno.EACCES, "[Pp]ermission|rights"),
        (errno.EROFS, "[Rr]ead-only|rights"),
    ],
)
def test_a_disk_that_refuses_is_a_sentence_and_loses_nothing(
    number: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = _refusing_after(7, OSError(number, "refused", "a file"))
    monkeypatch.setattr("model.files.flush_to_disk", refusing)
    result = cutaway("train", "tiny", *SMALL, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert _matches(said, result.stderr), result.stderr
    monkeypatch.undo()
    if (tmp_path / "run/run.json").exists():
        assert cutaway("train", "tiny", *SMALL, "--out", tmp_path / "run", "--resume").exit_code == 0
        assert checkpoint_steps(tmp_path / "run") == [0, 1, 2, 3]


def _refusing_after(n: int, error: OSError) -> Callable[..., None]:
    calls = iter(range(n))

    def flush(*_: object) -> None:
        if next(calls, None) is None:
            raise error

    return flush


def test_control_c_saves_says_how_to_go_on_and_going_on_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bar, "on_step", lambda *_: signal.raise_signal(signal.SIGINT))
    result = cutaway("train", "tiny", *SMALL, "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert "--resume" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.undo()
    assert cutaway("train", "tiny", *SMALL, "--out", tmp_path / "run", "--resume").exit_code == 0
    assert checkpoint_steps(tmp_path / "run")[-1] == 3


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.ENOENT, errno.EISDIR, errno.EIO])
def test_every_error_of_the_system_names_the_place(number: int) -> None:
    assert "runs/x" in sentence_of(OSError(number, "said so", "runs/x"))


@pytest.fixture
def beside_a_stranger(tmp_path: Path) -> Path:
    """A working folder with a model.py of the user's own."""
    (tmp_path / "model.py").write_text("raise SystemExit('the wrong model was imported')\n")
    return tmp_path


def test_the_command_works_beside_a_model_of_ones_own(beside_a_stranger: Path) -> None:
    command = Path(sys.executable).with_name("cutaway")
    done = subprocess.run([command, "studies"], cwd=beside_a_stranger, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "attention-patterns" in done.stdout


def test_elsewhere_a_sentence_says_what_shadows_what(beside_a_stranger: Path) -> None:
    asked = [sys.executable, "-m", "analyses.head_ablation", "runs/demo"]
    done = subprocess.run(asked, cwd=beside_a_stranger, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{beside_a_stranger / 'model.py'} shadows Cutaway's package `model`")
    assert "Traceback" not in done.stderr
