"""Which results belong to a run, damaged ones and those of pairs among them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import torch

from analyses import inventory, registry
from analyses.inventory import inventory_rows
from analyses.results import RECORD, Provenance, save_result
from analyses.shelf import OtherWeights, shelf, shelf_of_run
from model.manifest import MANIFEST, Manifest, sealed
from model.run_folders import checkpoint_path
from tests.analyses import toy_study

WHERE = Provenance(
    study="toy", run="demo", step=8, tokens_seen=1024, weights_sha256="w", corpus_sha256="c", inputs_sha256=None,
    config={"seed": 0}, config_hash="0" * 12, seed=0, device="cpu", seconds=0.0, created="2026-11-29", versions={},
)  # fmt: skip


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (registry, inventory):
        monkeypatch.setattr(module, "STUDIES", MappingProxyType({"toy": "tests.analyses.toy_study"}))


def put(studies: Path, where: Provenance = WHERE) -> Path:
    class Subject:
        weight = 3.0

    return save_result(studies, toy_study.run(Subject(), toy_study.Config()), where).path


def test_a_run_has_its_own_results_and_those_of_no_run(tmp_path: Path) -> None:
    own = put(tmp_path / "demo" / "studies")
    drawn = put(tmp_path / "_studies", replace(WHERE, run=None, step=None))
    put(tmp_path / "other" / "studies")
    found = shelf(tmp_path / "demo", "toy")
    assert [saved.path for saved in found.results] == [drawn, own]
    assert found.steps == (8,)
    assert found.faults == ()


def test_a_shelf_of_the_run_alone_has_nothing_of_no_run(tmp_path: Path) -> None:
    own = put(tmp_path / "demo" / "studies")
    drawn = put(tmp_path / "_studies", replace(WHERE, run=None, step=None))
    (drawn / RECORD).write_text("{")
    found = shelf_of_run(tmp_path / "demo", "toy")
    assert [saved.path for saved in found.results] == [own]
    assert found.faults == ()


def test_a_pair_belongs_to_both_runs_and_stands_behind_a_runs_own(tmp_path: Path) -> None:
    pair = put(tmp_path / "demo" / "studies", replace(WHERE, config={"seed": 0, "twin": "runs/demo-post"}))
    own = put(tmp_path / "demo-post" / "studies", replace(WHERE, run="demo-post", created="2020-01-01"))
    assert [saved.path for saved in shelf(tmp_path / "demo", "toy").results] == [pair]
    assert [saved.path for saved in shelf(tmp_path / "demo-post", "toy").every(8)] == [own, pair]


def test_a_damaged_result_costs_a_sentence_and_its_neighbours_nothing(tmp_path: Path) -> None:
    whole = put(tmp_path / "demo" / "studies")
    damaged = put(tmp_path / "demo" / "studies", replace(WHERE, step=9))
    (damaged / RECORD).write_text("{")
    found = shelf(tmp_path / "demo", "toy")
    assert [saved.path for saved in found.results] == [whole]
    assert len(found.faults) == 1
    assert str(damaged) in found.faults[0]
    assert torch.equal(found.results[0].result.doubled, 6 * torch.eye(2))


def checkpoint(run: Path, step: int, weights: str) -> None:
    """The manifest of a checkpoint, which is all that a shelf reads of one."""
    folder = checkpoint_path(run, step)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(step=step, tokens_seen=0, weights_sha256=weights, files={}, extra={})
    (folder / MANIFEST).write_text(json.dumps(sealed(manifest)))


def test_a_result_of_weights_that_the_checkpoint_no_longer_holds_is_left_out_with_its_command(tmp_path: Path) -> None:
    run = tmp_path / "demo"
    first = put(run / "studies", replace(WHERE, step=0, weights_sha256="begun"))
    last = put(run / "studies")
    twin = put(run / "studies", replace(WHERE, config={"seed": 0, "twin": "runs/demo-post"}, config_hash="1" * 12))
    assert shelf(run, "toy").steps == (0, 8), "a checkpoint that is gone cannot be compared"
    checkpoint(run, 0, "begun")
    checkpoint(run, 8, "w")
    assert [saved.path for saved in shelf(run, "toy").results] == [first, last, twin]
    assert [saved.path for saved in shelf(tmp_path / "demo-post", "toy").results] == [twin]
    assert here(run) == "yes"

    checkpoint(run, 8, "others")
    found = shelf(run, "toy")
    assert [saved.path for saved in found.results] == [first]
    (said,) = found.faults
    assert "2 results of toy at steps 8, 8 are of other weights than the checkpoints hold by now" in said
    assert f"`cutaway run toy {run}@8`" in said
    assert {type(error) for error in found.errors} == {OtherWeights}
    assert f"{last} is of other weights (w) than demo@8 holds by now (others)" in str(found.errors[0])
    assert shelf(tmp_path / "demo-post", "toy").results == ()
    assert shelf_of_run(run, "toy").results == found.results
    assert here(run) == "of other weights"
    put(run / "studies", replace(WHERE, weights_sha256="others"))
    assert shelf(run, "toy").steps == (0, 8)
    assert here(run) == "yes"


def here(run: Path) -> str:
    rows = inventory_rows(run, 8).set_index("what")
    assert bool(rows.loc["toy", "command"]) is (rows.loc["toy", "at this step"] != "yes")
    return str(rows.loc["toy", "at this step"])
