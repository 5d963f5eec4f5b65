"""Every kind of score is exactly chance for even attention, and is measured where it means something only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from analyses.attention.kinds import functions_on
from analyses.attention.readings import Kind, Measure, Reading, read
from analyses.attention.stimuli import Sequences, Stimulus, choose_periods, decisive, sequences_for
from analyses.records import decode, encode, same
from interp.stats import Intervals
from model import GPT
from model.lab import Lab
from tests.planted import D_VOCAB, INDUCTION_HEAD, N_CTX, PREVIOUS_HEAD, induction_model
from tests.planted_run import planted_lab

EVEN_HEAD = (0, 0)
"""A head of the planted model whose queries and keys are zero: it attends evenly, and writes nothing."""

ON_TWO_COPIES = {
    *(Kind.PREVIOUS, Kind.CURRENT, Kind.FIRST, Kind.DUPLICATE, Kind.INDUCTION, Kind.LATER),
    *(Kind.LOCAL, Kind.FAR, Kind.ENTROPY, Kind.DISTANCE),
}
MEASURED = {
    Stimulus.REPEATS: ON_TWO_COPIES,
    Stimulus.CONTROL: ON_TWO_COPIES | {Kind.MATCH, Kind.POSITIONAL},
    Stimulus.FOUR: {Kind.PREFIX_MATCHING},
    Stimulus.ONCE: {Kind.COPYING},
    Stimulus.TEXT: ON_TWO_COPIES - {Kind.LATER} | {Kind.POSITIONAL, Kind.COPYING},
}


def readings_of(lab: Lab, *, n: int = 12, periods: tuple[int, ...] = ()) -> list[Reading]:
    shown = sequences_for(lab, periods=periods, n_sequences=n, n_text=n, seed=0)
    return [read(lab.gpt, each, n_resamples=100, level=0.95, seed=0) for each in shown]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


@pytest.fixture(scope="module")
def readings(lab: Lab) -> list[Reading]:
    return readings_of(lab)


def of(readings: list[Reading], stimulus: Stimulus) -> Reading:
    return next(each for each in readings if each.stimulus is stimulus)


def test_every_stimulus_is_shown_and_holds_the_kinds_that_mean_something_there(readings: list[Reading]) -> None:
    assert {each.stimulus for each in readings} == set(Stimulus)
    for reading in readings:
        assert set(reading.measures) == {kind.value for kind in MEASURED[reading.stimulus]}, reading.title
        assert reading.left_out == {}


def test_even_attention_scores_exactly_chance_on_every_kind_and_stimulus(readings: list[Reading]) -> None:
    tried = set()
    for reading in readings:
        for name, measure in reading.measures.items():
            expected = pytest.approx(measure.chance, abs=2e-6 if name != "distance" else 1e-5)
            assert float(measure.intervals.mean[EVEN_HEAD]) == expected, (reading.title, name)
            tried.add(name)
    assert tried == {kind.value for kind in Kind}


def test_chance_is_that_of_the_rows_that_are_scored() -> None:
    """By hand, on [BOS] a b c d a b c d: rows 5 to 8 are the second copy."""
    tokens = torch.tensor([[9, 1, 2, 3, 4, 1, 2, 3, 4], [9, 4, 3, 2, 1, 4, 3, 2, 1]])
    repeats = Sequences(stimulus=Stimulus.REPEATS, tokens=tokens, period=4, trained=False, bos=9)
    gpt = induction_model()
    found = read(gpt, repeats, n_resamples=100, level=0.95, seed=0)
    later = (1 / 6 + 1 / 7 + 1 / 8 + 1 / 9) / 4
    for kind in (Kind.DUPLICATE, Kind.INDUCTION, Kind.LATER):
        assert found[kind].chance == pytest.approx(later, abs=1e-15)
    assert found[Kind.PREVIOUS].chance == pytest.approx(sum(1 / (row + 1) for row in range(2, 9)) / 7, abs=1e-15)
    assert found[Kind.ENTROPY].chance == pytest.approx(1, abs=1e-15)
    assert found[Kind.DISTANCE].chance == pytest.approx(sum(row / 2 for row in range(1, 9)) / 8, abs=1e-15)
    assert Kind.LOCAL not in found  # no row has a key that is far
    rows = torch.tensor([[9, 1, 2, 1, 1], [9, 1, 1, 2, 3], [9, 1, 2, 3, 4]])
    text = Sequences(stimulus=Stimulus.TEXT, tokens=rows, bos=9)
    found = read(gpt, text, n_resamples=100, level=0.95, seed=0)
    # targets: in the first, row 3 (one of 4 keys) and row 4 (two of 5); in the second, row 2 (one of 3); then none
    assert found[Kind.DUPLICATE].chance == pytest.approx(((1 / 4 + 2 / 5) / 2 + 1 / 3) / 2, abs=1e-15)
    assert found[Kind.DUPLICATE].intervals.n == 2
    assert found[Kind.COPYING].chance == pytest.approx(((2 / 2 - 1) + (2 / 3 - 1) + (2 / 4 - 1)) / 3, abs=1e-15)


def test_resting_on_position_0_is_no_fixed_distance() -> None:
    """Nor local, nor far, by definition; at each row it is another distance."""
    for n_pos in (9, 20, 31):
        tokens = torch.arange(n_pos)[None]
        rests = torch.zeros(1, 1, n_pos, n_pos)
        rests[..., 0] = 1
        functions = functions_on(Sequences(stimulus=Stimulus.TEXT, tokens=tokens, bos=0))
        assert (functions["positional"](rests, tokens) == 0).all()
        assert functions["positional"](rests, tokens).shape == (1, 1, n_pos // 2 + 1)
        assert functions["local"](rests, tokens).nan_to_num().eq(0).all()
        assert functions["far"](rests, tokens).nan_to_num().eq(0).all()


def test_the_planted_induction_head_matches_prefixes_and_is_bound_to_no_distance(readings: list[Reading]) -> None:
    four, control = of(readings, Stimulus.FOUR), of(readings, Stimulus.CONTROL)
    assert (four.period, four.n_pos) == (11, 45)
    assert float(four[Kind.PREFIX_MATCHING].intervals.mean[INDUCTION_HEAD]) == pytest.approx(1, abs=1e-4)
    assert int(four[Kind.PREFIX_MATCHING].ranks[INDUCTION_HEAD]) == 1
    assert float(control[Kind.MATCH].intervals.mean[INDUCTION_HEAD]) == pytest.approx(1, abs=1e-3)
    assert float(control[Kind.POSITIONAL].intervals.mean[INDUCTION_HEAD]) < 0.35


def test_the_planted_induction_head_copies_what_it_attends_to_on_text(readings: list[Reading]) -> None:
    """More than it would if it attended evenly; a head that writes nothing would do as well then."""
    copying = of(readings, Stimulus.TEXT)[Kind.COPYING]
    assert copying.permuted is not None
    assert int(copying.ranks[INDUCTION_HEAD]) == 1
    assert float(copying.intervals.mean[INDUCTION_HEAD] - copying.permuted[INDUCTION_HEAD]) > 0.2
    assert float(copying.permuted[EVEN_HEAD]) == pytest.approx(copying.chance, abs=1e-5)


def test_the_planted_previous_token_head_is_positional_one_back_and_local(readings: list[Reading]) -> None:
    for stimulus in (Stimulus.CONTROL, Stimulus.TEXT):
        positional = of(readings, stimulus)[Kind.POSITIONAL]
        assert positional.offsets is not None
        assert int(positional.offsets[PREVIOUS_HEAD]) == 1
        assert float(positional.intervals.mean[PREVIOUS_HEAD]) == pytest.approx(1, abs=1e-4)
        assert positional.intervals.n == 6  # half of the sequences chose
        assert float(of(readings, stimulus)[Kind.LOCAL].intervals.mean[PREVIOUS_HEAD]) == pytest.approx(1, abs=1e-4)
        assert float(of(readings, stimulus)[Kind.FAR].intervals.mean[PREVIOUS_HEAD]) == pytest.approx(0, abs=1e-4)


def test_a_learned_distance_is_positional_with_that_distance(tmp_path: Path) -> None:
    gpt, distance = induction_model(), 14
    attention, n_ctx = gpt.layers[1].attn, N_CTX
    position = slice(D_VOCAB, D_VOCAB + n_ctx)
    back = torch.diag(torch.ones(n_ctx - distance), -distance)
    attention.W_Q[3][position, :n_ctx] = 400.0 * back * attention.d_head**0.5
    attention.W_K[3][position, :n_ctx] = torch.eye(n_ctx)
    readings = readings_of(planted_lab(tmp_path / "distance", gpt))
    for stimulus in (Stimulus.CONTROL, Stimulus.TEXT):
        positional = of(readings, stimulus)[Kind.POSITIONAL]
        assert positional.offsets is not None
        assert int(positional.offsets[1, 3]) == distance
        assert float(positional.intervals.mean[1, 3]) == pytest.approx(1, abs=1e-4)


def test_copying_is_said_to_be_left_out_where_no_head_has_a_direct_contribution(
    tmp_path: Path, make_gpt: Callable[..., GPT]
) -> None:
    readings = readings_of(planted_lab(tmp_path / "post", make_gpt(n_ctx=N_CTX, d_vocab=D_VOCAB, norm="post")))
    for stimulus in (Stimulus.ONCE, Stimulus.TEXT):
        reading = of(readings, stimulus)
        assert Kind.COPYING not in reading
        assert "norm=post it is not" in reading.left_out["copying"]
    assert of(readings, Stimulus.ONCE).measures == {}
    assert set(of(readings, Stimulus.TEXT).measures) == {
        kind.value for kind in MEASURED[Stimulus.TEXT] - {Kind.COPYING}
    }


def test_two_sequences_are_too_few_to_choose_a_distance_and_measure_it(lab: Lab) -> None:
    for reading in readings_of(lab, n=2):
        assert Kind.POSITIONAL not in reading
        assert Kind.ENTROPY in reading or reading.stimulus in (Stimulus.FOUR, Stimulus.ONCE)


def test_every_unseen_period_has_its_control_and_that_of_the_judged_one_is_first(lab: Lab) -> None:
    shown = sequences_for(lab, periods=(8, 16, 19), n_sequences=2, n_text=2, seed=0)
    titles = [(each.stimulus.value, each.period, each.trained) for each in shown]
    assert titles == [
        ("repeats", 8, True), ("repeats", 16, False), ("repeats", 19, False), ("control", 19, False),
        ("control", 16, False), ("four", 11, True), ("once", 19, None), ("text", None, None),
    ]  # fmt: skip
    assert decisive(shown) is shown[2]
    assert not torch.equal(shown[4].tokens[:, 17:], shown[1].tokens[:, 17:])


def test_contexts_too_short_for_olssons_sequences_do_without(tmp_path: Path, make_gpt: Callable[..., GPT]) -> None:
    lab = planted_lab(tmp_path / "short", make_gpt(n_ctx=8, d_vocab=D_VOCAB))
    shown = sequences_for(lab, periods=(2, 3), n_sequences=2, n_text=2, seed=0)
    assert Stimulus.FOUR not in {each.stimulus for each in shown}
    once = next(each for each in shown if each.stimulus is Stimulus.ONCE)
    assert once.tokens.shape == (2, 8)


@pytest.mark.parametrize(
    ("judged_at", "longest", "trained", "periods"),
    [
        (31, 31, range(6, 25), (15, 25, 31)),
        (5, 5, range(6, 25), (4, 5)),
        (3, 3, range(0), (2, 3)),
        (16, 16, range(2, 10), (5, 10, 16)),
        (24, 24, range(2, 31), (16, 24)),
    ],
)
def test_there_are_two_unseen_periods_where_the_context_has_room(
    judged_at: int, longest: int, trained: range, periods: tuple[int, ...]
) -> None:
    assert choose_periods(judged_at, longest, trained) == periods


def measure_with(mean: Tensor, **changes: Any) -> Measure:
    intervals = Intervals(mean=mean, low=mean - 0.1, high=mean + 0.1, n=12, level=0.95, method="bca")
    return Measure(intervals=intervals, chance=0.2, **changes)


def test_ranks_follow_from_means() -> None:
    measure = measure_with(torch.tensor([[0.3, 0.9], [0.1, 0.3]]))
    assert measure.ranks.tolist() == [[2, 1], [4, 3]]
    assert measure.n_heads == 4


def test_readings_come_back_equal_with_distances_and_controls(readings: list[Reading]) -> None:
    for reading in readings:
        assert same(decode(Reading, *encode(reading)), reading)
    text = of(readings, Stimulus.TEXT)
    assert text[Kind.POSITIONAL].offsets is not None
    assert text[Kind.COPYING].permuted is not None
    assert text[Kind.PREVIOUS].offsets is None
