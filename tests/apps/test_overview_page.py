"""The overview: what the model is, how it learned, what was found, what is saved, and three ways to begin."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analyses.architecture import architecture, parameter_rows, place_rows
from analyses.inventory import age, inventory_rows, run_rows
from apps.dashboard import data
from apps.dashboard.overview import found
from model.config import FFNKind, GPTConfig, Norm, Positions
from model.sites import sites
from tests.dashboard_pages import opened, said
from tests.dashboard_runs import STEP, STUDIES, own_runs, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures


def turned(at: AppTest, name: str) -> AppTest:
    """The page with another tab open."""
    at.session_state["overview_tab"] = name
    at.run()
    assert not at.exception
    return at


def shown(at: AppTest, column: str) -> pd.DataFrame:
    return next(each.value for each in at.dataframe if column in each.value)


def links(at: AppTest) -> dict[str, dict[str, str]]:
    """Where the links of a page lead: the parts of the address, by page."""
    protos = [link.proto for link in at.get("page_link")]
    return {proto.page.rsplit("/", 1)[-1]: dict(part.split("=") for part in proto.query_string.split("&"))
            for proto in protos if proto.query_string and proto.label == "Begin"}  # fmt: skip


def test_the_overview_says_what_the_model_is_and_what_was_found(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "overview", monkeypatch, run="whole")
    assert not at.exception
    text = said(at)
    (run,) = [each for each in data.runs() if each.name == "whole"]
    manifest = data.manifest(run, STEP)
    assert manifest.weights_sha256[:16] in text
    assert f"{manifest.tokens_seen:,} at step {STEP}" in text
    assert "training 0, data 0" in text
    for study in STUDIES:
        saved = data.shelf(run, study).at(STEP)
        of_heads = {verdict.short for verdict in data.verdicts(saved)} if study == "attention-patterns" else set()
        for finding in saved.findings():
            if finding.found and finding.of_run and finding.sentence not in of_heads:
                assert finding.sentence in text  # whole, so that no number loses its interval
    assert f"whole@{STEP}  ·  weights {manifest.weights_sha256[:8]}" in text
    assert re.search(r"^n = 4 sequences of period \d+ .*seed 0 .*config", text, re.M), "on its card"
    turned(at, "Architecture")
    assert "".join(at.query_params["tab"]) == "Architecture"
    parts = shown(at, "part")
    assert sum(parts["parameters"]) == run.model.n_params
    assert list(parts["part"])[-1] == "norms"
    saved_rows = shown(turned(at, "What is saved"), "command")
    assert set(STUDIES) <= set(saved_rows["what"])
    assert (saved_rows.loc[saved_rows["what"].isin(list(STUDIES)), "at this step"] == "yes").all()
    boxes = [box.label for box in at.expander if box.label.startswith("The study's own figure")]
    assert len(boxes) == len(set(STUDIES) - set(found.PAGE_OF))
    at.session_state["whole-probes"] = True
    at.run()
    assert not at.exception
    assert any("task" in each.value for each in at.dataframe)


def test_the_guided_starts_lead_to_pages_that_show_what_was_asked(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "overview", monkeypatch, run="whole")
    starts = links(at)
    assert set(starts) == {"heads", "memories", "gradients"}
    assert all((each["run"], each["step"]) == ("whole", str(STEP)) for each in starts.values())
    assert starts["memories"]["memory"] == "L1M37"
    assert starts["gradients"]["b"].startswith("bare")
    assert "What does the placement of the norms change?" in said(at), "and not why one trains worse, which is unknown"
    heads = opened(whole_runs, "heads", monkeypatch, run="whole", order="By this score")
    assert not heads.exception
    assert not heads.warning
    assert "mean" in shown(heads, "rank")


def test_a_start_whose_study_was_not_run_gives_the_command_and_no_link(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "overview", monkeypatch, run="bare")
    assert not at.exception
    assert set(links(at)) == {"gradients"}, "that page draws what training logged"
    commands = [each.value for each in at.code if "\n" not in each.value]
    assert [command.split()[2] for command in commands] == ["attention-patterns", "ffn-memories"]
    assert all(command.endswith(f"bare@{STEP}") for command in commands)


@pytest.mark.parametrize("fault", ['{"config": {"name', "\x00", None])
def test_of_a_run_that_cannot_be_opened_nothing_is_offered(
    own_runs: Path, fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_runs / "bare" / "run.json"
    file.unlink() if fault is None else file.write_text(fault)
    at = opened(own_runs, "overview", monkeypatch, run="bare")
    assert not at.exception
    (error,) = [each.value for each in at.error]
    told = "is missing" if fault is None else "was altered or cut short: it is no JSON"
    assert f"{told}; restore it from a copy, or train the run again" in error.replace("\\", "")
    assert "step None" not in said(at)
    assert "cutaway run" not in said(at)
    assert not links(at)
    assert "bare" in set(shown(at, "state")["run"]), "the others are there to be chosen"
    for page in ("heads", "memories", "ablate", "training", "gradients"):
        at = opened(own_runs, page, monkeypatch, run="bare")
        assert not at.exception
        assert "step None" not in said(at)


def test_what_is_missing_of_a_run_stands_with_its_command(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "overview", monkeypatch, run="bare")
    assert not at.exception
    assert "Not studied at step" in said(at)
    assert [f"cutaway run {study}" in said(at) for study in STUDIES] == [True] * len(STUDIES)
    rows = shown(turned(at, "What is saved"), "command")
    studies = rows[rows["what"].isin(list(STUDIES))]
    assert (studies["at this step"] == "no").all()
    assert all(f"bare@{STEP}" in command for command in studies["command"])
    assert inventory_rows(whole_runs / "bare", STEP)["bytes"].iloc[0] > 1000
    assert age(datetime.now(UTC).isoformat(), datetime.now(UTC)) == "just now"


def test_the_compared_run_is_drawn_over_the_shown_one(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "overview", monkeypatch, run="whole", b=f"bare@{STEP}")
    assert not at.exception
    assert "the loss of bare on" in said(at)
    assert "one seed a run: no interval over seeds" in said(at)
    spec = json.dumps([json.loads(chart.proto.spec) for chart in at.get("vega_lite_chart")])
    assert "strokeDash" in spec
    assert "dashes: bare" in spec


def test_a_checkpoint_that_is_left_out_is_named(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_runs / "whole" / "checkpoints" / "step-00000008" / "manifest.json").write_text("{}")
    at = opened(own_runs, "overview", monkeypatch, run="whole")
    assert not at.exception
    assert "left out: step-00000008" in said(at)
    assert "1 checkpoints damaged" in set(shown(at, "state")["state"])


def test_a_run_that_logged_nothing_is_not_told_to_resume(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_runs / "whole" / "metrics.jsonl").unlink()
    at = opened(own_runs, "overview", monkeypatch, run="whole")
    assert not at.exception
    assert "whole has logged nothing" in said(at)
    assert "--resume" not in said(at)


@pytest.mark.parametrize("norm", list(Norm))
def test_the_picture_carries_the_places_of_this_model_and_no_others(norm: Norm) -> None:
    """For every placement, with and without an FFN: each name that is drawn is one of the model's, outputs included."""
    for more in ({}, {"ffn": FFNKind.SWIGLU, "positions": Positions.LEARNED, "biases": True}, {"ffn": FFNKind.NONE}):
        config = GPTConfig(n_layers=2, n_heads=4, n_kv_heads=2, d_model=16, n_ctx=8, d_vocab=11, norm=norm, **more)
        texts = [row["text"] for layer in architecture(config)["layer"] for row in layer["data"]["values"]
                 if "text" in row]  # fmt: skip
        names = [text for text in texts if "hook_" in text and "blocks" not in text]
        known = {name.removeprefix("blocks.1.") for name in sites(config)}
        drawn = {part for name in names for part in re.findall(r"[\w.]*hook_\w+", name)}
        assert drawn <= known
        assert {"hook_embed", "hook_resid_pre", "hook_resid_post", "hook_attn_out", "hook_logits"} <= drawn
        assert ("hook_resid_mid" in drawn) == (config.ffn is not FFNKind.NONE)
        assert {f"{name}.hook_out" for name in config.norm_names} <= drawn
        assert ("ln_final.hook_out" in drawn) == config.has_final_norm
        assert parameter_rows(config)["parameters"].sum() == config.n_params
        assert len(place_rows(config)) == len({site.tap for site in sites(config).values()})


def test_runs_that_cannot_be_opened_are_listed(own_runs: Path) -> None:
    (own_runs / "bare" / "run.json").write_text("{")
    rows = run_rows(own_runs).set_index("run")
    assert rows.loc["bare", "state"] == "cannot be opened"
    assert rows.loc["whole", "state"] == "complete"
    assert rows.loc["whole", "parameters"] == GPTConfig(**_model(own_runs / "whole")).n_params


def _model(run: Path) -> dict[str, object]:
    return json.loads((run / "run.json").read_text())["config"]["model"]
