"""The page on claims, and the claims that are shipped: both are held against the code and a planted circuit."""

from __future__ import annotations

import doctest
import re
from dataclasses import fields
from pathlib import Path

import pytest

from analyses.claims.files import read_claims
from analyses.claims.statement import ControlKind, Statement
from analyses.hypotheses import load_claims, verdicts_on
from model.lab import Lab, open_run
from tests.planted_run import planted_lab

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/claims.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def test_every_example_of_the_page_is_true(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """One of them: the shipped claims come out as named on a planted circuit."""
    monkeypatch.chdir(ROOT)
    outcome = doctest.testfile(str(PAGE), module_relative=False, globs={"lab": lab})
    assert outcome.attempted >= 9
    assert outcome.failed == 0


def test_every_claim_of_the_page_is_read(tmp_path: Path):
    blocks = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        (tmp_path / "some.toml").write_text(block)
        (claim,) = read_claims(tmp_path / "some.toml")
        shipped = {each.name: each.stated for each in load_claims([ROOT / "claims"])}
        assert claim.name not in shipped or claim.stated == shipped[claim.name]


def test_the_page_lists_every_key_and_every_control():
    table = TEXT.partition("### Keys")[2].partition("###")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first))) == sorted(each.name for each in fields(Statement))
    table = TEXT.partition("### Controls")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [each.value for each in ControlKind]


def test_the_shipped_claims_are_undecided_of_random_weights(lab: Lab):
    verdicts = verdicts_on(load_claims([ROOT / "claims"]), open_run(f"{lab.path}@0"))
    assert [each.standing.value for each in verdicts] == ["undecided"] * 3
