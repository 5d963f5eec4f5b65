"""The attention view in Chromium.

Each is the page without a server that `analyses.views.page` writes: no network, no rerun. Screenshots are left in
screenshots/ to be looked at.
"""

from __future__ import annotations

import json
import re

import pytest
import torch
from playwright.sync_api import expect

from analyses.views import attention_payload
from tests.browser.viewing import causal_pattern, cell_at, drawn, read, snapshot, words

__all__ = ["drawn"]  # a fixture

pytestmark = pytest.mark.browser


def test_pointing_reads_clicking_locks_escape_releases(drawn) -> None:
    pattern = causal_pattern(2, 4, 24)
    made = drawn("attention", attention_payload(pattern, words(24), head=(1, 2)))
    live = made.locator(".live")
    made.mouse.move(*cell_at(made, 9, 4))
    expect(live).to_have_text(f"query 9 ‘·w9’ → key 4 ‘·w4’   {float(pattern[1, 2, 9, 4]):.3f}")
    made.mouse.move(*cell_at(made, 4, 9))  # masked
    expect(live).to_contain_text("point at a cell")
    made.mouse.click(*cell_at(made, 12, 3))
    expect(live).to_contain_text("query 12 ‘·w12’ → key 3 ‘·w3’")
    made.mouse.move(0, 0)
    expect(live).to_contain_text("· locked")
    made.mouse.move(*cell_at(made, 20, 20))
    expect(live).to_contain_text("query 20")
    made.mouse.move(0, 0)
    expect(live).to_contain_text("query 12")
    made.locator("canvas.pattern").press("Escape")
    expect(live).to_contain_text("point at a cell")


def test_keys_alone_reach_lock_and_release_a_cell_and_focus_is_seen(drawn) -> None:
    made = drawn("attention", attention_payload(causal_pattern(1, 2, 24), words(24)))
    canvas, live = made.get_by_role("application", name="attention pattern"), made.locator(".live")
    made.get_by_role("button", name="head L0H0").focus()
    made.keyboard.press("ArrowRight")
    expect(made.get_by_role("button", name="head L0H1")).to_be_focused()
    made.keyboard.press("Enter")
    expect(made.locator(".title")).to_have_text("L0H1")
    canvas.focus()
    made.keyboard.press("Tab")
    made.keyboard.press("Shift+Tab")
    assert canvas.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    for key in ("ArrowDown", "ArrowDown", "PageDown", "End", "ArrowLeft"):
        made.keyboard.press(key)
    expect(live).to_contain_text("query 12 ‘·w12’ → key 11 ‘·w11’")
    made.keyboard.press("Enter")
    expect(live).to_contain_text("· locked")
    assert made.locator(".live").get_attribute("aria-live") == "polite"
    made.keyboard.press("Escape")
    made.locator("h1").click()
    expect(live).to_contain_text("point at a cell")


def test_s_swaps_source_and_destination(drawn) -> None:
    pattern = torch.zeros(1, 1, 6, 6)
    pattern[0, 0, 4, 1] = pattern[0, 0, 5, 4] = 1.0
    made = drawn("attention", attention_payload(pattern, words(6), lock=(4, 1)))
    coloured = made.locator(".token[style*='background: rgb']")
    expect(coloured).to_have_text(["·w1"])  # what 4 attends to
    made.keyboard.press("s")
    expect(made.get_by_role("button", name="attended by")).to_have_attribute("aria-pressed", "true")
    expect(coloured).to_have_text(["·w4"])  # who attends to 1
    made.locator(".token").nth(4).hover()
    expect(made.locator(".live")).to_contain_text("query 5 ‘·w5’ → key 4")
    made.get_by_role("button", name="attended by").click()
    made.locator(".token").nth(4).hover()
    expect(made.locator(".live")).to_contain_text("query 4 ‘·w4’ → key 1")


