"""What ablations are tried on: disjoint draws, a period never trained on, means from elsewhere."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from interp.trials import copy_task, text_trial
from model.errors import InputError
from model.lab import Lab
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def test_the_period_is_the_one_that_decides_for_the_run(lab: Lab, tmp_path: Path):
    assert copy_task(lab, n_sequences=2, seed=0).period == 19
    told = planted_lab(tmp_path / "told", copy_period=15)
    assert copy_task(told, n_sequences=2, seed=0).period == 15
    assert copy_task(told, n_sequences=2, seed=0, period=7).period == 7


def test_a_period_that_does_not_fit_is_refused(lab: Lab):
    with pytest.raises(InputError, match="choose a period"):
        copy_task(lab, n_sequences=2, seed=0, period=30)


def test_discovery_measurement_and_reference_share_no_sequence(lab: Lab):
    task = copy_task(lab, n_sequences=32, seed=4)
    rows = torch.cat([task.discovery, task.trial.measured, task.trial.reference])
    assert len(rows.unique(dim=0)) == 96
    text = text_trial(lab, n_sequences=32, seed=4)
    assert len(torch.cat([text.measured, text.reference]).unique(dim=0)) == 24


def test_no_two_seeds_draw_the_same_sequences(lab: Lab):
    drawn = [copy_task(lab, n_sequences=4, seed=seed) for seed in range(3)]
    rows = torch.cat([rows for task in drawn for rows in (task.discovery, task.trial.measured, task.trial.reference)])
    assert len(rows.unique(dim=0)) == 36


def test_the_scale_of_copying_is_the_logarithm_of_the_number_of_tokens(lab: Lab):
    assert copy_task(lab, n_sequences=2, seed=0).trial.scales[0] == pytest.approx(math.log(19))


def test_means_come_from_the_reference_and_say_so(lab: Lab, tmp_path: Path):
    from interp.places import head

    trial = text_trial(lab, n_sequences=8, seed=0)
    means = trial.means_of(lab.gpt, [head(0, 1)])
    assert means is not None
    assert means.source == "8 other sequences of held-out text"
    _, cache = lab.gpt.run_with_cache(trial.reference, "blocks.0.attn.hook_z")
    torch.testing.assert_close(means.at("blocks.0.attn.hook_z"), cache["z", 0].mean(dim=0))


def test_held_out_rows_of_no_text_are_not_called_text(tmp_path: Path):
    trial = text_trial(planted_lab(tmp_path / "repeats", is_text=False), n_sequences=8, seed=0)
    assert trial.kind == "held-out repeats"
    assert [outcome.meaning for outcome in trial.outcomes] == [
        "loss on held-out repeats",
        "loss on held-out repeats where the current token is new",
    ]


def test_too_few_held_out_rows_come_with_advice_that_helps(tmp_path: Path):
    """How many rows are kept follows from the held-out text alone, not from train.eval_sequences."""
    with pytest.raises(InputError, match=r"few has 3 held-out rows, .* a larger data\.held_out or more text"):
        text_trial(planted_lab(tmp_path / "few", n_rows=3), n_sequences=4, seed=0)
