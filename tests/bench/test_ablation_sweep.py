"""The benchmark of the sweep compares the same numbers, and counts the work that it states."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from bench import ablation_sweep as bench


def test_all_ways_of_ablating_every_head_agree_and_take_the_stated_operations():
    gpt = bench.gpt_with(3, 2, 32, 24)
    tokens = torch.randint(bench.VOCABULARY, (2, 24))
    found = bench.disagreement(
        {
            bench.SWEEP: partial(bench.swept, gpt, tokens),
            bench.LOOP: partial(bench.looped, gpt, tokens),
            bench.FROM_LAYER: partial(bench.looped_from_the_layer, gpt, tokens),
        }
    )
    assert max(found.values()) < bench.AGREED
    stated = bench.formula(gpt.config, *tokens.shape)
    assert bench.counted(lambda: bench.swept(gpt, tokens)) == pytest.approx(stated[bench.SWEEP], rel=bench.COUNTED)
    assert bench.counted(lambda: bench.looped(gpt, tokens)) == pytest.approx(stated[bench.LOOP], rel=bench.COUNTED)


def test_of_six_layers_with_eight_heads_about_half_the_work_is_left():
    stated = bench.formula(bench.gpt_with(6, 8, 256, 256).config, 4, 256)
    assert 1.8 < stated[bench.LOOP] / stated[bench.SWEEP] < 2.0
