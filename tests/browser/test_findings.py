"""Findings in a real browser: what is pinned is kept by its address, is nobody else's, and leaves as files that open.

Needs Chromium; run with `make test-browser`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import expect

from analyses.notebook.pins import from_json
from tests.browser.browsing import IDLE, PATIENCE, SCREENSHOTS, Server, address, go, unexpected

pytestmark = pytest.mark.browser

HEADS = "heads?run=whole&step=24&head=L1H2&prompt=a b a b"


def pin_on_heads(made, server: Server) -> str:
    """Pin with P what the page of a head offers, go to Findings, and give back the notebook's name."""
    go(made, server, HEADS)
    expect(made.locator(".st-key-attention canvas.pattern")).to_be_visible(timeout=PATIENCE)
    made.wait_for_selector(IDLE)
    made.locator("h1").click()
    made.keyboard.press("p")
    expect(made.get_by_text("Pinned to Findings")).to_be_visible(timeout=PATIENCE)
    expect(made).to_have_url(re.compile(r"notes=[A-Za-z0-9_-]{32}"))
    return address(made)["notes"]


def open_findings(made, server: Server, token: str) -> None:
    go(made, server, f"findings?run=whole&step=24&notes={token}")
    expect(made.locator("[class*='st-key-pin-'] h3").first).to_be_visible(timeout=PATIENCE)


def test_a_pin_with_its_note_comes_back_by_address_and_is_nobody_elses(tab, server: Server) -> None:
    made, watch = tab()
    token = pin_on_heads(made, server)
    open_findings(made, server, token)
    title = made.locator("[class*='st-key-pin-'] h3").first.inner_text()
    note = made.get_by_label("Note", exact=True).first
    note.fill("it looks back")
    note.press("Control+Enter")
    made.wait_for_timeout(700)
    made.wait_for_selector(IDLE)
    url = made.url
    assert address(made)["notes"] == token
    assert unexpected(watch) == []

    again, _ = tab()
    again.goto(url)
    expect(again.locator("[class*='st-key-pin-'] h3").first).to_have_text(title, timeout=PATIENCE)
    for _ in range(20):  # a note is written when the server has run; a busy one takes seconds
        if again.get_by_label("Note", exact=True).first.input_value() == "it looks back":
            break
        again.wait_for_timeout(1000)
        again.reload()
        expect(again.locator("[class*='st-key-pin-'] h3").first).to_have_text(title, timeout=PATIENCE)
    expect(again.get_by_label("Note", exact=True).first).to_have_value("it looks back")

    stranger, _ = tab()
    go(stranger, server, "findings?run=whole&step=24")
    expect(stranger.get_by_text("Nothing is pinned yet.")).to_be_visible(timeout=PATIENCE)
    assert stranger.get_by_text("it looks back").count() == 0
    assert "notes" not in address(stranger)


def test_a_pin_opens_the_view_it_was_made_of(tab, server: Server) -> None:
    made, _ = tab()
    token = pin_on_heads(made, server)
    open_findings(made, server, token)
    with made.context.expect_page() as opened:
        made.locator("[class*='st-key-open-'] a").first.click()
    view = opened.value
    view.wait_for_selector(IDLE)
    expect(view.locator(".st-key-attention .title")).to_have_text("L1H2", timeout=PATIENCE)
    found = address(view)
    assert {name: found.get(name) for name in ("run", "step", "head", "prompt", "notes")} == {
        "run": "whole", "step": "24", "head": "L1H2", "prompt": "a b a b", "notes": token,
    }  # fmt: skip


def test_pins_are_moved_removed_and_put_back(tab, server: Server) -> None:
    made, watch = tab()
    token = pin_on_heads(made, server)
    go(made, server, f"gradients?run=whole&step=24&notes={token}")
    expect(made.get_by_text("one colour scale").first).to_be_visible(timeout=PATIENCE)
    made.wait_for_selector(IDLE)
    made.locator("h1").click()
    made.keyboard.press("p")
    expect(made.get_by_text("Pinned to Findings")).to_be_visible(timeout=PATIENCE)
    open_findings(made, server, token)
    titles = made.locator("[class*='st-key-pin-'] h3")
    expect(titles).to_have_count(2)
    expect(titles.nth(1)).to_contain_text("2. Gradient of the stream")
    made.locator("[class*='st-key-up-'] button").nth(1).click()
    expect(titles.nth(0)).to_contain_text("1. Gradient of the stream", timeout=PATIENCE)
    expect(made.locator("[class*='st-key-pin-'] img").first).to_be_visible(timeout=PATIENCE)
    made.locator("[class*='st-key-remove-'] button").first.click()
    expect(titles).to_have_count(1, timeout=PATIENCE)
    made.get_by_role("button", name="Undo").click()
    expect(titles).to_have_count(2, timeout=PATIENCE)
    expect(titles.nth(0)).to_contain_text("1. Gradient of the stream")
    assert unexpected(watch) == []
    SCREENSHOTS.mkdir(exist_ok=True)
    made.screenshot(path=SCREENSHOTS / "findings-pins.png", full_page=True)


