"""The dashboard in Chromium: how long a hover, a lock and a page take, by the browser's own clock."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
from playwright.sync_api import Browser, Page, sync_playwright

from analyses.views import View, attention_payload, page
from tests.browser.browsing import CHROMIUM, FLAGS, IDLE, PATIENCE

HOVER = """async (places) => {
  const canvas = document.querySelector(".cutaway-view").shadowRoot.querySelector("canvas.pattern")
  const box = canvas.getBoundingClientRect(), taken = []
  for (const [across, down] of places) {
    const began = performance.now()
    canvas.dispatchEvent(new PointerEvent("pointermove", {
      clientX: box.left + across * box.width, clientY: box.top + down * box.height, bubbles: true, composed: true,
    }))
    const script = performance.now() - began
    await new Promise((done) => requestAnimationFrame(() => {
      const channel = new MessageChannel()
      channel.port1.onmessage = done
      channel.port2.postMessage(0)
    }))
    taken.push([script, performance.now() - began])
  }
  return taken
}"""
"""Point at places of the pattern, each time until the next frame is painted: ms of the script, and of the frame."""

WATCH = """
window.seen = { up: 0, painted: 0, confirmed: 0, told: "", cell: "" }
const told = () => [...document.querySelectorAll(".st-key-attention *")]
  .map((each) => each.shadowRoot?.querySelector(".live")?.textContent ?? "").join("")
addEventListener("pointerdown", () => Object.assign(window.seen, {
  up: 0, painted: 0, confirmed: 0, told: told(), cell: new URL(location).searchParams.get("cell"),
}), true)
addEventListener("pointerup", () => { window.seen.up = performance.now() }, true)
for (const name of ["pushState", "replaceState"]) {
  const plain = history[name]
  history[name] = function (state, title, url) {
    const cell = new URL(url, location).searchParams.get("cell")
    if (window.seen.up && !window.seen.confirmed && cell && cell !== window.seen.cell)
      window.seen.confirmed = performance.now()
    return plain.apply(this, arguments)
  }
}
const look = () => {
  const now = told()
  if (window.seen.up && !window.seen.painted && now !== window.seen.told && now.includes("locked"))
    window.seen.painted = performance.now()
  requestAnimationFrame(look)
}
requestAnimationFrame(look)
"""
"""When a click ended, when the view told of its lock, and when the address had it: that takes Python's answer."""

PAINTED = """(title) => new Promise((done) => {
  const began = performance.now()
  let first = 0
  const look = () => {
    const h1 = document.querySelector("h1")
    const here = h1 && h1.textContent.trim() === title
    const panels = [...document.querySelectorAll('[class*="st-key-panel-"]')]
    const drawn = (panel) => panel.querySelector("svg.marks, canvas")
      || [...panel.querySelectorAll("img")].some((each) => each.complete && each.naturalWidth)
      || [...panel.querySelectorAll("*")].some((each) => each.shadowRoot?.querySelector("canvas, .lines *, .grid *"))
    const app = document.querySelector("[data-testid='stApp']")
    const idle = app?.dataset.testScriptState === "notRunning" && app?.dataset.testConnectionState === "CONNECTED"
    if (here && !first && panels.some(drawn)) first = performance.now()
    if (here && first && idle) done([first, performance.now(), began])
    else requestAnimationFrame(look)
  }
  look()
})"""
"""When the first panel of a page was drawn, when its script was done, and when looking began."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as drivers:
        browser = drivers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def hover(browser: Browser, n_tokens: int, n_heads: int, n_moves: int) -> dict[str, Any]:
    """Pointing at a pattern of `n_tokens`, in the HTML that is exported: the same script as in the app."""
    payload = attention_payload(random_patterns(n_heads, n_tokens), tokens(n_tokens), head=(0, 0))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "view.html"
        file.write_text(page(View.ATTENTION, payload, "hover"), encoding="utf-8")
        tab = browser.new_page(viewport={"width": 1440, "height": 1000})
        tab.goto(file.as_uri())
        tab.locator("canvas.pattern").first.wait_for()
        chance = random.Random(0)
        places = [sorted((chance.uniform(0.02, 0.98), chance.uniform(0.02, 0.98))) for _ in range(n_moves)]
        tab.evaluate(HOVER, places[:5])
        taken = tab.evaluate(HOVER, places)
        tab.close()
    script, frame = zip(*taken, strict=True)
    return {"script": summary(script), "frame": summary(frame)}


def lock(browser: Browser, url: str, address: dict[str, str], n_clicks: int) -> dict[str, Any]:
    """Clicks on cells of the Heads page: until the browser has painted the lock, and until Python has confirmed it."""
    tab = _tab(browser)
    tab.add_init_script(WATCH)
    tab.goto(f"{url}/heads?{urlencode(address)}")
    _settled(tab)
    canvas = tab.locator(".st-key-attention canvas.pattern").first
    canvas.scroll_into_view_if_needed()
    _settled(tab)
    chance, painted, confirmed = random.Random(0), [], []
    for turn in range(n_clicks):
        box = canvas.bounding_box()
        assert box is not None
        across, down = chance.uniform(0.2, 0.4), chance.uniform(0.5, 0.65) + 0.15 * (turn % 2)  # never one cell twice
        tab.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])
        tab.wait_for_function("window.seen.painted && window.seen.confirmed", timeout=PATIENCE)
        seen = tab.evaluate("window.seen")
        painted.append(seen["painted"] - seen["up"])
        confirmed.append(seen["confirmed"] - seen["up"])
        _settled(tab)
    tab.context.close()
    return {"painted": summary(painted), "confirmed": summary(confirmed)}


def pages(
    browser: Browser, url: str, addresses: dict[str, dict[str, str]], titles: dict[str, str], rounds: int
) -> dict[str, Any]:
    """Every page, opened by its address in a browser that has seen it: its first panel, and the whole of it."""
    tab = _tab(browser)
    told: dict[str, Any] = {}
    for path, title in titles.items():
        where = f"{url}/{path}?{urlencode(addresses[path])}"
        first, whole = [], []
        for turn in range(rounds + 1):
            tab.goto(where, wait_until="commit")
            drawn, done, _ = tab.evaluate(PAINTED, title)
            if turn:
                first.append(drawn)
                whole.append(done)
        told[path or "overview"] = {"first panel": summary(first), "whole": summary(whole)}
    tab.context.close()
    return told


def random_patterns(n_heads: int, n_tokens: int) -> torch.Tensor:
    """Causal patterns of random scores, in one layer: [layer, head, query, key]."""
    drawing = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(1, n_heads, n_tokens, n_tokens, generator=drawing)
    later = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(dim=-1)


def tokens(n: int) -> list[str]:
    """Printable tokens of a few characters."""
    return [f"tok{place}" for place in range(n)]


def summary(times: Sequence[float]) -> dict[str, float]:
    """Median, 95% and largest of some milliseconds, and how many there are."""
    ordered = sorted(times)
    late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"n": len(times), "median_ms": statistics.median(times), "p95_ms": late, "most_ms": ordered[-1]}


def _tab(browser: Browser) -> Page:
    tab = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    tab.set_default_timeout(PATIENCE)
    return tab


def _settled(tab: Page) -> None:
    tab.wait_for_selector(IDLE)
    tab.wait_for_selector("h1")
    tab.wait_for_timeout(200)
    tab.wait_for_selector(IDLE)
