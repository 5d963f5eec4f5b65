"""Every page over runs that are whole, bare or damaged: it says what there is, and never falls over."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from streamlit.testing.v1 import AppTest

from analyses.attention_evidence import Bearing
from analyses.attention_patterns import verdicts
from analyses.attention_readings import Kind
from analyses.attention_verdicts import Standing
from analyses.study import run_study
from apps.dashboard import data, launch, passes
from apps.dashboard.heads import bases
from apps.dashboard.heads import corpus as head_corpus
from apps.dashboard.heads import scores as head_scores
from apps.dashboard.heads.corpus import Choice
from interp.live import Basis
from model import GPT
from model.hooks import scopes_of
from model.lab import open_run
from tests.dashboard_pages import SCRIPT, opened, pick, said, views
from tests.dashboard_runs import STEP, STUDIES, own_runs, trained, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures

PAGES = ("overview", "heads", "ablate", "memories", "gradients")
STUDY_OF = {
    "heads": "attention-patterns",
    "ablate": "head-ablation",
    "memories": "ffn-memories",
    "gradients": "gradient-flow",
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_over_whole_results_shows_numbers_with_their_origin(
    whole_runs: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, page, monkeypatch, run="whole")
    text = said(at)
    assert not at.exception
    assert not at.error
    assert f"whole@{STEP}" in text
    assert re.search(r"weights [0-9a-f]{8}", text)
    assert "seed 0" in text
    assert "cutaway run" not in text


@pytest.mark.parametrize("page", PAGES)
def test_a_page_without_results_names_the_command_that_makes_them(
    whole_runs: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, page, monkeypatch, run="bare")
    assert not at.exception
    for study in STUDIES if page == "overview" else (STUDY_OF[page],):
        assert re.search(rf"cutaway run {study} .*bare@{STEP}", said(at))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_which_steps_have_results(whole_runs: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, page, monkeypatch, run="whole", step="8")
    assert not at.exception
    at.button(key=f"go-{STUDY_OF.get(page, 'head-ablation')}-0").click().run()
    assert not at.exception
    assert at.session_state["step"] == 0
    assert "whole@0" in said(at)


@pytest.mark.parametrize("page", PAGES)
def test_damaged_results_are_told_and_the_rest_still_works(
    own_runs: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in own_runs.glob("whole/studies/*/*/result.safetensors"):
        file.write_bytes(file.read_bytes()[:-7])
    at = opened(own_runs, page, monkeypatch, run="whole")
    assert not at.exception
    assert at.error
    assert "Run the study again, or delete the folder." in said(at)
    assert re.search(r"cutaway run \S+ \S+", said(at))


@pytest.mark.parametrize("page", PAGES)
def test_damaged_checkpoints_are_told(own_runs: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in own_runs.glob("whole/checkpoints/*/model.safetensors"):
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)
    at = opened(own_runs, page, monkeypatch, run="whole", ablate="L1H1")
    assert not at.exception
    if page in ("heads", "ablate"):  # the pages with live passes
        assert "model.safetensors was altered or cut short" in said(at)


def test_a_checkpoint_that_is_left_out_is_named(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_runs / "whole" / "checkpoints" / "step-00000008" / "manifest.json").write_text("{}")
    at = opened(own_runs, "overview", monkeypatch, run="whole")
    assert not at.exception
    assert "left out: step-00000008" in said(at)
    assert "1 checkpoints damaged" in set(at.dataframe[0].value["state"])


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("fault", ["{", '{"config": 3}', "[]", "\x00"])
def test_a_damaged_run_is_told_and_others_can_be_chosen(
    own_runs: Path, page: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_runs / "bare" / "run.json").write_text(fault)
    (own_runs / "bare" / "metrics.jsonl").write_text("{\n{}\n")
    at = opened(own_runs, page, monkeypatch, run="bare")
    assert not at.exception
    at.selectbox(key="run").select("whole").run()
    assert not at.exception
    assert f"whole@{STEP}" in said(at)


@pytest.mark.parametrize("page", PAGES)
def test_an_address_that_asks_for_what_is_not_there_is_answered_in_words(
    whole_runs: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(whole_runs))
    at = AppTest.from_file(SCRIPT, default_timeout=60)
    bad = {
        "run": "../../etc",
        "step": "77",
        "head": "L9H9",
        "memory": "L0M99999",
        "cell": "<b>",
        "ablate": "x",
        "text": "y",
    }
    for name, value in bad.items():
        at.query_params[name] = value
    at.run() if page == "overview" else at.switch_page(f"app_pages/{page}.py").run()
    notices = said(at)
    assert 'there is no run "../../etc" here' in notices
    for sentence in ("no L9H9", "no L0M99999", "is not a cell", "is not a place"):
        assert sentence in notices
    assert not at.exception


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_without_runs_the_commands_that_make_one_are_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(tmp_path / folder, "overview", monkeypatch)
    assert not at.exception
    assert "cutaway demo" in said(at)


def test_a_folder_outside_the_root_is_no_run(own_runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (own_runs / "whole").rename(tmp_path / "elsewhere")
    (own_runs / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(own_runs))
    assert [run.name for run in data.runs()] == ["bare"]


def test_a_run_that_logged_nothing_is_not_told_to_resume(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_runs / "whole" / "metrics.jsonl").unlink()
    at = opened(own_runs, "overview", monkeypatch, run="whole")
    assert not at.exception
    assert "whole has logged nothing" in said(at)
    assert "--resume" not in said(at)


def test_a_number_on_the_overview_keeps_its_interval(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "overview", monkeypatch, run="whole")
    shown = said(at)
    found = [
        each.sentence for name in STUDIES for each in data.shelf(data.runs()[1], name).at(STEP).findings() if each.found
    ]
    assert found
    assert all(sentence in shown for sentence in found)
    assert "…" not in shown


def test_scores_stand_beside_step_zero(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    grid = views(at)["grid"]
    assert grid["before"] is not None
    assert grid["low"] is not None
    assert views(opened(whole_runs, "ablate", monkeypatch, run="whole"))["harm_copy_loss"]["before"] is not None


def test_a_picked_head_is_selected_on_every_page(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = pick(opened(whole_runs, "heads", monkeypatch, run="whole"), "grid", {"head": "L1H2"})
    assert not at.exception
    assert at.session_state["head"] == "L1H2"
    assert views(at)["attention"]["focus"] == 4 + 2
    assert views(at)["grid"]["chosen"] == "L1H2"
    assert views(at.switch_page("app_pages/ablate.py").run())["harm_copy_loss"]["chosen"] == "L1H2"


def test_a_locked_cell_comes_back_and_can_be_released(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = pick(opened(whole_runs, "heads", monkeypatch, run="whole"), "attention", {"cell": "9.4"})
    assert at.session_state["cell"] == "9.4"
    assert views(at)["attention"]["lock"] == {"query": 9, "key": 4}
    at = pick(at, "attention", {"cell": ""})
    assert views(at)["attention"]["lock"] is None


def test_toggled_heads_are_ablated_with_interval_and_control(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "ablate", monkeypatch, run="whole")
    before = open_run(whole_runs / "whole").gpt(torch.arange(8)[None])
    for head in ("L0H1", "L1H3"):
        at = pick(at, "harm_copy_loss", {"toggle": head})
    assert not at.exception
    assert at.session_state["ablate"] == "L0H1,L1H3"
    text = said(at)
    assert "With L0H1:mean,L1H3:mean ablated" in text
    assert re.search(r"nats \[-?\d", text)
    assert "Control: " in text
    assert at.dataframe[0].value["step 0"].notna().all()
    assert views(at)["token_harm"]["rows"][0]["values"][0] is None
    lab = data.lab(data.runs()[1], STEP)
    assert torch.equal(lab.gpt(torch.arange(8)[None]), before)
    at = pick(at, "harm_copy_loss", {"toggle": "L0H1"})
    assert at.session_state["ablate"] == "L1H3"


def test_what_cannot_be_asked_of_text_is_said_and_the_rest_is_answered(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "ablate", monkeypatch, run="whole", ablate="L0H1:counterfactual")
    assert not at.exception
    assert "With L0H1:counterfactual ablated" in said(at)
    assert "There is no counterfactual on held-out text" in said(at)
    assert ["corrupted twin of this text" in each.value for each in at.info] == [True]
    at.selectbox(key="metric").set_value("text_kl").run()
    assert not at.exception
    assert any("text_kl cannot be measured" in each.value.replace("\\", "") for each in at.info)


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


@pytest.fixture(scope="module")
def other_runs(whole_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose stream is no sum, and one that never read a text, each with a result of attention-patterns."""
    root = tmp_path_factory.mktemp("others")
    shutil.copytree(whole_runs / "bare", root / "post")
    trained(root, "no-text", "data.sources=repeats", "data.tokenizer=chars:64", "model.d_vocab=64")
    for name in ("post", "no-text"):
        run_study("attention-patterns", f"{root / name}@{STEP}", STUDIES["attention-patterns"])
    return root


