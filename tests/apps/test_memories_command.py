"""cutaway memories: what it prints of a search and of one memory, from the saved result alone, and what it refuses."""

from __future__ import annotations

import doctest
import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from analyses.ffn.config import Config
from analyses.ffn_memories import Result as Memories
from analyses.memories.card import CHANGES, MEASURES, SHARED, memory_record
from analyses.memories.cutting import cut_triggers
from analyses.memories.index import MemoryIndex, index_of, read_index, saved_index
from analyses.memories.search import Query, rows, search
from analyses.results import SavedResult
from analyses.study import run_study
from apps import memory_lines
from apps.cli import app
from interp.trigger_deletions import Deletion
from interp.trigger_patterns import MEASURES as MEASURED
from model.errors import ConfigError, InputError
from model.settings import to_plain
from tests.dashboard_runs import STEP, STUDIES, trained
from tests.undrawn import undrawn

pytestmark = pytest.mark.whole

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
    assert memory_record(loaded, 1, 7) | {name: record[name] for name in ("ablate", "cut")} == record


def test_a_search_prints_as_many_hits_as_asked_and_why(run: Path, index: MemoryIndex) -> None:
    found = cutaway(run, "--trigger", "e", "--top", 4)
    assert found.exit_code == 0
    expected = rows(index, Query(trigger="e"), limit=4)
    heads = [line for line in found.stdout.splitlines()[1:] if not line.startswith(" ")]
    assert [head.split()[0] for head in heads] == [row["memory"] for row in expected]
    assert all(row["why"] in head for head, row in zip(heads, expected, strict=True))
    n = len(search(index, Query(trigger="e")))
    assert found.stdout.startswith(f"{n} of {index.alive.size} memories of demo@{STEP} ({index.corpus}); the best 4:\n")


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
    n_prefixes, seed = result.n_prefixes, result.config.seed
    assert told.startswith(f"{name} of demo@{STEP} (train text, {n_prefixes:,} prefixes, seed {seed}): ")
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
    corpus = record["corpus"]
    assert (corpus["split"], corpus["text"], corpus["n_prefixes"]) == ("train", None, n_prefixes)
    assert corpus["settings"] == sorted(saved.settings)
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
    assert "not in the study's sample; measure it: " in "\n".join(
        memory_lines.card_lines(memory_record(index, 0, other), 100)
    )


def test_a_memory_outside_the_sample_is_cut_when_asked_as_the_study_would(
    saved: SavedResult, index: MemoryIndex
) -> None:
    result: Memories = saved.result
    deletions = result.reading.deletions
    assert deletions is not None
    there = [place for place in range(deletions.memory.shape[1]) if deletions.n_triggers[1, place] > 0]
    for place in there:
        memory = int(deletions.memory[1, place])
        told = cut_triggers(index, 1, memory)
        assert told["n"] == int(deletions.n_triggers[1, place])
        for change in ("first", "last"):  # which do not depend on what is drawn
            assert told[change] == pytest.approx(float(deletions.of(change)[1, place]), abs=1e-4)
    alive = set(result.reading.activity.alive[1].nonzero()[:, 0].tolist())
    other = min(alive - set(deletions.memory[1].tolist()))
    asked = memory_record(index, 1, other)["cut"]
    printed = cutaway(*shlex.split(asked)[2:]).stdout
    assert "without a token the coefficient falls: first " in printed or "no trigger has three tokens" in printed
    assert there


def test_a_text_that_has_changed_is_not_cut(index: MemoryIndex) -> None:
    memory = int(index.alive[1].nonzero()[0][0])
    moved = index.array("reading.triggers.offset") + 1
    with pytest.raises(InputError, match="is not what it was when .* was read"):
        cut_triggers(replace(index, arrays={**index.arrays, "reading.triggers.offset": moved}), 1, memory)


