"""Links that lead out of the folder of runs: what is behind them is not read, and that is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import streamlit as st

from analyses import shelf as shelves_on_disk
from analyses.inventory import run_rows
from analyses.study import run_study
from apps.dashboard import data, launch
from tests.dashboard_pages import opened
from tests.dashboard_runs import STEP, STUDIES, own_runs, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures

EVERY = ("overview", "heads", "ablate", "memories", "gradients", "training", "lens", "findings")


LINKED = (
    "run.json", "checkpoints", "checkpoints/step-00000016", "checkpoints/step-00000024/model.safetensors", "studies",
    "studies/probes", "metrics.jsonl", "report.html", "claims", "claims/secret.toml", "eval.safetensors",
)  # fmt: skip


def test_nothing_is_read_of_a_run_with_a_link_out_of_the_folder(
    own_runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(own_runs))
    run, outside = own_runs / "whole", tmp_path / "outside"
    (run / "claims").mkdir()
    for name in ("report.html", "claims/secret.toml"):
        (run / name).write_text("secret")
    outside.mkdir()
    for name in LINKED:
        link = run / name
        link.rename(outside / "target")
        link.symlink_to(outside / "target")
        found = next(each for each in data.runs() if each.name == "whole")
        assert found.barred and not found.steps and not found.settings, name
        assert f"whole/{name} is a link that leads out of {own_runs}" in str(found.fault)
        assert run_rows(own_runs).set_index("run").loc["whole", "checkpoints"] == 0
        link.unlink()
        (outside / "target").rename(link)
    assert not any(each.barred for each in data.runs())

    (run / "claims" / "secret.toml").rename(outside / "secret.toml")
    (run / "claims" / "secret.toml").symlink_to(outside / "secret.toml")
    for page in EVERY:
        at = opened(own_runs, page, monkeypatch, run="whole")
        (error,) = at.error
        assert "claims/secret" in re.sub(r"\\(.)", r"\1", error.value) and not at.exception
        assert not at.title and not at.header and not at.get("download_button"), page


def test_a_link_to_a_folder_beside_it_is_followed(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(own_runs))
    (own_runs / "whole" / "studies").rename(own_runs / "kept")
    (own_runs / "whole" / "studies").symlink_to(own_runs / "kept")
    found = next(each for each in data.runs() if each.name == "whole")
    assert not found.barred
    assert data.shelf(found, "probes").steps == (0, STEP)


def test_a_result_of_no_run_behind_a_link_out_of_the_folder_is_told_and_not_read(
    own_runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(own_runs))
    (own_runs / "whole" / "studies" / "gradient-flow").rename(tmp_path / "results")
    (own_runs / "_studies").mkdir()
    (own_runs / "_studies" / "gradient-flow").symlink_to(tmp_path / "results")
    run = next(each for each in data.runs() if each.name == "whole")
    shelf = data.shelf(run, "gradient-flow")
    assert not shelf.results
    assert all(f"a link that leads out of {own_runs}" in fault for fault in shelf.faults) and len(shelf.faults) == 2


@pytest.mark.parametrize("name", ["", "studies", "studies/gradient-flow", "studies/gradient-flow/RESULT"])
def test_a_neighbours_result_about_this_run_is_not_read_through_a_link_out_of_the_folder(
    name: str, own_runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a pair, one run's folder holds the result; it is shown with the other, too, and only from inside the root."""
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(own_runs))
    result = run_study(
        "gradient-flow", f"{own_runs}/bare@{STEP}", [*STUDIES["gradient-flow"], f"twin={own_runs}/whole"]
    )
    whole = next(each for each in data.runs() if each.name == "whole")
    read: list[str] = []
    whole_result = shelves_on_disk.whole_result
    monkeypatch.setattr(
        shelves_on_disk, "whole_result", lambda folder: (read.append(str(folder)), whole_result(folder))[1]
    )
    assert result.path in {saved.path for saved in data.shelf(whole, "gradient-flow").results}
    assert str(result.path) in read

    st.cache_data.clear()  # neighbours are looked at again after some seconds
    st.cache_resource.clear()
    read.clear()
    link = own_runs / "bare" / name.replace("RESULT", result.path.name)
    link.rename(tmp_path / "outside")
    link.symlink_to(tmp_path / "outside")
    found = data.shelf(whole, "gradient-flow")
    assert found.results and not any("bare" in str(saved.path) for saved in found.results)
    assert not any("bare" in folder or "outside" in folder for folder in read)
