"""Panels: their menu is lazy and says what cannot be had; their files hold what they say, whatever the tokens are."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analyses import exports, pictures
from analyses.figures import spec_svg
from analyses.views.by_layer import Point, Series, by_layer_figure, parts_figure
from apps.dashboard import panels
from apps.dashboard.charts import FEW, inlined, spec_of
from apps.dashboard.panels import MENU
from tests.dashboard_pages import said

HOSTILE = [
    "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'", "'=1", "''", "", " ", "a,b", 'say "x"', "x\ny",
    "</script>", "\u202e", "\u2028", "é", "🦊", "NaN", "null", "1e5",
]  # fmt: skip
"""Tokens that a spreadsheet, a reader or a page could take for something else."""


def test_no_text_of_a_csv_is_a_formula_and_every_text_can_be_had_back() -> None:
    rows = pd.DataFrame({"token": HOSTILE, "=score": np.linspace(-1, 1, len(HOSTILE))})
    table = list(csv.reader(io.StringIO(exports.to_csv(rows), newline="")))
    assert [exports.unmarked(name) for name in table[0]] == ["token", "=score"]
    written = [line[0] for line in table[1:]]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in written)
    assert [exports.unmarked(cell) for cell in written] == HOSTILE
    assert len(set(written)) == len(set(HOSTILE))
    assert [float(line[1]) for line in table[1:]] == list(rows["=score"])


def test_csv_keeps_numbers_and_leaves_empty_what_is_none() -> None:
    rows = pd.DataFrame(
        {"x": np.array([1e-12, np.nan, -3.5]), "n": [1, 2, 3], "kinds": [["a", "=b"], [], ["c"]], "y": [None] * 3}
    )
    assert exports.to_csv(rows).splitlines() == [
        "x,n,kinds,y", '1e-12,1,"[""a"", ""=b""]",', ",2,[],", '-3.5,3,"[""c""]",'
    ]  # fmt: skip
    assert exports.to_csv(rows.iloc[:0]) == "x,n,kinds,y\r\n"


def test_json_is_strict_and_says_what_the_numbers_rest_on() -> None:
    rows = pd.DataFrame({"token": HOSTILE, "x": [np.nan, np.inf, -np.inf, *range(len(HOSTILE) - 3)]})
    about = {"run": "demo", "step": np.int64(512), "n": np.float32(2), "none": None, "bad": float("nan"), "set": (1, 2)}
    text = exports.to_json(rows, about, title="T", address="?run=demo", python="rows = 1\n")
    assert text.isascii()
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))
    assert [row["token"] for row in read["rows"]] == HOSTILE
    assert [row["x"] for row in read["rows"]][:4] == [None, None, None, 0.0]
    assert read["about"] == {"run": "demo", "step": 512, "n": 2.0, "none": None, "bad": None, "set": [1, 2]}
    assert {"python", "torch", "numpy", "cutaway"} <= set(read["versions"])
    assert (read["columns"], read["address"], read["python"]) == (["token", "x"], "?run=demo", "rows = 1\n")
    empty = json.loads(exports.to_json(rows.iloc[:0], {}, title="T"))
    assert (empty["columns"], empty["rows"]) == (["token", "x"], [])


@pytest.mark.parametrize(
    ("about", "name"),
    [
        ({"run": "demo", "step": 512}, "demo-512-a-b.csv"),
        ({"run": "../../etc", "step": 0}, "etc-0-a-b.csv"),
        ({"run": None, "step": None}, "no-run-a-b.csv"),
        ({"run": "héllo <b>", "step": 1}, "h-llo-b-1-a-b.csv"),
    ],
)
def test_a_files_name_says_run_step_and_panel_and_is_a_name(about: dict[str, Any], name: str) -> None:
    assert exports.file_name(about, "a/b", "csv") == name


def test_a_figure_is_a_file_without_network() -> None:
    point = Point(layer=0, series=Series.NOW, value=0.5)
    spec = by_layer_figure([point], "</svg><script>alert(1)</script>")
    assert pictures.to_png(spec, "Heads", []).startswith(b"\x89PNG")
    assert "<script" not in spec_svg(spec)
    with pytest.raises(ValueError, match="External data url not allowed"):
        pictures.to_png({"data": {"url": "http://127.0.0.1:9/a.json"}, "mark": "point"}, "Heads", [])


def test_a_picture_says_what_it_rests_on_below_its_drawing() -> None:
    spec = by_layer_figure([Point(layer=0, series=Series.NOW, value=0.5)], "a share") | {"width": 400}
    said = ["demo@512", "n = 64 sequences", "split <held-out>", "seed 0", "behaviour, config a3f", "weights 0\x00e1"]
    plain, told = spec_svg(spec), pictures.to_svg(spec, "Heads & <b>", said)
    name = {"": "http://www.w3.org/2000/svg"}
    root, drawn = ElementTree.fromstring(told), ElementTree.fromstring(plain)
    assert root.findtext("title", namespaces=name) == "Heads & <b>"
    assert root.findtext("desc", namespaces=name) == " · ".join(said).replace("\x00", "\\x00")
    lines = root.findall("g/text", namespaces=name)
    assert " · ".join(line.text or "" for line in lines) == root.findtext("desc", namespaces=name)
    assert plain in told
    assert all(float(drawn.attrib["height"]) < float(line.attrib["y"]) for line in lines)
    assert float(lines[-1].attrib["y"]) < float(root.attrib["height"])
    for scale in (1.0, 2.0):
        png = pictures.to_png(spec, "Heads", said, scale=scale)
        sides = [int.from_bytes(png[at : at + 4], "big") for at in (16, 20)]
        assert sides == [scale * float(root.attrib[side]) for side in ("width", "height")]


def test_the_line_under_a_picture_fits_however_wide_its_characters_are_and_none_turns_it_around() -> None:
    assert pictures.wrapped(["abcdefghij", "k"], 4) == ["abcd", "efgh", "ij", "k"]
    assert pictures.wrapped(["abcdefghij", "k"], 6) == ["abcdef", "ghij", "k"]
    assert pictures.wrapped(["運行運行運", "k"], 5) == ["運行", "運行", "運", "k"], "each counts as two"
    assert pictures.wrapped(["a運b", "運"], 7) == ["a運b", "運"], "7 characters, 9 wide"
    assert pictures.wrapped(["ab", "運"], 7) == ["ab · 運"]
    assert pictures.wrapped(["運a"], 1) == ["運", "a"], "what is wider than the line is not lost"
    spec = by_layer_figure([Point(layer=0, series=Series.NOW, value=0.5)], "a share") | {"width": 400}
    told = pictures.to_svg(spec, "t", ["r\u202eun@8", "n = 1"])
    assert "\u202e" not in told
    assert r"<desc>r\u202eun@8 · n = 1</desc>" in told and r">r\u202eun@8 · n = 1</text>" in told


def test_a_picture_of_what_rests_on_nothing_is_only_its_drawing() -> None:
    spec = by_layer_figure([Point(layer=0, series=Series.NOW, value=0.5)], "a share") | {"width": 400}
    told, plain = (ElementTree.fromstring(each) for each in (pictures.to_svg(spec, "t", []), spec_svg(spec)))
    assert told.attrib["height"] == plain.attrib["height"]


def test_small_data_travels_inside_a_figure_and_large_data_apart() -> None:
    points = [Point(layer=layer, series=series, value=0.1 * layer) for layer in range(4) for series in Series]
    spec = spec_of(by_layer_figure(points, "a share"), dark=False)
    small = inlined(spec)
    assert "datasets" not in small
    assert spec_svg(small) == spec_svg(spec)
    bars = spec_of(parts_figure([(layer, "a", 1.0) for layer in range(4)], ["a"], "parts"), dark=False)
    assert inlined(bars) == bars, "the data of a whole figure is a table in any case"
    long = [Point(layer=layer, series=Series.NOW, value=0.1) for layer in range(FEW + 1)]
    large = spec_of(by_layer_figure(long, "a share"), dark=False)
    assert inlined(large) == large


def page(kind: str) -> None:
    """A page of one panel whose rows count how often they are computed."""
    import pandas as pd
    import streamlit as st

    from analyses.views import TokenRow, View, token_rows_payload
    from analyses.views.by_layer import Point, Series, by_layer_figure
    from apps.dashboard import panels
    from apps.dashboard.panels import Panel
    from model.errors import CutawayError

    def rows() -> pd.DataFrame:
        st.session_state["computed"] = st.session_state.get("computed", 0) + 1
        if kind == "fault":
            raise CutawayError("the <b>corpus</b> is not there; restore it")
        return pd.DataFrame({"token": ["=cmd()"] if kind != "empty" else [], "value": [0.5] if kind != "empty" else []})

    panel = Panel(
        key="one", title="What *it* [shows](http://x)", rows=rows, about={"run": "demo", "step": 3, "n": 1},
        python="rows = 1\n",
    )  # fmt: skip
    if kind == "view":
        drawn = token_rows_payload([TokenRow(tokens=["a"], note="n")], pick="token")
        panels.show(View.TOKEN_ROWS, drawn, panel, live={"token": 0})
    elif kind == "table":
        panels.table(panel, alt="a table")
    else:
        panels.chart(panel, by_layer_figure([Point(layer=0, series=Series.NOW, value=0.5)], "t"), alt="a")


def opened_menu(kind: str) -> tuple[AppTest, AppTest]:
    """The page with the menu closed, and with it open."""
    at = AppTest.from_function(page, args=(kind,), default_timeout=60).run()
    computed = at.session_state["computed"] if "computed" in at.session_state else 0  # noqa: SIM401  (it has no get)
    assert computed == (1 if kind == "table" else 0), "nothing is computed for a closed menu"
    assert not at.get("download_button")
    assert not at.code
    at.session_state[f"{MENU}one"] = True
    return at, at.run()


def files(at: AppTest) -> list[str]:
    return [each.proto.label for each in at.get("download_button")]


@pytest.mark.parametrize(
    ("kind", "offered"),
    [
        ("chart", ["PNG", "SVG", "CSV", "JSON"]),
        ("view", ["HTML", "CSV", "JSON"]),
        ("table", ["CSV", "JSON"]),
        ("empty", ["PNG", "SVG", "CSV", "JSON"]),
    ],
)
def test_a_menu_is_computed_when_it_is_opened(kind: str, offered: list[str]) -> None:
    _, at = opened_menu(kind)
    assert not at.exception
    assert files(at) == offered
    assert [each.value for each in at.code] == ["rows = 1"]
    assert f"{0 if kind == 'empty' else 1} rows" in said(at)
    at.session_state[f"{MENU}one"] = False
    assert not at.run().code


def test_a_view_leaves_as_a_page_with_what_is_locked_and_what_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(panels, "_file", lambda _panel, kind, _mime, make: made.setdefault(kind, make))
    opened_menu("view")
    written = made["HTML"]()
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', written, re.DOTALL)
    assert data is not None and json.loads(data[1])["token"] == 0
    assert written.index("</script>") < written.index('<p class="provenance">demo@3 · n = 1</p>')


def test_a_figure_leaves_as_a_picture_that_says_what_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(panels, "_file", lambda _panel, kind, _mime, make: made.setdefault(kind, make))
    opened_menu("chart")
    svg = made["SVG"]()
    assert "<title>What *it* [shows](http://x)</title><desc>demo@3 · n = 1</desc>" in svg
    assert re.search(r"<text [^>]*>demo@3 · n = 1</text></g></svg>$", svg)
    assert int.from_bytes(made["PNG"]()[20:24], "big") == 2 * float(re.findall(r' height="([^"]+)"', svg)[0])


def test_a_view_is_sent_what_a_picture_of_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(panels.components, "show", lambda _view, payload, _key, live: sent.append(payload))
    AppTest.from_function(page, args=("view",), default_timeout=60).run()
    assert sent[0]["rests_on"] == ["demo@3", "n = 1"]


def test_rows_that_cannot_be_had_are_told_and_cost_the_menu_only() -> None:
    _, at = opened_menu("fault")
    assert not at.exception
    assert not files(at)
    assert "the <b>corpus</b> is not there; restore it" in said(at)


def test_a_menu_has_a_name_for_who_cannot_see_it() -> None:
    at = AppTest.from_function(page, args=("chart",), default_timeout=60).run()
    (label,) = [each.proto.popover.label for each in at.get("popover")]
    assert label == "Export What \\*it\\* \\[shows\\]\\(http\\:\\/\\/x\\)".replace("\\/", "/")
