"""The Heads page: any score of every head, heads in order, one head in tabs; in full, missing and damaged states."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from streamlit.testing.v1 import AppTest

from analyses.attention.evidence import Bearing
from analyses.attention.readings import Kind
from analyses.attention.verdicts import Standing
from analyses.attention_patterns import verdicts
from analyses.dynamics.result import attention_at
from analyses.heads.score_sources import scores
from analyses.heads.scores import MEANINGS, RANDOM, TEXT, Absent, HeadScores, difference
from analyses.heads.tables import cost_rows, partner_rows
from analyses.heads.text import Choice, example_table, kept_examples, raised_tokens, read_examples
from analyses.study import run_study
from analyses.views import visible
from apps.dashboard import data, panels
from apps.dashboard.frame.inputs import PROMPT
from apps.dashboard.heads import bases, corpus, detail, pattern
from apps.dashboard.heads.lists import ORDERS
from apps.dashboard.panels import Panel
from interp.live import Basis, after_last, look
from model import GPT
from model.hooks import scopes_of
from model.lab import open_run
from tests.apps.test_snippets import require_same, require_told
from tests.dashboard_pages import fire, opened, pick, said, views
from tests.dashboard_runs import STEP, STUDIES, own_runs, trained, whole_runs
from tests.undrawn import undrawn

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures

PRESSES = itertools.count(1)
"""Every press of a key has a number of its own."""

OF_HEADS = ("attention-patterns", "head-ablation", "head-importance", "self-repair")


@pytest.fixture(scope="module")
def other_runs(whole_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose stream is no sum, and one that never read a text, each with a result of attention-patterns."""
    root = tmp_path_factory.mktemp("others")
    shutil.copytree(whole_runs / "bare", root / "post")
    trained(root, "no-text", "data.sources=repeats", "data.tokenizer=chars:64", "model.d_vocab=64")
    with undrawn():
        for name in ("post", "no-text"):
            run_study("attention-patterns", f"{root / name}@{STEP}", STUDIES["attention-patterns"])
    return root


def result_of(name: str, study: str = "attention-patterns") -> Any:
    (run,) = [run for run in data.runs() if run.name == name]
    saved = data.shelf(run, study).at(STEP)
    assert saved is not None
    return saved


def evidence(at: AppTest) -> pd.DataFrame:
    return next(each.value for each in at.dataframe if "source" in each.value)


def columns(at: AppTest, name: str) -> pd.DataFrame:
    return next(each.value for each in at.dataframe if name in each.value)


def pressed(at: AppTest, *keys: str) -> AppTest:
    """Keys pressed one after the other, and answered in one run."""
    return fire(at, "keys", "pressed", [{"id": next(PRESSES), "key": key} for key in keys])


