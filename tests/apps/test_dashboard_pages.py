"""What holds for every page, over runs that are whole, bare or damaged: it says what there is, and never falls over."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from apps.dashboard import data, launch
from tests.dashboard_pages import SCRIPT, opened, said
from tests.dashboard_runs import STEP, STUDIES, own_runs, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures

PAGES = ("overview", "heads", "ablate", "memories", "gradients")
EVERY = (*PAGES, "training", "lens", "findings")
"""The pages with tests of their own for what is missing and damaged among them."""

Damage = Callable[[Path], None]
"""What is done to a copy of the runs."""

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
    commands = re.findall(r"cutaway run \S+", text)  # that result was made without a twin, and of no drawn models
    assert set(commands) <= ({"cutaway run gradient-flow"} if page == "gradients" else set())


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
    at.button(key=f"go-{STUDY_OF[page]}-0" if page in STUDY_OF else "go-0").click().run()
    assert not at.exception
    assert at.session_state["step"] == 0
    assert "whole@0" in said(at)


@pytest.fixture(scope="module")
def damaged(whole_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Damage], Path]:
    """Copies of the runs, each damaged in one way, and made once: pages only read them."""

    @functools.cache
    def with_damage(damage: Damage) -> Path:
        root = Path(shutil.copytree(whole_runs, tmp_path_factory.mktemp("damaged") / "runs"))
        damage(root)
        return root

    return with_damage


def cut_results(root: Path) -> None:
    for file in root.glob("whole/studies/*/*/result.safetensors"):
        file.write_bytes(file.read_bytes()[:-7])


def altered_checkpoints(root: Path) -> None:
    for file in root.glob("whole/checkpoints/*/model.safetensors"):
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)


def unreadable_run(root: Path, fault: str = '{"config": 3}') -> None:
    (root / "bare" / "run.json").write_text(fault)
    (root / "bare" / "metrics.jsonl").write_text("{\n{}\n")


@pytest.mark.parametrize("page", PAGES)
def test_damaged_results_are_told_and_the_rest_still_works(
    damaged: Callable[[Damage], Path], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(damaged(cut_results), page, monkeypatch, run="whole")
    assert not at.exception
    assert at.error
    assert "Run the study again, or delete the folder." in said(at)
    assert re.search(r"cutaway run \S+ \S+", said(at))


@pytest.mark.parametrize("page", PAGES)
def test_damaged_checkpoints_are_told(
    damaged: Callable[[Damage], Path], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(damaged(altered_checkpoints), page, monkeypatch, run="whole", ablate="L1H1")
    assert not at.exception
    if page in ("heads", "ablate"):  # the pages with live passes
        assert "model.safetensors was altered or cut short" in said(at)


@pytest.mark.parametrize("page", EVERY)
def test_a_damaged_run_is_told_and_others_can_be_chosen(
    damaged: Callable[[Damage], Path], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page is given the same run, with its fault; the overview, whose list reads run.json itself, all of them."""
    at = opened(damaged(unreadable_run), page, monkeypatch, run="bare")
    assert not at.exception
    at.selectbox(key="run").select("whole").run()
    assert not at.exception
    assert f"whole@{STEP}" in said(at)


@pytest.mark.parametrize("fault", ["{", "[]", "\x00"])
def test_a_run_that_is_damaged_otherwise_looks_the_same_to_every_page(
    own_runs: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable_run(own_runs, fault)
    at = opened(own_runs, "overview", monkeypatch, run="bare")
    assert not at.exception
    bare = data.runs()[0]
    assert bare.fault
    nothing = data.Run(name="bare", path=own_runs / "bare", steps=(), model=None, settings={})
    assert replace(bare, fault=None) == nothing


@pytest.mark.parametrize("page", EVERY)
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
