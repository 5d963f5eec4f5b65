"""Random prefixes: each as likely as any other, some of a window, and all where all are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from interp.prefix_draws import drawn_prefixes, elsewhere
from interp.prefixes import Windows, cut_windows
from model.errors import InputError

WINDOWS = cut_windows([(0, 31), (31, 34), (34, 95)], 10)  # 3 windows of 10, one of 2, six of 10


def test_a_prefix_lies_in_its_window_and_windows_without_one_are_left_out() -> None:
    drawn = drawn_prefixes(WINDOWS, 12, per_window=3, seed=1)
    starts, lengths = drawn.windows.starts[drawn.window], drawn.windows.lengths[drawn.window]
    assert ((drawn.ends >= starts) & (drawn.ends < starts + lengths)).all()
    assert np.array_equal(drawn.lengths, drawn.ends - starts + 1)
    assert sorted(set(drawn.window)) == list(range(len(drawn.windows)))
    assert (np.diff(drawn.ends) > 0).all()
    assert len(drawn) <= 12


def test_seeds_decide() -> None:
    one, same, other = (drawn_prefixes(WINDOWS, 12, per_window=3, seed=seed).ends for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_all_are_drawn_where_there_are_no_more() -> None:
    drawn = drawn_prefixes(WINDOWS, 10_000, per_window=3, seed=0)
    assert len(drawn) == WINDOWS.n_prefixes
    assert np.array_equal(drawn.windows.starts, WINDOWS.starts)


def test_every_prefix_is_as_likely_as_any_other() -> None:
    """One window of 40 and one of 10: four of five draws from the long one, and all its places alike."""
    windows = Windows(starts=np.array([0, 40]), lengths=np.array([40, 10]))
    counts = np.zeros(50)
    for seed in range(800):
        counts[drawn_prefixes(windows, 2, per_window=2, seed=seed).ends] += 1
    assert abs(counts[:40].sum() / counts.sum() - 0.8) < 0.03
    assert counts.min() > 10
    assert counts.max() < 60  # 32 each on average


def test_each_draw_is_of_the_window_that_it_lies_in() -> None:
    """Windows of a single prefix: as many come as were asked for, each window as often as any other."""
    windows = Windows(starts=np.arange(0, 60, 10), lengths=np.ones(6, dtype=np.int64))
    counts = np.zeros(6)
    for seed in range(300):
        drawn = drawn_prefixes(windows, 2, per_window=1, seed=seed)
        assert len(drawn) == 2
        counts[drawn.ends // 10] += 1
    assert counts.sum() == 600
    assert counts.min() > 70  # 100 each on average, and 9 more or less
    assert counts.max() < 130


def test_what_is_no_sample_is_refused() -> None:
    for n, per_window in ((1, 1), (4, 0)):
        with pytest.raises(InputError, match="is no sample; draw at least 2 prefixes"):
            drawn_prefixes(WINDOWS, n, per_window=per_window, seed=0)


def test_elsewhere_is_always_another_window() -> None:
    drawn = drawn_prefixes(WINDOWS, 30, per_window=3, seed=1)
    there = elsewhere(drawn.window)
    assert (drawn.window[there] != drawn.window).all()
    with pytest.raises(InputError, match="all prefixes are of one window"):
        elsewhere(np.zeros(4, dtype=np.int64))
