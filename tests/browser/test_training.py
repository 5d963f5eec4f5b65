"""The page of training in a browser: moving through checkpoints costs nothing, and choosing one counts everywhere."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.browsing import IDLE, SCREENSHOTS, Server, address, go, menu, unexpected
from tests.dashboard_runs import STEP

pytestmark = pytest.mark.browser

STEPS = (0, 1, 2, 4, 8, 16, STEP)


def test_scrubbing_sends_nothing_and_letting_go_chooses_the_step_for_every_page(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, f"training?run=whole&step={STEP}")
    grid = made.locator(".st-key-training_grid")
    slider, said = grid.get_by_role("slider", name="training step"), grid.locator(".step")
    expect(said).to_have_text(f"step {STEP}")
    first = grid.get_by_role("gridcell").first
    before, sent = first.inner_text(), len(watch.frames)
    slider.focus()
    for step in reversed(STEPS[:-1]):
        made.keyboard.press("ArrowLeft")
        expect(said).to_have_text(f"step {step}")
    made.keyboard.press("ArrowRight")
    expect(said).to_have_text("step 1")
    made.wait_for_timeout(500)
    assert len(watch.frames) == sent, "moving through training asks the server nothing"
    assert address(made)["step"] == str(STEP)
    assert first.inner_text() != before or before == ""
    made.keyboard.press("ArrowRight")
    made.keyboard.press("Enter")
    expect(made.locator(".st-key-step input")).to_have_value("2")
    assert address(made)["step"] == "2"
    expect(slider).to_be_focused()
    grid.get_by_role("gridcell", name="layer 1 head 2").click()
    expect(made.locator(".st-key-head input")).to_have_value("L1H2")
    menu(made, "Heads")
    expect(made.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    expect(made.get_by_text("whole@2").first).to_be_visible()
    assert {name: address(made)[name] for name in ("run", "step", "head")} == {
        "run": "whole",
        "step": "2",
        "head": "L1H2",
    }
    assert unexpected(watch) == []


def test_a_click_on_a_figure_chooses_the_nearest_checkpoint_and_so_does_the_same_click_again(
    tab, server: Server
) -> None:
    made, watch = tab()
    go(made, server, f"training?run=whole&step={STEP}&scale=log")
    figure = made.locator(".st-key-head_lines svg.marks")
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    assert box is not None
    wanted = made.locator(".st-key-step input")
    for _ in range(2):
        figure.click(position={"x": 70, "y": box["height"] / 2})  # beside the axis, where step 0 is
        expect(wanted).to_have_value("0")
        made.keyboard.press("]")
        expect(wanted).to_have_value("1")
    figure.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
    made.wait_for_selector(IDLE)
    sent = len(watch.frames)
    for at in range(40):
        made.mouse.move(box["x"] + 80 + 10 * at, box["y"] + 60 + at)
    made.wait_for_timeout(400)
    assert len(watch.frames) == sent, "pointing at a figure asks the server nothing"
    assert unexpected(watch) == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1024)])
def test_figures_line_up_and_nothing_overflows(tab, server: Server, scheme: str, width: int) -> None:
    made, watch = tab(scheme, viewport={"width": width, "height": 2600})
    go(made, server, f"training?run=whole&step={STEP}&b=whole@8")
    expect(made.locator(".st-key-head_lines svg.marks")).to_be_visible()
    made.wait_for_selector(IDLE)
    boxes = [made.locator(f".st-key-{key} svg.marks").bounding_box() for key in ("losses", "icl", "head_lines")]
    assert len({(box["x"], box["width"]) for box in boxes if box}) == 1
    assert made.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    SCREENSHOTS.mkdir(exist_ok=True)
    made.screenshot(path=SCREENSHOTS / f"training-{scheme}-{width}.png")
    assert unexpected(watch) == []
