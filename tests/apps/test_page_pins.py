"""What key P keeps on pages whose offer has several parts: words with n, seed and checkpoint, and a drawing."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyses.notebook.file import load, notebook_path
from analyses.notebook.page import page as exported
from analyses.notebook.pins import Pin
from tests.dashboard_pages import fire, opened
from tests.dashboard_runs import STEP, own_runs, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures


def pinned(root: Path, page: str, monkeypatch: pytest.MonkeyPatch, **address: str) -> Pin:
    at = opened(root, page, monkeypatch, run="whole", **address)
    fire(at, "keys", "pressed", [{"id": 1, "key": "p"}])
    assert not at.exception
    notebook = load(notebook_path(root, at.session_state["notes"]))
    assert f'id="view-{notebook.pins[0].id}"' in exported(notebook, "Findings")
    return notebook.pins[0]


def test_a_head_is_pinned_with_its_verdict_and_its_pattern_as_it_is_locked(own_runs: Path, monkeypatch) -> None:
    pin = pinned(own_runs, "heads", monkeypatch, head="L1H2", cell="9.4")
    assert (pin.view, pin.title) == ("attention", "Attention of L1H2 (raw)")
    assert pin.payload is not None and pin.payload["lock"] == {"query": 9, "key": 4}
    words = "\n".join(pin.sentences)
    assert words.startswith("L1H2, ") and "n = " in words and "seed 0" in words and f"whole@{STEP}" in words
    assert "locked: query 9" in pin.sentences[-1]
    assert pin.about["run"] == "whole" and pin.about["step"] == STEP and pin.about["weights_sha256"]


def test_where_no_pattern_is_shown_a_head_is_pinned_with_the_grid_of_all(own_runs: Path, monkeypatch) -> None:
    pin = pinned(own_runs, "heads", monkeypatch, head="L1H2", tab="Evidence")
    assert pin.view == "head_grid" and pin.title.startswith("L1H2: ")
    assert pin.payload is not None and pin.payload["chosen"] == "L1H2"
    assert pin.sentences[-1].startswith(f"Rests on whole@{STEP}, seed 0, n = 8 sequences of random tokens")
    assert pin.about["n"] == 8 and len(pin.rows.frame())


def test_before_anything_is_tested_ablate_pins_every_head_alone(own_runs: Path, monkeypatch) -> None:
    pin = pinned(own_runs, "ablate", monkeypatch)
    assert (pin.view, pin.title) == ("head_grid", "Harm of every head alone, on copying")
    assert f"whole@{STEP}" in pin.sentences[0] and "n = 8, seed 0" in pin.sentences[0]
    assert pin.about["n"] == 8 and pin.about["unit"] == "sequences"
