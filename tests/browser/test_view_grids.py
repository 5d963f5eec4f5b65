"""The head grid in Chromium.

Each is the page without a server that `analyses.views.page` writes: no network, no rerun. Screenshots are left in
screenshots/ to be looked at.
"""

from __future__ import annotations

import pytest
import torch
from playwright.sync_api import expect

from analyses.views import Frames, Scale, head_grid_payload
from tests.browser.viewing import drawn, snapshot

__all__ = ["drawn"]  # a fixture

pytestmark = pytest.mark.browser


def test_the_page_follows_a_change_from_light_to_dark(drawn) -> None:
    made = drawn("head_grid", head_grid_payload(torch.tensor([[0.0, 1.0]]), "score"))
    cell = made.get_by_role("gridcell").first
    expect(cell).to_have_css("background-color", "rgb(255, 255, 255)")
    made.emulate_media(color_scheme="dark")
    expect(cell).to_have_css("background-color", "rgb(15, 21, 29)")


def test_a_grid_is_read_chosen_and_ablated_by_pointer_and_by_keys(drawn) -> None:
    values = torch.tensor([[0.1, 0.9], [0.5, float("nan")]])
    made = drawn("head_grid", head_grid_payload(values, "score", interval=(values - 0.1, values + 0.1), chosen="L0H0"))
    live, cells = made.locator(".live"), made.get_by_role("gridcell")
    cells.nth(2).hover()
    expect(live).to_have_text("L1H0   score 0.50   [0.40, 0.60]   rank 2 of 3")
    cells.nth(1).click()
    expect(made.locator(".cell.chosen")).to_have_count(1)
    expect(cells.nth(1)).to_have_attribute("aria-selected", "true")
    cells.nth(2).click(modifiers=["Shift"])
    expect(cells.nth(2)).to_have_accessible_name("layer 1 head 0: 0.50, in the ablation")
    cells.nth(1).focus()
    made.keyboard.press("ArrowDown")
    expect(cells.nth(3)).to_be_focused()
    expect(live).to_contain_text("L1H1   score –")
    made.keyboard.press("x")
    expect(made.locator(".cell.inset")).to_have_count(2)
    made.keyboard.press("x")
    expect(made.locator(".cell.inset")).to_have_count(1)
    made.keyboard.press("Enter")
    expect(made.locator(".cell.chosen")).to_have_text("–")
    assert made.locator(".cell[tabindex='0']").count() == 1
    assert made.get_by_role("row").count() == 3


def test_a_grid_moves_through_checkpoints_and_asks_for_one_on_release(drawn) -> None:
    values = torch.linspace(0, 1, 4)[:, None, None] * torch.ones(4, 2, 3)
    frames = Frames(steps=[0, 8, 64, 512], values=values, low=values - 0.02, high=values + 0.02)
    made = drawn("head_grid", head_grid_payload(None, "score", frames=frames, sparklines=True, chosen="L0H1"))
    slider, step = made.get_by_role("slider", name="training step"), made.locator(".step")
    first, ask = made.get_by_role("gridcell").first, made.get_by_role("button", name="open this step")
    expect(step).to_have_text("step 512")
    expect(ask).to_be_hidden()
    slider.focus()
    made.keyboard.press("ArrowLeft")
    expect(step).to_have_text("step 64")
    expect(first.locator(".value")).to_have_text("0.67")
    expect(slider).to_have_attribute("aria-valuetext", "step 64")
    first.hover()
    expect(made.locator(".live")).to_contain_text("score 0.67   [0.65, 0.69]")
    expect(ask).to_be_visible()  # nothing was asked for yet
    slider.focus()
    made.keyboard.press("Enter")
    expect(ask).to_be_hidden()  # the page answered: this is its step now
    expect(slider).to_be_focused()
    box = slider.bounding_box()
    made.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    expect(step).to_have_text("step 0")
    expect(ask).to_be_hidden()
    made.get_by_role("button", name="play").click()
    expect(step).to_have_text("step 512", timeout=5000)
    expect(made.get_by_role("button", name="play")).to_be_visible()
    expect(ask).to_be_visible()
    assert made.locator(".spark").count() == 6
    snapshot(made, "grid-frames")


def test_grids_are_compared_in_place(drawn) -> None:
    made = drawn(
        "head_grid",
        head_grid_payload(
            torch.tensor([[0.9, 0.2]]), "score", other=torch.tensor([[0.1, 0.2]]), names=("demo@64", "demo@0")
        ),
    )
    values = made.locator(".value")
    for shown_ones in (["0.90", "0.20"], ["0.10", "0.20"], ["0.80", "0.00"], ["0.90", "0.20"]):
        expect(values).to_have_text(shown_ones)
        made.keyboard.press("d")
    made.get_by_role("gridcell").first.hover()
    expect(made.locator(".live")).to_contain_text("demo@64 0.90  demo@0 0.10  difference 0.80")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_960_heads_are_read_at_1024_pixels_and_scroll_by_themselves(drawn, scheme: str) -> None:
    values = torch.rand(30, 32, generator=torch.Generator().manual_seed(0))
    payload = head_grid_payload(values, "score", scale=Scale(), chosen="L29H31")
    made = drawn("head_grid", payload, scheme, viewport={"width": 1024, "height": 800})
    last = made.get_by_role("gridcell", name="layer 29 head 31: ")
    last.scroll_into_view_if_needed()
    expect(made.get_by_text("H31", exact=True)).to_be_visible()
    assert made.evaluate("document.documentElement.scrollWidth <= innerWidth")
    text, box = last.locator(".value").bounding_box(), last.bounding_box()
    assert text["width"] <= box["width"]
    snapshot(made, f"grid-960-{scheme}")
