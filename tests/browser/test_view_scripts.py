"""The views' scripts by themselves: their state, their geometry and their colours, without a page to draw on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from analyses.views import attention_payload, lens_table_payload, sources
from analyses.views.sources import standalone
from tests.analyses.test_lens_views import seen
from tests.browser.viewing import causal_pattern, words

pytestmark = pytest.mark.browser

LOAD = """async (code) => {
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }))
  globalThis.m = await import(address)
}"""


@pytest.fixture
def script(tab):
    """Load a view's script into an empty page; `run` evaluates an expression in which it is called `m`."""

    def load(view: str) -> Any:
        made, watch = tab()
        made.goto("about:blank")
        made.evaluate(LOAD, f"{sources(view).js}\n{standalone()}")
        assert watch.errors == []
        return made.evaluate

    return load


def test_pointing_locking_and_releasing(script) -> None:
    run = script("attention")
    a, b = {"query": 3, "key": 1}, {"query": 4, "key": 0}

    def after(hover: Any, lock: Any, **event: Any) -> Any:
        return run("([state, event]) => m.reduced(state, event)", [{"hover": hover, "lock": lock}, event])

    assert after(None, None, type="point", cell=a) == {"hover": a, "lock": None}
    assert after(a, b, type="leave") == {"hover": None, "lock": b}
    assert after(a, None, type="press", cell=a) == {"hover": None, "lock": a, "send": True}
    assert after(None, a, type="press", cell=b) == {"hover": None, "lock": b, "send": True}
    assert after(None, a, type="press", cell=a) == {"hover": None, "lock": None, "send": True}
    assert after(a, b, type="enter") == {"hover": None, "lock": a, "send": True}
    assert after(None, b, type="enter") == {"hover": None, "lock": b, "send": False}
    assert after(a, b, type="escape") == {"hover": None, "lock": None, "send": True}
    assert after(a, None, type="escape") == {"hover": None, "lock": None, "send": False}
    assert after(a, None, type="confirm", cell=b) == {"hover": a, "lock": b}


def test_keys_move_within_the_text_and_never_into_what_is_masked(script) -> None:
    run = script("attention")

    def moved(query: int, key: int, name: str, *, causal: bool = True) -> list[int]:
        code = "([cell, name, causal]) => { const to = m.moved(cell, name, 12, causal); return [to.query, to.key] }"
        return run(code, [{"query": query, "key": key}, name, causal])

    assert moved(3, 3, "ArrowRight") == [3, 3]
    assert moved(3, 3, "ArrowRight", causal=False) == [3, 4]
    assert moved(3, 3, "ArrowUp") == [2, 2]
    assert moved(0, 0, "ArrowUp") == [0, 0]
    assert moved(11, 4, "ArrowDown") == [11, 4]
    assert moved(3, 2, "Home") == [3, 0]
    assert moved(3, 0, "End") == [3, 3]
    assert moved(3, 0, "End", causal=False) == [3, 11]
    assert moved(5, 4, "PageUp") == [0, 0]
    assert moved(5, 4, "PageDown") == [11, 4]
    assert moved(5, 4, "z") == [5, 4]


def test_a_point_of_the_canvas_is_one_cell_of_the_text(script) -> None:
    run = script("attention")

    def hit(x: float, y: float, *, causal: bool = True) -> Any:
        code = "([x, y, data]) => m.hit(x, y, { query: 40, key: 20, side: 16 }, 8, data)"
        return run(code, [x, y, {"size": 50, "causal": causal}])

    assert hit(0, 0) == {"query": 40, "key": 20}
    assert hit(7.9, 8.1) == {"query": 41, "key": 20}
    assert hit(127.9, 0) == {"query": 40, "key": 35}
    assert hit(128, 0) is None
    assert hit(-0.1, 0) is None
    assert hit(0, 80) is None  # beyond the last token
    code = "() => m.hit(8, 0, { query: 5, key: 5, side: 8 }, 8, { size: 50, causal: true })"
    assert run(code) is None
    assert run(code.replace("causal: true", "causal: false")) == {"query": 5, "key": 6}