def test_d_goes_through_both_patterns_and_their_difference(drawn) -> None:
    first, second = causal_pattern(1, 2, 24), causal_pattern(1, 2, 24, seed=1)
    payload = attention_payload(first, words(24), other=second, names=("intact", "ablated"), lock=(9, 4))
    made = drawn("attention", payload)
    a, b = float(first[0, 0, 9, 4]), float(second[0, 0, 9, 4])
    said = f"query 9 ‘·w9’ → key 4 ‘·w4’   intact {a:.3f}  ablated {b:.3f}  difference {a - b:.3f}  · locked"
    expect(made.locator(".live")).to_have_text(said)
    pressed = made.locator(".segments [aria-pressed='true']")
    legend = made.locator(".legend")
    pictures = [made.locator("canvas.paint").screenshot()]
    for name in ("ablated", "difference"):
        made.keyboard.press("d")
        expect(pressed).to_have_text(name)
        pictures.append(made.locator("canvas.paint").screenshot())
    assert len(set(pictures)) == 3
    reach = float((first - second).abs().max())
    expect(legend).to_have_text(f"-{reach:.2f}{reach:.2f}")
    expect(made.locator(".label")).to_have_text("attention: intact − ablated")
    snapshot(made, "difference")
    made.keyboard.press("d")
    expect(pressed).to_have_text("intact")
    expect(legend).to_have_text("0.001.00")


def test_position_0_is_left_out_of_the_colours_or_the_rest_told_of_itself(drawn) -> None:
    pattern = torch.zeros(1, 1, 4, 4)
    pattern[0, 0, 0, 0] = 1
    pattern[0, 0, 1:, 0] = 0.8
    pattern[0, 0, 3, 1] = 0.05
    pattern[0, 0, 3, 2] = 0.15
    made = drawn("attention", attention_payload(pattern, words(4), lock=(3, 2)))
    made.get_by_role("button", name="scale to max").click()
    legend, label, live = made.locator(".legend"), made.locator(".label"), made.locator(".live")
    expect(legend).to_have_text("0.001.00")
    choice = made.get_by_role("combobox", name="position 0")
    choice.select_option("position 0 left out")
    expect(legend).to_have_text("0.000.15")
    expect(label).to_have_text("attention, position 0 left out")
    expect(made.locator(".token[style*='background: rgb']")).to_have_text(["·w1", "·w2"])
    choice.select_option("position 0 rest renormalised")
    expect(legend).to_have_text("0.000.75")
    expect(live).to_have_text("query 3 ‘·w3’ → key 2 ‘·w2’   0.150   0.750 of the rest  · locked")


def test_one_scale_for_all_heads_or_this_head_alone(drawn) -> None:
    pattern = torch.zeros(1, 2, 4, 4)
    pattern[0, 0, 3, 1], pattern[0, 1, 3, 1] = 0.2, 0.9
    made = drawn("attention", attention_payload(pattern, words(4)))
    legend = made.locator(".legend")
    expect(legend).to_have_text("0.001.00")
    made.get_by_role("button", name="scale to max").click()
    expect(legend).to_have_text("0.000.20")
    made.get_by_role("button", name="head L0H1").click()
    expect(legend).to_have_text("0.000.90")


