"""Which results belong to a run, damaged ones and those of pairs among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import torch

from analyses import registry
from analyses.results import RECORD, Provenance, save_result
from analyses.shelf import shelf, shelf_of_run
from tests.analyses import toy_study

WHERE = Provenance(
    study="toy", run="demo", step=8, tokens_seen=1024, weights_sha256="w", corpus_sha256="c", inputs_sha256=None,
    config={"seed": 0}, config_hash="0" * 12, seed=0, device="cpu", seconds=0.0, created="2026-11-29", versions={},
)  # fmt: skip


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "STUDIES", MappingProxyType({"toy": "tests.analyses.toy_study"}))


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
