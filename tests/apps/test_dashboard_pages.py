"""Every page over runs that are whole, bare or damaged: it says what there is, and never falls over."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from streamlit.components.v2.bidi_component.main import _make_trigger_id
from streamlit.testing.v1 import AppTest

from analyses.attention_readings import Kind
from apps.dashboard import data, head_scores, launch
from model import GPT
from model.hooks import scopes_of
from model.lab import open_run
from tests.dashboard_runs import STEP, STUDIES, own_runs, whole_runs

__all__ = ["own_runs", "whole_runs"]  # fixtures

SCRIPT = str(launch.SCRIPT)
PAGES = ("overview", "heads", "ablate", "memories", "gradients")
STUDY_OF = {
    "heads": "attention-patterns",
    "ablate": "head-ablation",
    "memories": "ffn-memories",
    "gradients": "gradient-flow",
}


def opened(root: Path, page: str, monkeypatch: pytest.MonkeyPatch, **address: str) -> AppTest:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(root))
    at = AppTest.from_file(SCRIPT, default_timeout=60)
    for name, value in address.items():
        at.query_params[name] = value
    return at.run() if page == "overview" else at.switch_page(f"app_pages/{page}.py").run()


def said(at: AppTest) -> str:
    """All text of a page, with Markdown's escapes undone."""
    kinds = (at.title, at.header, at.subheader, at.text, at.caption, at.error, at.warning, at.code, at.button)
    texts = [item.label if kind is at.button else item.value for kind in kinds for item in kind]
    return re.sub(r"\\(.)", r"\1", "\n".join(map(str, texts)))


def views(at: AppTest) -> dict[str, dict[str, Any]]:
    """What was sent to each mounted view, by its key."""
    return {part.proto.id.rsplit("-", 1)[-1]: json.loads(part.proto.json) for part in at.get("bidi_component")}


def pick(at: AppTest, key: str, value: dict[str, str]) -> AppTest:
    """Do what a click in a view does (private API of AppTest; keep it here)."""
    (part,) = [part for part in at.get("bidi_component") if part.proto.id.endswith(f"-{key}")]
    states = at._tree.get_widget_states()
    state = states.widgets.add()
    state.id = _make_trigger_id(part.proto.id, "events")
    state.json_trigger_value = json.dumps([{"event": "picked", "value": value}])
    return at._run(widget_state=states)


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


def test_a_memory_is_opened_searched_and_put_into_the_ablation(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "memories", monkeypatch, run="whole", memory="L1M5")
    assert "L1M5" in said(at)
    assert "(step 0: " in said(at)
    assert views(at)["triggers"]["rows"][0]["boxed"] is not None
    assert len(views(at)["on_text"]["rows"][0]["values"]) > 8
    at.text_input(key="wanted").set_value("L1M5").run()
    assert not at.exception
    assert set(at.dataframe[1].value["memory"].str[:4]) == {"L1M5"}
    at.text_input(key="wanted").set_value("(no such text").run()
    assert len(at.dataframe[1].value) == 0
    at.button[0].click().run()
    assert at.session_state["ablate"] == "L1M5"


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


@pytest.mark.parametrize("kind", ["previous", "entropy", "distance"])
def test_every_score_can_be_shown(whole_runs: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "heads", monkeypatch, run="whole")
    at.segmented_control(key="kind").set_value(kind).run()
    assert not at.exception
    assert views(at)["grid"]["label"].startswith(head_scores.MEANINGS[Kind(kind)])


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
