"""J and K on pages with a list: presses that come together are steps one after another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard_pages import fire, opened
from tests.dashboard_runs import whole_runs

pytestmark = pytest.mark.whole

__all__ = ["whole_runs"]  # a fixture


@pytest.mark.parametrize(("page", "name"), [("heads", "head"), ("memories", "memory")])
def test_three_fast_presses_go_three_places_on(whole_runs: Path, page: str, name: str, monkeypatch) -> None:
    at = opened(whole_runs, page, monkeypatch, run="whole")
    listed = next(table.value[name].tolist() for table in at.dataframe if name in table.value)
    at = opened(whole_runs, page, monkeypatch, run="whole", **{name: listed[1]})
    fire(at, "keys", "pressed", [{"id": number, "key": "j"} for number in (1, 2, 3)])
    assert at.session_state[name] == listed[4]
    fire(at, "keys", "pressed", [{"id": number, "key": key} for number, key in enumerate("jkkj", start=3)])
    assert at.session_state[name] == listed[3], "the press with an old number was answered before"
    assert not at.exception
