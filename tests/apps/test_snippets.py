"""Every figure, view and table of every page is a panel, and the Python that its menu copies computes what it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analyses import exports
from analyses.views import View
from apps.dashboard import launch, panels
from apps.dashboard.panels import FRAME, Panel
from tests.dashboard_pages import opened
from tests.dashboard_runs import whole_runs

__all__ = ["whole_runs"]  # a fixture

pytestmark = pytest.mark.whole

PAGES = sorted(page.stem for page in (launch.SCRIPT.parent / "app_pages").glob("*.py"))
DRAWN = {"vega_lite_chart", "arrow_vega_lite_chart", "dataframe", "arrow_data_frame", "table", "arrow_table"}
VIEWS = {f"cutaway.{view}" for view in View}
"""Names of the components that show something; others are of the frame."""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Panel]:
    """The panels that a page draws, by key."""
    seen: dict[str, Panel] = {}
    menu = panels.menu

    def noted(panel: Panel, drawing: Any) -> None:
        seen[panel.key] = panel
        menu(panel, drawing)

    monkeypatch.setattr(panels, "menu", noted)
    return seen


def everything(page: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    """The page with all that it draws only when it is asked to, at each of its tabs."""
    at = opened(root, page, monkeypatch, run="whole", head="L1H1", memory="L1M5", text="held-out")
    yield unfolded(at)
    seen = {(key, names[0]) for key, names in tabs(at)}
    while waiting := [(key, name) for key, names in tabs(at) for name in names if (key, name) not in seen]:
        seen.add(waiting[0])
        at.session_state[waiting[0][0]] = waiting[0][1]
        yield unfolded(at.run())


def unfolded(at: AppTest) -> AppTest:
    """The page with its expanders open."""
    assert not at.exception
    closed = [key for block in blocks(at.main) if (key := key_of(block, "expandable"))]
    for key in closed:
        at.session_state[key] = True
    return at.run() if closed else at


def tabs(at: AppTest) -> list[tuple[str, list[str]]]:
    """Keys of groups of tabs of which only the open one is drawn, and the names of their tabs."""
    groups = [(key_of(block, "tab_container"), block) for block in blocks(at.main)]
    return [(key, [tab.label for tab in group.children.values()]) for key, group in groups if key]


def key_of(block: Any, kind: str) -> str | None:
    """The key of a block of this kind that is drawn when it is opened; its id ends in it."""
    proto = getattr(block, "proto", None)
    found = re.fullmatch(r"\$\$ID-[0-9a-f]+-(.+)", getattr(getattr(proto, kind, None), "id", ""))
    return None if found is None or found[1] == "None" else found[1]


def blocks(block: Any) -> Iterator[Any]:
    yield block
    for child in getattr(block, "children", {}).values():
        yield from blocks(child)


def outside(block: Any, inside: bool = False) -> Iterator[str]:
    """What is drawn and is no panel, by what can be known of it."""
    identity = str(getattr(getattr(block, "proto", None), "id", ""))
    inside = inside or f"-{FRAME}" in identity
    kind = getattr(block, "type", "")
    name = str(getattr(getattr(block, "proto", None), "component_name", ""))
    is_view = kind == "bidi_component" and name in VIEWS
    if not inside and (kind in DRAWN or is_view):
        yield f"{kind} {identity.rsplit('-', 1)[-1] or getattr(block.proto, 'alt', '')}".strip()
    for child in getattr(block, "children", {}).values():
        yield from outside(child, inside)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_computed_by_the_python_of_its_panels(
    page: str, whole_runs: Path, monkeypatch: pytest.MonkeyPatch, drawn: dict[str, Panel]
) -> None:
    monkeypatch.chdir(whole_runs)
    checked: set[str] = set()
    for at in everything(page, whole_runs, monkeypatch):
        assert not at.exception
        loose = sorted(set(outside(at.main)))
        for key in drawn.keys() - checked:
            require_same(drawn[key])
            require_told(drawn[key])
        checked |= drawn.keys()
        assert not loose, f"{page} draws what is no panel: {loose}"


def require_same(panel: Panel) -> None:
    """The snippet, alone in a fresh module, binds the rows that the panel shows."""
    bound: dict[str, Any] = {"__name__": "notebook"}
    assert not re.search(r"^\s*(from|import) (apps|streamlit)\b", panel.python, re.MULTILINE), panel.key
    here = Path.cwd()
    exec(compile(panel.python, panel.key, "exec"), bound)
    assert Path.cwd() == here
    shown, computed = panel.rows(), bound["rows"]
    assert isinstance(computed, pd.DataFrame), panel.key
    pd.testing.assert_frame_equal(shown, computed, check_exact=False, rtol=1e-6, atol=1e-6, obj=panel.key)


def require_told(panel: Panel) -> None:
    """A file of it says what its numbers rest on, as strict JSON."""
    text = exports.to_json(panel.rows(), panel.about, title=panel.title, address="?", python=panel.python)
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{panel.key}: {name} is not strict JSON"))
    about = read["about"]
    assert {"run", "step", "weights_sha256", "n", "unit", "seed"} <= set(about), panel.key
    assert about["n"] is not None, panel.key
    assert about["unit"], panel.key
    assert len(read["rows"]) == len(panel.rows()), panel.key
    assert str(about["run"] or "no-run") in panel.file("csv"), panel.key
