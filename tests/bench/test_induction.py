"""What the induction benchmark measures is true of a circuit whose weights were set by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from analyses.figures import to_svg
from bench.induction import plain, rows_of, table
from bench.induction_course import Course, change_in, course_of
from bench.induction_figure import figure
from bench.induction_measures import Measured, circuit_of
from bench.induction_runs import Found, Kind
from bench.induction_targets import TARGETS
from model.lab import Lab
from tests.planted import INDUCTION_HEAD, PREVIOUS_HEAD
from tests.planted_run import LETTERS, planted_lab

pytestmark = pytest.mark.whole

PERIODS = (14, 17)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


@pytest.fixture(scope="module")
def planted(lab: Lab) -> Found:
    measured = Measured(lab, periods=PERIODS)
    course = course_of(lab.path, period=14)
    return Found(
        kind=Kind.TWO,
        seed=0,
        ln_vocabulary=math.log(len(LETTERS)),
        copying=measured.copying,
        copy_loss_at_trained_period=measured.copying.distinct[14],
        attention=measured.attention,
        course=course,
        change=change_in(course),
        circuit=circuit_of(lab, measured.attention, period=14),
    )


def test_the_planted_heads_are_found_and_only_content_decides(planted: Found) -> None:
    attention = planted.attention
    assert attention.top_previous == PREVIOUS_HEAD
    assert attention.induction_heads == [INDUCTION_HEAD]
    assert attention.induction[INDUCTION_HEAD] > 0.999 > 0.2 > attention.control[INDUCTION_HEAD]
    assert max(planted.copying.distinct.values()) < 0.01 < 3 < min(planted.copying.control.values())
    for period in PERIODS:  # where a token comes twice, both of its successors are predicted alike
        assert planted.copying.distinct[period] < planted.copying.independent[period] < planted.copying.control[period]


def test_the_circuit_is_the_one_that_was_planted(planted: Found) -> None:
    circuit = planted.the_circuit
    for losses in circuit.alone.values():
        harmed = {label for label, loss in losses.items() if loss > circuit.clean + 0.01}
        assert harmed == {"L0H1", "L1H2"}
    assert circuit.shares["K"].mean == pytest.approx(1, abs=1e-6)
    assert circuit.shares["Q"].mean == circuit.shares["V"].mean == pytest.approx(0, abs=1e-6)
    assert circuit.k_composition["L1H2"][1] > 10
    assert circuit.copying == {"L1H2": pytest.approx(1, abs=1e-6)}
    assert circuit.strongest_writer == {"L1H2": "L0H1"}


def test_the_table_has_a_row_for_each_target_that_the_models_bear_on(planted: Found) -> None:
    rows = rows_of([planted, replace(planted, seed=3)])
    assert len(rows) == sum(target.kind is Kind.TWO for target in TARGETS)
    lines = table(rows).splitlines()
    assert lines[0] == "| target | model | what | bar | seed 0 | seed 3 | met |"
    assert len(lines) == len(rows) + 2
    missed = [row.target.claim for row in rows if not all(row.met)]
    assert all("scores cross" in claim or "share of the fall" in claim for claim in missed), missed  # two checkpoints
    content = json.loads(json.dumps(plain(planted)))
    assert content["circuit"]["shares"]["K"]["mean"] == pytest.approx(1)
    assert "<svg" in to_svg(figure([planted]))


@pytest.mark.parametrize(("at", "share"), [(3, 1.0), (None, 0.25)])
def test_a_sudden_fall_is_told_from_a_steady_one(at: int | None, share: float) -> None:
    steps = tuple(range(0, 1001, 50))
    loss = [3.0 if at is not None and step < 50 * at else 0.1 for step in steps]
    if at is None:
        loss = [3.0 - 2.9 * step / 1000 for step in steps]
    rising = tuple(1 - value / 3 for value in loss)
    found = change_in(Course(steps=steps, copy_loss=tuple(loss), previous=rising, induction=rising))
    assert found.share == pytest.approx(share, abs=0.06)
    assert found.scores_cross_inside is (at is not None)


def test_a_score_that_never_rises_crosses_nothing() -> None:
    steps, flat = (0, 100, 200, 300), (0.1, 0.12, 0.11, 0.1)
    found = change_in(Course(steps=steps, copy_loss=(4.0, 3.0, 2.0, 1.0), previous=flat, induction=flat))
    assert (found.previous_at, found.induction_at, found.scores_cross_inside) == (None, None, False)


def test_the_kinds_are_the_preset_with_what_their_names_say() -> None:
    two, one, distance, smeared = (kind.config(7) for kind in Kind)
    assert (two.model.n_layers, one.model.n_layers, two.train.seed) == (2, 1, 7)
    assert smeared.model == one.model.varied(smeared_keys=True)
    assert (distance.data.trained_periods, distance.model) == (range(16, 17), one.model)
    assert all(each.copy_period not in each.data.trained_periods for each in (two, one, distance, smeared))
