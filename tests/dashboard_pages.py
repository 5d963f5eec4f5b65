"""Opening the dashboard's pages in tests: what they say, what was sent to their views, and clicks in these."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.components.v2.bidi_component.main import _make_trigger_id
from streamlit.testing.v1 import AppTest

from apps.dashboard import launch

SCRIPT = str(launch.SCRIPT)


def opened(root: Path, page: str, monkeypatch: pytest.MonkeyPatch, **address: str) -> AppTest:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(root))
    at = AppTest.from_file(SCRIPT, default_timeout=60)
    for name, value in address.items():
        at.query_params[name] = value
    return at.run() if page == "overview" else at.switch_page(f"app_pages/{page}.py").run()


def said(at: AppTest) -> str:
    """All text of a page, with Markdown's escapes undone."""
    kinds = (at.title, at.header, at.subheader, at.text, at.caption, at.error, at.warning, at.info, at.code, at.button)
    texts = [item.label if kind is at.button else item.value for kind in kinds for item in kind]
    listed = [html.unescape(re.sub(r"<style>.*?</style>|<[^>]*>", "\n", part.proto.body, flags=re.S))
              for part in at.get("html")]  # fmt: skip
    return "\n".join([re.sub(r"\\(.)", r"\1", "\n".join(map(str, texts))), *listed])


def views(at: AppTest) -> dict[str, dict[str, Any]]:
    """What was sent to each mounted view, by its key; with it what a click changes, which is sent apart."""
    sent = {part.proto.id.rsplit("-", 1)[-1]: json.loads(part.proto.json) for part in at.get("bidi_component")}
    apart = {data["name"]: data["fields"] for key, data in sent.items() if key.endswith("_live")}
    return {key: data | apart.get(key, {}) for key, data in sent.items() if not key.endswith("_live")}


def pick(at: AppTest, key: str, value: dict[str, str]) -> AppTest:
    """Do what a click in a view does."""
    return fire(at, key, "picked", value)


def fire(at: AppTest, key: str, event: str, value: Any) -> AppTest:
    """Let a component send an event (private API of AppTest; keep it here)."""
    (part,) = [part for part in at.get("bidi_component") if part.proto.id.endswith(f"-{key}")]
    states = at._tree.get_widget_states()
    state = states.widgets.add()
    state.id = _make_trigger_id(part.proto.id, "events")
    state.json_trigger_value = json.dumps([{"event": event, "value": value}])
    return at._run(widget_state=states)
