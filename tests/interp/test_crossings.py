"""A planted rise is found where it is, with its bracket; and an order is told only where a checkpoint lies between."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.crossings import half_rises, order
from model.errors import InputError

STEPS = (0, 100, 200, 300, 400, 500)


def curves(*means: tuple[float, ...], spread: float = 0.01, n: int = 40) -> Tensor:
    """Sequences [sequence, step, curve] about the given curves."""
    noise = torch.randn(n, len(means[0]), len(means), generator=torch.Generator().manual_seed(0)) * spread
    return torch.tensor(means).T[None] + noise - noise.mean(0)


def test_the_half_of_a_rise_is_read_off_between_its_two_checkpoints() -> None:
    found = half_rises(STEPS, curves((0.0, 0.0, 0.2, 0.8, 1.0, 1.0)), n_resamples=200)[(0,)]
    assert found is not None
    assert (found.after, found.by) == (200, 300)
    assert found.at.mean == pytest.approx(250, abs=1)
    assert found.at.low < found.at.mean < found.at.high
    assert (found.start, found.half, found.peak) == pytest.approx((0, 0.5, 1), abs=1e-3)
    assert found.at.n == 40


def test_the_first_time_counts_where_a_curve_comes_back() -> None:
    found = half_rises(STEPS, curves((0.0, 0.9, 0.1, 0.2, 1.0, 1.0)), n_resamples=100)[(0,)]
    assert found is not None
    assert found.by == 100


def test_what_never_rises_has_no_crossing() -> None:
    found = half_rises(STEPS, curves((1.0, 0.5, 0.4, 0.3, 0.2, 0.1)), n_resamples=100)
    assert found[(0,)] is None
    assert bool(found.at.isnan().all())


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Sequences that rise at steps of their own: their mean curve crosses where half of them have."""
    held = 0
    for trial in range(120):
        draws = torch.Generator().manual_seed(trial)
        height = 0.8 + 0.4 * torch.rand(30, 1, generator=draws)
        early = torch.rand(30, 1, generator=draws)  # what each has at step 200, 0.5 on average
        values = torch.cat([0 * height, early, 2 * height], dim=1)[..., None]
        found = half_rises((0, 200, 400), values, n_resamples=300)[(0,)]
        assert found is not None
        held += found.at.low <= 400 - 200 * (1.0 / 1.5) <= found.at.high  # level 1.0 between 0.5 and 2.0
    assert 105 <= held <= 120, held


def test_an_order_is_told_where_a_checkpoint_lies_between_and_not_within_one_bracket() -> None:
    values = curves((0.0, 0.0, 0.9, 1.0, 1.0, 1.0), (0.0, 0.0, 0.1, 0.2, 1.0, 1.0), (0.0, 0.0, 0.6, 1.0, 1.0, 1.0))
    found = half_rises(STEPS, values, n_resamples=200)
    apart = order(found, (0,), found, (1,))
    assert apart is not None
    assert apart.resolved
    assert apart.apart.low > 100
    back = order(found, (1,), found, (0,))
    assert back is not None
    assert back.resolved
    assert back.apart.high < -100
    close = order(found, (0,), found, (2,))
    assert close is not None
    assert not close.resolved, "both lie between steps 100 and 200"


def test_an_order_with_what_never_rises_is_none() -> None:
    found = half_rises(STEPS, curves((0.0, 0.0, 0.9, 1.0, 1.0, 1.0), (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)), n_resamples=100)
    assert order(found, (0,), found, (1,)) is None


def test_one_checkpoint_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="two checkpoints or more"):
        half_rises((0,), torch.rand(4, 1, 2))