def test_a_long_text_has_an_overview_and_a_crop_that_moves(drawn) -> None:
    pattern = causal_pattern(1, 8, 512)
    made = drawn("attention", attention_payload(pattern, words(512), head=(0, 2), lock=(300, 200)))
    live, far = made.locator(".live"), made.locator("canvas.overview")
    expect(made.locator(".badge")).to_have_text("512 tokens, max-pooled 2x; the frame is drawn in full")
    expect(live).to_have_text(f"query 300 ‘·w300’ → key 200 ‘·w200’   {float(pattern[0, 2, 300, 200]):.3f}  · locked")
    made.mouse.move(*cell_at(made, 0, 0))
    expect(live).to_contain_text("query 268 ‘·w268’ → key 168")
    far.click(position={"x": 20, "y": 220})  # half a pixel a position, and clicks fall on whole pixels
    made.mouse.move(*cell_at(made, 32, 32))
    query, key = read(made)
    assert (query, key) == (pytest.approx(440, abs=2), pytest.approx(40, abs=2))
    made.mouse.down()
    made.mouse.up()
    weight = float(pattern[0, 2, query, key])
    expect(live).to_have_text(f"query {query} ‘·w{query}’ → key {key} ‘·w{key}’   {weight:.3f}  · locked")
    box = far.bounding_box()
    made.mouse.move(box["x"] + 31, box["y"] + 101)
    expect(live).to_contain_text("largest")
    row, column = (int(at) for at in re.findall(r"s (\d+)–", live.inner_text()))
    largest = float(pattern[0, 2, row : row + 2, column : column + 2].max())
    said = f"queries {row}–{row + 1} → keys {column}–{column + 1}   largest {largest:.3f}"
    expect(live).to_have_text(said)
    made.mouse.down()
    made.mouse.move(box["x"] + 60, box["y"] + 130)
    made.mouse.up()
    made.mouse.move(*cell_at(made, 32, 32))
    dragged = read(made)
    assert dragged == (pytest.approx(260, abs=2), pytest.approx(120, abs=2))
    far.focus()
    made.keyboard.press("ArrowDown")
    made.mouse.move(0, 0)
    made.mouse.move(*cell_at(made, 32, 32))
    expect(live).to_contain_text(f"query {dragged[0] + 32} ")
    assert read(made) == (dragged[0] + 32, dragged[1])
    made.get_by_role("button", name="Show less of the text, larger").click()
    made.get_by_role("button", name="Show less of the text, larger").click()
    expect(made.locator("canvas.pattern")).to_have_css("width", re.compile(r"(3[7-9]\d|4[01]\d)px"))  # 16 by 22
    canvas = made.locator("canvas.pattern")
    canvas.focus()
    canvas.press("Escape")
    for _ in range(3):
        canvas.press("PageUp")
    expect(live).to_contain_text("‘")
    assert made.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_head_that_was_not_sent_is_shown_pooled_and_says_so(drawn) -> None:
    pattern = causal_pattern(1, 8, 512)
    made = drawn("attention", attention_payload(pattern, words(512), head=(0, 2)))
    made.get_by_role("button", name="head L0H5").hover()
    expect(made.locator(".title")).to_have_text("L0H5  (preview)")
    expect(made.locator(".sent")).to_have_text("L0H5 as sent with the thumbnails: max-pooled 8x")
    made.get_by_role("button", name="head L0H5").click()
    expect(made.locator(".title")).to_have_text("L0H5")
    expect(made.locator(".thumb.chosen")).to_have_text("L0H5")
    made.mouse.move(*cell_at(made, 63, 0))
    expect(made.locator(".live")).to_contain_text("(largest of 8 by 8)")


def test_512_tokens_and_32_heads_are_light_and_pointing_takes_one_frame(drawn) -> None:
    payload = attention_payload(causal_pattern(4, 8, 512), words(512), head=(2, 3), lock=(400, 390))
    assert len(json.dumps(payload)) <= 4_000_000
    made = drawn("attention", payload)
    expect(made.locator(".live")).to_contain_text("locked")
    work = made.evaluate(
        """async () => {
          const root = document.querySelector(".cutaway-view").shadowRoot
          const canvas = root.querySelector("canvas.pattern")
          const box = canvas.getBoundingClientRect()
          const frame = () => new Promise((done) => requestAnimationFrame(() => {
            const painted = new MessageChannel()
            painted.port1.onmessage = done
            painted.port2.postMessage(0)
          }))
          const medians = []
          for (let round = 0; round < 3; round++) {
            const times = []
            for (let i = 0; i < 30; i++) {
              await frame()
              const start = performance.now()
              const [clientX, clientY] = [box.left + 70 + ((37 * i) % 400), box.top + 20 + ((23 * i) % 400)]
              canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }))
              await frame()
              times.push(performance.now() - start)
            }
            medians.push(times.sort((a, b) => a - b)[15])
          }
          return medians
        }"""
    )
    assert min(work) <= 50, f"median milliseconds from an event to what it paints, three times: {work}"


def test_a_pattern_is_as_sharp_as_the_screen(drawn) -> None:
    payload = attention_payload(causal_pattern(1, 2, 24), words(24), lock=(9, 4))
    made = drawn("attention", payload, device_scale_factor=2)
    sizes = "element => [element.width, element.getBoundingClientRect().width]"
    for name in ("canvas.paint", "canvas.pattern"):
        drawn_on, shown_on = made.locator(name).evaluate(sizes)
        assert drawn_on == 2 * shown_on
    made.mouse.move(*cell_at(made, 12, 7))
    expect(made.locator(".live")).to_contain_text("query 12 ‘·w12’ → key 7")
    snapshot(made, "sharp")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [24, 128, 512])
def test_patterns_are_drawn_in_light_and_dark(drawn, size: int, scheme: str) -> None:
    made = drawn("attention", attention_payload(causal_pattern(2, 8, size), words(size), lock=(size - 2, 4)), scheme)
    expect(made.locator(".live")).to_contain_text("locked")
    ground = made.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 21, 29)"}[scheme]
    snapshot(made, f"attention-{size}-{scheme}")