def test_crops_hold_their_cell_and_stay_in_the_text(script) -> None:
    run = script("attention")
    around = "([q, k, side, size]) => Object.values(m.cropAround({ query: q, key: k }, side, size))"
    assert run(around, [300, 10, 64, 512]) == [268, 0, 64]
    assert run(around, [511, 511, 64, 512]) == [448, 448, 64]
    assert run(around, [3, 3, 64, 24]) == [0, 0, 24]
    holding = "([q, k]) => Object.values(m.cropHolding({ query: 100, key: 50, side: 64 }, { query: q, key: k }, 512))"
    assert run(holding, [164, 49]) == [101, 49, 64]
    assert run(holding, [120, 60]) == [100, 50, 64]
    zoomed = "([side, size, closer]) => m.zoomed(side, size, closer)"
    assert [run(zoomed, each) for each in ([64, 512, True], [128, 512, False], [16, 512, True])] == [32, 128, 16]
    assert [run(zoomed, each) for each in ([64, 100, False], [100, 100, False], [24, 24, True])] == [100, 100, 16]
    assert run("() => [24, 128, 129, 512].map(m.firstCrop)") == [24, 128, 64, 64]


def test_pooled_levels_come_back_with_their_sign_and_zero_is_zero(script) -> None:
    run = script("attention")
    back = "([level, kind]) => m.pooledLevel(level, { kind, low: kind === 'diverging' ? -2 : 0, high: 2 })"
    assert run(back, [0, "diverging"]) == -2
    assert run(back, [255, "diverging"]) == 2
    assert run(back, [127, "diverging"]) == run(back, [128, "diverging"]) == 0
    assert run(back, [255, "sequential"]) == 2
    assert abs(run(back, [round(255 * 0.25**0.5), "sequential"]) - 0.5) < 0.01


@pytest.mark.parametrize(("background", "text"), [("#ffffff", "#1b2430"), ("#0f151d", "#e3e8ee"), ("#0e1117", "#fff")])
def test_ink_can_be_read_on_every_colour_of_every_ramp(script, background: str, text: str) -> None:
    run = script("attention")
    lowest = run(
        """([background, text]) => {
          document.body.style.setProperty("--st-background-color", background)
          document.body.style.setProperty("--st-text-color", text)
          const colors = m.palette(document.body)
          const contrast = (a, b) => {
            const [dark, light] = [m.luminance(a), m.luminance(b)].sort((x, y) => x - y)
            return (light + 0.05) / (dark + 0.05)
          }
          const ramps = [...colors.sequential, ...colors.diverging]
          return {
            ink: Math.min(...ramps.map((rgb) => contrast(rgb, m.parseColor(m.inkOn(rgb))))),
            faint: contrast(m.parseColor(colors.faint), colors.background),
            zero: [colors.sequential[0], colors.diverging[127], colors.diverging[128], colors.background],
            blank: contrast(m.parseColor(colors.muted), colors.background),
          }
        }""",
        [background, text],
    )
    assert lowest["ink"] >= 4.5
    assert lowest["faint"] >= 4.5
    assert lowest["zero"][0] == lowest["zero"][1] == lowest["zero"][2] == lowest["zero"][3]
    assert lowest["blank"] > 1.05  # what is masked is not the colour of zero


def test_a_ramp_never_turns_back_in_lightness_so_that_more_is_seen_as_more(script) -> None:
    run = script("attention")
    for background in ("#ffffff", "#0f151d"):
        steps = run(
            """(background) => {
              document.body.style.setProperty("--st-background-color", background)
              const light = (lut) => lut.map((rgb) => m.toOklab(rgb)[0])
              const { sequential, diverging } = m.palette(document.body)
              return [light(sequential), light(diverging.slice(128)), light(diverging.slice(0, 128).reverse())]
            }""",
            background,
        )
        for lightness in steps:
            sign = 1 if lightness[-1] > lightness[0] else -1
            assert all(sign * (b - a) >= -2e-3 for a, b in pairwise(lightness))


def test_positions_on_a_scale(script) -> None:
    run = script("attention")
    at = "([value, scale]) => m.position(value, scale)"
    signed = {"kind": "diverging", "low": -2, "high": 1}
    assert [run(at, [value, signed]) for value in (-2, 0, 2, 9)] == [0, 0.5, 1, 1]
    assert run(at, [0.25, {"kind": "sequential", "low": 0, "high": 1, "root": True}]) == 0.5
    assert run(at, [-0.5, {**signed, "root": True}]) == 0.25


