"""Offsets that a model has, and what is none."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import numpy as np
import pytest
import torch

from interp.offsets import MOST_OFFSETS, resolve_offsets
from model.errors import InputError
from tests.conftest import make_gpt_with


@pytest.fixture(autouse=True)
def bare() -> Iterator[None]:
    """As users run it: a wrong type is not refused at the door."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_whole_numbers_of_any_sort_are_offsets() -> None:
    config = make_gpt_with().config
    for given in ([0, 3], (0, 3), np.array([0, 3]), torch.tensor([0, 3]), range(0, 4, 3)):
        assert resolve_offsets(config, given) == (0, 3)
    assert resolve_offsets(config, 3) == resolve_offsets(config, np.int64(3)) == (3,)


def test_what_is_no_offset_is_refused() -> None:
    for given in (0.5, [0.5], "3"):
        with pytest.raises(InputError, match="is no whole number of positions"):
            resolve_offsets(make_gpt_with().config, given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="from 0 to 23"):
        resolve_offsets(make_gpt_with().config, -1)
    assert resolve_offsets(make_gpt_with(attention="bidirectional").config, -1) == (-1,)


def test_of_many_offsets_some_stand_for_all() -> None:
    assert resolve_offsets(make_gpt_with().config, None) == tuple(range(24))
    some = resolve_offsets(make_gpt_with(n_ctx=200).config, None)
    assert (len(some), some[0], some[-1]) == (MOST_OFFSETS, 0, 199)
    assert resolve_offsets(make_gpt_with(positions="learned").config, None) == (0,)