def result_of(root: Path, name: str) -> Any:
    (run,) = [run for run in data.runs() if run.name == name]
    saved = data.shelf(run, "attention-patterns").at(STEP)
    assert saved is not None
    return saved


def evidence(at: AppTest) -> pd.DataFrame:
    return next(each.value for each in at.dataframe if "source" in each.value)


def test_every_head_has_a_verdict_and_the_best_supported_is_shown_first(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    saved = result_of(whole_runs, "whole")
    every = {verdict.label: verdict for verdict in verdicts(saved.result)}
    listed = at.dataframe[0].value
    assert sorted(listed["head"]) == sorted(every)
    standings = [list(Standing).index(Standing(word)) for (word,) in listed["standing"]]
    assert standings == sorted(standings)
    first = every[listed["head"].iloc[0]]
    assert first.sentence in said(at)
    assert views(at)["grid"]["chosen"] == first.label
    assert f"{first.label} over the corpus" in said(at)


def test_the_evidence_on_the_chosen_head_is_the_study_s(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H2")
    verdict = next(each for each in verdicts(result_of(whole_runs, "whole").result) if each.label == "L1H2")
    measured = [item for item in verdict.evidence if item.bearing is not Bearing.ABSENT]
    shown = evidence(at)
    assert verdict.sentence in said(at)
    assert list(shown["source"]) == [item.source.value for item in measured]
    assert list(shown["value"]) == pytest.approx([item.value for item in measured], abs=6e-4)
    assert shown["interval"][[item.low is not None for item in measured]].str.match(r"\[-?\d").all()
    assert shown["rank"].str.contains("of 8").any()
    assert "n = 8 sequences of random tokens" in said(at)


def test_every_kind_is_shown_where_it_is_decided_or_says_why_not(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    result = result_of(whole_runs, "whole").result
    for kind in Kind:
        at.pills(key="kind").set_value(kind).run()
        assert not at.exception
        where = head_scores.where_decided(result, kind)
        if kind in where:
            reading = next(each for each in result.readings if each.title == at.session_state["reading"])
            assert kind in reading
            assert views(at)["grid"]["label"].startswith(head_scores.MEANINGS[kind])
            assert "chance" in views(at)["grid"]["label"]
        else:
            assert "grid" not in views(at)
        if kind not in result.text:
            assert "grid_text" not in views(at)
            assert head_scores.why_not(result, result.text, kind) in said(at)


def test_a_kind_stays_on_a_reading_that_has_it_and_a_lacking_one_can_be_asked(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    at.selectbox(key="reading").set_value("held-out text").run()
    at.pills(key="kind").set_value(Kind.PREVIOUS).run()
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


def test_the_ranking_is_drawn_when_it_is_opened(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    assert not any("rank" in each.value and "mean" in each.value for each in at.dataframe)
    at.session_state["ranking"] = True
    at.run()
    assert not at.exception
    ranked = next(each.value for each in at.dataframe if "rank" in each.value and "mean" in each.value)
    assert list(ranked["rank"]) == list(range(1, 9))
    assert ranked["mean"].is_monotonic_decreasing
    assert {"low", "high", "chance", "step 0"} <= set(ranked)


@pytest.mark.parametrize("choice", list(Choice))
def test_examples_are_rows_of_the_corpus_on_one_scale(
    whole_runs: Path, choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole", head="L1H2")
    at.segmented_control(key="examples").set_value(choice).run()
    scales = {}
    for basis in Basis:
        at.segmented_control(key="examples_basis").set_value(basis).run()
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
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(whole_runs))
    saved, run = result_of(whole_runs, "whole"), data.runs()[1]
    known = saved.result.behaviour
    for place in [(int(layer), int(head)) for layer, head in known.shown["top"].heads.tolist()[:2]]:
        kept, again = head_corpus.kept(known, place), passes.examples(run, STEP, saved, place)
        examples = head_corpus.examples_of(known.seen)
        for choice in Choice:
            for basis in Basis:
                one, other = (
                    head_corpus.payload(each, examples[choice], place, choice, basis) for each in (kept, again)
                )
                assert [row["tokens"] for row in one["rows"]] == [row["tokens"] for row in other["rows"]]
                assert one["rows"][0]["values"] == pytest.approx(other["rows"][0]["values"], abs=1e-5)


def test_examples_whose_text_has_changed_are_told(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_corpus, "kept", lambda *_: None)
    file = own_runs / "whole" / "run.json"
    recorded = json.loads(file.read_text())
    file.write_text(json.dumps(recorded | {"corpus_sha256": "0" * 64}))
    at = opened(own_runs, "heads", monkeypatch, run="whole", head="L0H3")
    assert not at.exception
    assert "The examples of L0H3 were not saved, and cannot be read again." in said(at)
    assert "corpus_rows" not in views(at)
    assert "attention" in views(at)


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
    at = opened(other_runs, "heads", monkeypatch, run="post")
    assert not at.exception
    assert not at.error
    assert "copying" not in set(evidence(at)["source"])
    assert said(at).count("signed, as logits: not defined here.") == 2
    at.pills(key="kind").set_value(Kind.COPYING).run()
    assert "copying: " in said(at)
    assert "norm=post" in said(at)
    for key in ("basis", "examples_basis"):
        at.segmented_control(key=key).set_value(Basis.WEIGHTED).run()
        assert not at.exception
    assert {"attention", "corpus_rows"} <= set(views(at))
    for key in ("basis", "examples_basis"):
        at.segmented_control(key=key).set_value(Basis.SIGNED).run()
        assert not at.exception
    assert not {"attention", "corpus_rows"} & set(views(at))


def test_a_run_without_text_says_why_and_what_makes_it(other_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(other_runs, "heads", monkeypatch, run="no-text", prompt="abcabc")
    assert not at.exception
    assert not at.error
    assert "has no text" in said(at)
    assert re.search(r"cutaway run attention-patterns \S*no-text@24", said(at))
    assert "corpus_rows" not in views(at)
    assert "grid_text" not in views(at)
    assert "attention" in views(at)
    assert "What the study found" in said(at)


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


def test_a_study_without_a_page_is_drawn_on_the_overview(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "overview", monkeypatch, run="whole")
    assert not at.exception
    boxes = [box for box in at.expander if box.label.startswith("The study's own figure")]
    with_a_page = {*STUDY_OF.values(), "ffn-composition", "memory-promotion"}  # these two on the page of memories
    assert len(boxes) == len(set(STUDIES) - with_a_page)
    at.session_state["whole-probes"] = True
    at.run()
    assert not at.exception
    assert any("task" in each.value for each in at.dataframe)


def test_what_was_computed_is_not_computed_again_and_sessions_do_not_meet(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click that asks nothing new makes no pass, in any session; one that ablates leaves another's numbers alone."""
    passes: list[int] = []
    through = GPT._through
    monkeypatch.setattr(GPT, "_through", lambda *args: passes.append(1) or through(*args))
    asked = {"run": "whole", "prompt": "def seen_by_nobody_yet(x):"}
    first = opened(whole_runs, "heads", monkeypatch, **asked)
    assert len(passes) > 0
    shown = views(first)["attention"]
    ablating = opened(whole_runs, "ablate", monkeypatch, ablate="L0H1:zero", **asked)
    assert "With L0H1:zero ablated" in said(ablating)
    passes.clear()
    first.run()
    ablating.run()
    second = opened(whole_runs, "heads", monkeypatch, **asked)
    assert passes == []
    assert views(first)["attention"] == views(second)["attention"] == shown
    gpt = data.lab(data.runs()[1], STEP).gpt
    assert scopes_of(gpt) == gpt._lasting == []
