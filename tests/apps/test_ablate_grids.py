"""The grids of every head alone on the Ablate page."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.dashboard import data
from tests.dashboard_pages import opened, said, views
from tests.dashboard_runs import STEP, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["whole_runs"]  # a fixture


def test_each_grid_has_its_own_symmetric_scale_and_says_so(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One head that is needed for copying does not leave the grid on text white."""
    at = opened(whole_runs, "ablate", monkeypatch, run="whole")
    assert not at.exception
    (run,) = [each for each in data.runs() if each.name == "whole"]
    floor = data.shelf(run, "head-ablation").at(STEP).result.config.floor
    for outcome in ("copy_loss", "new_token_loss"):
        sent = views(at)[f"harm_{outcome}"]
        scale, worst = sent["scale"], max(abs(value) for row in sent["values"] for value in row)
        assert scale["high"] == -scale["low"] == pytest.approx(max(worst, 2 * floor))
        assert f"colours to {scale['high']:.2g} nats either way" in said(at)
