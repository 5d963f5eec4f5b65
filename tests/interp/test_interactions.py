"""Interactions: heads that stand in for each other, heads that work through each other, and heads that do not meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from interp.ablation import ablation_of
from interp.interactions import Interactions, interactions
from interp.stats import benjamini_hochberg, holm
from interp.trials import Bench, copy_task
from model import GPT
from model.errors import InputError
from tests import planted
from tests.planted_run import planted_lab


def doubled(gain: float = 20.0) -> GPT:
    """The planted circuit, its induction head there twice: L1H2 and L1H3."""
    gpt = planted.induction_model()
    attention = gpt.layers[1].attn
    with torch.no_grad():
        for matrix in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
            matrix[3] = matrix[2]
        attention.W_O[2:4] *= gain / 20
    return gpt


def measured(folder: Path, gpt: GPT, places: list[str]) -> tuple[Interactions, Bench]:
    lab = planted_lab(folder, gpt)
    task = copy_task(lab, n_sequences=8, seed=0, period=8)
    bench = Bench.of(lab, (task.trial,), "L0.attn:zero,L1.attn:zero")
    outcome = task.trial.outcomes[0]
    zeroed = [f"{each}:zero" for each in places]
    return interactions(bench, bench.trials[0], zeroed, outcome=outcome, seed=1), bench


def test_heads_that_do_the_same_cost_more_together_than_one_by_one(tmp_path: Path):
    found, _ = measured(tmp_path / "run", doubled(), ["L1H2", "L1H3", "L1H0"])
    assert found.pairs == ((0, 1), (0, 2), (1, 2))
    assert found.alone.mean.abs().max() < 1e-6  # either is enough
    assert float(found.interaction.mean[0]) == pytest.approx(float(found.together.mean), abs=1e-6)
    assert found.together.mean > 2.5  # ln 20 without copying
    assert found.interaction.mean[1:].abs().max() < 1e-6  # L1H0 writes nothing
    assert found.p.tolist() == pytest.approx([2 / 2**8, 1, 1], abs=0.5)
    assert float(found.p[0]) == 2 / 2**8
    torch.testing.assert_close(found.holm, holm(found.p))
    torch.testing.assert_close(found.bh, benjamini_hochberg(found.p))


def test_the_gate_and_the_positions_hold_for_each_and_for_all(tmp_path: Path):
    """And what is held: L0H1 moves where L1H2 looks, so that holding the patterns takes its harm away."""
    whole, bench = measured(tmp_path / "run", doubled(4.0), ["L0H1", "L1H2"])
    (trial,), pair = bench.trials, ["L0H1:zero", "L1H2:zero"]
    outcome = trial.outcomes[0]
    asked: list[dict[str, Any]] = [
        {"gate": 0.75}, {"positions": [12]}, {"gate": 0.5, "positions": [9, 10]}, {"frozen": "patterns"},
    ]  # fmt: skip
    for how in asked:
        found = interactions(bench, trial, pair, outcome=outcome, seed=1, **how)
        ablations = [ablation_of(places, bench.gpt.config, **how) for places in (*pair, pair)]
        *alone, both = bench.harms(trial, ablations, outcomes=[outcome]).harm[:, :, 0].mean(0).tolist()
        assert found.alone.mean.tolist() == pytest.approx(alone, abs=1e-9)
        assert found.alone.mean[0] < whole.alone.mean[0] - 0.01, "not the harm of all of it, everywhere"
        assert found.together.mean == pytest.approx(both, abs=1e-9)
        assert float(found.joint.mean[0]) == pytest.approx(both, abs=1e-9)


def test_a_set_that_shares_its_work_is_super_additive(tmp_path: Path):
    """Logits of 4 and 4: the loss is convex in them, so the first half costs less than the second."""
    found, _ = measured(tmp_path / "run", doubled(4.0), ["L1H2", "L1H3"])
    assert found.alone.mean.min() > 0.05
    ratio = found.together.mean / float(found.alone.mean.sum())
    assert found.super_additivity.mean == pytest.approx(ratio)
    assert found.super_additivity.low > 1.5
    assert found.interaction[0].low > 0


def test_heads_that_work_through_each_other_cost_no_more_together(tmp_path: Path):
    found, _ = measured(tmp_path / "run", planted.induction_model(), ["L0H1", "L1H2"])
    assert found.alone.mean.min() > 1
    assert found.interaction[0].high < -1
    assert found.super_additivity.high < 1


def test_every_number_is_that_of_a_run_of_its_own(tmp_path: Path):
    """Sets count as one place; joint harms are those of the union."""
    from interp.ablation import ablated

    found, bench = measured(tmp_path / "run", doubled(4.0), ["L1H2,L0H1", "L1H3"])
    trial = bench.trials[0]
    outcome = trial.outcomes[0]
    clean = outcome.of_logits(bench.gpt(trial.measured), trial.measured)
    for places, mean in (
        ("L0H1:zero,L1H2:zero", found.alone.mean[0]),
        ("L1H3:zero", found.alone.mean[1]),
        ("L0H1:zero,L1H2:zero,L1H3:zero", found.joint.mean[0]),
    ):
        with ablated(bench.gpt, places):
            changed = outcome.of_logits(bench.gpt(trial.measured), trial.measured)
        torch.testing.assert_close((changed - clean).mean().double(), mean, rtol=1e-4, atol=1e-6)


def test_what_cannot_interact_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="1 place has nothing to interact with"):
        measured(tmp_path / "one", planted.induction_model(), ["L1H2"])
    with pytest.raises(InputError, match="already covered"):
        measured(tmp_path / "two", planted.induction_model(), ["L1H2", "L1.attn"])
