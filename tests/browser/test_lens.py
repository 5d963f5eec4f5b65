"""The lens table in a browser: pointing stays there, a click locks what Python then says, tokens are text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from analyses.views import lens_table_payload, page
from tests.analyses.test_lens_views import HOSTILE, seen
from tests.browser.browsing import IDLE, PATIENCE, Server, address, go, unexpected

pytestmark = pytest.mark.browser

TABLE = ".st-key-lens_table"


def cell(made, place: int, position: int, within: str = TABLE):
    return made.locator(f"{within} td.cell[data-place='{place}'][data-position='{position}']")


def test_pointing_and_arrows_send_nothing_and_a_click_locks_what_python_says(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "lens?run=whole&token=9")
    live = made.locator(f"{TABLE} .live")
    expect(live).to_contain_text("position 9")
    made.wait_for_timeout(1500)
    sent = len(watch.frames)
    for position in range(8):
        cell(made, 1, position).hover()
    expect(live).to_contain_text("position 7")
    expect(live).to_contain_text("at L0.mid")
    cell(made, 2, 3).focus()
    made.keyboard.press("ArrowDown")
    made.keyboard.press("ArrowRight")
    expect(live).to_contain_text("position 4")
    expect(live).to_contain_text("at L1.mid")
    made.wait_for_timeout(700)
    assert len(watch.frames) == sent
    made.keyboard.press("Enter")
    expect(made.get_by_role("heading", name=re.compile("^Position 4 "))).to_be_visible()
    expect(made.locator("strong").filter(has_text="Likeliest at L1.mid")).to_be_visible()
    expect(cell(made, 3, 4)).to_have_attribute("aria-selected", "true")
    cell(made, 1, 6).click()
    expect(made.get_by_role("heading", name=re.compile("^Position 6 "))).to_be_visible()
    expect(made.locator("strong").filter(has_text="Likeliest at L0.mid")).to_be_visible()
    expect(made).to_have_url(re.compile(r"token=6\b"), timeout=PATIENCE)
    expect(made).to_have_url(re.compile(r"place=L0\.mid\b"), timeout=PATIENCE)
    assert unexpected(watch) == []


def test_where_nothing_is_chosen_the_position_that_is_looked_at_is_in_sight(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "lens?run=whole&prompt=" + "def f(x):return x " * 2)
    position = made.locator(f"{TABLE} td.cell[data-place='0']").count() - 2
    expect(made.get_by_role("heading", name=re.compile(f"^Position {position} "))).to_be_visible()
    expect(cell(made, 0, position)).to_be_in_viewport()
    expect(cell(made, 0, 0)).not_to_be_in_viewport()
    expect(made.locator(f"{TABLE} [aria-selected='true']")).to_have_count(0)
    expect(made.locator(f"{TABLE} td.cell[tabindex='0']")).to_have_attribute("data-position", str(position))
    assert unexpected(watch) == []


def test_the_address_restores_the_view(tab, server: Server) -> None:
    made, _ = tab()
    go(made, server, "lens?run=whole&token=9&b=whole@0")
    made.locator(f"{TABLE} button").filter(has_text="KL to final").click()
    expect(made.locator(f"{TABLE} .scale")).to_contain_text("KL from the final prediction")
    cell(made, 2, 5).click()
    expect(made.get_by_role("heading", name=re.compile("^Position 5 "))).to_be_visible()
    expect(made.locator(".st-key-lens_target")).to_be_visible()
    said = made.locator(f"{TABLE} .live").inner_text()
    expect(made).to_have_url(re.compile(r"mode=divergence"), timeout=PATIENCE)
    expect(made).to_have_url(re.compile(r"place=L0\b"), timeout=PATIENCE)

    other, watch = tab()
    other.goto(made.url)
    other.wait_for_selector(IDLE)
    expect(other.locator(f"{TABLE} .live")).to_have_text(said, use_inner_text=True)
    expect(other.locator(f"{TABLE} .scale")).to_contain_text("KL from the final prediction")
    expect(other.get_by_role("heading", name=re.compile("^Position 5 "))).to_be_visible()
    assert address(other) == address(made)
    assert unexpected(watch) == []


def test_two_checkpoints_and_their_difference_are_chosen_in_the_browser(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "lens?run=whole&token=9&place=L1&b=whole@0")
    expect(made.locator(f"{TABLE} button").filter(has_text=re.compile(r"^whole@0$"))).to_be_visible()
    made.wait_for_timeout(1500)
    sent = len(watch.frames)
    made.locator(f"{TABLE} button").filter(has_text="−").click()
    expect(made.locator(f"{TABLE} .scale")).to_contain_text("whole@24 less whole@0")
    expect(made.locator(f"{TABLE} .live")).to_contain_text("log-probability, whole@24 less whole@0")
    made.wait_for_timeout(500)
    assert len(watch.frames) == sent
    assert unexpected(watch) == []


def test_keys_move_the_token_and_the_colours(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "lens?run=whole&token=9")
    made.get_by_role("heading", name="Lens", exact=True).click()
    made.keyboard.press("j")
    expect(made.get_by_role("heading", name=re.compile("^Position 10 "))).to_be_visible()
    expect(made.locator(f"{TABLE} th.head.at .number")).to_have_text("10")
    made.keyboard.press("v")
    expect(made.locator(f"{TABLE} .scale")).to_contain_text("KL from the final prediction")
    assert unexpected(watch) == []


def test_a_bar_selects_its_head(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "lens?run=whole&token=9&order=size")
    bar = made.locator(".st-key-lens_parts path[aria-label*='L1H']").first
    bar.scroll_into_view_if_needed()
    name = re.search(r"L1H\d", bar.get_attribute("aria-label") or "")
    assert name is not None
    bar.click(force=True)
    expect(made.get_by_role("link", name=f"{name[0]} in Heads")).to_be_visible()
    expect(made).to_have_url(re.compile(f"head={name[0]}"), timeout=PATIENCE)
    assert unexpected(watch) == []


def test_hostile_tokens_are_text_in_the_page_and_in_a_file(tab, server: Server, tmp_path: Path) -> None:
    made, watch = tab()
    made.on("dialog", lambda _: watch.errors.append("a dialog opened"))
    go(made, server, "lens?run=whole&prompt=<img src=x onerror=alert(1)>%E2%80%AE</script>")
    expect(made.locator(f"{TABLE} thead")).to_contain_text("<")
    assert made.locator(f"{TABLE} img, {TABLE} script").count() == 0
    assert unexpected(watch) == []

    file = tmp_path / "lens.html"
    text = seen()
    hostile = lens_table_payload(text) | {"tokens": [*HOSTILE[:2], *(["x"] * 10)]}
    file.write_text(page("lens_table", hostile, "A lens"), "utf-8")
    alone, seen_there = tab()
    alone.goto(file.as_uri())
    expect(alone.locator("thead .token").first).to_have_text(HOSTILE[0])
    cell(alone, 2, 4, "").click()
    expect(alone.locator(".live")).to_contain_text("locked")
    expect(cell(alone, 2, 4, "")).to_have_attribute("aria-selected", "true")
    alone.locator("button").filter(has_text="rank of target").click()
    expect(alone.locator(".scale")).to_contain_text("rank of the target")
    assert alone.locator(".lens-table img, .lens-table script").count() == 0
    assert seen_there.errors == []
    assert seen_there.requests == [file.as_uri()]
