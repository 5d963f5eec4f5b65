"""cutaway generate --edit: what is changed while a model writes, in the one grammar."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from apps.cli import app
from interp.intervention_kinds import Intervention
from tests.planted import PlantedMemory, memories_model
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """L0M2 promotes h after df, L0M3 promotes j after dg."""
    folder = tmp_path_factory.mktemp("runs") / "planted"
    planted_lab(folder, memories_model({(0, 2): PlantedMemory(3, 5, 7), (0, 3): PlantedMemory(3, 6, 9)}))
    return folder


def cutaway(run: Path, *arguments: str) -> Result:
    asked = ["generate", str(run), "--prompt", "df", "--max-new-tokens", "4", "--temperature", "0", "--device", "cpu"]
    return CliRunner().invoke(app, [*asked, *arguments], catch_exceptions=False)


def test_a_memory_that_is_set_writes_its_token_and_nothing_else(run: Path) -> None:
    assert cutaway(run).stdout.strip().endswith("dfhaaa")  # once; then nothing is more likely than anything
    assert cutaway(run, "--edit", "L0M2:set=3").stdout.strip().endswith("dfhhhh")
    assert cutaway(run, "--edit", "L0M3:set=3,L0M2:zero").stdout.strip().endswith("dfjjjj")
    assert cutaway(run, "--edit", "L0M2,L0M3:swap").stdout.strip().endswith("dfjaaa")


@pytest.mark.parametrize("places", ["L0M2", "L0M2:mean", "L0M2:resample"])
def test_what_needs_other_sequences_is_refused_with_what_does_not(places: str, run: Path) -> None:
    refused = cutaway(run, "--edit", places)
    assert refused.exit_code == 2
    assert f"{places} takes from other sequences what it puts there" in refused.output


def test_what_stands_alone_is_what_needs_nothing() -> None:
    assert [kind.value for kind in Intervention if kind.stands_alone] == ["zero", "set", "times", "swap"]
