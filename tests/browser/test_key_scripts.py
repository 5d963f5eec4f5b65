"""The script of the page's keys by itself: when presses are sent, on a clock that the test winds."""

from __future__ import annotations

from typing import Any

import pytest

from apps.dashboard.frame.sources import text

pytestmark = pytest.mark.browser

BEGUN = """async (code) => {
  const m = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })))
  globalThis.now = 0
  globalThis.sent = []
  globalThis.timers = new Map()
  performance.now = () => now
  globalThis.setTimeout = (act, wait) => { timers.set(++globalThis.made, { act, wait }); return made }
  globalThis.clearTimeout = (name) => timers.delete(name)
  globalThis.made = 0
  globalThis.fire = () => {
    const due = [...timers.values()]
    timers.clear()
    due.forEach(({ act }) => act())
  }
  globalThis.press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }))
  globalThis.answered = (done) => {
    document.dispatchEvent(new CustomEvent("cutaway-frame", { detail: { what: "done", done } }))
  }
  const parentElement = document.createElement("div")
  parentElement.innerHTML = "<dialog></dialog>"
  document.body.append(parentElement)
  const keys = [{ key: "j", what: "next", how: "python", everywhere: false }]
  const data = { page: "Heads", pin: null, done: 0, keys }
  globalThis.leave = m.default({ data, parentElement, setTriggerValue: (_, presses) => sent.push(presses) })
}"""


@pytest.fixture
def run(tab) -> Any:
    """Bind J to Python in an empty page; `fire` runs every timer that is set, `now` is the clock."""
    made, watch = tab()
    made.goto("about:blank")
    made.evaluate(BEGUN, text("keys.js"))
    assert watch.errors == []
    return made.evaluate


def test_a_timer_that_is_early_by_the_clock_is_set_again(run) -> None:
    run("press('j'), press('j')")
    assert run("sent.map((each) => each.length)") == [1], "one batch at a time"
    run("now = 100, answered(sent[0][0].id)")
    assert run("timers.size") == 1
    run("fire()")  # by a coarse clock no time has passed
    assert run("[sent.length, timers.size]") == [1, 1]
    assert run("[...timers.values()][0].wait") == 60
    run("now = 160, fire()")
    assert run("sent.map((each) => each.map(({ key }) => key))") == [["j"], ["j"]]
    assert run("timers.size") == 0


def test_presses_since_a_batch_that_nobody_answers_are_sent_with_it_in_the_end(run) -> None:
    run("press('j'), press('j')")
    assert run("[...timers.values()].map(({ wait }) => wait)") == [8000]
    run("now = 8000, fire()")
    assert run("sent.map((each) => each.length)") == [1, 2]


def test_what_has_left_the_page_sends_nothing(run) -> None:
    run("press('j'), press('j'), now = 100, answered(sent[0][0].id)")
    run("leave(), now = 1000, fire()")
    assert run("[sent.length, timers.size]") == [1, 0]
