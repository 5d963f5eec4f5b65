"""What an ablation costs on each outcome of a trial: the harm with its interval, its p, and its share of the gain.

A loss in nats says little across models and texts, so a harm is also told as a share of what the intact model gains
over token frequencies on the same sequences: a ratio of means, resampled together.
"""

from __future__ import annotations

import math
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from interp.effect_parts import OutcomeEffect
from interp.harm import Harms
from interp.outcomes import LEAST_GAP
from interp.stats import Interval, Intervals, bootstrap_mean, bootstrap_ratios, sign_flip_p
from interp.trials import Trial


def effects_on(trial: Trial, harms: Harms, column: int, *, seed: int) -> tuple[OutcomeEffect, ...]:
    """The effect of ablation number `column` on every outcome of the trial, on all its measured sequences."""
    harm = harms.harm[:, column]
    return tuple(
        OutcomeEffect(
            name=outcome.name,
            meaning=outcome.meaning,
            clean=float(harms.clean[:, row].mean()),
            harm=bootstrap_mean(harm[:, row], seed=seed),
            p=sign_flip_p(harm[:, row], seed=seed),
            scale=trial.scales[row],
            share_interval=share_of(harm[:, row], harms.clean[:, row], trial.unigram_of(outcome), seed=seed),
            unit=outcome.unit,
            lower_is_better=outcome.lower_is_better,
        )
        for row, outcome in enumerate(trial.outcomes)
    )


def share_of(
    harm: Float[Tensor, " sequence"],
    clean: Float[Tensor, " sequence"],
    unigram: Float[Tensor, " sequence"] | None,
    *,
    seed: int = 0,
    level: float = 0.95,
) -> Interval | None:
    """The harm as a share of what the intact model gains over token frequencies: a ratio of means, all by sequence.

    None without a unigram, and where the gain is not surely (by its interval) above a small floor: then nothing is
    shared.
    """
    found = shares_of(harm[:, None], clean, unigram, seed=seed, level=level)
    return None if found is None else found[0]


def shares_of(
    harm: Float[Tensor, " sequence *shape"],
    clean: Float[Tensor, " sequence"],
    unigram: Float[Tensor, " sequence"] | None,
    *,
    seed: int = 0,
    level: float = 0.95,
) -> Intervals | None:
    """`share_of` for every cell: one gain, so that all have a share or none has."""
    if unigram is None:
        return None
    gain = unigram - clean
    n_resamples = max(2000, math.ceil(20 / (1 - level)))
    if bootstrap_mean(gain, n_resamples, seed, level).low <= LEAST_GAP:
        return None
    cells = harm.flatten(1)
    found = bootstrap_ratios(cells, gain[:, None].expand_as(cells), n_resamples, seed, level)
    if not (found.low.isfinite().all() and found.high.isfinite().all()):
        return None
    low, mean, high = (each.reshape(harm.shape[1:]) for each in (found.low, found.mean, found.high))
    return replace(found, low=low, mean=mean, high=high)
