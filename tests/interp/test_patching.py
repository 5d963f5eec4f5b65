"""Activation patching on planted circuits, and what it must be whatever the weights are."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from interp.metrics import copy_logit, logit_difference, outcome_metric
from interp.outcomes import copy_outcome
from interp.patching import Direction, Patched, activation_patching, patch_grid, redrawn_first_copy
from interp.stimuli import repeated_tokens
from model import GPT
from model.errors import InputError, UnknownSiteError
from model.sites import Tap
from tests import planted
from tests.conftest import make_gpt_with

PERIOD = 8
IDS = range(1, planted.D_VOCAB)


@pytest.fixture(scope="module")
def gpt() -> GPT:
    return planted.induction_model()


@pytest.fixture(scope="module")
def clean() -> Tensor:
    return repeated_tokens(6, PERIOD, IDS, seed=1, bos=0)


@pytest.fixture(scope="module")
def corrupted(clean: Tensor) -> Tensor:
    return redrawn_first_copy(clean, PERIOD, IDS, seed=2)


def gap_of(found: Patched) -> Tensor:
    """The whole difference between the runs, towards where the patches come from."""
    gap = found.clean - found.corrupted
    return gap if found.direction is Direction.DENOISING else -gap


def other_tokens(tokens: Tensor) -> Tensor:
    return (tokens + 17) % 50


@pytest.mark.parametrize("direction", list(Direction))
def test_the_planted_heads_are_needed_and_each_suffices_only_with_what_it_reads(
    gpt: GPT, clean: Tensor, corrupted: Tensor, direction: Direction
):
    """The induction head's output is all of the behaviour; the previous-token head alone brings no matching keys back.

    Its clean output tells the induction head where to look, but the values there are those of the corrupted copy.
    """
    found = activation_patching(
        gpt, clean, corrupted, patch_grid(gpt.config, Tap.Z), copy_logit(clean, PERIOD), direction=direction
    )
    moved = found.effect.mean(0)[..., 0] / gap_of(found).mean()
    assert moved.shape == (2, 4)
    assert float(moved[planted.INDUCTION_HEAD]) == pytest.approx(1.0, abs=1e-5)
    bystanders = moved.clone()
    bystanders[planted.INDUCTION_HEAD] = bystanders[planted.PREVIOUS_HEAD] = 0
    assert float(bystanders.abs().max()) == 0
    previous = float(moved[planted.PREVIOUS_HEAD])
    assert previous == pytest.approx(1.0, abs=0.1) if direction is Direction.NOISING else previous < 0.1


def test_normalised_is_one_as_clean_and_zero_as_corrupted_in_both_directions(
    gpt: GPT, clean: Tensor, corrupted: Tensor
):
    grid, metric = patch_grid(gpt.config, Tap.Z), copy_logit(clean, PERIOD)
    noised = activation_patching(gpt, clean, corrupted, grid, metric, direction="noising").normalised().mean[..., 0]
    restored = activation_patching(gpt, clean, corrupted, grid, metric, direction="denoising").normalised().mean[..., 0]
    assert float(noised[planted.INDUCTION_HEAD]) == pytest.approx(0.0, abs=1e-5)
    assert float(noised[0, 0]) == 1
    assert float(restored[planted.INDUCTION_HEAD]) == pytest.approx(1.0, abs=1e-5)
    assert float(restored[0, 0]) == 0


def test_by_position_only_the_patched_positions_change(gpt: GPT, clean: Tensor, corrupted: Tensor):
    """The second copy's first tokens are alike in both runs; the first copy's stream is what is corrupted."""
    positions = list(range(clean.shape[1]))
    grid = patch_grid(gpt.config, Tap.RESID_PRE, layers=[0], positions=positions)
    found = activation_patching(gpt, clean, corrupted, grid, copy_logit(clean, PERIOD))
    effect = found.effect.mean(0)[0, 0]
    assert (effect[1 : PERIOD + 1] < -1).all()
    assert float(effect[PERIOD + 1 :].abs().max()) == 0
    assert float(effect[0]) == 0
    whole = patch_grid(gpt.config, Tap.RESID_PRE, layers=[0], positions=[positions])
    moved = activation_patching(gpt, clean, corrupted, whole, copy_logit(clean, PERIOD))
    torch.testing.assert_close(moved.effect[:, 0, 0, 0], gap_of(moved))


@pytest.mark.parametrize("tap", [Tap.RESID_POST, Tap.ATTN_OUT, Tap.MLP_OUT, Tap.PATTERN, Tap.K, Tap.MLP_POST])
def test_every_kind_of_place_is_patched_as_a_plain_hook_would(tap: Tap, tokens: Tensor):
    gpt, other = make_gpt_with(n_kv_heads=2, d_ff=5), other_tokens(tokens)
    grid = patch_grid(gpt.config, tap, layers=[1])
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    found = activation_patching(gpt, tokens, other, grid, metric, batch_size=2)
    _, cache = gpt.run_with_cache(other)
    axis = tap.component_axis
    for number, cell in enumerate(grid):

        def put(x: Tensor, hook, cell=cell) -> Tensor:
            source = cache[hook.name]
            if cell.component is None or axis is None:
                return source
            x = x.clone()
            x.select(axis, cell.component).copy_(source.select(axis, cell.component))
            return x

        with gpt.explicit_attention():
            wanted = metric(gpt.run_with_hooks(tokens, [(str(tap.at(1)), put)]).detach(), torch.arange(3)).double()
        torch.testing.assert_close(found.patched[:, 0, number, 0], wanted, rtol=1e-4, atol=1e-5)


def test_places_outside_the_layers_are_patched_too(tokens: Tensor):
    gpt = make_gpt_with()
    grid = patch_grid(gpt.config, Tap.EMBED)
    found = activation_patching(gpt, tokens, other_tokens(tokens), grid, logit_difference(tokens[:, 0], tokens[:, 1]))
    assert grid.shape == (1, 1, 1)
    torch.testing.assert_close(found.patched[:, 0, 0, 0], found.corrupted)


def test_a_patch_of_the_same_prompts_changes_nothing(tokens: Tensor):
    gpt = make_gpt_with()
    found = activation_patching(
        gpt, tokens, tokens, patch_grid(gpt.config, Tap.Z), logit_difference(tokens[:, 0], tokens[:, 1])
    )
    assert float(found.effect.abs().max()) < 1e-5
    assert found.normalised().mean.isnan().all()


def test_the_redrawn_first_copy_keeps_everything_but_the_match(clean: Tensor):
    corrupted = redrawn_first_copy(clean, PERIOD, IDS, seed=2)
    assert torch.equal(corrupted[:, 0], clean[:, 0])
    assert torch.equal(corrupted[:, PERIOD + 1 :], clean[:, PERIOD + 1 :])
    for old, new in zip(clean[:, 1 : PERIOD + 1], corrupted[:, 1 : PERIOD + 1], strict=True):
        assert not set(old.tolist()) & set(new.tolist())
        assert len(set(new.tolist())) == PERIOD
    assert not torch.equal(corrupted, redrawn_first_copy(clean, PERIOD, IDS, seed=3))


def test_where_the_vocabulary_is_short_the_old_tokens_come_in_another_order():
    tokens = repeated_tokens(20, 10, range(1, 14), seed=1, bos=0)
    new = redrawn_first_copy(tokens, 10, range(1, 14), seed=2)[:, 1:11]
    assert all(len(set(row)) == 10 for row in new.tolist())
    assert all(
        {*row} >= {*range(1, 14)} - {*old} for row, old in zip(new.tolist(), tokens[:, 1:11].tolist(), strict=True)
    )
    assert float((new == tokens[:, 1:11]).double().mean()) < 0.3


def test_losses_serve_as_metrics(gpt: GPT, clean: Tensor, corrupted: Tensor):
    found = activation_patching(
        gpt, clean, corrupted, patch_grid(gpt.config, Tap.Z, layers=[1]), outcome_metric(copy_outcome(PERIOD), clean)
    )
    assert float(found.clean.max()) < 0.01
    assert float(found.corrupted.min()) > 2
    assert found.effect.mean(0)[0, 2, 0] > 2


def test_cells_say_what_they_are(gpt: GPT):
    heads = [cell.label for cell in patch_grid(gpt.config, Tap.Z, layers=[1])]
    assert heads[2] == "L1H2 hook_z"
    [stream] = patch_grid(gpt.config, Tap.RESID_PRE, layers=[0], positions=[3])
    assert stream.label == "blocks.0.hook_resid_pre at 3"
    grouped = make_gpt_with(n_kv_heads=2)
    assert [cell.label for cell in patch_grid(grouped.config, Tap.K, layers=[0])][1] == "L0 kv_head 1 hook_k"


def test_what_cannot_be_patched_is_refused_in_a_sentence(tokens: Tensor):
    gpt = make_gpt_with()
    grid, metric = patch_grid(gpt.config, Tap.Z), logit_difference(tokens[:, 0], tokens[:, 1])
    with pytest.raises(InputError, match=re.escape("clean prompts have shape (3, 12) and corrupted ones (3, 11)")):
        activation_patching(gpt, tokens, tokens[:, 1:], grid, metric)
    with pytest.raises(InputError, match="position 12 is none of the prompts' 12; choose from 0 to 11"):
        activation_patching(gpt, tokens, tokens, patch_grid(gpt.config, Tap.Z, positions=[12]), metric)
    with pytest.raises(InputError, match=re.escape("the metric gave shape (3, 12); it must give one number for each")):
        activation_patching(gpt, tokens, tokens, grid, lambda logits, rows: logits.mean(-1))
    with pytest.raises(UnknownSiteError, match="this model has no place of the kind Tap.POS_EMBED"):
        patch_grid(gpt.config, Tap.POS_EMBED)
    with pytest.raises(InputError, match=re.escape("layers=[2] are none of this model's layers")):
        patch_grid(gpt.config, Tap.Z, layers=[2])
    with pytest.raises(InputError, match="Tap.EMBED is in no layer; leave layers out"):
        patch_grid(gpt.config, Tap.EMBED, layers=[0])
    with pytest.raises(InputError, match="5 correct and 3 wrong tokens make no pairs"):
        logit_difference(torch.zeros(5).long(), torch.zeros(3).long())
    dropping = make_gpt_with(dropout=0.5).train()
    with pytest.raises(InputError, match="so runs differ by chance"):
        activation_patching(dropping, tokens, tokens, grid, metric)
    with pytest.raises(InputError, match="A period of 8 needs as many different tokens"):
        redrawn_first_copy(repeated_tokens(1, 8, 8), 8, 4, seed=0)
    thrice = torch.cat([repeated_tokens(1, 8, 8), torch.arange(8)[None]], dim=1)
    with pytest.raises(InputError, match="24 tokens are 3 copies of 8; .* the third would still repeat the second"):
        redrawn_first_copy(thrice, 8, 20, seed=0)
    for none in ([], [[]], [0, []]):
        with pytest.raises(InputError, match="positions name no position, or hold a group of none"):
            patch_grid(gpt.config, Tap.Z, positions=none)


def test_a_normalised_effect_has_an_interval_over_sequences(gpt: GPT, clean: Tensor, corrupted: Tensor):
    """The exact bootstrap of what is there: the same ratio of means, in every resample that leaves it alone."""
    found = activation_patching(
        gpt, clean, corrupted, patch_grid(gpt.config, Tap.Z, layers=[0]), copy_logit(clean, PERIOD)
    ).normalised(seed=1)
    place = (0, planted.PREVIOUS_HEAD[1], 0)
    assert found[place].low <= found[place].mean <= found[place].high < 0.2
    assert found[0, 0, 0].low == found[0, 0, 0].high == 1  # a bystander: nothing moves, in any resample
    assert found.n == 6
