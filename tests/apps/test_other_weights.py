"""A run that was trained again in place: no page shows what was found, or computed, of what it was before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from apps.dashboard import data, launch, passes
from apps.dashboard.findings import pinned
from apps.dashboard.state import Selection
from interp.live import LiveText
from model.checkpoint import checkpoint_path, read_manifest, save_checkpoint
from model.errors import CheckpointError
from model.lab import open_run
from tests.dashboard_pages import opened, said
from tests.dashboard_runs import STEP, own_runs, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures


def trained_again(run: Path) -> None:
    lab = open_run(f"{run}@{STEP}")
    was = read_manifest(checkpoint_path(run, STEP))
    with torch.no_grad():
        lab.gpt.unembed.weight.mul_(1.5)
    save_checkpoint(run, lab.gpt, step=STEP, tokens_seen=was.tokens_seen, extra_json=was.extra)


def test_what_was_found_of_other_weights_is_left_out_and_told(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_again(own_runs / "whole")
    at = opened(own_runs, "memories", monkeypatch, run="whole", step="0", b=f"whole@{STEP}")
    assert not at.exception
    text = said(at)
    assert f"What ffn-memories found at step {STEP} is of other weights than the checkpoint holds by now" in text
    assert f"There is no ffn-memories result at step {STEP}" in text
    at = at.selectbox(key="step").set_value(STEP).run()
    assert not at.exception
    assert "This comes from ffn-memories, which has no result at this checkpoint; the command stands" in said(at)
    again = [each.value for each in at.code if each.value.startswith("cutaway run ffn-memories")]
    assert any("--set n_tokens=2048" in command and command.endswith("--fresh") for command in again)


def test_a_manifest_that_was_written_again_is_read_again(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(own_runs))
    run = next(each for each in data.runs() if each.name == "whole")
    before = data.manifest(run, STEP)
    trained_again(own_runs / "whole")
    after = data.manifest(run, STEP)
    assert after.weights_sha256 != before.weights_sha256
    assert after == read_manifest(checkpoint_path(run.path, STEP))


def test_held_out_text_that_was_replaced_is_read_anew(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(own_runs))
    run = next(each for each in data.runs() if each.name == "whole")
    chosen = Selection(run="whole", step=0, text=LiveText.HELD_OUT)
    before, _ = passes.text(run, chosen)
    file = run.path / "eval.safetensors"
    with safe_open(file, "pt") as known:
        told = known.metadata()
    save_file({name: rows.flip(0).contiguous() for name, rows in load_file(file).items()}, file, told)
    after, _ = passes.text(run, chosen)
    assert after != before
    assert list(after) == open_run(f"{run.path}@0").str_tokens(data.lab(run, 0).eval_tokens[0][: len(after)])


def test_a_pin_of_a_known_name_with_another_figure_has_its_own_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are kept for all sessions, and a file that is imported may hold a forged pin."""
    monkeypatch.setattr(pinned, "drawn_figure", lambda figure: f"<svg>{figure['title']}</svg>")
    figures = [{"mark": "bar", "title": title} for title in ("forged", "true")]
    for figure in figures * 2:
        assert pinned._svg(figure, dark=False) == f"<svg>{figure['title']}</svg>"


@pytest.mark.parametrize("config", [3, {"train": 3, "model": []}, {"data": "x"}], ids=str)
def test_settings_that_are_no_tables_are_a_fault_of_the_run(tmp_path: Path, config: object) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"config": config}))
    with pytest.raises(CheckpointError, match="does not describe a run; restore it from a copy"):
        data._settings(file)
