"""The Heads page in Chromium: choosing by pointer and by keyboard, units, tabs, and two checkpoints side by side."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.browsing import IDLE, PATIENCE, Server, address, go, unexpected
from tests.dashboard_runs import STEP

pytestmark = pytest.mark.browser


def chosen(made) -> str:
    return made.locator(".st-key-head input").input_value()


def ready(made, server: Server, more: str = "") -> None:
    go(made, server, f"heads?run=whole{more}")
    made.locator(".st-key-grid .cell").first.wait_for()
    made.wait_for_timeout(800)


def test_a_head_is_chosen_in_the_grid_by_click_and_by_keyboard(tab, server: Server) -> None:
    made, watch = tab()
    ready(made, server)
    made.locator(".st-key-grid .cell").nth(6).click()
    expect(made.locator(".st-key-head input")).to_have_value("L1H2", timeout=PATIENCE)
    expect(made.get_by_role("heading", name="L1H2", exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(made.locator(".st-key-attention .title")).to_have_text("L1H2")
    cell = made.locator(".st-key-grid .cell").nth(6)
    cell.focus()
    made.wait_for_timeout(700)
    sent = len(watch.frames)
    cell.press("ArrowLeft")
    made.wait_for_timeout(500)
    assert len(watch.frames) == sent  # going through the grid is the browser's
    made.keyboard.press("Enter")
    expect(made.locator(".st-key-head input")).to_have_value("L1H1", timeout=PATIENCE)
    made.keyboard.press("x")
    expect(made.locator(".st-key-ablate input")).to_have_value("L1H1", timeout=PATIENCE)
    assert unexpected(watch) == []


def test_j_k_x_and_v_do_what_their_buttons_do(tab, server: Server) -> None:
    made, watch = tab()
    ready(made, server)
    made.locator("h1").click()
    made.keyboard.press("j")
    expect(made.locator(".st-key-head input")).not_to_have_value("", timeout=PATIENCE)
    second = chosen(made)
    expect(made.get_by_text("2 of 8 in the list")).to_be_visible(timeout=PATIENCE)
    for _ in range(3):  # faster than the page can follow
        made.keyboard.press("j")
    expect(made.get_by_text("5 of 8 in the list")).to_be_visible(timeout=PATIENCE)
    for _ in range(3):
        made.keyboard.press("k")
    expect(made.get_by_text("2 of 8 in the list")).to_be_visible(timeout=PATIENCE)
    expect(made.locator(".st-key-head input")).to_have_value(second)
    made.keyboard.press("x")
    expect(made.locator(".st-key-ablate input")).to_have_value(second, timeout=PATIENCE)
    expect(made.get_by_role("button", name="In the ablation")).to_be_visible(timeout=PATIENCE)
    made.keyboard.press("x")
    expect(made.locator(".st-key-ablate input")).to_have_value("", timeout=PATIENCE)
    for unit, basis in (("stream units", "weighted"), ("logits", "signed"), ("attention", None)):
        made.keyboard.press("v")
        expect(made.locator(".st-key-attention .label").first).to_have_text(unit, timeout=PATIENCE)
        expect(made.get_by_text("2 of 8 in the list")).to_be_visible()
        made.wait_for_selector(IDLE)
        assert (address(made).get("basis") is None) == (basis is None)
    assert unexpected(watch) == []


def test_pointing_sends_nothing_and_what_is_locked_is_said_by_both(tab, server: Server) -> None:
    made, watch = tab()
    ready(made, server, "&head=L1H2")
    made.wait_for_timeout(1200)
    sent = len(watch.frames)
    for at in range(4):
        made.locator(".st-key-grid .cell").nth(at).hover()
    made.locator(".st-key-attention .token").nth(5).hover()
    made.wait_for_timeout(700)
    assert len(watch.frames) == sent
    made.locator(".st-key-attention .token").nth(7).click()
    expect(made.locator(".st-key-attention .live")).to_contain_text("locked", timeout=PATIENCE)
    said = made.locator(".st-key-attention .live").inner_text()
    query, key = re.search(r"query (\d+) .*key (\d+)", said).groups()
    caption = made.get_by_text(re.compile(rf"^locked: query {query} .* → key {key} "))
    expect(caption).to_be_visible(timeout=PATIENCE)
    value = re.search(r"(\d\.\d{3})", said).group(1)
    assert value in caption.inner_text()
    assert address(made)["cell"] == f"{query}.{key}"


def test_tabs_score_order_and_units_come_back_with_the_address(tab, server: Server) -> None:
    made, watch = tab()
    ready(made, server, "&head=L1H2")
    made.get_by_role("tab", name="Examples").click()
    expect(made.locator(".st-key-corpus_rows .line").first).to_be_visible(timeout=PATIENCE)
    made.locator(".st-key-kind button").filter(has_text="previous").click()
    expect(made.locator(".st-key-grid .scale").first).to_contain_text("on the token before", timeout=PATIENCE)
    made.get_by_role("tab", name="By this score").click()
    expect(made.locator(".st-key-panel-ranking")).to_be_visible(timeout=PATIENCE)
    made.locator(".st-key-basis button").filter(has_text="value-weighted").click()
    expect(made.locator(".st-key-corpus_rows .scale")).to_contain_text("stream units", timeout=PATIENCE)
    made.wait_for_url(re.compile("basis=value-weighted"))
    kept = address(made)
    assert kept["tab"] == "Examples"
    assert kept["kind"] == "previous"
    assert kept["order"] == "By this score"
    assert kept["basis"] == "value-weighted"

    other, _ = tab()
    other.goto(made.url)
    other.wait_for_selector(IDLE)
    expect(other.locator(".st-key-corpus_rows .scale")).to_contain_text("stream units", timeout=PATIENCE)
    expect(other.locator(".st-key-grid .scale").first).to_contain_text("on the token before", timeout=PATIENCE)
    expect(other.locator(".st-key-panel-ranking")).to_be_visible(timeout=PATIENCE)
    other.wait_for_selector(IDLE)
    assert address(other) == kept
    assert unexpected(watch) == []


def test_two_checkpoints_stand_side_by_side(tab, server: Server) -> None:
    made, watch = tab()
    ready(made, server, "&head=L1H2&b=whole@0")
    for key, said in (("grid", f"whole@{STEP}"), ("grid_b", "whole@0"), ("grid_gap", "−")):
        expect(made.locator(f".st-key-{key} .scale").first).to_contain_text(said, timeout=PATIENCE)
    pattern = made.locator(".st-key-attention canvas.pattern")
    pattern.scroll_into_view_if_needed()
    pattern.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        pattern.press(key)
    expect(made.locator(".st-key-attention .live")).to_contain_text("query 3")
    made.locator("h1").click()
    before = made.locator(".st-key-attention .legend").first.inner_text()
    made.keyboard.press("d")
    made.keyboard.press("d")
    expect(made.locator(".st-key-attention .legend").first).not_to_have_text(before, timeout=PATIENCE)
    made.keyboard.press("s")
    made.wait_for_url(re.compile("strip=by"), timeout=PATIENCE)
    assert address(made)["shows"] == "difference"
    made.reload()
    expect(made.get_by_role("button", name="attended by")).to_have_attribute("aria-pressed", "true", timeout=PATIENCE)
    expect(made.locator(".st-key-attention .segments [aria-pressed='true']").first).to_have_text("difference")
    assert unexpected(watch) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_fits_a_narrow_window_without_an_error(tab, server: Server, scheme: str) -> None:
    made, watch = tab(scheme)
    made.set_viewport_size({"width": 1024, "height": 900})
    ready(made, server, "&head=L0H1")
    for name in ("Examples", "QK & OV", "What it costs", "Over training", "Evidence", "Pattern"):
        made.get_by_role("tab", name=name).click()
        expect(made.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true", timeout=PATIENCE)
        made.wait_for_timeout(900)
        made.wait_for_selector(IDLE)
        assert made.locator("[data-testid='stException']").count() == 0
        assert made.get_by_text("BidiComponent Error").count() == 0
        assert made.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert unexpected(watch) == []
