"""What the README and the example show is true of a run."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path

import pytest

from model.presets import demo
from model.settings import with_settings
from model.training.loop import train

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def folder_with_a_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which runs/demo has the demo's architecture, and two steps of training."""
    folder = tmp_path_factory.mktemp("work")
    few = ["train.steps=2", "train.batch_size=2", "train.probe_sequences=2", "data.stdlib_bytes=200000"]
    train(with_settings(demo(), [*few, "train.eval_sequences=128"]), folder / "runs/demo", device="cpu")
    return folder


def test_the_readme_does_what_it_says(folder_with_a_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder_with_a_demo)
    outcome = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert outcome.attempted >= 8
    assert outcome.failed == 0


def test_the_example_finds_looks_and_removes(
    folder_with_a_demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["look_at_a_head.py", str(folder_with_a_demo / "runs/demo")])
    runpy.run_path(str(ROOT / "examples/look_at_a_head.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(r"L\dH\d has the highest induction score", said)
    assert "attends most to" in said
    assert re.search(
        r"With L\dH\d:mean ablated, the loss on the second copy .* (does not change by 0.05 nats or more|"
        r"less than the 0.05 that matters)",
        said,
    )
    assert "Control: " in said
