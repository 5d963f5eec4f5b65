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
    assert (found.start, found.half, found.last) == pytest.approx((0, 0.5, 1), abs=1e-3)
    assert found.at.n == 40


def test_a_curve_that_comes_back_has_a_bracket_about_every_time_it_passes() -> None:
    found = half_rises(STEPS, curves((0.0, 0.9, 0.1, 0.2, 1.0, 1.0)), n_resamples=100)[(0,)]
    assert found is not None
    assert (found.after, found.by) == (0, 400)
    assert found.at.mean == pytest.approx((100 * 5 / 9 + 337.5) / 2, abs=1), "between the first time and the last"


def test_half_is_half_of_what_stands_at_the_end_and_not_of_a_peak_that_is_lost() -> None:
    found = half_rises(STEPS, curves((0.0, 0.1, 0.9, 5.0, 1.0, 1.0)), n_resamples=100)[(0,)]
    assert found is not None
    assert (found.half, found.last) == pytest.approx((0.5, 1), abs=1e-3)
    assert (found.after, found.by) == (100, 200)


def test_where_the_interval_crosses_a_checkpoint_the_bracket_has_both_gaps() -> None:
    found = half_rises(STEPS, curves((0.0, 0.0, 0.2, 0.501, 1.0, 1.0), spread=0.1), n_resamples=200)[(0,)]
    assert found is not None
    assert found.at.low < 300 < found.at.high
    assert (found.after, found.by) == (200, 400)


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


LIKE_A_RUN = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 750, 900, 1050, 1200, 1350, 1500, 1650, 1800)


@pytest.mark.parametrize("alike", [0.0, 0.9])
@pytest.mark.parametrize(
    ("steps", "middle", "width", "spread"),
    [
        (LIKE_A_RUN, 820, 20, 0.15),
        (LIKE_A_RUN, 300, 20, 0.15),
        (tuple(range(0, 2001, 20)), 705, 5, 0.15),
        (tuple(range(0, 2001, 20)), 1000, 250, 0.4),
    ],
    ids=["20, sharp", "20, early", "100, sharp", "100, slow"],
)
def test_of_many_checkpoints_too_the_interval_holds_the_truth(
    steps: tuple[int, ...], middle: float, width: float, spread: float, alike: float
) -> None:
    """Neighbouring checkpoints go up and down together (`alike`), as those of a run do; 150 planted curves each.

    The reference must not be the largest of many noisy values, and of several passes neither the first nor the last.
    """
    n, trials, draws = 64, 150, torch.Generator().manual_seed(0)
    curve = 0.8 * torch.sigmoid((torch.tensor(steps, dtype=torch.float64) - middle) / width)
    noise = torch.randn(n, len(steps), trials, generator=draws, dtype=torch.float64)
    for at in range(1, len(steps)):
        noise[:, at] = alike * noise[:, at - 1] + (1 - alike**2) ** 0.5 * noise[:, at]
    height = 1 + 0.1 * torch.randn(n, 1, trials, generator=draws, dtype=torch.float64)
    found = half_rises(steps, curve[:, None] * height + spread * noise, n_resamples=300)
    truth = half_rises(steps, curve[:, None].expand(2, -1, 1), n_resamples=2)
    each = [found[(trial,)] for trial in range(trials)]
    true = float(truth.at[0])
    held = sum(one is not None and one.at.low <= true <= one.at.high for one in each) / trials
    bracketed = sum(one is not None and one.after <= true <= one.by for one in each) / trials
    assert held >= 0.88, f"of 95% intervals; {held:.0%} with a standard error of 2%"
    assert bracketed >= 0.94


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