def test_scores_stand_beside_step_zero(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    grid = views(at)["grid"]
    assert grid["before"] is not None
    assert grid["low"] is not None
    assert views(at)["grid_text"]["before"] is not None


def test_a_picked_head_is_selected_on_every_page(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = pick(opened(whole_runs, "heads", monkeypatch, run="whole"), "grid", {"head": "L1H2"})
    assert not at.exception
    assert at.session_state["head"] == "L1H2"
    assert views(at)["attention"]["look"] == 4 + 2
    assert views(at)["grid"]["chosen"] == "L1H2"
    assert views(at.switch_page("app_pages/ablate.py").run())["harm_copy_loss"]["chosen"] == "L1H2"


def test_going_to_another_head_sends_no_pattern_and_no_grid_again(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(at: AppTest) -> dict[str, str]:
        return {part.proto.id.rsplit("-", 1)[-1]: part.proto.json for part in at.get("bidi_component")}

    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    before = sent(at)
    after = sent(pressed(at, "j"))
    assert after["attention"] == before["attention"]
    assert after["grid"] == before["grid"]
    assert after["attention_live"] != before["attention_live"]
    monkeypatch.setattr(pattern, "holds_all", lambda *_: False)  # of so many heads that only one is sent exactly
    one = views(opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H1"))["attention"]
    assert "look" not in one
    assert one["focus"] == 4 + 1


def test_a_locked_cell_comes_back_and_can_be_released(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = pick(opened(whole_runs, "heads", monkeypatch, run="whole"), "attention", {"cell": "9.4"})
    assert at.session_state["cell"] == "9.4"
    assert views(at)["attention"]["lock"] == {"query": 9, "key": 4}
    assert "locked: query 9" in said(at)
    assert "→ key 4" in said(at)
    at = pick(at, "attention", {"cell": ""})
    assert views(at)["attention"]["lock"] is None


@pytest.mark.parametrize("prompt", ["", "\x00\u202e<img src=x onerror=alert(1)>", "x" * 5000, "é\n\t日本 👩\u200d💻"])
def test_any_prompt_is_read_or_refused_in_words(whole_runs: Path, prompt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    at.text_area(key="prompt").set_value(prompt).run()
    assert not at.exception
    assert ("prompt is empty" in said(at)) == (prompt == "")


@pytest.mark.parametrize("text", ["repeats", "held-out"])
def test_live_passes_run_on_other_texts(whole_runs: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", text=text)
    assert not at.exception
    assert views(at)["attention"]["size"] > 8


def test_every_head_has_a_verdict_and_the_best_supported_is_shown_first(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    saved = result_of("whole")
    every = {verdict.label: verdict for verdict in verdicts(saved.result)}
    listed = at.dataframe[0].value
    assert sorted(listed["head"]) == sorted(every)
    standings = [list(Standing).index(Standing(word)) for (word,) in map(list, listed["standing"])]
    assert standings == sorted(standings)
    first = every[listed["head"].iloc[0]]
    assert all(line.removeprefix(f"{first.label}: ") in said(at) for line in first.lines)
    assert views(at)["grid"]["chosen"] == first.label
    assert f"1 of {len(every)} in the list" in said(at)


def test_the_evidence_on_the_chosen_head_is_the_study_s(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H2", tab="Evidence")
    verdict = next(each for each in verdicts(result_of("whole").result) if each.label == "L1H2")
    measured = [item for item in verdict.evidence if item.bearing is not Bearing.ABSENT]
    shown = evidence(at)
    assert list(shown["source"]) == [item.source.value for item in measured]
    assert list(shown["value"]) == pytest.approx([item.value for item in measured], abs=6e-4)
    assert shown["interval"][[item.low is not None for item in measured]].str.match(r"\[-?\d").all()
    assert shown["rank"].str.contains("of 8").any()
    assert "n = 8 sequences of random tokens" in said(at)


def test_every_score_is_shown_where_it_is_measured_or_says_why_not(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    results = {study: result_of("whole", study).result for study in OF_HEADS}
    for name in MEANINGS:
        at.pills(key="kind").set_value(name).run()
        assert not at.exception
        shown_on = at.session_state["reading"] if name in set(Kind) else RANDOM  # it stays where it has the next one
        for key, on in (("grid", shown_on), ("grid_text", TEXT)):
            measured = scores(results, name, on)
            if isinstance(measured, Absent):
                assert key not in views(at)
                assert measured.why in said(at)
            else:
                grid = views(at)[key]
                assert grid["label"] == measured.label
                drawn = [math.nan if value is None else value for value in grid["values"][0]]  # a head not measured
                assert drawn == pytest.approx(measured.mean[0].tolist(), abs=1e-3, nan_ok=True)
                assert (grid["before"] is None) == (measured.step_0 is None)
                assert f"n = {measured.n:,} {measured.unit}" in said(at)


def test_a_score_of_a_study_that_was_not_run_names_its_command(
    other_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(other_runs, "heads", monkeypatch, run="post", kind="importance")
    assert not at.exception
    assert re.search(rf"cutaway run head-importance \S*post@{STEP}", said(at))
    at.pills(key="kind").set_value("harm").run()  # attention-patterns ablated heads itself
    assert not at.exception
    assert views(at)["grid"]["label"] == MEANINGS["harm"]


def test_a_kind_stays_on_a_reading_that_has_it_and_a_lacking_one_can_be_asked(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    at.selectbox(key="reading").set_value("held-out text").run()
    at.pills(key="kind").set_value(Kind.PREVIOUS.value).run()
    assert at.session_state["reading"] == "held-out text"
    at.pills(key="kind").set_value(Kind.POSITIONAL).run()
    assert at.session_state["reading"] == "held-out text"
    at.selectbox(key="reading").set_value(at.selectbox(key="reading").options[0]).run()
    assert not at.exception
    assert "positional is not measured on" in said(at)


def test_a_fixed_distance_stands_in_its_cell_and_copying_is_signed(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    at.pills(key="kind").set_value(Kind.POSITIONAL).run()
    assert all(re.fullmatch(r"\d+ back", word) for row in views(at)["grid"]["marks"] for word in row)
    at.pills(key="kind").set_value(Kind.COPYING).run()
    assert views(at)["grid"]["scale"] == {"kind": "diverging", "low": -1.0, "high": 1.0}


def test_the_finder_lists_the_first_heads_by_any_score(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", kind="harm", order=ORDERS["score"], top="5")
    assert not at.exception
    ranked = columns(at, "rank")
    assert list(ranked["rank"]) == [1, 2, 3, 4, 5]
    assert ranked["mean"].is_monotonic_decreasing
    assert {"low", "high", "step 0"} <= set(ranked)
    at.segmented_control(key="top").set_value("all").run()
    assert len(columns(at, "rank")) == 8
    assert "top" not in at.query_params, "so few are all shown where the address says nothing"


def clicked(at: AppTest, key: str, row: int, column: str) -> AppTest:
    """Do what a click on a cell of a table does (private API of AppTest)."""
    (table,) = [each for each in at.dataframe if each.proto.id.endswith(f"-{key}")]
    states = at._tree.get_widget_states()
    state = states.widgets.add()
    state.id = table.proto.id
    state.string_value = json.dumps({"selection": {"rows": [], "columns": [], "cells": [[row, column]]}})
    return at._run(widget_state=states)


def test_any_cell_of_a_row_selects_its_head_and_the_tick_follows_from_the_first_of_the_list(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", order=ORDERS["score"], top="all")
    labels = list(columns(at, "rank")["head"])

    def ticked() -> list[int]:
        return list(at.session_state["ranking"]["selection"]["rows"])

    assert views(at)["grid"]["chosen"] == labels[0]
    assert ticked() == [0]
    clicked(at, "ranking", 2, "mean")
    assert at.session_state["head"] == labels[2]
    assert ticked() == [2]
    assert not at.session_state["ranking"]["selection"]["cells"], "the same cell can be clicked again"
    pressed(at, "j")
    assert at.session_state["head"] == labels[3]
    assert ticked() == [3]


def test_training_dynamics_stands_in_for_a_study_that_was_not_run(
    own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(own_runs / "whole" / "studies" / "attention-patterns")
    at = opened(own_runs, "heads", monkeypatch, run="whole", b="whole@0")
    assert not at.exception
    assert f"There is no attention-patterns result at step {STEP}" in said(at)
    saved = result_of("whole", "training-dynamics")
    for key, step in (("grid", STEP), ("grid_b", 0)):
        scores_then = attention_at(saved.result, saved.result.index_of(step)).headline[Kind.INDUCTION].intervals.mean
        assert views(at)[key]["values"][0] == pytest.approx(scores_then[0].tolist(), abs=1e-3)
    assert "grid_gap" in views(at)


def test_a_score_at_another_step_of_a_result_names_that_steps_weights(
    own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(own_runs / "whole" / "studies" / "attention-patterns")
    at = opened(own_runs, "heads", monkeypatch, run="whole", b="whole@0")
    (run,) = [run for run in data.runs() if run.name == "whole"]
    known = {step: data.manifest(run, step) for step in (0, STEP)}
    for key, step in (("grid", STEP), ("grid_b", 0)):
        line = " ".join(views(at)[key]["rests_on"])
        assert f"whole@{step}" in line
        assert known[step].weights_sha256[:8] in line
    about = panels.about_step(result_of("whole", "training-dynamics"), run, 0, n=1, unit="sequences")
    assert about["tokens_seen"] == known[0].tokens_seen == 0
    assert about["weights_sha256"] == known[0].weights_sha256 != known[STEP].weights_sha256


def test_the_prompt_to_begin_with_fits_the_context_of_a_demo_and_repeats_itself() -> None:
    assert len(PROMPT.encode()) + 1 <= 64
    assert PROMPT.count("(x):\n    return open(") == 2


def test_j_k_and_x_go_through_the_list_and_several_presses_count(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    order = list(at.dataframe[0].value["head"])
    at = pressed(at, "j")
    assert at.session_state["head"] == order[1]
    at = pressed(at, "j", "j", "k", "j")
    assert not at.exception
    assert at.session_state["head"] == order[3]
    assert views(at)["grid"]["chosen"] == order[3]
    at = pressed(at, "x")
    assert at.session_state["ablate"] == order[3]
    assert views(at)["grid"]["set"] == [order[3]]
    at = pressed(at, "x", "k", "k", "k", "k", "k")
    assert at.session_state["ablate"] == ""
    assert at.session_state["head"] == order[0]
    at.button(key="head_next").click().run()
    assert at.session_state["head"] == order[1]
    at.button(key="head_toggle").click().run()
    assert at.session_state["ablate"] == order[1]


def test_v_goes_through_the_units_that_the_model_has(other_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(other_runs, "heads", monkeypatch, run="post")
    for basis in (Basis.WEIGHTED, Basis.RAW):  # contributions to logits are not defined under post norm
        at = pressed(at, "v")
        assert not at.exception
        assert views(at)["attention"]["label"] == bases.UNITS[basis]
    assert said(at).count("signed, as logits: not defined here.") == 1


def test_two_scores_are_held_against_each_other(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = {"order": ORDERS["two"], "x": "previous@text", "y": "importance@text"}
    at = opened(whole_runs, "heads", monkeypatch, run="whole", **address)
    assert not at.exception
    assert "across: n = " in said(at)
    at.selectbox(key="axis_x").select("repaired@random").run()
    assert not at.exception
    assert at.query_params["x"] == "repaired@random"


def test_the_choices_of_the_page_stand_in_its_address_and_wrong_ones_are_told(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"kind": "beauty", "tab": "Vibes", "basis": "nice", "top": "-1", "order": "?", "on": "the beach"}
    at = opened(whole_runs, "heads", monkeypatch, run="whole", **wrong)
    assert not at.exception
    told = "\n".join(re.sub(r"\\(.)", r"\1", each.value) for each in at.warning)
    for name in ("kind", "tab", "basis", "order", "on"):
        assert f"{name}: there is no {name}" in told
    at = opened(whole_runs, "heads", monkeypatch, run="whole", kind="previous", tab="What it costs")
    assert at.pills(key="kind").value == "previous"
    assert len(columns(at, "measure")) > 0
    at.pills(key="kind").set_value("induction").run()
    assert "kind" not in at.query_params  # what goes without saying leaves the address short


def test_compared_checkpoints_stand_side_by_side_with_their_difference(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", b="whole@0", head="L1H2")
    assert not at.exception
    shown = views(at)
    one, other, gap = shown["grid"], shown["grid_b"], shown["grid_gap"]
    assert one["scale"] == other["scale"]
    expected = [a - b for a, b in zip(one["values"][1], other["values"][1], strict=True)]
    assert gap["values"][1] == pytest.approx(expected, abs=2e-3)
    assert gap["scale"]["kind"] == "diverging"
    assert gap["scale"]["low"] == -gap["scale"]["high"]
    assert gap["low"] is not None
    assert shown["attention"]["names"] == [f"whole@{STEP}", "whole@0"]
    at = opened(whole_runs, "heads", monkeypatch, run="whole", b=f"bare@{STEP}")
    assert not at.exception
    assert re.search(rf"cutaway run attention-patterns \S*bare@{STEP}", said(at))


def test_what_is_locked_is_said_of_both_checkpoints_and_d_and_s_stand_in_the_address(
    own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(own_runs / "whole", own_runs / "twin")
    at = opened(own_runs, "heads", monkeypatch, run="whole", b="twin@0", head="L1H2", cell="5.2", shows="b", strip="by")
    assert not at.exception
    assert (views(at)["attention"]["shows"], views(at)["attention"]["strip"]) == ("b", "by")
    assert re.search(rf"locked: query 5 .* whole@{STEP} 0\.\d+, twin@0 0\.\d+, difference -?0\.\d+ attention", said(at))
    assert f"whole@{STEP}  ·  compared with twin@0" in said(at)
    assert said(at).count("H0 of one is not H0 of the other") >= 2, "at the grids and at the pattern"
    at = pick(at, "attention", {"shows": "difference", "strip": "to"})
    assert at.query_params["shows"] == "difference"
    assert "strip" not in at.query_params
    at = opened(own_runs, "heads", monkeypatch, run="whole", b="whole@0", head="L1H2", tab="What it costs")
    assert f"whole@{STEP} only: whole@0 is not shown in this tab" in said(at)
    assert "H0 of one is not H0 of the other" not in said(at)


def test_a_signed_row_says_to_whose_logit_it_adds_behind_the_last_token_too(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"run": "whole", "head": "L1H2", "basis": "signed", "text": "repeats"}
    lab = open_run(whole_runs / "whole")
    tokens = look(lab, "repeats", "").tokens
    last = len(tokens) - 1
    given = visible(after_last(lab, "repeats", ""))
    at = opened(whole_runs, "heads", monkeypatch, **asked, cell=f"{last}.2")
    assert f"for ‘{given}’, which whole@{STEP} gives most: nothing follows position {last}" in said(at)
    at = opened(whole_runs, "heads", monkeypatch, **asked, cell="5.2")
    assert f"for the token that follows, ‘{visible(tokens[6])}’ at 6" in said(at)


def test_a_difference_is_told_apart_only_where_intervals_do_not_meet() -> None:
    def scored(low: float, high: float, n_heads: int = 1) -> HeadScores:
        ends = [torch.full((1, n_heads), value) for value in ((low + high) / 2, low, high)]
        return HeadScores(
            name="previous", on="x", mean=ends[0], low=ends[1], high=ends[2], step_0=None, chance=None, found=None,
            n=1, unit="x", rests=(),
        )  # fmt: skip

    apart, meeting = difference(scored(0.5, 0.7), scored(0.1, 0.4)), difference(scored(0.5, 0.7), scored(0.1, 0.6))
    assert isinstance(apart, HeadScores)
    assert isinstance(meeting, HeadScores)
    assert bool(apart.found)
    assert not bool(meeting.found)
    assert float(apart.low) == pytest.approx(0.1)
    assert isinstance(difference(scored(0, 1), scored(0, 1, n_heads=2)), Absent)


@pytest.mark.parametrize("tab", detail.TABS)
def test_what_a_tab_shows_is_computed_by_the_python_of_its_panels(
    whole_runs: Path, tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Panel] = {}
    menu = panels.menu
    monkeypatch.setattr(panels, "menu", lambda panel, *more: (seen.update({panel.key: panel}), menu(panel, *more)))
    monkeypatch.chdir(whole_runs)
    lists = dict(zip(detail.TABS, [*ORDERS.values(), *ORDERS.values()], strict=True))
    b = {"b": "whole@0"} if tab == detail.TABS[0] else {}
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L0H1", tab=tab, order=lists[tab], **b)
    assert not at.exception
    assert len(seen) >= 3
    for panel in seen.values():
        require_same(panel)
        require_told(panel)


def test_a_head_is_worth_what_its_studies_measured(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H2", tab="What it costs")
    assert not at.exception
    shown = columns(at, "measure")
    assert list(shown)[:7] == ["measure", "on", "instead", "value", "interval", "n", "study"], "these fit half a page"
    results = {study: result_of("whole", study) for study in ("head-ablation", "head-importance", "self-repair")}
    for study, saved in results.items():
        rests = rf"{study}: n = [\d or]+ sequences, seed \d+, whole@{STEP}, config {saved.provenance.config_hash}"
        assert re.search(rests, said(at))
    rows = cost_rows({study: saved.result for study, saved in results.items()}, (1, 2))
    assert len(rows) == len(shown)
    assert "gradient" not in set(rows["instead of it"])
    ablated = result_of("whole", "head-ablation").result.single("copy_loss")
    (harm,) = rows.loc[(rows["study"] == "head-ablation") & (rows["on"] == ablated.meaning)
                       & (rows["instead of it"] == "mean"), "value"]  # fmt: skip
    assert harm == pytest.approx(float(ablated.harm.mean[0, 1, 2]))
    judged = result_of("whole", "head-importance").result.judged[0]
    (importance,) = rows.loc[(rows["measure"] == "importance") & (rows["on"] == judged.meaning), "value"]
    assert importance == pytest.approx(float(judged.importance.mean[1, 2]))
    assert {"self-repair", "head-importance", "head-ablation"} == set(rows["study"])
    alone = cost_rows({"attention-patterns": result_of("whole").result}, (1, 2))
    assert set(alone["study"]) == {"attention-patterns"}


def test_partners_of_a_head_are_the_strongest_pairs_of_its_weights(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H2", tab="QK & OV")
    assert not at.exception
    weights = result_of("whole").result.weights
    rows = partner_rows(weights, None, (1, 2))
    assert set(rows["direction"]) == {"reads"}  # nothing reads the last layer
    for name, letter in (("queries", "q"), ("keys", "k"), ("values", "v")):
        best = weights.composition[letter].strongest(letter, n=1, reader="L1H2")[0]
        assert rows.loc[rows["input"] == name, "other"].iloc[0] == best.writer
    assert set(partner_rows(weights, None, (0, 1))["direction"]) == {"is read by"}
    assert "raises most" in columns(at, "attended")


def test_the_ov_circuit_raises_what_the_weights_say(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(whole_runs, "overview", monkeypatch, run="whole")
    lab, known = open_run(whole_runs / "whole"), result_of("whole").result.behaviour
    rows = raised_tokens(lab, known, (1, 2), n=1, n_raised=3)
    token = int(known.seen.attended.token[1, 2, 0])
    attention = lab.gpt.blocks[1].ln1.w.double()
    final = lab.gpt.ln_final.w.double()
    ov = (lab.gpt.W_E[token].double() * attention) @ lab.gpt.W_V[1, 2].double() @ lab.gpt.W_O[1, 2].double()
    logits = (ov * final) @ lab.gpt.W_U.double()
    expected = (logits - logits.mean()).topk(3).values.tolist()
    assert rows["logit"].tolist() == pytest.approx(expected, rel=1e-4)


def test_training_is_followed_where_it_was_measured_and_else_its_command_stands(
    whole_runs: Path, own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H2", tab="Over training")
    assert not at.exception
    assert "checkpoints" in said(at)
    shutil.rmtree(own_runs / "whole" / "studies" / "training-dynamics", ignore_errors=True)
    at = opened(own_runs, "heads", monkeypatch, run="whole", head="L1H2", tab="Over training")
    assert not at.exception
    assert "n = 8 sequences at each of 2 checkpoints" in said(at)
    assert re.search(rf"cutaway run training-dynamics \S*whole@{STEP}", said(at))


def test_two_runs_are_followed_on_one_scale(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(own_runs / "whole", own_runs / "twin")
    asked = {"run": "whole", "head": "L1H2", "tab": "Over training"}
    at = opened(own_runs, "heads", monkeypatch, **asked, b=f"twin@{STEP}")
    assert not at.exception
    drawn = [json.loads(chart.proto.spec) for chart in at.get("vega_lite_chart")]
    domains = [layer["encoding"]["y"]["scale"]["domain"] for spec in drawn for layer in spec["layer"]
               if "scale" in layer["encoding"].get("y", {})]  # fmt: skip
    assert len(drawn) == 2
    assert len(domains) >= 2
    assert all(domain == domains[0] for domain in domains)
    assert said(at).count("rule: the step that is shown") == 2
    at = opened(own_runs, "heads", monkeypatch, **asked, b="whole@0")
    assert len(at.get("vega_lite_chart")) == 1


def test_without_results_the_pattern_is_live_and_every_tab_names_its_command(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="bare", head="L1H2")
    assert not at.exception
    assert "attention" in views(at)
    for tab in detail.TABS[1:]:
        at.session_state["tab"] = tab
        at.run()
        assert not at.exception
        assert re.search(rf"cutaway run \S+ \S*bare@{STEP}", said(at))
    at = pressed(at, "j")
    assert at.session_state["head"] == "L1H3"


@pytest.mark.parametrize("choice", list(Choice))
def test_examples_are_rows_of_the_corpus_on_one_scale(
    whole_runs: Path, choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H2", tab="Examples", examples=choice.value)
    scales = {}
    for basis in Basis:
        at.segmented_control(key="basis").set_value(basis.value).run()
        assert not at.exception
        shown = views(at)["corpus_rows"]
        assert len(shown["rows"]) >= 6
        for row in shown["rows"]:
            assert row["boxed"] == len(row["tokens"]) - 1
            assert "then " in row["note"]
        if basis is Basis.RAW:
            assert all(sum(row["values"]) == pytest.approx(1, abs=1e-4) for row in shown["rows"])
        scales[basis] = shown["scale"]
    assert scales[Basis.SIGNED]["kind"] == "diverging"
    assert scales[Basis.RAW] == {"kind": "sequential", "low": 0.0, "high": 1.0}


def test_examples_that_were_not_kept_are_read_again_and_are_the_same(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(whole_runs, "overview", monkeypatch, run="whole")
    lab, known = open_run(whole_runs / "whole"), result_of("whole").result.behaviour
    for place in [(int(layer), int(head)) for layer, head in known.shown["top"].heads.tolist()[:2]]:
        kept, again = kept_examples(known, place), read_examples(lab, known.seen, place)
        for choice in Choice:
            for basis in Basis:
                one, other = (example_table(each, known.seen, place, choice, basis) for each in (kept, again))
                pd.testing.assert_frame_equal(one, other, rtol=1e-4, atol=1e-5)


def test_examples_whose_text_has_changed_are_told(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "kept_examples", lambda *_: None)
    file = own_runs / "whole" / "run.json"
    recorded = json.loads(file.read_text())
    file.write_text(json.dumps(recorded | {"corpus_sha256": "0" * 64}))
    at = opened(own_runs, "heads", monkeypatch, run="whole", head="L0H3", tab="Examples")
    assert not at.exception
    assert "The examples of L0H3 were not saved, and cannot be read again." in said(at)
    assert "corpus_rows" not in views(at)
    at.session_state["tab"] = "Pattern"
    assert "attention" in views(at.run())


@pytest.mark.parametrize("basis", list(Basis))
def test_a_live_pattern_is_shown_in_every_unit(whole_runs: Path, basis: Basis, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", cell="5.2")
    at.segmented_control(key="basis").set_value(basis).run()
    assert not at.exception
    shown = views(at)["attention"]
    assert shown["label"] == bases.UNITS[basis]
    assert shown["lock"] == {"query": 5, "key": 2}
    assert (shown["scale"]["kind"] == "diverging") == (basis is Basis.SIGNED)
    assert shown["fit"] == (basis is not Basis.RAW)


def test_what_is_not_defined_for_a_post_norm_model_says_so(other_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(other_runs, "heads", monkeypatch, run="post", kind=Kind.COPYING.value, tab="Evidence")
    assert not at.exception
    assert not at.error
    assert "copying" not in set(evidence(at)["source"])
    assert "copying: " in said(at)
    assert "norm=post" in said(at)
    at.session_state["tab"] = "QK & OV"
    at.run()
    assert not at.exception
    assert any("residual stream" in each.value for each in at.info)
    for tab, view in (("Pattern", "attention"), ("Examples", "corpus_rows")):
        at.session_state["tab"] = tab
        at.run()
        for basis, drawn in ((Basis.WEIGHTED, True), (Basis.SIGNED, False)):
            at.segmented_control(key="basis").set_value(basis.value).run()
            assert not at.exception
            assert (view in views(at)) is drawn


def test_a_run_without_text_says_why_and_what_makes_it(other_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(other_runs, "heads", monkeypatch, run="no-text", prompt="abcabc")
    assert not at.exception
    assert not at.error
    assert "grid_text" not in views(at)
    assert "attention" in views(at)
    assert "What the study found" in said(at)
    for tab in ("Examples", "QK & OV"):
        at.session_state["tab"] = tab
        at.run()
        assert not at.exception
        assert "has no text" in said(at)
        assert re.search(r"cutaway run attention-patterns \S*no-text@24", said(at))


def test_a_prompt_that_cannot_be_read_leaves_the_rest_of_the_page(
    other_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(other_runs, "heads", monkeypatch, run="no-text", prompt="\u65e5\u672c")
    assert not at.exception
    assert len(at.error) == 1
    assert "attention" not in views(at)
    assert "What the study found" in said(at)


def test_a_result_of_another_version_is_told(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in own_runs.glob("whole/studies/attention-patterns/*/result.json"):
        record = json.loads(file.read_text())
        del record["result"]["harms"]
        file.write_text(json.dumps(record))
    at = opened(own_runs, "heads", monkeypatch, run="whole")
    assert not at.exception
    assert "saved by another version of attention-patterns" in said(at)
    assert re.search(r"cutaway run attention-patterns \S+", said(at))
    assert "attention" in views(at)


def test_what_was_computed_is_not_computed_again_and_sessions_do_not_meet(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    through = GPT._through
    monkeypatch.setattr(GPT, "_through", lambda *args: passes.append(1) or through(*args))
    asked = {"run": "whole", "prompt": "def seen_by_nobody_yet(x):"}
    first = opened(whole_runs, "heads", monkeypatch, **asked)
    assert len(passes) > 0
    shown = views(first)["attention"]
    passes.clear()
    first.run()
    second = opened(whole_runs, "heads", monkeypatch, ablate="L0H1:zero", **asked)
    assert passes == []
    assert views(first)["attention"] == views(second)["attention"] == shown
    assert (views(first)["grid"]["set"], views(second)["grid"]["set"]) == ([], ["L0H1"])
    gpt = data.lab(data.runs()[1], STEP).gpt
    assert scopes_of(gpt) == gpt._lasting == []
