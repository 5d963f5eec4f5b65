"""Views opened in Chromium as the pages without a server that `analyses.views.page` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect

from analyses.views import page
from tests.browser.browsing import SCREENSHOTS

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\n",
    "👩\u200d💻",
    "\u202e",
    "\u200b",
    "\ud800",
    "\x00",
    "\u2028",
    "</script><script>alert(1)</script>",
    "",
]


def causal_pattern(n_layers: int, n_heads: int, size: int, seed: int = 0) -> torch.Tensor:
    scores = 2 * torch.randn(n_layers, n_heads, size, size, generator=torch.Generator().manual_seed(seed))
    hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)


def words(n: int) -> list[str]:
    return [f" w{at}" for at in range(n)]


@pytest.fixture
def drawn(tab, tmp_path: Path):
    """Open a payload as a page from disk; whatever goes wrong on it or leaves it fails the test."""
    watches = []

    def draw(view: str, payload: dict, scheme: str = "light", html: str | None = None, **context):
        file = tmp_path / f"{view}-{len(watches)}.html"
        file.write_text(html or page(view, payload, "A view"), "utf-8")
        made, watch = tab(scheme, **context)
        made.on("dialog", lambda dialog: watch.errors.append("a dialog opened"))
        watches.append((watch, file.as_uri()))
        made.goto(file.as_uri())
        return made

    yield draw
    for watch, address in watches:
        assert watch.errors == []
        assert [url for url in watch.requests if not url.startswith(("data:", "blob:", "about:"))] == [address]


def cell_at(made, row: int, column: int) -> tuple[float, float]:
    """Where a cell of what is drawn in full lies on the screen."""
    box = made.locator("canvas.pattern").bounding_box()
    side = made.evaluate("document.querySelector('.cutaway-view').shadowRoot.querySelectorAll('.token').length")
    margin = int(made.locator("canvas.pattern").get_attribute("data-margin"))
    pixels = (box["width"] - margin - 1) / (side if side <= 128 else 64)
    return box["x"] + margin + (column + 0.5) * pixels, box["y"] + (row + 0.5) * pixels


def read(made) -> tuple[int, int]:
    """The query and the key that are read out."""
    expect(made.locator(".live")).to_contain_text("query ")
    query, key = re.findall(r"(?:query|key) (\d+)", made.locator(".live").inner_text())
    return int(query), int(key)


def snapshot(made, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    made.screenshot(path=SCREENSHOTS / f"view-{name}.png", full_page=True)
