"""The dashboard in a real browser: pages without errors, pointing that stays in the browser, addresses that restore.

Needs Chromium; run with `make test-browser`. Screenshots are left in screenshots/ to be looked at.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from analyses.views import attention_payload, page
from tests.browser.browsing import IDLE, PATIENCE, SCREENSHOTS, Server, address, go, menu, unexpected

pytestmark = pytest.mark.browser

PAGES = {"overview": ""} | {
    name: name for name in ("heads", "memories", "lens", "ablate", "findings", "training", "gradients")
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_an_error_and_asks_nobody_else(tab, server: Server, name: str, scheme: str) -> None:
    made, watch = tab(scheme)
    go(made, server, f"{PAGES[name]}?run=whole&ablate=L1H1")
    made.wait_for_timeout(1500)
    made.wait_for_selector(IDLE)
    height = made.locator("[data-testid='stMain']").evaluate("element => element.scrollHeight")
    made.set_viewport_size({"width": 1440, "height": min(5000, max(1000, height + 20))})
    made.wait_for_timeout(600)
    SCREENSHOTS.mkdir(exist_ok=True)
    made.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png")
    assert made.locator(".stException, [data-testid='stException']").count() == 0
    assert made.get_by_text("BidiComponent Error").count() == 0
    assert unexpected(watch) == []
    assert [url for url in watch.requests if not re.match(r"(blob:)?https?://127\.0\.0\.1[:/]|data:", url)] == []
    assert "Traceback" not in server.log.read_text()
    assert made.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_pointing_at_things_sends_nothing(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "heads?run=whole")
    pattern = made.locator(".st-key-attention canvas.pattern")
    pattern.scroll_into_view_if_needed()
    made.wait_for_timeout(1000)
    live = made.locator(".st-key-attention .live")
    before = live.inner_text()
    sent = len(watch.frames)
    box = pattern.bounding_box()
    for step in range(30):
        made.mouse.move(box["x"] + 80 + 4 * step, box["y"] + 60 + 10 * step)
    made.locator(".st-key-attention .thumb").nth(3).hover()
    made.locator(".st-key-attention .token").nth(5).hover()
    assert live.inner_text() != before
    for cell in range(4):
        made.locator(".st-key-grid .cell").nth(cell).hover()
    expect(made.locator(".st-key-grid .live")).to_contain_text("rank")
    made.wait_for_timeout(700)
    assert len(watch.frames) == sent


def test_a_click_locks_and_the_address_restores_the_view(tab, server: Server) -> None:
    made, _ = tab()
    go(made, server, "heads?run=whole")
    made.locator(".st-key-grid .cell").nth(6).click()
    expect(made.locator(".st-key-attention .title")).to_have_text("L1H2")
    made.locator(".st-key-attention .token").nth(7).click()
    expect(made.locator(".st-key-attention .live")).to_contain_text("locked")
    expect(made.locator(".st-key-cell input")).not_to_have_value("")
    assert address(made)["head"] == "L1H2"
    assert address(made)["cell"].startswith("7.")
    said = made.locator(".st-key-attention .live").inner_text()

    other, _ = tab()
    other.goto(made.url)
    other.wait_for_selector(IDLE)
    expect(other.locator(".st-key-head_heading h2")).to_have_text("L1H2")
    expect(other.locator(".st-key-attention .live")).to_have_text(said)
    assert address(other) == address(made)


def test_the_selection_survives_pages_and_the_back_button(tab, server: Server) -> None:
    made, _ = tab()
    go(made, server, "heads?run=whole&head=L1H2&step=0")
    menu(made, "Ablate")
    expect(made.get_by_role("heading", name="Ablate", exact=True)).to_be_visible()
    expect(made.locator(".st-key-head input")).to_have_value("L1H2")
    made.locator(".st-key-harm_copy_loss .cell").nth(1).click(modifiers=["Shift"])
    expect(made.locator(".st-key-ablate input")).to_have_value("L0H1")
    assert address(made) == {"run": "whole", "head": "L1H2", "step": "0", "ablate": "L0H1"}
    made.go_back()
    expect(made.locator(".st-key-ablate input")).to_have_value("")
    made.go_back()
    expect(made.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    expect(made.locator(".st-key-head input")).to_have_value("L1H2")


def test_a_click_on_a_row_opens_its_memory_and_the_address_restores_it(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole")
    table = made.locator(".st-key-memory_table .dvn-scroller")
    table.scroll_into_view_if_needed()
    made.wait_for_timeout(1000)
    table.click(position={"x": 16, "y": 31 + 46})
    expect(made.locator(".st-key-memory input")).to_have_value(re.compile(r"L\dM\d+"))
    name = made.locator(".st-key-memory input").input_value()
    expect(made.get_by_role("heading", name=name, exact=True)).to_be_visible()
    expect(made.locator(".st-key-triggers .line").first).to_be_visible()
    assert address(made)["memory"] == name
    said = made.locator(".st-key-triggers .lines").inner_text()

    other, _ = tab()
    other.goto(made.url)
    other.wait_for_selector(IDLE)
    expect(other.get_by_role("heading", name=name, exact=True)).to_be_visible()
    expect(other.locator(".st-key-triggers .lines")).to_have_text(said, use_inner_text=True)
    assert unexpected(watch) == []


def test_memories_are_searched_and_stepped_through_from_the_keyboard(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole&memory=L0M3")
    search = made.locator(".st-key-wanted input")
    search.fill("L1M7")
    expect(made.get_by_text("1 found, of 256 memories")).to_be_visible(timeout=PATIENCE)
    expect(made.locator(".st-key-memory input")).to_have_value("L1M7", timeout=PATIENCE)
    search.fill("")
    expect(made.get_by_text("the first 200 of 256 found")).to_be_visible(timeout=PATIENCE)
    expect(made.locator(".st-key-memory input")).to_have_value("L1M7")
    made.locator("h1").click()
    made.keyboard.press("j")
    expect(made.locator(".st-key-memory input")).not_to_have_value("L1M7", timeout=PATIENCE)
    after = made.locator(".st-key-memory input").input_value()
    expect(made.get_by_role("heading", name=after, exact=True)).to_be_visible(timeout=PATIENCE)
    made.keyboard.press("j")
    expect(made.locator(".st-key-memory input")).not_to_have_value(after, timeout=PATIENCE)
    made.keyboard.press("k")
    expect(made.locator(".st-key-memory input")).to_have_value(after, timeout=PATIENCE)
    assert unexpected(watch) == []


def test_run_step_and_search_stand_in_the_address_and_come_back_with_it(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole")
    expect(made.get_by_text("the first 200 of 256 found")).to_be_visible(timeout=PATIENCE)
    start = address(made)
    assert set(start) == {"run", "step"}
    made.locator(".st-key-wanted input").fill("L1M7")
    expect(made.get_by_role("heading", name="L1M7", exact=True)).to_be_visible(timeout=PATIENCE)
    expect(made.get_by_text("1 found, of 256 memories")).to_be_visible(timeout=PATIENCE)
    assert address(made) == start | {"memory": "L1M7", "find": "L1M7"}
    menu(made, "Heads")
    expect(made.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    made.go_back()
    expect(made.locator(".st-key-wanted input")).to_have_value("L1M7", timeout=PATIENCE)
    expect(made.get_by_text("1 found, of 256 memories")).to_be_visible(timeout=PATIENCE)
    assert address(made) == start | {"memory": "L1M7", "find": "L1M7"}
    assert unexpected(watch) == []


def test_a_memory_is_painted_on_a_hostile_text_and_pointing_at_it_sends_nothing(tab, server: Server) -> None:
    made, watch = tab()
    made.on("dialog", lambda dialog: watch.errors.append("a dialog opened"))
    go(made, server, "memories?run=whole&memory=L1M5&prompt=<img src=x onerror=alert(1)>%E2%80%AE")
    made.locator(".st-key-prefixes button").filter(has_text="most negative").click()
    expect(made.get_by_text("below zero the value is written backwards")).to_be_visible(timeout=PATIENCE)
    made.get_by_role("tab", name="On a text").click()
    tokens = made.locator(".st-key-on_text .tokens")
    expect(tokens).to_contain_text("<")
    assert made.locator(".st-key-on_text img, .st-key-on_text script").count() == 0
    made.wait_for_timeout(700)
    sent = len(watch.frames)
    made.locator(".st-key-on_text .token").nth(2).hover()
    expect(made.locator(".st-key-on_text .live")).to_contain_text("coefficient")
    made.wait_for_timeout(700)
    assert len(watch.frames) == sent
    assert unexpected(watch) == []


@pytest.mark.parametrize("width", [800, 1280])
def test_the_page_of_memories_fits_its_window(tab, server: Server, width: int) -> None:
    made, _ = tab()
    made.set_viewport_size({"width": width, "height": 900})
    go(made, server, "memories?run=whole&memory=L1M5&all=Layer by layer")
    charts = made.locator("[data-testid='stMain'] [data-testid='stVegaLiteChart']")
    expect(charts.nth(10).locator("svg.marks")).to_be_visible(timeout=PATIENCE)
    assert made.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    ends = charts.evaluate_all("charts => charts.map(chart => chart.getBoundingClientRect().right)")
    assert len(ends) > 10
    assert max(ends) <= width
    made.get_by_role("tab", name="Evidence").click()
    expect(made.get_by_text("random prefixes").last).to_be_visible(timeout=PATIENCE)
    assert address(made)["tab"] == "Evidence"
    assert made.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_click_on_a_row_chooses_its_head(tab, server: Server) -> None:
    made, _ = tab()
    go(made, server, "heads?run=whole")
    table = made.locator(".st-key-head_table .dvn-scroller")
    made.wait_for_timeout(1000)
    table.click(position={"x": 16, "y": 31 + 46})
    expect(made.locator(".st-key-head input")).to_have_value(re.compile(r"L\dH\d"))
    chosen = made.locator(".st-key-head input").input_value()
    expect(made.locator(".st-key-head_heading h2")).to_have_text(chosen)
    expect(made.locator(".st-key-grid .cell.chosen")).to_have_count(1)
    assert address(made)["head"] == chosen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_a_head_does_on_its_corpus_is_painted(tab, server: Server, scheme: str) -> None:
    made, watch = tab(scheme)
    go(made, server, "heads?run=whole&head=L1H2&tab=QK %26 OV")
    bars = made.locator(".st-key-panel-distance .mark-rect path")
    expect(bars.first).to_be_attached(timeout=PATIENCE)
    assert bars.count() >= 6
    made.get_by_role("tab", name="Examples").click()
    rows = made.locator(".st-key-corpus_rows .line")
    expect(rows.first).to_be_visible(timeout=PATIENCE)
    expect(made.locator(".st-key-corpus_rows .token.boxed")).to_have_count(rows.count())
    raw = made.locator(".st-key-corpus_rows .legend").inner_text()
    made.locator(".st-key-basis button").filter(has_text="signed").click()
    expect(made.locator(".st-key-corpus_rows .legend")).not_to_have_text(raw, timeout=PATIENCE)
    expect(made.locator(".st-key-corpus_rows .scale")).to_contain_text("logits")
    made.wait_for_timeout(700)
    sent = len(watch.frames)
    made.locator(".st-key-corpus_rows .token").nth(1).hover()
    expect(made.locator(".st-key-corpus_rows .live")).to_contain_text("logits")
    made.wait_for_timeout(700)
    assert len(watch.frames) == sent
    assert unexpected(watch) == []


def test_the_pattern_is_drawn_in_other_units(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "heads?run=whole&head=L1H2&cell=9.4")
    for button, unit in (("value-weighted", "stream units"), ("signed", "logits")):
        made.locator(".st-key-basis button").filter(has_text=button).click()
        expect(made.locator(".st-key-attention .label")).to_have_text(unit)
        expect(made.locator(".st-key-attention .live")).to_contain_text(unit)
        expect(made.locator(".st-key-attention .live")).to_contain_text("query 9")
    low = made.locator(".st-key-attention .legend span").first
    assert low.inner_text().startswith(("-", "\u2212", "0.00"))
    whole = made.locator(".st-key-attention .toggle").filter(has_text="scale to max")
    expect(whole).to_have_attribute("aria-pressed", "true")
    before = made.locator(".st-key-attention .legend").inner_text()
    whole.click()
    expect(whole).to_have_attribute("aria-pressed", "false")
    assert made.locator(".st-key-attention .legend").inner_text() != before
    assert unexpected(watch) == []


def test_a_cell_can_be_locked_and_released_from_the_keyboard(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "heads?run=whole")
    pattern = made.locator(".st-key-attention canvas.pattern")
    pattern.focus()
    made.wait_for_timeout(700)
    sent = len(watch.frames)
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        pattern.press(key)
    expect(made.locator(".st-key-attention .live")).to_contain_text("query 3")
    assert len(watch.frames) == sent
    pattern.press("Enter")
    expect(made.locator(".st-key-cell input")).to_have_value("3.1")
    pattern.press("Escape")
    expect(made.locator(".st-key-cell input")).to_have_value("")


def test_hostile_text_stays_text(tab, server: Server) -> None:
    made, watch = tab()
    made.on("dialog", lambda dialog: watch.errors.append("a dialog opened"))
    prompt = "<img src=x onerror=alert(1)>%E2%80%AE"
    go(made, server, f"heads?run=whole&prompt={prompt}")
    expect(made.locator(".st-key-attention .tokens")).to_contain_text("<")
    assert made.locator(".st-key-attention img, .st-key-attention script").count() == 0
    assert unexpected(watch) == []


@pytest.mark.parametrize("width", [1024, 1920])
def test_no_page_is_wider_than_its_window(tab, server: Server, width: int) -> None:
    made, watch = tab()
    made.set_viewport_size({"width": width, "height": 900})
    SCREENSHOTS.mkdir(exist_ok=True)
    for name, path in PAGES.items():
        go(made, server, f"{path}?run=whole")
        made.wait_for_timeout(1000)
        made.wait_for_selector(IDLE)
        made.screenshot(path=SCREENSHOTS / f"{name}-{width}.png")
        assert made.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        assert made.evaluate("(main => main.scrollWidth <= main.clientWidth)(document.querySelector(MAIN))"
                             .replace("MAIN", "\"[data-testid='stMain']\"")), name  # fmt: skip
    assert unexpected(watch) == []


def test_the_same_view_opens_from_a_file(tab, tmp_path: Path) -> None:
    import torch

    pattern = torch.eye(6).expand(1, 2, 6, 6)
    file = tmp_path / "view.html"
    file.write_text(page("attention", attention_payload(pattern, list("abcdef"), head=(0, 1)), "A view"), "utf-8")
    made, watch = tab()
    made.goto(file.as_uri())
    expect(made.locator(".title")).to_have_text("L0H1")
    made.locator(".token").nth(3).click()
    expect(made.locator(".live")).to_contain_text("query 3 ‘d’ → key 3 ‘d’   1.000")
    made.locator(".thumb").nth(0).click()
    expect(made.locator(".title")).to_have_text("L0H0")
    assert watch.errors == []
    assert watch.requests == [file.as_uri()]
