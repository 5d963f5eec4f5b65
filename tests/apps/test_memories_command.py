"""cutaway memories: what it prints of a search and of one memory, from the saved result alone, and what it refuses."""

from __future__ import annotations

import doctest
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from analyses.ffn_memories import Result as Memories
from analyses.memory_card import CHANGES, MEASURES, SHARED, memory_record
from analyses.memory_index import MemoryIndex, index_of, read_index, saved_index
from analyses.memory_search import Query, rows, search
from analyses.results import SavedResult
from analyses.study import run_study
from apps import memory_lines
from apps.cli import app
from interp.trigger_deletions import Deletion
from interp.trigger_patterns import MEASURES as MEASURED
from tests.dashboard_runs import STEP, STUDIES, trained
from tests.undrawn import undrawn

STUDY = "ffn-memories"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedResult:
    run = trained(tmp_path_factory.mktemp("memories") / "runs", "demo")
    with undrawn():
        return run_study(STUDY, f"{run}@{STEP}", [*STUDIES[STUDY], "n_deleted=4", "n_random_sets=20"])


@pytest.fixture(scope="module")
def run(saved: SavedResult) -> Path:
    return saved.path.parents[2]


@pytest.fixture(scope="module")
def index(saved: SavedResult) -> MemoryIndex:
    return read_index(saved.path)


def cutaway(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["memories", *(str(each) for each in arguments)], catch_exceptions=False)


def test_names_that_do_not_wait_for_torch_are_those_of_their_modules() -> None:
    assert MEASURES == MEASURED
    assert tuple(Deletion) == CHANGES
    assert set(SHARED) == set(memory_lines.SHARED) <= set(MEASURED)


def test_an_answer_does_not_wait_for_torch(run: Path) -> None:
    code = (
        "import sys; from apps.cli import app\n"
        f"for asked in (['e', '--top', '3'], ['L0M1'], ['--trigger', 'e', '--json']):\n"
        f"    app(['memories', {str(run)!r}, *asked], standalone_mode=False)\n"
        f"assert app(['memories', {str(run)!r}, 'L9M9'], standalone_mode=False) == 2\n"
        "assert not {'torch', 'altair', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parents[2])


def test_a_result_on_disk_and_one_in_memory_say_the_same(saved: SavedResult, index: MemoryIndex) -> None:
    result: Memories = saved.result
    loaded = index_of(result)
    query = Query(text="e")
    assert rows(loaded, query, limit=99) == rows(index, query, limit=99)
    assert (index.alive == result.reading.activity.alive.numpy()).all()
    assert (index.dead == result.reading.activity.dead.numpy()).all()
    record = memory_record(index, 1, 7)
    assert memory_record(loaded, 1, 7) | {"ablate": record["ablate"]} == record


def test_a_search_prints_as_many_hits_as_asked_and_why(run: Path, index: MemoryIndex) -> None:
    found = cutaway(run, "--trigger", "e", "--top", 4)
    assert found.exit_code == 0
    expected = rows(index, Query(trigger="e"), limit=4)
    heads = [line for line in found.stdout.splitlines()[1:] if not line.startswith(" ")]
    assert [head.split()[0] for head in heads] == [row["memory"] for row in expected]
    assert all(row["why"] in head for head, row in zip(heads, expected, strict=True))
    n = len(search(index, Query(trigger="e")))
    assert found.stdout.startswith(f"{n} of {index.alive.size} memories of demo@{STEP}; the best 4:\n")


def test_the_record_holds_the_rows_of_the_library(run: Path, index: MemoryIndex) -> None:
    record = json.loads(cutaway(run, "--promotes", "e", "--layer", 1, "--state", "alive", "--json").stdout)
    query = Query(promotes="e", layer=1, state="alive")
    assert (record["checkpoint"], record["n_memories"]) == (f"demo@{STEP}", index.alive.size)
    assert record["n_hits"] == len(search(index, query))
    assert record["hits"] == rows(index, query)
    assert record["hits"]


def test_the_trigger_that_is_shown_holds_the_text(index: MemoryIndex) -> None:
    for row in rows(index, Query(trigger="se"), limit=50):
        assert "se" in row["trigger"].lower()


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "\x1b[31m", "a\nb", "\\n", ".*", "<script>", "%s{}", "\udcff"])
def test_any_text_can_be_asked(run: Path, text: str) -> None:
    found = cutaway(run, text)
    assert found.exit_code == 0
    assert "\x1b" not in found.stdout


