"""The benchmark of the sweep compares the same numbers, and counts the work that it states."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from bench import ablation_sweep as bench


def test_all_ways_of_ablating_every_head_agree_and_take_the_stated_operations():
    gpt = bench.gpt_with(3, 2, 32, 24)
    tokens = torch.randint(bench.VOCABULARY, (2, 24))
    ours = {bench.SWEEP: bench.swept, bench.LOOP: bench.looped, bench.FROM_LAYER: bench.looped_from_the_layer}
    timed, agreed = bench.measured({name: partial(case, gpt, tokens) for name, case in ours.items()}, rounds=2)
    assert set(timed) == set(ours)
    assert max(agreed.values()) < bench.AGREED
    for row in bench.operations(gpt, tokens).values():
        assert row["counted"] == pytest.approx(row["formula"], rel=bench.COUNTED)


def test_what_is_not_as_stated_is_said():
    agreed, found = {bench.SWEEP: 2e-5}, {bench.SWEEP: {"counted": 1.2, "formula": 1.0}}
    assert bench.failures(agreed, found) == [
        "measure_harms differs by 2.0e-05 nats",
        "measure_harms takes +20% of the stated operations",
    ]
    assert bench.failures({bench.SWEEP: 1e-6}, {bench.SWEEP: {"counted": 1.05, "formula": 1.0}}) == []
    timed = {bench.SWEEP: {"median": 1.0}, bench.LOOP: {"median": 1.5}, bench.NATIVE: {"median": 4.0}}
    assert bench.missed(timed) == ["loop over hooks takes 1.50 times as long, not 1.7"]
    assert bench.missed({bench.SWEEP: {"median": 1.0}, bench.LOOP: {"median": 1.7}}) == []


def test_of_six_layers_with_eight_heads_about_half_the_work_is_left():
    stated = bench.formula(bench.gpt_with(6, 8, 256, 256).config, 4, 256)
    assert 1.8 < stated[bench.LOOP] / stated[bench.SWEEP] < 2.0
