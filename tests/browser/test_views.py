"""The views in Chromium, each as the page without a server that `analyses.views.page` writes: no network, no rerun.

Screenshots are left in screenshots/ to be looked at.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect

from analyses.views import (
    Frames,
    Scale,
    TokenRow,
    View,
    attention_payload,
    head_grid_payload,
    page,
    shown,
    token_rows_payload,
)
from tests.browser.browsing import SCREENSHOTS

pytestmark = pytest.mark.browser

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
    made.get_by_role("button", name="+", exact=True).click()
    made.get_by_role("button", name="+", exact=True).click()
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
    made = drawn(view, payload)
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
    assert len(content) > 5000
