"""What panels give away as files, and what long texts weigh: in a real browser."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bench.dashboard import payload_bytes
from bench.dashboard_browser import hover
from tests.browser.browsing import PATIENCE, Server, go, unexpected

pytestmark = pytest.mark.browser


def menu(made, title: str):
    """Open the menu of a panel by the name that a screen reader says."""
    made.get_by_role("button", name=f"Export {title}", exact=True).click()
    expect(inside(made).get_by_role("button", name="CSV", exact=True)).to_be_visible(timeout=PATIENCE)


def inside(made):
    """What the open menu holds."""
    return made.get_by_test_id("stPopoverBody")


def downloaded(made, kind: str, folder: Path) -> Path:
    with made.expect_download() as caught:
        inside(made).get_by_role("button", name=kind, exact=True).click()
    file = folder / caught.value.suggested_filename
    caught.value.save_as(file)
    return file


def test_a_figure_is_had_as_picture_and_as_numbers(tab, server: Server, tmp_path: Path) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole&step=24&memory=L1M5")
    expect(inside(made)).to_have_count(0)
    menu(made, "Tokens that L1M5 promotes and suppresses")
    png, svg, table, told = (downloaded(made, kind, tmp_path) for kind in ("PNG", "SVG", "CSV", "JSON"))
    assert {file.name for file in (png, svg, table, told)} == {
        f"whole-24-value.{ending}" for ending in ("png", "svg", "csv", "json")
    }
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text("utf-8").startswith("<svg")
    rows = list(csv.DictReader(io.StringIO(table.read_bytes().decode("utf-8"), newline="")))
    content = json.loads(told.read_text("utf-8"))
    assert len(rows) == len(content["rows"]) == 20
    assert [float(row["score"]) for row in rows] == [row["score"] for row in content["rows"]]
    assert content["about"]["memory"] == "L1M5"
    assert (content["about"]["run"], content["about"]["step"], content["about"]["seed"]) == ("whole", 24, 0)
    assert "memory=L1M5" in content["address"]
    assert "notes=" not in content["address"]
    expect(made.get_by_text("rows = promoted_rows(result, (1, 5))")).to_be_visible(timeout=PATIENCE)
    assert not unexpected(watch)


def test_an_exported_view_opens_from_disk_without_a_network(
    tab, server: Server, chromium: Browser, tmp_path: Path
) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole&step=24&memory=L1M5")
    menu(made, "Prefixes of L1M5: strongest")
    file = downloaded(made, "HTML", tmp_path)
    shown = made.locator(".st-key-triggers .lines").inner_text()
    context = chromium.new_context(offline=True)
    try:
        page, requests = context.new_page(), []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        expect(page.locator(".lines").first).to_be_visible(timeout=PATIENCE)
        assert page.locator(".lines").first.inner_text() == shown
        assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    finally:
        context.close()
    assert not unexpected(watch)


def test_a_panel_is_pinned_from_its_menu_and_the_menu_closes(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole&step=24&memory=L1M5")
    menu(made, "Tokens that L1M5 promotes and suppresses")
    inside(made).get_by_role("button", name="Pin", exact=True).click()
    expect(made.get_by_text("Pinned to Findings: Tokens that L1M5 promotes and suppresses")).to_be_visible(
        timeout=PATIENCE
    )
    expect(inside(made)).to_have_count(0, timeout=PATIENCE)
    made.wait_for_function("new URL(location).searchParams.get('notes')")
    assert not unexpected(watch)


def test_opening_a_menu_does_not_run_the_page(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole&step=24&memory=L1M5")
    sent = len(watch.frames)
    menu(made, "Tokens that L1M5 promotes and suppresses")
    assert len(watch.frames) == sent + 1, "one message asks for the menu"
    assert not unexpected(watch)


@pytest.mark.parametrize(("n_heads", "most"), [(8, 0.4e6), (32, 4e6)])
def test_long_texts_are_sent_within_bounds(n_heads: int, most: float) -> None:
    assert payload_bytes(n_heads, 512) <= most


def test_pointing_at_a_long_text_is_painted_at_once(chromium: Browser) -> None:
    taken = hover(chromium, 512, 32, 20)
    assert taken["script"]["median_ms"] <= 50
