"""The page of FFN memories: every part of a memory is shown, every widget acts, and what is missing is told."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from streamlit.testing.v1 import AppTest

from analyses.ffn import by_layer as ffn_by_layer
from analyses.memories import examples as memory_examples
from analyses.memories import tables as memory_tables
from analyses.memories.examples import Choice
from analyses.memories.over_steps import over_steps, side_by_side
from analyses.notebook.file import load, notebook_path
from analyses.study import run_study
from apps.dashboard import data, launch
from apps.dashboard.memories import facts as memory_facts
from apps.dashboard.memories.finder import HELPS, LIMIT
from interp.gate_signs import GateSigns
from interp.pattern_kinds import TriggerPattern
from model.errors import InputError, UnknownNameError
from tests.apps.test_snippets import blocks
from tests.dashboard_pages import fire, opened, said, views
from tests.dashboard_runs import STEP, STUDIES, trained, whole_runs
from tests.undrawn import undrawn

pytestmark = pytest.mark.whole

__all__ = ["whole_runs"]  # a fixture

STUDY = "ffn-memories"
OTHERS = set(STUDIES) - {STUDY, "ffn-composition"}
SHORT = ("train.steps=2", "train.checkpoint_every=2")


@pytest.fixture(scope="module")
def runs(whole_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its memories alone, one of an attention-only model, and one whose result has no step 0 beside it."""
    root = tmp_path_factory.mktemp("runs")
    shutil.copytree(whole_runs / "whole", root / "whole", ignore=lambda _, names: set(names) & OTHERS)
    shutil.copytree(whole_runs / "whole", root / "alone", ignore=shutil.ignore_patterns("studies"))
    with undrawn():
        run_study(STUDY, f"{root / 'alone'}@{STEP}", [*STUDIES[STUDY], "step_zero=false", "n_deleted=0"])
    trained(root, "heads-only", "model.ffn=none", *SHORT)
    return root


