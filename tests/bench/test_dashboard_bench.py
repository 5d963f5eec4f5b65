"""The dashboard's bench tells what goes wrong: growth, hooks, exceptions on a page, and bars that do not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from analyses.notebook.file import load, notebook_path
from bench.dashboard import bars, payload_bytes, two_pins
from bench.dashboard_clients import opened
from bench.dashboard_sessions import flatness


def sessions(**changed: Any) -> dict[str, Any]:
    """What quiet sessions tell, but for what is changed."""
    hooks = {"models": 1, "hooked": 0, "module_hooks": 0, "open_blocks": 0}
    quiet = {"sessions": 20, "n_errors": 0, "log": "", "hooks": hooks, "same_attention_after": True}
    return {"sessions": {**quiet, "memory": {"growth": 0.0}, **changed}}


def failing(told: dict[str, Any]) -> list[str]:
    return [bar.name for bar in bars(told) if not bar.holds]


def test_memory_that_grows_is_told_and_memory_that_only_warms_up_is_not() -> None:
    flat = [(at, 500.0 if at > 40 else 300.0 + 5 * at) for at in range(120)]
    assert flatness(flat, 120)["growth"] == pytest.approx(0)
    leaking = [(at, 500.0 + 2 * at) for at in range(120)]
    growth = flatness(leaking, 120)["growth"]
    assert growth == pytest.approx(60 / 649, rel=0.02)
    assert failing(sessions(memory={"growth": growth})) == ["growth of memory over the last half"]


@pytest.mark.parametrize(
    ("changed", "bar"),
    [
        ({"n_errors": 1}, "errors in 20 sessions"),
        ({"log": "Traceback\n"}, "lines in the server's log"),
        ({"hooks": {"hooked": 0, "module_hooks": 0, "open_blocks": 1}}, "hooks left"),
        ({"same_attention_after": False}, "hooks left"),
    ],
)
def test_what_must_not_be_left_fails_its_bar(changed: dict[str, Any], bar: str) -> None:
    assert failing(sessions()) == []
    assert failing(sessions(**changed)) == [bar]


def test_an_exception_that_a_page_shows_is_an_error_of_the_session() -> None:
    client = opened("http://127.0.0.1:1", {"run": "demo"})
    message = ForwardMsg()
    message.delta.new_element.exception.type = "KeyError"
    message.delta.new_element.exception.message = "gone"
    client.read(message)
    assert client.errors == [": KeyError: gone"]
    button = ForwardMsg()
    button.delta.new_element.button.id = "$$ID-0a1b-run_hypothesis"
    client.read(button)
    assert client.has("run_hypothesis")
    assert not client.has("other")


def test_payloads_are_weighed_as_they_are_sent() -> None:
    assert payload_bytes(2, 16) < payload_bytes(2, 64) <= 0.4e6
    assert failing({"payload": {"8 heads x 512 tokens": 400_001}}) == ["payload, 8 heads x 512 tokens"]


def test_the_pins_of_the_page_that_is_timed_are_read_back_and_removed(tmp_path: Path) -> None:
    with two_pins(tmp_path, {"run": "demo"}) as notes:
        made = load(notebook_path(tmp_path, notes))
        assert [pin.title for pin in made.pins] == ["One share", "Another share"]
        assert all(pin.figure is not None and not pin.cut for pin in made.pins)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