def test_an_address_prints_all_of_a_memory(run: Path, saved: SavedResult) -> None:
    result: Memories = saved.result
    layer, memory = (int(place) for place in result.reading.activity.alive.nonzero()[5])
    name = f"L{layer}M{memory}"
    told = cutaway(run, name).stdout
    assert told.startswith(f"{name} of demo@{STEP}: ")
    for part in (
        "Fired most by",
        "Most negative on",
        "random prefixes",
        "Value (logits",
        "promotes",
        "cos(k, v)",
        "Agreement",
    ):
        assert part in told
    assert told.rstrip().endswith(f"Test it: cutaway ablate {run}@{STEP} {name}:zero --metric text_loss")
    record: dict[str, Any] = json.loads(cutaway(run, name, "--json").stdout)
    strongest = result.reading.triggers.coefficient[layer, memory, :3]
    assert [each["coefficient"] for each in record["triggers"]] == pytest.approx(strongest.tolist())
    assert (
        record["value"]["promotes"][0]["token"]
        == result.vocabulary[int(result.reading.values.promoted[layer, memory, 0])]
    )
    assert record["activity"]["firing rate"] == pytest.approx(float(result.reading.activity.firing_rate[layer, memory]))
    assert record["pattern"] == result.reading.evidence.kind_of(layer, memory)
    share = record["shares"]["last_token_share"]
    assert share["triggers"] == pytest.approx(float(result.reading.evidence.last_token_share[layer, memory]))
    assert share["random"] == pytest.approx(
        float(result.reading.evidence.random_level("last_token_share")[layer, memory])
    )
    assert result.initial is not None
    assert share["step 0"] == pytest.approx(float(result.initial.evidence.last_token_share[layer, memory]))


def test_falls_are_told_of_the_memories_that_were_cut(saved: SavedResult, index: MemoryIndex) -> None:
    result: Memories = saved.result
    deletions = result.reading.deletions
    assert deletions is not None
    measured = deletions.memory[0].tolist()
    other = next(memory for memory in range(index.shape[1]) if memory not in measured)
    told = memory_record(index, 0, measured[0])["deletions"]
    assert told["last"] == pytest.approx(float(deletions.of("last")[0, 0]))
    assert memory_record(index, 0, other)["deletions"] is None
    assert "not in the sample" in "\n".join(memory_lines.card_lines(memory_record(index, 0, other), 100))


def test_what_follows_agrees_with_the_study(saved: SavedResult, index: MemoryIndex) -> None:
    result: Memories = saved.result
    alive = result.reading.activity.alive
    agreeing = index.agrees.sum(axis=1).tolist()
    shares = [each.agreement.share for each in result.reading.summary.layers]
    assert agreeing == pytest.approx([share * int(n) for share, n in zip(shares, alive.sum(1), strict=True)])


def test_without_a_saved_result_it_says_what_makes_one(run: Path) -> None:
    found = cutaway(f"{run}@0", "e")
    assert found.exit_code == 2
    said = " ".join(found.stderr.split())
    assert "demo@0 cannot be searched" in said
    assert f"cutaway run ffn-memories {run}@0" in said
    assert f"There are those of {run}@{STEP}, which took " in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pattern", "last_tokn"], 'pattern="last_tokn" is not one of'),
        (["--state", "asleep"], 'state="asleep" is not one of alive, dead, dense'),
        (["--layer", "7"], "has no layer 7; its layers run from 0 to 1"),
        (["L9M0"], "has no memory L9M0"),
        (["--concept", "no such thing"], 'No concept of this vocabulary is called "no such thing"'),
    ],
)
def test_what_there_is_not_is_said_in_a_sentence(run: Path, arguments: list[str], said: str) -> None:
    found = cutaway(run, *arguments)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.split())


def test_every_checkpoint_at_once_is_refused(run: Path) -> None:
    assert "one is searched at a time" in " ".join(cutaway(f"{run}@all").stderr.split())


def test_an_altered_result_is_not_searched(saved: SavedResult, run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "demo"))
    tensors = copied / saved.path.relative_to(run) / "result.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    found = cutaway(copied)
    assert found.exit_code == 2
    assert "altered or truncated" in " ".join(found.stderr.split())


def test_the_newest_of_several_results_is_searched(saved: SavedResult, run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "demo"))
    folder = copied / saved.path.relative_to(run)
    newer = Path(shutil.copytree(folder, folder.with_name(f"{folder.name[:9]}ffffffffffff")))
    record = json.loads((newer / "result.json").read_text(encoding="utf-8"))
    record["provenance"]["created"] = "2999-01-01T00:00:00+00:00"
    (newer / "result.json").write_text(json.dumps(record), encoding="utf-8")
    assert saved_index(copied).path == newer


def test_every_example_of_the_page_is_true(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parents[1])  # where runs/demo is
    outcome = doctest.testfile(str(Path(__file__).parents[2] / "docs/memories.md"), module_relative=False)
    assert outcome.attempted >= 8
    assert outcome.failed == 0