def test_an_early_confirmation_does_not_undo_a_later_click(script) -> None:
    run = script("attention")
    state = """([value, now]) => {
      let sent = m.expecting({}, "lock", { query: 1, key: 0 }, 0)
      sent = m.expecting(sent, "lock", { query: 2, key: 0 }, 100)
      return m.settled(sent, "lock", value, now)
    }"""
    assert run(state, [{"query": 1, "key": 0}, 200]) is False
    assert run(state, [{"query": 2, "key": 0}, 200]) is True
    assert run(state, [{"query": 1, "key": 0}, 4000]) is True  # the host has the last word
    assert run("() => m.settled({}, 'lock', null, 0)") is True


def test_the_grid_ranks_and_moves_through_frames(script) -> None:
    run = script("head_grid")
    assert run("() => [m.rankOf([[0.1, null], [0.5, 0.5]], 0, 0), m.rankOf([[0.1, null]], 0, 1)]") == [3, None]
    assert run("() => m.countOf([[0.1, null], [0.5, 0.5]])") == 3
    frames = "({ steps: [0, 8], of: 8, values: Float32Array.of(1, 2, NaN, 4), low: null, high: null })"
    data = "({ values: [[5, 6]], low: [[4, 5]], high: [[6, 7]], marks: [['a', 'b']], sure: null })"
    assert run(f"() => m.gridAt({data}, {frames}, 1)")["marks"] == [["a", "b"]]
    assert run(f"() => m.gridAt({data}, {frames}, 0)") == {
        "values": [[1, 2]],
        "low": None,
        "high": None,
        "marks": None,
        "sure": None,
    }
    assert run(f"() => m.seriesOf({frames}, 0, 0, 1, 2)") == [1, None]
    path = run("() => m.linePath([0, null, 1, 0.5], { kind: 'sequential', low: 0, high: 1 })")
    assert path == "M0.0 19.0M66.7 1.0L100.0 10.0"


def test_a_page_without_a_server_answers_what_is_picked(script) -> None:
    run = script("token_rows")
    answered = "([data, picked]) => m.answered(data, picked)"
    assert run(answered, [{"lock": None}, {"cell": "7.3"}])["lock"] == {"query": 7, "key": 3}
    assert run(answered, [{"lock": {}}, {"cell": ""}])["lock"] is None
    assert run(answered, [{"set": ["L0H1"]}, {"toggle": "L0H1"}])["set"] == []
    assert run(answered, [{"set": []}, {"toggle": "L0H1"}])["set"] == ["L0H1"]
    assert run(answered, [{"held": [0], "heads": ["L0H0", "L0H1"]}, {"head": "L0H1"}])["look"] == 1
    assert run(answered, [{"chosen": None}, {"head": "L0H1"}])["chosen"] == "L0H1"
    assert run(answered, [{}, {"step": "512"}])["step"] == 512
    assert run(answered, [{"token": 4}, {"token": ""}])["token"] is None
    assert run("() => [m.thickness(0, 1), m.thickness(-1, 2), m.thickness(null, 1), m.thickness(9, 1)]") == [0, 2, 0, 4]


def test_the_line_under_a_picture_is_broken_between_its_parts(script) -> None:
    run = script("head_grid")
    code = "([parts, most]) => m.wrapped(parts, most, (text) => text.length)"
    assert run(code, [["demo@512", "n = 64", "seed 0"], 17]) == ["demo@512 · n = 64", "seed 0"]
    assert run(code, [["demo@512", "n = 64", "seed 0"], 3]) == ["demo@512", "n = 64", "seed 0"]
    assert run(code, [[], 3]) == []


@pytest.mark.parametrize("view", ["attention", "lens_table"])
def test_the_picture_of_a_view_says_what_is_shown_now_where_only_that_was_sent_anew(script, view: str) -> None:
    run = script(view)
    data = attention_payload(causal_pattern(1, 2, 6), words(6)) if view == "attention" else lens_table_payload(seen())
    written = run(
        """async ([html, data]) => {
          const written = []
          const fill = CanvasRenderingContext2D.prototype.fillText
          CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
            written.push(text)
            return fill.call(this, text, ...where)
          }
          const saved = new Promise((resolve) => { HTMLAnchorElement.prototype.click = resolve })
          const parentElement = document.createElement("div")
          parentElement.innerHTML = html
          document.body.append(parentElement)
          for (const rests_on of [["demo@8"], ["demo@8", "compared with demo@0"]])
            m.default({ data: { ...data, rests_on }, parentElement, setTriggerValue() {} })
          parentElement.querySelector(".png").click()
          await saved
          return written
        }""",
        [sources(view).html, data],
    )
    assert "demo@8 · compared with demo@0" in written
