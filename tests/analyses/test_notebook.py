"""Notebooks of pins: what goes in comes out, what is damaged or foreign is told, and nothing is lost between tabs."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyses.exports import to_csv, to_json
from analyses.notebook import file as notebook_file
from analyses.notebook import pins as notebook
from analyses.notebook.bounds import MOST_PINS, MOST_ROWS
from analyses.notebook.exports import to_csv_archive, to_markdown, to_python
from analyses.notebook.page import Beside, page
from analyses.notebook.pins import Notebook, Pin, as_json, from_json, new_pin
from analyses.notebook.words import about_words, address, rests_on
from analyses.registry import Finding
from analyses.views import View, attention_payload
from model.errors import CheckpointError, CutawayError, InputError, UnknownNameError

HOSTILE = "<img src=x onerror=alert(1)>\u202e\n# `x` | </script>"
FIGURE = {"data": {"values": [{"a": 1, "b": 2.5}]}, "mark": "point", "encoding": {"x": {"field": "a"}}}


def pinned(title: str = "A head", **more: Any) -> Pin:
    rows = pd.DataFrame({"layer": [0, 1], "harm": [0.5, math.nan], "token": ["=a", HOSTILE]})
    kept: dict[str, Any] = {
        "page": "heads", "query": {"run": "demo", "head": "L1H3"},
        "sentences": ["It costs 0.5 [0.4, 0.6] nats, n = 8."],
        "about": {"run": "demo", "step": 512, "n": 8, "unit": "sequences", "seed": 0}, "rows": rows,
        "python": "import pandas as pd\n\nrows = pd.DataFrame({'layer': [0, 1]})\n", "figure": FIGURE,
    }  # fmt: skip
    return new_pin(title=title, **{**kept, **more})


def book(*titles: str) -> Notebook:
    return Notebook(pins=tuple(pinned(title) for title in titles))


def titles(of: Notebook) -> list[str]:
    return [pin.title for pin in of.pins]


cells = st.one_of(st.none(), st.integers(-(2**60), 2**60), st.floats(), st.text(max_size=20), st.booleans())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(min_size=1, max_size=40), st.lists(st.text(max_size=60), max_size=3), st.text(max_size=80),
    st.lists(st.lists(cells, min_size=2, max_size=2), max_size=4),
    st.dictionaries(st.text(max_size=8), cells, max_size=3),
)  # fmt: skip
def test_a_notebook_comes_back_from_its_file_as_it_was(title, sentences, note, values, about) -> None:
    rows = pd.DataFrame(values, columns=["x", "y"], dtype=object)
    made = Notebook(pins=(pinned(title, sentences=sentences, note=note, rows=rows, about=about), pinned()))
    assert from_json(as_json(made), "it") == made
    assert as_json(made).isascii()


def test_half_a_surrogate_pair_costs_a_mark_and_nothing_else(tmp_path: Path) -> None:
    path = made_at(tmp_path)
    made = pinned("a\ud800", sentences=["\udfffb"], rows=pd.DataFrame({"x": [["\ud800"]]}))
    assert (made.title, made.sentences, made.rows.values) == ("a?", ("?b",), ((["?"],),))
    foreign = as_json(Notebook(pins=(made,))).replace('"a?"', '"a\\ud800"')
    assert from_json(foreign, "it").pins[0].title == "a?"
    notebook_file.change(path, notebook.added(made))
    assert page(notebook_file.load(path), "t").encode("utf-8")


def test_what_is_exported_holds_the_same_words_and_numbers_and_no_markup_of_theirs(tmp_path: Path) -> None:
    import io
    import zipfile

    import torch

    view = attention_payload(torch.eye(3).expand(1, 2, 3, 3), ["a", HOSTILE, "</script>"], head=(0, 1))
    made = Notebook(
        pins=(pinned(HOSTILE, note="see ]]>\n```"), pinned("B", figure=None, view=View.ATTENTION, payload=view))
    )
    whole = page(
        made, "Findings", beside=[Beside(heading="Claims", findings=(Finding(sentence="c is supported", found=True),))]
    )
    assert "<img src=x" not in whole
    assert whole.count("</script>") == whole.count("<script")
    assert "It costs 0.5 [0.4, 0.6] nats, n = 8." in whole and "c is supported" in whole
    assert "demo@512 · n = 8 sequences · seed 0" in whole
    assert "default-src 'none'" in whole and "<svg" in whole
    words = to_markdown(made, "Findings", ["c is supported"])
    assert words.count("\n## ") == 3  # two pins and what stands beside them: no title of a pin opened another
    assert "<img" not in words.replace("\\<img", "")
    script = to_python(made)
    bound: dict[str, Any] = {}
    exec(compile(script, "findings.py", "exec"), bound)  # no title or note became code
    assert [list(table.columns) for table in bound["tables"].values()] == [["layer"], ["layer"]]
    with zipfile.ZipFile(io.BytesIO(to_csv_archive(made))) as archive:
        names = archive.namelist()
        rows = pd.read_csv(archive.open(names[1]))
    assert len(names) == 2 and all(".." not in name and "/" not in name for name in names)
    assert rows["harm"][0] == 0.5 and rows["token"][0] == "'=a"


def test_a_pin_is_cut_where_it_is_too_large_and_says_so() -> None:
    long = pinned(rows=pd.DataFrame({"x": range(MOST_ROWS + 5)}))
    assert (len(long.rows.values), long.rows.n) == (MOST_ROWS, MOST_ROWS + 5)
    assert long.cut == (
        f"The first {MOST_ROWS:,} of {MOST_ROWS + 5:,} rows are kept; the Python beside them computes all.",
    )
    wide = pinned(rows=pd.DataFrame({"x": ["y" * 400_000] * 4}))
    assert len(wide.rows.values) == 2 and wide.rows.n == 4
    heavy = pinned(figure={"data": {"values": [{"a": "z" * 1_200_000}]}, "mark": "point"})
    assert heavy.figure is None and "1.2 MB and is not kept" in heavy.cut[0]
    assert len(pinned(note="n" * 50_000).note) == 20_000


def test_two_columns_of_one_name_are_refused_and_none_is_lost() -> None:
    twice = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    for made in (lambda: pinned(rows=twice), lambda: to_csv(twice), lambda: to_json(twice, {}, title="x")):
        with pytest.raises(InputError, match="Two columns of the table are called a; give each a name of its own"):
            made()


def test_what_is_pinned_does_not_change_with_what_it_was_made_of() -> None:
    rows = pd.DataFrame({"x": [1.0]})
    about = {"n": 3}
    made = pinned(rows=rows, about=about)
    rows["x"] = 2.0
    about["n"] = 4
    assert made.rows.values == ((1.0,),) and made.about == {"n": 3}


def test_pins_are_added_moved_noted_removed_and_put_back() -> None:
    start = book("a", "b", "c")
    b = start.pins[1]
    assert titles(notebook.moved(b.id, -1)(start)) == ["b", "a", "c"]
    assert titles(notebook.moved(b.id, 1)(start)) == ["a", "c", "b"]
    assert titles(notebook.moved(b.id, -5)(start)) == ["b", "a", "c"]
    without = notebook.removed(b.id)(start)
    assert titles(without) == ["a", "c"]
    assert notebook.removed(b.id)(without) == without
    assert notebook.restored(b, 1)(without) == start
    assert notebook.restored(b, 1)(start) == start
    assert notebook.noted(b.id, "mine", "")(start).pins[1].note == "mine"
    with pytest.raises(UnknownNameError, match="removed in another tab"):
        notebook.noted(b.id, "mine", "")(without)
    full = Notebook(pins=tuple(replace(b, id=f"{n:016x}") for n in range(MOST_PINS)))
    with pytest.raises(InputError, match=f"holds {MOST_PINS} pins"):
        notebook.added(b)(full)


def test_two_notes_on_one_pin_are_both_kept() -> None:
    start = book("a")
    pin = start.pins[0].id
    theirs = notebook.noted(pin, "theirs", "")(start)
    assert notebook.noted(pin, "mine", "")(theirs).pins[0].note == "theirs\n\nmine"
    assert notebook.noted(pin, "mine", "theirs")(theirs).pins[0].note == "mine"


def test_two_notebooks_join_without_doubling() -> None:
    one, other = book("a", "b"), book("c")
    both = notebook.joined(other)(one)
    assert titles(both) == ["a", "b", "c"]
    assert notebook.joined(one)(both) == both


def made_at(root: Path) -> Path:
    path = notebook_file.notebook_path(root, notebook_file.new_token())
    notebook_file.begin(path)
    return path


def test_tabs_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = made_at(tmp_path)
    pins = [replace(pinned(), id=f"{n:016x}", title=str(n)) for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda pin: notebook_file.change(path, notebook.added(pin)), pins))
    assert sorted(titles(notebook_file.load(path)), key=int) == [str(n) for n in range(12)]
    assert sorted(each.suffix for each in path.parent.iterdir()) == [".json", ".lock"]


@pytest.mark.parametrize(
    "token", ["", "..", "../../etc/passwd", "a" * 31, "a" * 33, "a/" * 16, "a" * 31 + "\n", "á" * 32, "a" * 31 + "\x00"]
)
def test_nothing_but_a_token_becomes_a_path(tmp_path: Path, token: str) -> None:
    with pytest.raises(InputError, match="not the name of a notebook"):
        notebook_file.notebook_path(tmp_path, token)


def test_a_notebook_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    token = notebook_file.new_token()
    root, outside = tmp_path / "runs", tmp_path / "outside"
    (root / "_notes").mkdir(parents=True)
    outside.mkdir()
    (root / "_notes" / f"{token}.json").symlink_to(outside / "secret.json")
    with pytest.raises(InputError, match="link to somewhere else"):
        notebook_file.notebook_path(root, token)
    (root / "_notes").rename(root / "_old")
    (root / "_notes").symlink_to(outside)
    with pytest.raises(InputError, match="link to somewhere else"):
        notebook_file.notebook_path(root, notebook_file.new_token())


def altered(**fields: Any) -> str:
    tree = json.loads(as_json(book("a")))
    tree["pins"][0] |= fields
    return json.dumps(tree)


DAMAGED = {
    "cut short": as_json(book("a"))[:-40],
    "empty": "",
    "binary": "\x00\x01\x02",
    "a list": "[]",
    "NaN": altered(about={"n": 1}).replace('"n": 1', '"n": NaN'),
    "deep": "[" * 100_000,
    "deep inside": as_json(book("a")).replace('"about": {', '"about": {"x": ' + "[" * 900 + "]" * 900 + ", "),
    "another format": as_json(book("a")).replace('"format": 1', '"format": 2'),
    "a missing field": as_json(book("a")).replace('"title"', '"tilte"'),
    "a foreign id": altered(id="../../../../x"),
    "a foreign page": altered(page="//evil.example/x"),
    "a view there is not": altered(view="__import__"),
    "a figure that fetches": altered(figure={"data": {"url": "https://example.org/x.csv"}, "mark": "point"}),
    "a figure that links": altered(figure={"mark": {"type": "point", "href": "javascript:alert(1)"}}),
    "rows of other lengths": altered(rows={"columns": ["a"], "values": [[1, 2]], "n": 1}),
    "more rows than there were": altered(rows={"columns": ["a"], "values": [[1], [2]], "n": 1}),
    "two columns of one name": altered(rows={"columns": ["a", "a"], "values": [[1, 2]], "n": 1}),
    "a number for a text": altered(title=3),
    "a huge note": altered(note="x" * 30_000),
    "too many pins": as_json(Notebook(pins=book("a").pins * (MOST_PINS + 1))),
    "one id twice": as_json(Notebook(pins=book("a").pins * 2)),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_hostile_file_is_told_and_never_written_to(tmp_path: Path, what: str) -> None:
    path = made_at(tmp_path)
    path.write_text(DAMAGED[what], encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="notebook|pin"):
        notebook_file.load(path)
    with pytest.raises(CutawayError):
        notebook_file.change(path, notebook.added(pinned()))
    assert path.read_bytes() == before


def test_a_notebook_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no notebook of this name"):
        notebook_file.load(notebook_file.notebook_path(tmp_path, "a" * 32))


def test_an_address_stays_on_the_dashboard_and_leaves_the_notebook_out() -> None:
    pin = pinned(query={"run": "de mo", "prompt": "a&notes=x#\n"})
    assert address(pin) == "/heads?run=de+mo&prompt=a%26notes%3Dx%23%0A"
    assert address(pin, notes="t").endswith("&notes=t")
    assert rests_on(pin) == ("demo@512", "n = 8 sequences", "seed 0")


def test_a_line_cites_both_models_and_all_that_numbers_rest_on() -> None:
    known = {
        "run": "demo", "step": 512, "n": 1024, "unit": "prefixes", "on": "repeats of 20 tokens", "split": "held-out",
        "seed": 0, "study": "ffn-memories", "config_hash": "a3f", "config": {"n": 3}, "weights_sha256": "01234567" * 8,
        "compared_with": "other@8", "compared_weights_sha256": "89abcdef" * 8, "minus": "demo@0", "twin": "post",
    }  # fmt: skip
    assert about_words(known) == (
        "demo@512", "n = 1,024 prefixes", "on repeats of 20 tokens", "split held-out", "seed 0",
        "ffn-memories, config a3f", "weights 01234567", "compared with other@8", "weights 89abcdef", "minus demo@0",
        "twin post",
    )  # fmt: skip
    live = {"run": "r\u202en", "step": None, "n": 1, "unit": "text", "seed": None, "on": None}
    said = ("r\\u202en", "n = 1 text", "on your prompt, 5 tokens")
    assert about_words(live | {"text": "n = 1: your prompt, 5 tokens"}) == said
    assert about_words(live | {"source": "n = 1: your prompt, 5 tokens"}) == said
    assert about_words({}) == ()