def test_a_dead_memory_never_fired_and_no_command_is_suggested(index: MemoryIndex) -> None:
    zero = {name: index.array(name).copy() for name in (
        "reading.activity.firing_rate", "reading.activity.largest", "reading.activity.lowest"
    )}  # fmt: skip
    for each in zero.values():
        each[0, 3] = 0.0
    dead = replace(index, arrays={**index.arrays, **zero})
    told = "\n".join(memory_lines.card_lines(memory_record(dead, 0, 3), 100))
    assert "): never fired\n" in told
    assert "cutaway ablate" not in told
    with pytest.raises(InputError, match="never fired, so it has no triggers to cut"):
        cut_triggers(dead, 0, 3)


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
        (["--layer", "-1"], "has no layer -1; its layers run from 0 to 1"),
        (["--top", "0"], "--top 0 shows nothing; ask for at least 1"),
        (["--cut"], "--cut measures one memory; name it"),
        (["l1m3", "--trigger", "x"], "l1m3 names one memory, so there is nothing to search"),
        (["L1M3:zero"], "`cutaway ablate "),
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


def also_saved(folder: Path, name: str, created: str, **settings: object) -> Path:
    """The same result, saved with other settings."""
    other = Path(shutil.copytree(folder, folder.with_name(f"{folder.name[:9]}{name}")))
    record = json.loads((other / "result.json").read_text(encoding="utf-8"))
    record["provenance"]["created"] = created
    usual = to_plain(Config())
    record["provenance"]["config"] = record["result"]["config"] = {**usual, **settings}
    (other / "result.json").write_text(json.dumps(record), encoding="utf-8")
    return other


def test_a_side_run_does_not_take_the_place_of_the_usual_settings(
    saved: SavedResult, run: Path, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "demo"))
    only = copied / saved.path.relative_to(run)
    assert saved_index(copied).path == only
    assert "the only one that fits, was made with" in saved_index(copied).notes[0]
    older = also_saved(only, "0ld", "2001-01-01T00:00:00+00:00")
    held_out = also_saved(only, "he1d", "2998-01-01T00:00:00+00:00", split="held_out")
    own = also_saved(only, "0wn", "2999-01-01T00:00:00+00:00", text="own.txt", n_tokens=30_000)
    usual = saved_index(copied)
    assert usual.path == older, "the usual settings, however old"
    assert "--set split=held_out" in usual.notes[0]
    assert saved_index(copied, ["split=held_out"]).path == held_out
    assert saved_index(copied, ["split=held_out"]).notes == ()
    assert saved_index(copied, ["text=own.txt"]).path == own
    assert saved_index(copied, ["split=train"]).path == older
    assert saved_index(copied, saved.settings).path == only
    with pytest.raises(
        InputError, match=r"no saved result with --set seed=3; `cutaway run ffn-memories .*--set seed=3`"
    ):
        saved_index(copied, ["seed=3"])
    with pytest.raises(ConfigError, match="splt"):
        saved_index(copied, ["splt=held_out"])
    shutil.rmtree(older)
    newest = saved_index(copied)
    assert newest.path == own
    assert "the newest of 3 that fit, was made with --set n_tokens=30000 --set text=own.txt" in newest.notes[0]
    shown = cutaway(copied, "e", "--set", "text=own.txt", "--top", 1)
    assert f"of demo@{STEP} (own.txt, " in shown.stdout
    record = json.loads(cutaway(copied, "e", "--set", "split=held_out", "--json").stdout)
    assert (record["corpus"]["split"], record["corpus"]["settings"]) == ("held_out", ["split=held_out"])


def test_a_damaged_result_costs_a_sentence_and_not_the_others(saved: SavedResult, run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "demo"))
    only = copied / saved.path.relative_to(run)
    broken = also_saved(only, "br0ken", "2999-01-01T00:00:00+00:00")
    (broken / "result.json").write_text("{", encoding="utf-8")
    index = saved_index(copied)
    assert index.path == only
    assert "br0ken" in index.notes[0]


def test_a_run_without_an_ffn_says_that_it_has_no_memories(run: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    record["config"]["model"]["ffn"] = "none"
    (bare / "run.json").write_text(json.dumps(record), encoding="utf-8")
    found = cutaway(bare, "import")
    assert found.exit_code == 2
    assert "bare has attention only (ffn=none), and so no FFN memories" in " ".join(found.stderr.split())


def test_every_example_of_the_page_is_true(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parents[1])  # where runs/demo is
    outcome = doctest.testfile(str(Path(__file__).parents[2] / "docs/memories.md"), module_relative=False)
    assert outcome.attempted >= 8
    assert outcome.failed == 0
