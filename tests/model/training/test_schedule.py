"""The learning rate rises, stays, falls; checkpoints are dense where things happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.training.config import OptimConfig, Schedule
from model.training.schedule import lr_scale, steps_to_log, steps_to_save


def test_wsd_warms_up_stays_and_decays_in_straight_lines() -> None:
    config = OptimConfig(warmup_steps=2, decay_share=0.4, final_lr=0.0)
    scales = [lr_scale(step, 10, config) for step in range(10)]
    assert scales == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0.0])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    config = OptimConfig(schedule=Schedule.COSINE, warmup_steps=10, final_lr=0.2)
    assert lr_scale(59, 110, config) == pytest.approx(0.6)


@given(
    steps=st.integers(1, 300),
    warmup=st.integers(0, 400),
    decay=st.floats(0, 1),
    final=st.floats(0, 1),
    schedule=st.sampled_from(Schedule),
)
def test_the_scale_stays_between_zero_and_one_and_ends_at_final(
    steps: int, warmup: int, decay: float, final: float, schedule: Schedule
) -> None:
    config = OptimConfig(warmup_steps=warmup, decay_share=decay, final_lr=final, schedule=schedule)
    scales = [lr_scale(step, steps, config) for step in range(steps + 1)]
    assert all(0 <= scale <= 1 for scale in scales)
    decays = schedule is Schedule.COSINE or round(decay * steps) > 0
    if warmup < steps and decays:
        assert scales[steps - 1] == pytest.approx(final)


def test_the_first_step_already_moves_and_no_warm_up_starts_at_the_peak() -> None:
    assert lr_scale(0, 100, OptimConfig(warmup_steps=50)) == pytest.approx(1 / 50)
    assert lr_scale(0, 100, OptimConfig(warmup_steps=0)) == 1


def test_checkpoints_are_log_spaced_then_even_and_include_the_last_step() -> None:
    powers = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert steps_to_save(2100, every=500) == (*powers, 1000, 1500, 2000, 2100)
    assert steps_to_save(100, every=500) == (*powers[:8], 100)
    assert steps_to_save(512, every=100) == powers
    assert steps_to_save(700, every=100) == (*powers, 600, 700)


def test_rows_are_log_spaced_and_even_from_the_start() -> None:
    assert steps_to_log(20, every=5) == (0, 1, 2, 4, 5, 8, 10, 15, 16, 20)
    assert set(steps_to_save(3000, every=250)) - set(steps_to_log(3000, every=250)) == set()