@pytest.fixture
def at(runs: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The page at one memory."""
    return opened(runs, "memories", monkeypatch, run="whole", memory="L1M5")


def result(runs: Path, name: str = "whole") -> Any:
    (run,) = [run for run in data.runs() if run.name == name]
    saved = data.shelf(run, STUDY).at(STEP)
    assert saved is not None
    return saved.result


def found(at: AppTest) -> pd.DataFrame:
    """The memories that the search lists; none where it says that there are none."""
    return next((each.value for each in at.dataframe if "ends in" in each.value), pd.DataFrame({"memory": []}))


def turned(at: AppTest, name: str, key: str = "memory_tab") -> AppTest:
    """The page with another tab open."""
    at.session_state[key] = name
    at.run()
    assert not at.exception
    return at


def panels(at: AppTest) -> set[str]:
    """Keys of the panels that are drawn."""
    ids = [str(getattr(getattr(block, "proto", None), "id", "")) for block in blocks(at.main)]
    return {found[1] for identity in ids if (found := re.search(r"-panel-(.+)$", identity))}


def table(at: AppTest, column: str) -> pd.DataFrame:
    return next(each.value for each in at.dataframe if column in each.value)


def test_a_memory_is_shown_in_full_with_what_its_numbers_rest_on(at: AppTest, runs: Path) -> None:
    assert not at.exception
    text, there = said(at), result(runs)
    assert "L1M5" in [each.value for each in at.header]
    assert re.search(r"fires on \d+\.\d% of prefixes \(step 0: \d+\.\d%\)", text)
    assert f"n = {there.n_prefixes:,} prefixes of train text  ·  whole@24  ·  seed {there.config.seed}" in text
    kind, n = there.reading.evidence.kind_of(1, 5), int(there.reading.evidence.n[1, 5])
    assert any(memory_tables.kind_name(kind) in each.value.replace("\\", "") for each in at.markdown)
    assert f"kind: of the {n} it fires on most, not of all" in text
    assert re.search(r"cutaway ablate \S+whole@24 L1M5:zero --metric text_loss", text)
    assert re.search(r"ranks .+, which followed its top trigger, [\d,]+ of 257", text)
    rows = views(at)["triggers"]["rows"]
    assert [row["boxed"] for row in rows] == [len(row["tokens"]) - 1 for row in rows]
    assert [float(row["note"].split()[0]) for row in rows] == pytest.approx(
        there.reading.triggers.coefficient[1, 5, : len(rows)].tolist(), abs=0.006
    )
    text = said(turned(at, "Evidence"))
    shown = table(at, "triggers that")
    evidence = there.reading.evidence
    assert list(shown["share"]) == pytest.approx(
        [float(getattr(evidence, name)[1, 5]) for name in memory_tables.SHARES], nan_ok=True
    )
    assert {"random", "step 0"} <= set(shown)
    assert {"of the layer's sample", "sample at step 0"} <= set(table(at, "its coefficient falls by"))
    assert f"n = {int(evidence.n[1, 5])} triggers" in text
    text = said(turned(at, "How predictions come about", "memory_all"))
    assert re.search(r"95% intervals over \d+ (documents|windows)", text)
    shares = table(at, "layer 1's token is")
    assert sum(shares["share"]) == pytest.approx(1, abs=1e-4)
    ends = zip(shares["low"], shares["share"], shares["high"], strict=True)
    assert all(low <= share <= high for low, share, high in ends)
    assert {"permuted", "other", "step 0"} <= set(shares)
    text = said(turned(at, "Turning values on", "memory_all"))
    assert re.search(r"cutaway run memory-promotion \S+whole@24", text)


def test_the_layers_say_what_their_intervals_are_over(at: AppTest, runs: Path) -> None:
    text, summary = said(turned(at, "Layer by layer", "memory_all")), result(runs).reading.summary
    fired = sorted(layer.agreement.n for layer in summary.layers)
    counts = dict.fromkeys(f"{n:,}" for n in (fired[0], fired[-1]))
    assert f"95% intervals over the memories of a layer that ever fired (n = {' to '.join(counts)})" in text
    assert "all for concepts (n = 128)" in text and "a sample for cut triggers (n = 2)" in text
    by_layer, by_tenth = (each[0].agreement.n_permutations for each in (summary.layers, summary.confidence))
    assert by_layer != by_tenth, "by layer there are more, for a p that is corrected over layers"
    assert f"95% of {by_layer:,} permutations of next tokens by layer, of {by_tenth:,} by tenth" in text


def test_only_the_open_tabs_are_drawn_and_they_stand_in_the_address(
    at: AppTest, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert panels(at) == {"memory_rows", "triggers", "histogram", "value"}
    assert all(text in at.dataframe[0].proto.columns for text in HELPS.values()), "headings say what they mean"
    assert not {"tab", "all"} & set(at.query_params)
    turned(turned(at, "Evidence"), "Layer by layer", "memory_all")
    assert {"shared", "falls", "layers-agreement"} <= panels(at) and not {"value", "composition-parts"} & panels(at)
    asked = {"tab": "Evidence", "all": "Layer by layer"}
    assert address(at, *asked) == asked
    other = opened(runs, "memories", monkeypatch, run="whole", memory="L1M5", **asked)
    assert panels(other) == panels(at)
    fire(other, "keys", "pressed", [{"id": 1, "key": "j"}])
    assert panels(other) == panels(at) and address(other, *asked) == asked, "J keeps the tabs"


@pytest.mark.parametrize("tab", ["Key & value", "Evidence", "On a text", "Over training"])
def test_key_p_pins_what_the_open_tab_shows(
    runs: Path, tab: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(runs / "whole", tmp_path / "whole")
    at = opened(tmp_path, "memories", monkeypatch, run="whole", memory="L1M5", tab=tab)
    fire(at, "keys", "pressed", [{"id": 1, "key": "p"}])
    assert not at.exception
    (pin,) = load(notebook_path(tmp_path, at.session_state["notes"])).pins
    assert "L1M5" in pin.title
    assert pin.query.get("tab", "Key & value") == tab
    assert len(pin.rows.frame())


def test_a_memory_goes_into_the_ablation_and_out_again(at: AppTest) -> None:
    at.button(key="memory_ablate").click().run()
    assert at.session_state["ablate"] == "L1M5"
    assert at.button(key="memory_ablate").label == "Take L1M5 out of the ablation"
    at.button(key="memory_ablate").click().run()
    assert at.session_state["ablate"] == ""


def test_other_prefixes_can_be_asked_for(at: AppTest) -> None:
    shown = {}
    for choice in (Choice.NEGATIVE, Choice.DECILES, Choice.RANDOM, Choice.TOP):
        at.segmented_control(key="prefixes").set_value(choice).run()
        assert not at.exception
        assert memory_examples.EXPLAINED[choice] in said(at)
        shown[choice] = views(at)["triggers"]["rows"]
    numbers = {choice: [float(row["note"].split()[0]) for row in rows] for choice, rows in shown.items()}
    assert numbers[Choice.TOP] == sorted(numbers[Choice.TOP], reverse=True)
    assert numbers[Choice.DECILES] == sorted(numbers[Choice.DECILES], reverse=True)
    assert numbers[Choice.NEGATIVE] == sorted(numbers[Choice.NEGATIVE])
    assert max(numbers[Choice.NEGATIVE]) <= 0 < min(numbers[Choice.TOP])
    at.segmented_control(key="prefixes").set_value(Choice.RANDOM)
    other = views(opened_memory(at, "L0M3"))["triggers"]["rows"]
    assert [row["tokens"] for row in other] == [row["tokens"] for row in shown[Choice.RANDOM]]


def opened_memory(at: AppTest, name: str) -> AppTest:
    return at.text_input(key="memory").set_value(name).run()


def test_a_text_finds_memories_and_what_is_not_there_is_said(at: AppTest) -> None:
    everything = found(at)
    assert len(everything) == LIMIT
    assert f"the first {LIMIT} of 256 found, of 256 memories" in said(at)
    at.text_input(key="wanted").set_value("L1M7").run()
    assert list(found(at)["memory"]) == ["L1M7"]
    at.text_input(key="wanted").set_value("(no such text").run()
    assert not at.exception
    assert found(at).empty
    assert "none of 256 memories is like that" in said(at)
    assert [each.value for each in at.header] == ["All memories"], "what was not found is not shown"
    assert "No memory is shown" in said(at)
    opened_memory(at, "L1M5")
    assert [each.value for each in at.header] == ["L1M5", "All memories"], "one that is chosen is"
    at.text_input(key="wanted").set_value("L9M7").run()
    assert not at.exception
    assert any("L9M7" in each.value for each in at.info)
    at.text_input(key="wanted").set_value("").run()
    assert found(at).equals(everything)


def test_memories_are_found_by_layer_pattern_concept_and_state(at: AppTest, runs: Path) -> None:
    there = result(runs)
    at.selectbox(key="wanted_layer_2").set_value("1").run()
    assert set(found(at)["memory"].str[:2]) == {"L1"}
    at.selectbox(key="wanted_layer_2").set_value("").run()
    holding = there.reading.evidence.holds
    kind = max(TriggerPattern, key=lambda each: int(holding[..., list(TriggerPattern).index(each)].sum()))
    at.selectbox(key="wanted_kind").set_value(kind).run()
    n = int(holding[..., list(TriggerPattern).index(kind)].sum())
    assert f"{n:,} found, of 256 memories" in said(at)
    at.selectbox(key="wanted_kind").set_value("").run()
    at.selectbox(key="wanted_state").set_value("dense").run()
    assert set(found(at)["memory"]) <= {f"L{i}M{j}" for i, j in there.reading.activity.dense.nonzero().tolist()}
    at.selectbox(key="wanted_state").set_value("").run()
    at.text_input(key="wanted_concept").set_value("no such concept").run()
    assert not at.exception
    assert found(at).empty


def address(at: AppTest, *names: str) -> dict[str, str]:
    """Parts of the address; AppTest has what a page wrote in lists, and what a test wrote as it is."""
    parts = {name: at.query_params[name] for name in names}
    return {name: part if isinstance(part, str) else part[0] for name, part in parts.items()}


def test_a_search_opens_its_best_hit_until_a_memory_is_chosen(at: AppTest) -> None:
    def opened_now() -> str:
        return at.header[0].value

    at.text_input(key="memory").set_value("L0M0")
    at.text_input(key="wanted").set_value("e").run()
    first, second = [str(name) for name in at.dataframe[0].value["memory"]][:2]
    assert opened_now() == first
    assert "the best match first" in said(at)
    fire(at, "keys", "pressed", [{"id": 1, "key": "j"}])
    assert (opened_now(), at.session_state["memory"]) == (second, second), "J goes on from the best hit"
    at.text_input(key="wanted").set_value("").run()
    assert "the surest value first" in said(at)
    assert not at.exception


def test_an_address_that_is_searched_opens_its_memory(at: AppTest) -> None:
    at.text_input(key="wanted").set_value("L0M9").run()
    assert at.session_state["memory"] == "L0M9"
    assert "L0M9" in [each.value for each in at.header]
    at.text_input(key="wanted").set_value("L7M9").run()
    assert at.session_state["memory"] == "L0M9"
    at.text_input(key="wanted").set_value("").run()
    assert at.session_state["memory"] == "L0M9", "an emptied search leaves it open"


def test_the_search_stands_in_the_address_and_is_restored_from_it(
    at: AppTest, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert address(at, "run", "step") == {"run": "whole", "step": str(STEP)}
    at.text_input(key="wanted").set_value("e").run()
    at.selectbox(key="wanted_layer_2").set_value("1").run()
    at.selectbox(key="wanted_state").set_value("alive").run()
    asked = {"find": "e", "layer": "1", "state": "alive"}
    assert address(at, *asked) == asked
    other = opened(runs, "memories", monkeypatch, run="whole", memory="L1M5", **asked)
    assert found(other).equals(found(at))
    assert not found(other).equals(found(opened(runs, "memories", monkeypatch, run="whole", memory="L1M5")))
    at.selectbox(key="wanted_layer_2").set_value("").run()
    assert "layer" not in at.query_params


MEANINGLESS = {
    "layer": ("9", 'no layer "9"'),
    "pattern": ("prase", 'no pattern "prase"'),
    "state": ("asleep", 'no state of a memory "asleep"'),
    STUDY: ("abc", f'no {STUDY} result at step {STEP} "abc"'),
    "memory": ("L9M9", "no L9M9"),
}
"""Parts of an address, and what is said of each."""


def test_parts_of_the_address_that_mean_nothing_are_told_on_the_page(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {part: value for part, (value, _) in MEANINGLESS.items()}
    at = opened(runs, "memories", monkeypatch, run="whole", **asked)
    assert not at.exception
    notices = [re.sub(r"\\(.)", r"\1", each.value) for each in at.main.warning]
    for _, said_of_it in MEANINGLESS.values():
        assert any(said_of_it in notice for notice in notices), (said_of_it, notices)
    assert views(at)["triggers"]["rows"]


def test_triggers_outside_the_sample_are_cut_when_asked(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(runs))
    there = result(runs)
    sampled = there.reading.deletions.memory[1].tolist()
    inside = next(memory for memory in sampled if memory >= 0)
    outside = next(
        memory for memory in range(128) if memory not in sampled and there.reading.triggers.present[1, memory].all()
    )
    at = opened(runs, "memories", monkeypatch, run="whole", memory=f"L1M{outside}")
    turned(at, "Evidence")
    assert "of this memory" not in table(at, "its coefficient falls by")
    at.button(key="cut_triggers").click().run()
    assert not at.exception
    assert re.search(
        r"n = \d of its triggers; 2 memories of layer 1\s+·\s+top 3 triggers of each\s+·\s+seed 0", said(at)
    )
    assert "of this memory" in table(at, "its coefficient falls by")
    opened_memory(at, f"L1M{inside}")
    assert "cut_triggers" not in {each.key for each in at.button}
    assert "of this memory" in table(at, "its coefficient falls by")


def test_gate_and_linear_factor_are_shown_of_what_was_read(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(runs))
    there = result(runs)
    assert memory_tables.factor_rows(there, (1, 5)) is None
    assert memory_tables.factor_facts(there, (1, 5)) is None
    read = torch.tensor([[[1.0, torch.nan]], [[2.0, -3.0]]])
    signs = GateSigns(
        memory=torch.tensor([[4], [5]]), negative_gate=read, negative_linear=-read, positive_gate=read,
        positive_linear=read,
    )  # fmt: skip
    gated = replace(there, reading=replace(there.reading, gate_signs=signs))
    shown = memory_tables.factor_rows(gated, (1, 5))
    assert shown is not None
    assert shown.values.tolist() == [
        ["largest", 2.0, 2.0], ["largest", -3.0, -3.0], ["most negative", 2.0, -2.0], ["most negative", -3.0, 3.0]
    ]  # fmt: skip
    said_of_it = str(memory_tables.factor_facts(gated, (1, 5)))
    assert "at 1 of 2 most negative" in said_of_it
    assert "both are at 1 of 2 largest" in said_of_it
    assert memory_tables.factor_rows(gated, (0, 5)) is None
    assert "not in the sample" in str(memory_tables.factor_facts(gated, (0, 5)))


def test_an_older_result_is_one_quiet_line_at_its_own_step(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(runs / "whole", tmp_path / "whole")
    (saved,) = (tmp_path / "whole" / "studies" / STUDY).glob(f"{STEP:08d}-*")
    record = json.loads((saved / "result.json").read_text())
    del record["result"]["reading"]["summary"]
    (saved / "result.json").write_text(json.dumps(record))
    at = opened(tmp_path, "memories", monkeypatch, run="whole")
    assert not at.exception
    assert not at.error
    assert f"A result at step {STEP} was saved by another version of {STUDY}" in said(at)
    at.selectbox(key="step").set_value(0).run()
    assert not at.error
    assert "another version" not in said(at)


def test_j_and_k_step_through_what_was_found(at: AppTest) -> None:
    listed = list(found(at)["memory"])
    opened_memory(at, listed[0])
    assert at.button(key="memory_previous").disabled
    at.button(key="memory_next").click().run()
    assert at.session_state["memory"] == listed[1]
    assert listed[1] in [each.value for each in at.header]
    at.button(key="memory_previous").click().run()
    assert at.session_state["memory"] == listed[0]
    three = [{"id": place, "key": key} for place, key in enumerate("jjk", start=1)]
    fire(at, "keys", "pressed", three)
    assert at.session_state["memory"] == listed[1]
    fire(at, "keys", "pressed", [{"id": 9, "key": "x"}])
    assert at.session_state["ablate"] == listed[1]
    at.text_input(key="wanted").set_value("(no such text").run()
    assert "memory_next" not in [each.key for each in at.button], (
        "nothing was found, so there is nothing to step through"
    )


def test_the_memory_is_read_on_the_text_of_the_sidebar(at: AppTest) -> None:
    turned(at, "On a text")
    at.text_area(key="prompt").set_value("x = <img src=x onerror=alert(1)>\u202e").run()
    assert not at.exception
    row = views(at)["on_text"]["rows"][0]
    assert len(row["values"]) == len(row["tokens"])
    assert not re.search("[\u202e\x00-\x1f]", "".join(row["tokens"]))
    last = table(at, "written")
    assert last["written"].is_monotonic_decreasing
    position = next(each for each in at.selectbox if str(each.key).startswith("written_at"))
    position.set_value(1).run()
    assert not at.exception
    assert not table(at, "written").equals(last)
    at.text_area(key="prompt").set_value("").run()
    assert not at.exception
    assert "prompt is empty" in said(at)


def test_without_step_zero_and_without_cut_triggers_the_page_says_so(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(runs, "memories", monkeypatch, run="alone", memory="L0M3")
    assert not at.exception
    assert "(step 0:" not in said(at)
    assert "step 0 of this run was not read" in said(turned(at, "Layer by layer", "memory_all"))
    text = said(turned(at, "How predictions come about", "memory_all"))
    assert re.search(r"cutaway run ffn-composition \S+alone@24", text)
    text = said(turned(at, "Over training"))
    assert re.search(r"cutaway run ffn-memories \S+alone@0 .*--set n_deleted=0", text)
    text = said(turned(at, "Evidence"))
    assert "No triggers were cut" in text
    assert "--set n_deleted=64" in text
    assert "step 0" not in table(at, "triggers that")


def test_a_model_without_memories_is_told_to_have_none(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(runs, "memories", monkeypatch, run="heads-only")
    assert not at.exception
    assert ["attention-only" in each.value.replace("\\", "") for each in at.info] == [True]
    assert "cutaway run" not in said(at)


def test_without_a_result_the_command_is_named_and_the_text_is_still_read(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(runs / "whole", tmp_path / "whole", ignore=shutil.ignore_patterns("studies"))
    at = opened(tmp_path, "memories", monkeypatch, run="whole", memory="L1M5")
    assert not at.exception
    assert re.search(r"cutaway run ffn-memories \S+whole@24", said(at))
    assert len(views(at)["on_text"]["rows"][0]["values"]) > 8


def test_a_damaged_checkpoint_costs_the_live_part_only(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(runs / "whole", tmp_path / "whole")
    file = tmp_path / "whole" / "checkpoints" / f"step-{STEP:08d}" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-3] + b"abc")
    at = opened(tmp_path, "memories", monkeypatch, run="whole", memory="L1M5")
    assert not at.exception
    assert views(at)["triggers"]["rows"]
    assert "model.safetensors was altered or cut short" in said(turned(at, "On a text"))
    turned(at, "Evidence")
    assert not table(at, "triggers that").empty


def dead(there: Any, memory: tuple[int, int]) -> Any:
    """The result with one memory that never fired."""
    reading = there.reading

    def without(tensor: torch.Tensor, value: float) -> torch.Tensor:
        changed = tensor.clone()
        changed[memory] = value
        return changed

    names = ("firing_rate", "strong_rate", "negative_rate", "largest", "lowest", "mean", "std")
    activity = replace(reading.activity, **{name: without(getattr(reading.activity, name), 0) for name in names})
    gone = {"length": 0, "offset": -1, "next_token": -1, "last_token": -1, "context": -1, "coefficient": 0}
    triggers, negative = (
        replace(each, **{name: without(getattr(each, name), value) for name, value in gone.items()})
        for each in (reading.triggers, reading.negative)
    )
    values = replace(reading.values, next_rank=without(reading.values.next_rank, -1))
    return replace(
        there, reading=replace(reading, activity=activity, triggers=triggers, negative=negative, values=values)
    )


def test_a_dead_memory_is_said_to_be_dead(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(runs))
    there = dead(result(runs), (1, 5))
    assert [word for word, _ in memory_facts.states(there, (1, 5))] == ["dead: it never fired"]
    assert "never fired" in memory_facts.value_facts(there, (1, 5))[0]
    assert memory_examples.examples(there, (1, 5), Choice.TOP) == []
    assert memory_examples.example_rows(there, (1, 5), Choice.TOP).empty
    assert True not in list(memory_tables.promoted_rows(there, (1, 5))["followed"])
    assert memory_facts.strongest(there) != (1, 5)


def test_every_layer_is_in_every_figure_at_both_steps(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(runs))
    there = result(runs)
    for measure in ffn_by_layer.MEASURES:
        drawn = {(point.layer, point.series.value) for point in ffn_by_layer.points(there, measure.name)}
        assert {(layer, series) for layer in range(2) for series in ("this checkpoint", "step 0")} <= drawn
    alone = ffn_by_layer.points(replace(there, initial=None), "agreement")
    with pytest.raises(UnknownNameError, match='no measure "agreemnt" of a layer.*Did you mean "agreement"'):
        ffn_by_layer.points(there, "agreemnt")
    assert {point.series.value for point in alone} == {"this checkpoint", "chance"}


def test_a_memory_is_followed_over_the_steps_that_were_studied(
    at: AppTest, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned(at, "Over training")
    rows = table(at, "triggers kept")
    assert list(rows["step"]) == [0, STEP]
    assert rows["triggers kept"].iloc[-1] == rows["promoted kept"].iloc[-1] == 1
    before, after = shelved(runs, monkeypatch, 0), result(runs)
    triggers = [
        set(zip(*(getattr(each.reading.triggers, name)[1, 5].tolist() for name in ("offset", "length")), strict=True))
        for each in (before, after)
    ]
    assert rows["triggers kept"].iloc[0] == pytest.approx(len(triggers[0] & triggers[1]) / len(triggers[1]))
    assert rows["firing rate"].iloc[0] == pytest.approx(float(before.reading.activity.firing_rate[1, 5]))
    with pytest.raises(InputError, match="one run with the same settings"):
        over_steps([before, replace(after, run="another")], (1, 5))


def shelved(runs: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> Any:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(runs))
    (run,) = [run for run in data.runs() if run.name == "whole"]
    saved = data.shelf(run, STUDY).at(step)
    assert saved is not None
    return saved.result


def test_a_memory_stands_beside_itself_in_another_model(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(runs, "memories", monkeypatch, run="whole", memory="L1M5", b="whole@0")
    for other, said_of_it in (
        ("whole@0", f"whole@0: n = {shelved(runs, monkeypatch, 0).n_prefixes:,} prefixes"),
        ("alone@24", "two runs: memories of one name need not do the same thing"),
        ("heads-only@2", "There is no ffn-memories result at step 2"),
    ):
        at.selectbox(key="b").select(other).run()
        assert not at.exception
        assert said_of_it in said(at)
        if other != "heads-only@2":
            assert list(table(at, "model")["model"]) == [f"whole@{STEP}", other]


def test_a_memory_that_the_other_model_has_not_is_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(runs))
    with pytest.raises(InputError, match="small has no L5M1: it has 2 layers of 128 memories"):
        side_by_side({"small": result(runs)}, (5, 1))
