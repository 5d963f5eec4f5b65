"""The Norms & gradients page: maps of run and twin, what they share, and what is said where something is missing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from apps.dashboard.gradients.studied import with_ends
from tests.dashboard_pages import fire, opened, said
from tests.dashboard_runs import STEP, own_runs, whole_runs

__all__ = ["own_runs", "whole_runs"]  # fixtures

pytestmark = pytest.mark.whole


def turned(at, name: str) -> str:
    """What the page says with another tab open."""
    at.session_state["gradient_tab"] = name
    at.run()
    assert not at.exception
    return said(at)


def figures(at) -> dict[str, dict]:
    return {chart.proto.id.rsplit("-", 1)[-1]: json.loads(chart.proto.spec) for chart in at.get("vega_lite_chart")}


def test_a_run_and_the_one_it_is_compared_with_are_shown_on_one_scale(whole_runs: Path, monkeypatch) -> None:
    at = opened(whole_runs, "gradients", monkeypatch, run="whole", b=f"bare@{STEP}")
    text = said(at)
    assert not at.exception
    assert "whole and bare differ in the placement of the norms and in nothing else that shapes training." in text
    assert "|dL/dx|: whole (pre-norm)" in text and "|dL/dx|: bare (post-norm)" in text
    assert "one colour scale" in text and "seed 0" in text and "held-out sequences" in text
    assert re.search(r"gradients of one size; n = \d+ held-out sequences at each step", text)
    assert re.search(r"gradients of one size; n = \d+ training sequences at each step", text)
    assert "one seed a run, so no interval over seeds" in text
    assert not at.dataframe, "the checklist is drawn while it is open"
    at.session_state["fairness"] = True
    at.run()
    shares = at.dataframe[0].value
    assert shares.loc[shares["what"] == "initial weights", "verdict"].tolist() == ["same"]
    assert "the logs do not tell position 0 apart" in turned(at, "Over depth")
    assert "This result left out the models drawn at initialization" in turned(at, "Initialization")
    text = turned(at, "Held-out text")
    assert "The stream's gradient, bottom over top" in text and "95% intervals over 4 groups of sequences" in text
    assert "|dL/dx|: whole (pre-norm)" not in text, "the maps are behind another tab"
    assert "".join(at.query_params["tab"]) == "Held-out text"

    assert "|dL/dW_out|: bare (post-norm)" in turned(at, "Weights")
    at.segmented_control(key="gradient_matrix").set_value("W_K").run()
    assert "|dL/dW_K|: bare (post-norm)" in said(at) and not at.exception


def test_a_run_without_a_twin_names_the_one_that_could_be_and_the_command(whole_runs: Path, monkeypatch) -> None:
    at = opened(whole_runs, "gradients", monkeypatch, run="whole", matrix="W_Z")
    text = said(at)
    assert "Shown without a twin, though bare differs in nothing but its norms" in text
    assert f"cutaway run gradient-flow {whole_runs}/whole --set twin={whole_runs}/bare" in text
    assert 'matrix: there is no matrix "W_Z"' in text
    assert "|dL/dW_out|: whole (pre-norm)" in text
    assert not at.exception


def test_maps_are_shown_without_a_study_and_what_is_missing_is_said(own_runs: Path, monkeypatch) -> None:
    shutil.rmtree(own_runs / "whole")
    at = opened(own_runs, "gradients", monkeypatch, run="bare")
    text = said(at)
    assert f"There is no gradient-flow result at step {STEP}." in text
    assert f"cutaway run gradient-flow {own_runs}/bare@{STEP}" in text
    assert "no run here is bare with other norms" in text
    assert "|dL/dx|: bare (post-norm)" in text
    for tab in ("Held-out text", "Initialization"):
        assert "This comes from gradient-flow, which has no result of this run; the command stands" in turned(at, tab)
    (own_runs / "bare" / "metrics.jsonl").unlink()
    turned(at, "Over training")
    assert "bare has logged no gradient norms" in said(at) and not at.exception


def test_an_unfair_pair_and_damaged_logs_are_told(own_runs: Path, monkeypatch) -> None:
    record = own_runs / "bare" / "run.json"
    settings = json.loads(record.read_text("utf-8"))
    settings["config"]["optim"]["lr"] = 0.5
    record.write_text(json.dumps(settings), "utf-8")
    at = opened(own_runs, "gradients", monkeypatch, run="whole", b=f"bare@{STEP}")
    assert "differ, or cannot be compared, in: learning rate." in said(at)
    log = own_runs / "bare" / "metrics.jsonl"
    log.write_text("not json\n" + log.read_text("utf-8"), "utf-8")
    at.run()
    assert "metrics.jsonl" in "".join(error.value for error in at.error) and not at.exception


@pytest.mark.parametrize(("tab", "titled"), [
    ("Over depth", f"Gradient of the stream over depth, whole@{STEP}, bare@{STEP}"),
    ("Weights", "|dL/dW_out| in whole and bare"),
    ("Held-out text", "The stream's gradient, bottom over top"),
])  # fmt: skip
def test_the_key_p_pins_what_the_open_tab_shows(own_runs: Path, tab: str, titled: str, monkeypatch) -> None:
    from analyses.notebook.file import load, notebook_path

    at = opened(own_runs, "gradients", monkeypatch, run="whole", b=f"bare@{STEP}", tab=tab)
    fire(at, "keys", "pressed", [{"id": 1, "key": "p"}])
    (pin,) = load(notebook_path(own_runs, at.session_state["notes"])).pins
    assert pin.title == titled and pin.figure and len(pin.rows.frame())
    assert pin.query["tab"] == tab and not at.exception


def test_a_link_to_weights_opens_their_tab_and_goes_on_doing_so(whole_runs: Path, monkeypatch) -> None:
    at = opened(whole_runs, "gradients", monkeypatch, run="whole", matrix="W_K")
    assert "|dL/dW_K|: whole (pre-norm)" in said(at) and "tab" not in at.query_params
    at.segmented_control(key="gradient_matrix").set_value("W_out").run()
    assert "|dL/dW_out|: whole (pre-norm)" in said(at)
    assert "".join(at.query_params["tab"]) == "Weights" and "matrix" not in at.query_params
    at.segmented_control(key="gradient_matrix").set_value("W_K").run()
    assert "tab" not in at.query_params and "".join(at.query_params["matrix"]) == "W_K"
    turned(at, "Over training")
    assert "".join(at.query_params["tab"]) == "Over training"
    assert "|dL/dW_K|: whole" in turned(at, "Weights"), "the choice is kept while its tab is closed"


def test_without_logs_the_first_tab_is_one_that_shows_something(own_runs: Path, monkeypatch) -> None:
    (own_runs / "whole" / "metrics.jsonl").unlink()
    at = opened(own_runs, "gradients", monkeypatch, run="whole")
    assert "The stream's gradient, bottom over top" in said(at) and "tab" not in at.query_params
    assert "whole has logged no gradient norms" in turned(at, "Over training")


def test_the_key_p_pins_both_maps_with_what_the_study_says(own_runs: Path, monkeypatch) -> None:
    from analyses.notebook.file import load, notebook_path

    at = opened(own_runs, "gradients", monkeypatch, run="whole", b=f"bare@{STEP}")
    fire(at, "keys", "pressed", [{"id": 1, "key": "p"}])
    token = at.session_state["notes"]
    (pin,) = load(notebook_path(own_runs, token)).pins
    assert pin.title == "Gradient of the stream in whole and bare"
    assert pin.page == "gradients" and pin.query["b"] == f"bare@{STEP}" and "notes" not in pin.query
    assert set(pin.rows.frame()["run"]) == {"whole", "bare"}
    assert [part["title"] for part in pin.figure["hconcat"]] == [
        "|dL/dx|: whole (pre-norm)",
        "|dL/dx|: bare (post-norm)",
    ]
    assert any("paired change" in sentence for sentence in pin.sentences)
    assert pin.about["n"] == 4 and pin.about["unit"] == "held-out sequences"


def test_a_number_and_its_interval_are_one_column() -> None:
    rows = pd.DataFrame({"norm": ["pre", "none"], "slope": [0.51234, np.nan], "slope, low": [0.4, np.nan],
                         "slope, high": [0.6, np.nan], "n seeds": [5, 5]})  # fmt: skip
    shown = with_ends(rows)
    assert list(shown.columns) == ["norm", "slope", "n seeds"]
    assert list(shown["slope"]) == ["0.512 [0.4, 0.6]", ""]
