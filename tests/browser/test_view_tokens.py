"""Token text in Chromium, hostile tokens in every view, and views saved as pictures.

Each is the page without a server that `analyses.views.page` writes: no network, no rerun. Screenshots are left in
screenshots/ to be looked at.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect

from analyses.views import (
    TokenRow,
    View,
    attention_payload,
    head_grid_payload,
    page,
    shown,
    token_rows_payload,
)
from tests.browser.browsing import SCREENSHOTS
from tests.browser.viewing import HOSTILE, causal_pattern, drawn, words

__all__ = ["drawn"]  # a fixture

pytestmark = pytest.mark.browser


def rows_of(tokens: list[str], **more) -> dict:
    n = len(tokens)
    row = TokenRow(
        tokens=tokens, values=[at / n - 0.5 for at in range(n)], second=[at % 3.0 for at in range(n)], start=5
    )
    return token_rows_payload([row], "harm, nats", second_label="KL, nats", hint="point at a token", **more)


def test_tokens_are_picked_by_click_and_keys_and_read_out(drawn) -> None:
    made = drawn("token_rows", rows_of(words(40), pick="token"))
    tokens, live = made.get_by_role("option"), made.locator(".live")
    tokens.nth(7).hover()
    expect(live).to_have_text("position 12  ‘·w7’   harm, nats -0.325   KL, nats 1.000")
    tokens.nth(7).click()
    expect(made.locator(".token.at")).to_have_text("·w7")
    tokens.nth(7).focus()
    made.keyboard.press("ArrowRight")
    expect(live).to_contain_text("position 13")
    made.keyboard.press("Enter")
    expect(made.locator("[aria-selected='true']")).to_have_text("·w8")
    made.keyboard.press("Escape")
    expect(made.locator(".token.at")).to_have_count(0)
    made.keyboard.press("Home")
    expect(tokens.first).to_be_focused()
    widths = [
        tokens.nth(at).evaluate("token => parseFloat(getComputedStyle(token).borderBottomWidth)") for at in (0, 1, 2)
    ]
    assert widths[0] == 0 < widths[1] < widths[2]


def test_copying_gives_the_text_as_it_was(drawn) -> None:
    made = drawn("token_rows", rows_of([" a", "\n", "\tb", " <i>"]))
    copied = made.evaluate(
        """() => {
          const root = document.querySelector(".cutaway-view").shadowRoot
          const tokens = root.querySelectorAll(".token")
          const range = document.createRange()
          range.setStart(tokens[0].firstChild, 0)
          range.setEnd(tokens[3].firstChild, 1)
          const selection = (root.getSelection ?? getSelection.bind(window)).call(root)
          selection.removeAllRanges()
          selection.addRange(range)
          const event = new ClipboardEvent("copy", { clipboardData: new DataTransfer(), bubbles: true, composed: true })
          tokens[0].dispatchEvent(event)
          return event.clipboardData.getData("text/plain")
        }"""
    )
    assert copied == " a\n\tb <i>"


@pytest.mark.parametrize("view", [View.ATTENTION, View.TOKEN_ROWS])
@pytest.mark.parametrize("host", ["page", "notebook"])
def test_hostile_tokens_are_text_in_a_page_and_in_a_notebook(drawn, view: View, host: str) -> None:
    payload = (
        attention_payload(causal_pattern(1, 2, len(HOSTILE)), HOSTILE)
        if view is View.ATTENTION
        else rows_of(HOSTILE, pick="token", break_lines=True)
    )
    cell = f"<!doctype html><meta charset='utf-8'><body>{shown(view, payload)._repr_html_()}"
    made = drawn(view, payload, html=cell if host == "notebook" else None)
    inside = made.frame_locator("iframe") if host == "notebook" else made
    expect(inside.locator(".tokens").first).to_contain_text("<img·src=x·onerror=alert(1)>")
    assert inside.locator(".token").count() == len(HOSTILE)
    assert inside.locator(".cutaway-view img, .cutaway-view script").count() == 0
    expect(inside.locator(".token").nth(3)).to_have_text("\\u202e")
    expect(inside.locator(".token").nth(2)).to_have_text("👩\u200d💻")
    inside.locator(".token").nth(8).hover()
    made.wait_for_timeout(200)
    if host == "notebook":
        height = made.locator("iframe").evaluate(
            "frame => [frame.clientHeight, frame.contentDocument.body.offsetHeight]"
        )
        assert abs(height[0] - height[1]) <= 20


@pytest.mark.parametrize("view", ["attention", "head_grid", "token_rows"])
def test_what_is_shown_is_saved_as_a_picture(drawn, tmp_path: Path, view: str) -> None:
    payload = {
        "attention": lambda: attention_payload(causal_pattern(1, 2, len(HOSTILE)), HOSTILE, lock=(3, 2)),
        "head_grid": lambda: head_grid_payload(torch.rand(2, 4), "score", chosen="L0H1"),
        "token_rows": lambda: rows_of(words(6) + HOSTILE),
    }[view]()
    said = ["demo@512", "n = 64 sequences", "seed 0", "x" * 150, "y" * 150]
    made = drawn(view, payload, html=page(view, payload, "A view", said))
    with made.expect_download() as download:
        made.get_by_role("button", name="PNG").click()
    file = SCREENSHOTS / f"view-saved-{view}.png"
    SCREENSHOTS.mkdir(exist_ok=True)
    download.value.save_as(file)
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG")
    width = int.from_bytes(content[16:20], "big")
    root = made.locator(f".{view.replace('_', '-')}")
    assert width == pytest.approx(2 * (root.bounding_box()["width"] + 24), abs=2)
    height = int.from_bytes(content[20:24], "big")
    assert height == pytest.approx(2 * (root.bounding_box()["height"] + 24 + 2 * 15), abs=2), "two lines below it"
    assert len(content) > 5000