def saved(made, kind: str, folder: Path) -> Path:
    with made.expect_download() as download:
        made.locator("[class*='st-key-export']").get_by_role("button", name=kind, exact=True).first.click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_what_is_exported_opens_without_a_network_and_says_the_same(tab, server: Server, tmp_path: Path) -> None:
    made, _ = tab()
    token = pin_on_heads(made, server)
    go(made, server, f"gradients?run=whole&step=24&notes={token}")
    expect(made.get_by_text("one colour scale").first).to_be_visible(timeout=PATIENCE)
    made.wait_for_selector(IDLE)
    made.locator("h1").click()
    made.keyboard.press("p")
    expect(made.get_by_text("Pinned to Findings")).to_be_visible(timeout=PATIENCE)
    open_findings(made, server, token)
    made.get_by_text("Export and import").click()
    expect(made.get_by_role("button", name="Markdown")).to_be_visible(timeout=PATIENCE)
    files = {kind: saved(made, kind, tmp_path) for kind in ("HTML", "Markdown", "JSON", "CSV", "Python")}

    book = from_json(files["JSON"].read_text("utf-8"), "it")
    assert len(book.pins) == 2
    compile(files["Python"].read_text("utf-8"), "findings.py", "exec")
    with zipfile.ZipFile(io.BytesIO(files["CSV"].read_bytes())) as archive:
        tables = [pd.read_csv(archive.open(name)) for name in archive.namelist()]
    assert [len(table) for table in tables] == [len(pin.rows.values) for pin in book.pins]
    words = files["Markdown"].read_text("utf-8")
    assert words.startswith("# Findings in whole\n\n## 1\\. ") or words.startswith("# Findings in whole\n\n## 1. ")

    other, watch = tab()
    other.goto(files["HTML"].as_uri())
    for pin in book.pins:
        expect(other.get_by_role("heading", name=pin.title)).to_be_visible()
        for sentence in pin.sentences:
            assert sentence in other.locator("main").inner_text()
        if pin.figure is not None or pin.view is not None:
            drawn = f"#pin-{pin.id} .plate svg" if pin.figure else f"#view-{pin.id}"
            expect(other.locator(drawn)).to_be_visible()
    assert any(pin.figure is not None for pin in book.pins)
    other.wait_for_timeout(500)
    assert watch.errors == []
    assert [url for url in watch.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert token not in files["HTML"].read_text("utf-8")

    mine, _ = tab()
    go(mine, server, "findings?run=whole&step=24")
    mine.get_by_text("Export and import").click()
    mine.locator("input[type=file]").set_input_files(files["JSON"])
    expect(mine.get_by_text("2 pins read from findings.json.")).to_be_visible(timeout=PATIENCE)
    expect(mine.locator("[class*='st-key-pin-'] h3")).to_have_count(2)
    assert address(mine)["notes"] != token
    assert json.loads(files["JSON"].read_text("utf-8"))["format"] == 1


@pytest.mark.parametrize("page", ["findings", "gradients"])
@pytest.mark.parametrize("width", [1024, 1440])
def test_the_pages_fit_their_window(tab, server: Server, page: str, width: int) -> None:
    made, watch = tab("dark" if width == 1024 else "light")
    made.set_viewport_size({"width": width, "height": 900})
    go(made, server, f"{page}?run=whole&step=24&b=bare@24")
    expect(made.locator("h1")).to_be_visible(timeout=PATIENCE)
    made.wait_for_timeout(1500)
    assert made.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    charts = made.locator("[data-testid='stMain'] [data-testid='stVegaLiteChart']")
    ends = charts.evaluate_all("charts => charts.map(chart => chart.getBoundingClientRect().right)")
    assert max(ends, default=0) <= width
    assert unexpected(watch) == []
