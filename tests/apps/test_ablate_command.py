"""cutaway ablate: what it prints on a planted circuit, the record that scripts read, and what it refuses."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from apps import ablation_lines
from apps.ablation_lines import dose_lines, token_lines
from apps.ablation_record import FORMAT
from apps.cli import app
from apps.commands import ablating
from apps.commands.options import METRICS
from interp.ablation import ablation_of
from interp.dose import dose_response
from interp.effects import benches_for
from interp.outcomes import OUTCOMES
from interp.token_harms import token_harms
from model.lab import open_run
from tests.planted_run import planted_lab

pytestmark = pytest.mark.whole

QUICK = ("-n", "8", "--controls", "3", "--device", "cpu")

FIELDS = {
    "format", "checkpoint", "places", "ablation", "metric", "meaning", "unit", "n", "seed", "period", "split", "harm",
    "p", "share", "share_interval", "share_of", "outcomes", "control", "decision", "dose", "tokens", "notes",
}  # fmt: skip
INTERVAL = {"mean", "low", "high", "n", "level", "method"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "planted"
    planted_lab(folder)
    return folder


def cutaway(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ablate", *(str(each) for each in arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def whole(run: Path) -> dict[str, Any]:
    """The record of a question with everything asked for."""
    return json.loads(cutaway(run, "L1H2:zero", *QUICK, "--json", "--dose", "--by-token").stdout)


def test_the_record_holds_every_number_with_where_it_comes_from(whole: dict[str, Any]) -> None:
    assert set(whole) == FIELDS
    assert whole["format"] == FORMAT == 1
    assert (whole["checkpoint"], whole["places"], whole["metric"]) == ("planted@8", "L1H2:zero", "copy_loss")
    assert (whole["unit"], whole["n"], whole["seed"], whole["period"]) == ("nats", 8, 0, 19)
    assert whole["ablation"] == {"text": "L1H2:zero", "gate": 0.0, "positions": None, "frozen": "nothing"}
    assert whole["split"]["measured"] == ["random tokens repeated after 19", "held-out text"]
    assert set(whole["harm"]) == INTERVAL
    assert whole["harm"]["low"] > 2.5
    names = [each["name"] for each in whole["outcomes"]]
    assert names == ["copy_loss", "first_copy_loss", "text_loss", "new_token_loss"]
    for each in whole["outcomes"]:
        assert set(each) == {
            "name", "meaning", "unit", "lower_is_better", "clean", "ablated", "harm", "p", "scale",
            "advantage", "share", "share_interval", "step_0",
        }  # fmt: skip
        assert set(each["step_0"]) == {"clean", "harm"}
    assert set(whole["control"]) == {
        "note", "n_possible", "n_sets", "n", "own", "gains", "p", "smallest_p", "median", "largest", "harm", "shared",
    }  # fmt: skip
    assert whole["control"]["harm"] == [0.0, 0.0, 0.0]
    assert whole["control"]["n"] == 8
    assert whole["control"]["own"] == pytest.approx(whole["harm"]["mean"])
    assert set(whole["share_interval"]) == INTERVAL
    assert whole["share_interval"]["mean"] == whole["share"] == whole["outcomes"][0]["share"]


def test_the_record_holds_the_curve_and_where_it_hurts(whole: dict[str, Any]) -> None:
    assert [each["gate"] for each in whole["dose"]["gates"]] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert whole["dose"]["gates"][-1]["harm"]["mean"] == pytest.approx(whole["harm"]["mean"])
    assert set(whole["tokens"]) == {
        "unit", "harm", "n_sequences", "n_targets", "top_share", "positions", "by_position", "by_kind", "by_history",
        "worst",
    }  # fmt: skip
    assert whole["tokens"]["harm"] == pytest.approx(whole["harm"]["mean"], abs=1e-6)
    assert {each["position"] > 20 for each in whole["tokens"]["worst"]} == {True}


def test_the_same_question_gives_the_same_answer_and_another_seed_another(run: Path, whole: dict[str, Any]) -> None:
    asked = (run, "L1H2:mean", *QUICK, "--json")
    first, again, other = (cutaway(*asked, *more).stdout for more in ((), (), ("--seed", "1")))
    assert first == again
    assert json.loads(other)["harm"] != json.loads(first)["harm"]


def test_every_way_of_asking_reaches_the_ablation(run: Path) -> None:
    asked = (*QUICK, "--json", "--gate", "0.5", "--positions", "20-22,30", "--freeze-patterns", "--period", "10")
    found = json.loads(cutaway(run, "L1H2", *asked, "--metric", "copy_accuracy").stdout)
    assert found["ablation"] == {
        "text": "L1H2:mean (gate 0.5, at positions 20-22, 30, later patterns held)",
        "gate": 0.5,
        "positions": [20, 21, 22, 30],
        "frozen": "patterns",
    }
    assert (found["period"], found["metric"], found["unit"]) == (10, "copy_accuracy", "of the targets")


def test_a_stop_once_decided_is_told_and_recorded(run: Path) -> None:
    asked = (run, "L1H2:zero", "--until-decided", "-n", "128", "--controls", "0", "--device", "cpu")
    assert "was known after 16 of 128 sequences" in cutaway(*asked).stdout
    found = json.loads(cutaway(*asked, "--json", "--bound", "1").stdout)
    assert (found["decision"]["decided"], found["decision"]["n"], found["n"]) == (True, 16, 16)
    assert found["decision"]["bounds"] == [-1.0, 1.0]
    assert set(found["decision"]["looks"][0]) == {"n", "spent", "interval", "p"}


def test_what_a_kind_of_sequences_cannot_take_is_a_sentence_beside_the_answer(run: Path) -> None:
    said = cutaway(run, "L1H2:counterfactual", *QUICK).stdout
    assert "the loss on the second copy of random tokens rises by" in said
    assert "There is no counterfactual on held-out text" in said


def test_what_is_said_has_its_interval_control_step_0_and_tables(run: Path) -> None:
    lines = cutaway(run, "L1H2:zero", *QUICK, "--dose", "--by-token").stdout.splitlines()
    assert lines[0].startswith("With L1H2:zero ablated, the loss on the second copy of random tokens rises by ")
    assert lines[1].startswith("Control: all 3 other heads of layer 1")
    assert lines[2].startswith("At step 0 the same ablation costs ")
    assert any(line.startswith("How much of it is taken out (harm in nats, n = 8") for line in lines)
    assert any(line.startswith("Where it hurts: 144 targets of 8 sequences") for line in lines)


def test_twice_as_much_is_a_question_as_well_and_its_dose_begins_at_nothing(run: Path) -> None:
    lines = cutaway(run, "L1H2:times=2", *QUICK, "--dose").stdout.splitlines()
    assert lines[0].startswith("With L1H2:times=2 in force, the loss on the second copy of random tokens")
    assert lines[2].startswith("At step 0 the same costs ")
    start = next(place for place, line in enumerate(lines) if line.startswith("How much of it there is"))
    assert [line.split()[0] for line in lines[start + 2 : start + 9]] == [
        *("200%", "150%", "100%", "75%", "50%", "25%", "0%"),
    ]
    whole = json.loads(cutaway(run, "L1H2:times=2", *QUICK, "--json").stdout)
    assert whole["places"] == whole["ablation"]["text"] == "L1H2:times=2"


MISTAKES = {
    "a position that is none": (("L1H2", "--positions", "3-"), '"3-" is no position; write numbers from 0'),
    "a range that runs backwards": (("L1H2", "--positions", "9-3"), '"9-3" runs backwards; write 3-9'),
    "a position beyond the context": (("L1H2", "--positions", "48"), "names position 48; this model has 0 to 47"),
    "a gate beyond 1": (("L1H2", "--gate", "1.5"), "gate=1.5 is no share"),
    "a way to match that is none": (("L1H2", "--match", "nearest"), 'match="nearest".* activity'),
    "a swap of one": (("L1H2:swap",), "L1H2:swap has nothing to swap with; name another head of layer 1"),
    "a number for a head": (("L1H2:set=2",), "only a memory holds one number"),
    "two ways to set the gate": (("L1H2", "--dose", "--gate", "0.5"), "--dose tries every gate.*leave out --gate"),
    "a dose on an open end": (("L1H2", "--dose", "--until-decided"), "leave out --until-decided"),
    "a counterfactual of text": (
        ("L1H2:counterfactual", "--metric", "text_kl"),
        "text_kl cannot be measured .* There is no counterfactual on held-out text",
    ),
    "a constant fitted for all positions": (
        ("L1H2:optimal", "--positions", "20"),
        r"L1H2:optimal \(at position 20\) asks for a constant that was fitted for something else",
    ),
    "a mean over the wrong axis": (("L1H2:mean@batch",), 'no intervention "mean@batch"'),
    "a metric that is none": (("L1H2", "--metric", "loss"), 'no metric "loss"'),
    "a period beyond the context": (("L1H2", "--period", "40"), "period of 40 needs 81 positions"),
    "a difference taken apart": (("L1H2", "--metric", "icl_score", "--by-token"), "icl_score is a difference between"),
    "a near miss": (("l1h2",), '"l1h2" is not a place. Did you mean L1H2?'),
    "an FFN of a model without": (("L1.ffn",), "this model is attention-only"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_one_sentence_and_exit_2(mistake: str, run: Path) -> None:
    import re

    arguments, expected = MISTAKES[mistake]
    result = cutaway(run, *arguments, *QUICK)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert re.search(expected, " ".join(result.stderr.split())), result.stderr


@pytest.mark.parametrize("width", [76, 80, 120])
def test_tables_are_aligned_and_no_wider_than_the_terminal(run: Path, width: int) -> None:
    lab = open_run(run)
    ablation = ablation_of("L1H2:zero", lab.config)
    bench, _ = benches_for(lab, ablation, metric="text_loss", n_sequences=4)
    tokens = token_harms(bench, ablation, metric="copy_loss", tokenizer=lab.tokenizer)
    lines = token_lines(tokens, width)
    worst = lines[lines.index("The targets that lose most (large by selection)") + 1 :]
    assert all(len(line) <= width for line in worst)
    assert len(worst) == 1 + len(tokens.worst)
    starts = {line.index(each.token + "]") > 0 for line, each in zip(worst[1:], tokens.worst, strict=True)}
    assert starts == {True}
    tables = lines[2 : lines.index("The targets that lose most (large by selection)")]
    assert all(len(line) <= width for line in tables)
    curve = dose_lines(dose_response(bench, ablation, metric="copy_loss"), width)
    assert all(len(line) <= max(width, len(curve[0])) for line in curve)
    ends = {line.index("]") for line in curve[2:] if "[" in line}
    assert curve[-2].startswith("off a line: harm beyond")
    assert len(ends) == 1, "the intervals end in one column"


def test_help_names_the_metrics_and_needs_no_torch() -> None:
    assert METRICS == OUTCOMES
    ask = "import sys; from apps.cli import app; app(['ablate', '--help'], standalone_mode=False)"
    seen = "; print('with', *{'torch', 'model.errors'} & set(sys.modules))"
    environment = {**os.environ, "COLUMNS": "300"}
    found = subprocess.run(
        [sys.executable, "-c", ask + seen], capture_output=True, text=True, check=True, env=environment
    )
    assert found.stdout.rstrip().endswith("with")
    assert ", ".join(METRICS) in found.stdout


def test_what_needs_no_model_is_refused_before_one_is_opened() -> None:
    for wrong in (("l1h2",), ("L1H2", "--positions", "9-3"), ("L1H2", "--metric", "loss")):
        said = cutaway("runs/nowhere", *wrong).stderr
        assert "nowhere" not in said


def test_the_examples_hold() -> None:
    assert doctest.testmod(ablating).failed == doctest.testmod(ablation_lines).failed == 0
