"""At which period of repeated tokens a run is judged: one answer, for every study.

The run itself gives it (`RunConfig.copy_period`): the period it was told to follow through training, else one that its
training never showed, so that a head which has learned a distance cannot pass for one that matches content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.stimuli import longest_period, ordinary_ids
from model.settings import from_plain
from model.training.config import RunConfig
from model.training.sources import DataConfig

if TYPE_CHECKING:
    from model.lab import Lab


def deciding_period(lab: Lab) -> int:
    """The run's `copy_period`; where it names none, the longest period that fits.

    Never more than there are tokens to draw, since none comes twice in a segment.
    """
    config = lab.run_config.get("config", {})
    named = from_plain(RunConfig, config, "run").copy_period if {"model", "data", "train"} <= config.keys() else None
    return min(named or longest_period(lab.config.n_ctx, bos=lab.tokenizer.bos), n_ordinary(lab))


def longest_fitting(lab: Lab) -> int:
    """The longest period whose two copies fit into the context, and for which there are tokens enough."""
    return min(longest_period(lab.config.n_ctx, bos=lab.tokenizer.bos), n_ordinary(lab))


def trained_periods(lab: Lab) -> range:
    """The periods of the repeats that training showed; empty where it showed none."""
    data = lab.run_config.get("config", {}).get("data")
    return range(0) if data is None else from_plain(DataConfig, data, "data").trained_periods


def n_ordinary(lab: Lab) -> int:
    """Tokens that a random segment can hold: those that stand for text."""
    return len(ordinary_ids(lab.tokenizer))
