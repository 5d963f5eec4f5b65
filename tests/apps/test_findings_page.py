"""The Findings page: pins with notes and order, verdicts on claims, imports, and what is said of a damaged notebook."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analyses.claims.bounds import Judged, Standing
from analyses.claims.records import Record, save_record
from analyses.claims.statement import ControlKind
from analyses.claims.verdicts import Beside, Checkpoint, Measured, Verdict
from analyses.notebook.file import load, new_token, notebook_path
from analyses.notebook.pins import Notebook, Pin, as_json, from_json, new_pin
from apps.dashboard import data
from interp.stats import Interval
from model.checkpoint import checkpoint_path, read_manifest
from tests.dashboard_pages import opened, said
from tests.dashboard_runs import STEP, own_runs, whole_runs

__all__ = ["own_runs", "whole_runs"]  # fixtures

pytestmark = pytest.mark.whole

ROWS = {
    "rows": [{"tokens": ["a"], "values": [0.5]}], "digits": 2, "label": "", "hint": "",
    "scale": {"kind": "sequential", "low": 0, "high": 1},
}  # fmt: skip
FIGURE = {"data": {"values": [{"a": 1, "b": 2}]}, "mark": "point", "encoding": {"x": {"field": "a"}}}


def pinned(title: str, **more: Any) -> Pin:
    kept: dict[str, Any] = {
        "page": "heads", "query": {"run": "whole", "step": "24", "head": "L1H2"},
        "sentences": [f"{title}: 0.5 [0.4, 0.6]."],
        "about": {"run": "whole", "step": 24, "n": 8, "unit": "sequences", "seed": 0},
        "rows": pd.DataFrame({"x": [1.5]}), "python": "rows = 1\n", "figure": FIGURE,
    }  # fmt: skip
    return new_pin(title=title, **{**kept, **more})


def with_notebook(root: Path, *pins: Pin) -> str:
    token = new_token()
    path = notebook_path(root, token)
    path.parent.mkdir(exist_ok=True)
    path.write_text(as_json(Notebook(pins=pins)), "utf-8")
    return token


def kept(root: Path, token: str) -> tuple[Pin, ...]:
    return load(notebook_path(root, token)).pins


def subheaders(at: AppTest) -> list[str]:
    return [each.value.replace("\\", "") for each in at.subheader if each.value[:1].isdigit()]


def test_pins_are_noted_moved_removed_and_put_back(own_runs: Path, monkeypatch) -> None:
    a, b = pinned("first"), pinned("second", view="token_rows", payload=ROWS, figure=None)
    token = with_notebook(own_runs, a, b)
    at = opened(own_runs, "findings", monkeypatch, run="whole", notes=token)
    assert not at.exception
    assert subheaders(at) == ["1. first", "2. second"]
    text = said(at)
    assert "first: 0.5 [0.4, 0.6]." in text
    assert "whole@24  ·  n = 8 sequences  ·  seed 0" in text
    links = [part.proto.url for part in at.get("link_button")]
    assert links[0] == f"/heads?run=whole&step=24&head=L1H2&notes={token}"

    at.text_area(key=f"note-{a.id}").set_value("my note").run()
    assert [pin.note for pin in kept(own_runs, token)] == ["my note", ""]
    at.button(key=f"down-{a.id}").click().run()
    assert subheaders(at) == ["1. second", "2. first"]
    assert at.text_area(key=f"note-{a.id}").value == "my note"
    assert at.button(key=f"down-{a.id}").disabled and at.button(key=f"up-{b.id}").disabled
    at.button(key=f"remove-{b.id}").click().run()
    assert subheaders(at) == ["1. first"] and "Removed: second" in said(at)
    at.button(key="undo").click().run()
    assert subheaders(at) == ["1. second", "2. first"] and "Removed" not in said(at)
    assert kept(own_runs, token) == (b, replace(a, note="my note"))


@pytest.mark.parametrize(("width", "beside"), [(300, True), (700, False)])
def test_a_pinned_figure_is_drawn_as_large_as_it_was(own_runs: Path, monkeypatch, width: int, beside: bool) -> None:
    token = with_notebook(own_runs, pinned("first", figure={**FIGURE, "width": width}))
    shown: list[int] = []
    monkeypatch.setattr("streamlit.image", lambda _svg, width: shown.append(width))
    at = opened(own_runs, "findings", monkeypatch, run="whole", notes=token)
    assert not at.exception
    assert len(shown) == 1
    assert width <= shown[0] <= width + 40, "text of 10 pixels is to have 10 pixels"
    assert bool(at.columns) is beside


def test_another_tab_changes_the_same_notebook_and_nothing_is_lost(own_runs: Path, monkeypatch) -> None:
    a, b = pinned("first"), pinned("second")
    token = with_notebook(own_runs, a, b)
    one = opened(own_runs, "findings", monkeypatch, run="whole", notes=token)
    other = opened(own_runs, "findings", monkeypatch, run="whole", notes=token)
    one.text_area(key=f"note-{a.id}").set_value("from one").run()
    other.text_area(key=f"note-{a.id}").set_value("from the other").run()
    assert kept(own_runs, token)[0].note == "from one\n\nfrom the other"
    assert one.run().text_area(key=f"note-{a.id}").value == "from one\n\nfrom the other"
    other.button(key=f"remove-{b.id}").click().run()
    one.text_area(key=f"note-{b.id}").set_value("too late").run()
    assert "removed in another tab" in said(one) and subheaders(one) == ["1. first"]


def test_nobody_sees_a_notebook_without_its_name(own_runs: Path, monkeypatch) -> None:
    with_notebook(own_runs, pinned("secret"))
    at = opened(own_runs, "findings", monkeypatch, run="whole")
    assert "Nothing is pinned yet." in said(at) and "secret" not in said(at)
    for name, told in (("a" * 32, "no notebook of this name here"), ("../../run", "not the name of a notebook")):
        other = opened(own_runs, "findings", monkeypatch, run="whole", notes=name)
        assert told in said(other) and "secret" not in said(other) and not other.exception
    assert [run.name for run in data.runs()] == ["bare", "whole"]  # notebooks are no run


def test_a_first_pin_makes_a_notebook_of_its_own_name(own_runs: Path, monkeypatch) -> None:
    chosen = "a" * 32  # a name that somebody else may know
    saved_verdict(own_runs)
    at = opened(own_runs, "findings", monkeypatch, run="whole", step=str(STEP), notes=chosen)
    at.button(key="pin-claim-copying-copies").click().run()
    token = at.session_state["notes"]
    assert token != chosen and len(token) == 32
    (pin,) = kept(own_runs, token)
    assert pin.title == "copies: supported" and "1.50 [1.20, 1.80]" in pin.sentences[0]
    assert pin.rows.frame()["harm"].tolist() == [1.5]
    assert subheaders(at) == ["1. copies: supported"]
    at.button(key="pin-claim-copying-copies").click().run()
    assert len(kept(own_runs, token)) == 2  # in the same notebook


def saved_verdict(root: Path) -> None:
    """A verdict as `cutaway test` saves it, and a claim without one beside it."""
    weights = read_manifest(checkpoint_path(root / "whole", STEP)).weights_sha256
    interval = Interval(mean=1.5, low=1.2, high=1.8, level=0.95, n=8, method="percentile")
    found = Measured(
        subject="L1H1:mean ablated", meaning="loss on the second copy", unit="nats", whole="", clean=1.0,
        harm=interval, judged=Judged(interval=interval, standing=Standing.SUPPORTED, p=0.001), alpha=0.05, n=8, looks=1,
        obstacle="", beside=Beside(kind=ControlKind.NONE, beaten=None, said=""),
    )  # fmt: skip
    verdict = Verdict(
        claim="copies", says="It copies.", bound="harm >= 1", file="claims/copying.toml", file_sha256="b" * 64,
        checkpoint=Checkpoint(run="whole", step=STEP, tokens_seen=1, weights_sha256=weights),
        standing=Standing.SUPPORTED, expected=Standing.SUPPORTED, reason="", measured=found, p=0.001, n_together=1,
        metric="copy_loss", seed=0, period=6,
    )  # fmt: skip
    record = Record(
        verdict=verdict, statement={}, together=("copies",), device="cpu", seconds=1.0, created="2026", versions={}
    )
    save_record(root / "whole", record)
    claim = '[[claim]]\nname = "later"\nsays = "x"\nablate = "L1H1"\neffect = "harm >= 1"\ncontrol = "none"\n'
    (root / "whole" / "claims" / "mine.toml").write_text(claim, "utf-8")


def test_claims_show_verdict_interval_and_the_command_for_those_untested(own_runs: Path, monkeypatch) -> None:
    saved_verdict(own_runs)
    claims = own_runs / "whole" / "claims"
    (claims / "broken.toml").write_text("not toml", "utf-8")
    (claims / "copying" / "copies" / "00000000.json").write_text("{", "utf-8")
    at = opened(own_runs, "findings", monkeypatch, run="whole", step="0")
    text = said(at)
    assert not at.exception
    assert "gets worse by 1.50 [1.20, 1.80] nats; claimed was harm >= 1" in text and "n = 8 sequences" in text
    assert "not tested at step 0" in text  # the verdict is of another step, and says so
    assert any("supported" in each.value for each in at.markdown)
    assert "Not tested yet (mine.toml): later" in text
    assert f"cutaway test {own_runs}/whole/claims/mine.toml --run {own_runs}/whole" in text
    errors = " ".join(error.value for error in at.error)
    assert "broken" in errors and "00000000" in errors


def test_missing_things_name_their_command(own_runs: Path, monkeypatch) -> None:
    shutil.rmtree(own_runs / "whole")
    at = opened(own_runs, "findings", monkeypatch, run="bare", step=str(STEP))
    at.session_state["every-study"] = True
    text = said(at.run())
    assert "No claim was tested on bare yet" in text and "cutaway test claims/copying.toml --run" in text
    assert "bare has no report yet" in text and f"cutaway report {own_runs}/bare" in text
    assert f"cutaway run head-ablation {own_runs}/bare@{STEP}" in text


def test_a_damaged_notebook_is_told_and_left_alone(own_runs: Path, monkeypatch) -> None:
    saved_verdict(own_runs)
    token = with_notebook(own_runs, pinned("a"))
    path = notebook_path(own_runs, token)
    path.write_text(path.read_text("utf-8")[:-30], "utf-8")
    before = path.read_bytes()
    at = opened(own_runs, "findings", monkeypatch, run="whole", notes=token)
    assert "is not readable JSON" in " ".join(error.value for error in at.error) and not at.exception
    at.button(key="pin-claim-copying-copies").click().run()
    assert "is not readable JSON" in " ".join(each.value for each in at.warning)
    assert path.read_bytes() == before and at.session_state["notes"] == token


def test_a_notebook_is_exported_and_read_in_again(own_runs: Path, monkeypatch) -> None:
    token = with_notebook(own_runs, pinned("a", note="n"))
    at = opened(own_runs, "findings", monkeypatch, run="whole", notes=token)
    at.session_state["export"] = True
    at.run()
    assert not at.exception
    names = {part.proto.label for part in at.get("download_button")}
    assert {"HTML", "Markdown", "JSON", "CSV", "Python"} <= names
    assert any(f"notes={token}" in code.value for code in at.code)
    text = as_json(Notebook(pins=kept(own_runs, token)))

    fresh = opened(own_runs, "findings", monkeypatch, run="whole")
    fresh.session_state["export"] = True
    fresh.run()
    fresh.file_uploader(key="notebook_file").set_value(("findings.json", text.encode(), "application/json")).run()
    mine = fresh.session_state["notes"]
    assert mine != token and kept(own_runs, mine) == kept(own_runs, token)
    assert "1 pins read" in "".join(each.value for each in fresh.success)
    hostile = json.loads(text)
    hostile["pins"][0]["figure"] = {"data": {"url": "https://example.org/x"}}
    hostile["pins"][0]["id"] = "0" * 16
    fresh.file_uploader(key="notebook_file").set_value(
        ("bad.json", json.dumps(hostile).encode(), "application/json")
    ).run()
    assert "names no address" in said(fresh) and len(kept(own_runs, mine)) == 1
    assert from_json(text, "it").pins[0].note == "n"
