"""Views in the app: what a click sends back, and that it sends no pattern again."""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest

from tests.dashboard_pages import pick, views


def app() -> None:
    """A page with one view of each kind, as Streamlit runs it."""
    import streamlit as st
    import torch

    from analyses.views import Frames, TokenRow, View, attention_payload, head_grid_payload, token_rows_payload
    from apps.dashboard import components

    state = st.session_state
    for key in ("head", "cell", "ablate", "token"):
        st.text_input(key, key=key)
    pattern = torch.full((1, 2, 40, 40), 0.1).tril()
    cell = tuple(int(at) for at in state["cell"].split(".")) if state["cell"] else None
    components.show(View.ATTENTION, attention_payload(pattern, ["a"] * 40), key="attention", live={"lock": cell})
    frames = Frames(steps=[0, 8, 64], values=torch.arange(6.0).reshape(3, 1, 2))
    grid = head_grid_payload(None, "score", frames=frames, step=state.get("step", 64), chosen=state["head"] or None)
    components.show(
        View.HEAD_GRID, grid, key="grid", live={"set": state["ablate"].split(",") if state["ablate"] else []}
    )
    row = TokenRow(tokens=["a", "b", "c"], values=[0.1, 0.2, 0.3])
    token = int(state["token"]) if state["token"] else None
    components.show(View.TOKEN_ROWS, token_rows_payload([row], "harm", pick="token", token=token), key="rows")


def mounted(at: AppTest) -> dict[str, str]:
    """What each mount was sent, as it was sent."""
    return {part.proto.id.rsplit("-", 1)[-1]: part.proto.json for part in at.get("bidi_component")}


def test_a_click_changes_the_selection_and_sends_no_pattern_again() -> None:
    at = AppTest.from_function(app, default_timeout=60).run()
    assert not at.exception
    before = mounted(at)
    assert views(at)["attention"]["lock"] is None

    def only(changed: str) -> None:
        """Of all that is mounted, only what follows a click is sent anew, and that is small."""
        nonlocal before
        now = mounted(at)
        assert [name for name in now if now[name] != before[name]] == [f"{changed}_live"]
        assert len(now[f"{changed}_live"]) < 200
        before = now

    pick(at, "attention", {"cell": "9.4"})
    assert at.session_state["cell"] == "9.4"
    assert views(at)["attention"]["lock"] == {"query": 9, "key": 4}
    only("attention")
    pick(at, "attention", {"cell": ""})
    assert views(at)["attention"]["lock"] is None
    only("attention")
    pick(at, "grid", {"head": "L0H1"})
    assert views(at)["grid"]["chosen"] == at.session_state["head"] == "L0H1"
    only("grid")
    pick(at, "grid", {"toggle": "L0H0"})
    assert views(at)["grid"]["set"] == ["L0H0"]
    only("grid")
    pick(at, "grid", {"toggle": "L0H0"})
    assert views(at)["grid"]["set"] == []
    only("grid")
    pick(at, "grid", {"step": "8"})
    assert views(at)["grid"]["step"] == at.session_state["step"] == 8
    only("grid")
    pick(at, "rows", {"token": "2"})
    assert views(at)["rows"]["token"] == 2
    only("rows")
    pick(at, "rows", {"token": ""})
    assert views(at)["rows"]["token"] is None
    assert not at.exception


def test_a_view_sends_nothing_that_is_not_meant_to_be_picked() -> None:
    at = AppTest.from_function(app, default_timeout=60).run()
    before = mounted(at)
    pick(at, "grid", {"run": "other", "scale": "1"})
    assert mounted(at) == before
    assert "run" not in at.session_state
    assert json.loads(before["attention"])["follows"] == "attention"
