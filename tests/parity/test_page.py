"""The examples of docs/transformerlens.md run as they stand, each in an interpreter of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from model.presets import demo
from model.settings import with_settings
from model.training.loop import train

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/transformerlens.md").read_text(encoding="utf-8"), re.S)


@pytest.fixture(scope="module")
def folder_with_a_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    few = ["train.steps=2", "train.batch_size=2", "train.probe_sequences=2", "data.stdlib_bytes=200000"]
    train(with_settings(demo(), [*few, "train.eval_sequences=128"]), folder / "runs/demo", device="cpu")
    return folder


def said_by(example: str, folder: Path) -> str:
    file = folder / "example.py"
    file.write_text(example, encoding="utf-8")
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, file], cwd=folder, env=os.environ | path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_opens_in_transformer_lens(folder_with_a_demo: Path) -> None:
    said = said_by(EXAMPLES[0], folder_with_a_demo)
    assert said.startswith("['<bos>', 'd', 'e', 'f', ' '")
    assert "\ntensor(0." in said or " tensor(" in said
    assert "<bos>def main():" in said


def test_nnsight_traces_it(folder_with_a_demo: Path) -> None:
    assert len(EXAMPLES) == 2
    said = said_by(EXAMPLES[1], folder_with_a_demo)
    assert said.split() == ["z", "True", "stream", "True", "edit", "True"]
