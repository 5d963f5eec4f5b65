"""What ablations are tried on: disjoint draws, a period never trained on, means from elsewhere."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interp.outcomes import unigram_loss
from interp.trials import copy_task, text_trial, trials_for
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


def test_the_corrupted_twin_has_the_same_second_copy_and_nothing_to_copy_it_from(lab: Lab) -> None:
    """Of so few letters none is left over, so the first copy is its own reverse: no two letters follow as they do."""
    trial = copy_task(lab, n_sequences=16, seed=0).trial
    assert trial.corrupted is not None
    start = 1 + 19
    assert torch.equal(trial.corrupted[:, start:], trial.measured[:, start:])
    assert torch.equal(trial.corrupted[:, 0], trial.measured[:, 0])
    for twin, row in zip(trial.corrupted.tolist(), trial.measured.tolist(), strict=True):
        assert set(itertools.pairwise(twin[1:start])).isdisjoint(itertools.pairwise(row[1:]))
    outcome = trial.outcomes[0]
    with torch.no_grad():
        copied, lost = (outcome.of_logits(lab.gpt(each), each) for each in (trial.measured, trial.corrupted))
    assert float(copied.max()) < 0.01
    assert float(lost.min()) > 2.5


def test_a_twin_shares_no_token_with_the_first_copy_where_there_are_enough(lab: Lab) -> None:
    from interp.stimuli import other_first_copy, repeated_tokens

    tokens = repeated_tokens(8, 6, range(5, 30), bos=0)
    before = tokens.clone()
    twins = other_first_copy(tokens, 6, range(5, 30), seed=3)
    assert torch.equal(tokens, before)
    for twin, row in zip(twins.tolist(), tokens.tolist(), strict=True):
        assert twin[0] == 0
        assert set(twin[1:7]).isdisjoint(row[1:7])
        assert len(set(twin[1:7])) == 6
        assert set(twin[1:7]) <= set(range(5, 30))
    assert torch.equal(twins, other_first_copy(tokens, 6, range(5, 30), seed=3))
    assert not torch.equal(twins, other_first_copy(tokens, 6, range(5, 30), seed=4))


def test_a_trial_takes_further_outcomes_by_name_and_knows_which_have_a_scale(lab: Lab) -> None:
    copying, text = trials_for(lab, metric="copy_kl", n_sequences=4, seed=0)
    assert [each.name for each in copying.outcomes] == ["copy_loss", "first_copy_loss", "copy_kl"]
    assert [each.name for each in text.outcomes] == ["text_loss", "new_token_loss"]
    assert copying.scales[2] is None
    with pytest.raises(InputError, match="copy_kl is no loss"):
        copying.scale_of("copy_kl")
    assert copying.scale_of("copy_loss") == pytest.approx(math.log(19))


def test_the_unigram_is_a_constant_on_random_tokens_and_one_number_for_each_text(lab: Lab) -> None:
    copying, text = trials_for(lab, metric="icl_score", n_sequences=8, seed=0)
    for outcome in copying.outcomes:
        torch.testing.assert_close(copying.unigram_of(outcome), torch.full((8,), math.log(19)).double())
    for outcome, scale in zip(text.outcomes, text.scales, strict=True):
        own = [unigram_loss(row[None], text.reference, d_vocab=20, outcome=outcome) for row in text.measured]
        torch.testing.assert_close(text.unigram_of(outcome), torch.tensor(own).double())
        assert scale == pytest.approx(sum(own) / 8)


def test_a_trial_fits_constants_for_the_one_loss_of_its_kind_whatever_is_asked(lab: Lab) -> None:
    copying, text = trials_for(lab, metric="copy_accuracy", n_sequences=4, seed=0)
    assert [copying.fitting.name, text.fitting.name] == ["copy_loss", "text_loss"]
    assert replace(copying, outcomes=copying.outcomes[2:]).fitting.name == "copy_loss"
    assert text.fitting.meaning == "loss on held-out text"


def test_rows_of_a_trial_keep_their_twins(lab: Lab) -> None:
    trial = copy_task(lab, n_sequences=6, seed=0).trial
    part = trial.rows(2, 5)
    assert trial.corrupted is not None
    assert part.corrupted is not None
    assert torch.equal(part.measured, trial.measured[2:5])
    assert torch.equal(part.corrupted, trial.corrupted[2:5])
