"""What ablations are tried on: disjoint draws, a period never trained on, means from elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from interp.trials import copy_task, text_trial, unseen_period
from model.config import GPTConfig
from model.errors import InputError
from model.lab import Lab
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def run_with(n_ctx: int, **data: Any) -> Any:
    config = GPTConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=n_ctx, d_vocab=257)
    return SimpleNamespace(config=config, tokenizer=SimpleNamespace(bos=256), run_config={"config": {"data": data}})


@pytest.mark.parametrize(
    ("n_ctx", "shortest", "longest", "period"),
    [(64, 6, 24, 31), (32, 3, 20, 2), (32, 6, 20, 5), (32, 2, 20, 15), (1024, 6, 24, 256)],
)
def test_the_period_is_one_that_training_never_showed(n_ctx: int, shortest: int, longest: int, period: int):
    assert unseen_period(run_with(n_ctx, min_period=shortest, max_period=longest)) == period


def test_a_context_too_short_to_repeat_in_is_refused():
    with pytest.raises(InputError, match="choose a period"):
        copy_task(run_with(4), n_sequences=2, seed=0)


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
