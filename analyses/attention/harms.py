"""What each head is worth: every head alone replaced by its mean, on copying and on held-out text.

A pattern says where a head looks, not that anything depends on it. So each head is ablated alone on sequences other
than those that found it (`interp.trials`), with an interval, and with p corrected over all heads and outcomes that were
tried: among hundreds of heads some cost something by luck. In a model of many heads only those with a claim to test are
tried.

What it does not show: that a head does nothing where nothing is lost. Another may stand in for it; head-ablation
replaces sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.harm import Counted, Harms
from interp.places import Head, head
from interp.stats import (
    Interval,
    Intervals,
    bootstrap_mean,
    bootstrap_means,
    holm,
    sign_flip_ps,
    smallest_sign_flip_p,
)
from interp.trials import HELD_OUT_TEXT, Bench, Trial, copy_task, held_out_kind, text_trial

if TYPE_CHECKING:
    from model.lab import Lab

COPY, TEXT = "copy_loss", "text_loss"
"""The outcomes on which heads are tried."""


@dataclass(frozen=True, kw_only=True)
class HarmOn:
    """What each ablated head is worth to one outcome."""

    outcome: str
    """COPY or TEXT."""
    meaning: str
    clean: float
    """Mean loss of the intact model, in nats."""
    harm: Intervals
    """Ablated minus clean loss in nats, [ablated head], paired by sequence."""
    p: Float[Tensor, " ablated"]
    """Two-sided sign-flip p that the harm is zero, Holm-corrected over every head and outcome that was tried."""


@dataclass(frozen=True, kw_only=True)
class HeadHarms:
    """What ablating heads one at a time costs one checkpoint."""

    heads: tuple[Head, ...]
    """The heads that were ablated, in the order of every `HarmOn`."""
    period: int
    """Tokens per copy where copying was tried."""
    copying: Interval
    """First-copy minus second-copy loss of the intact model, in nats: what there is to lose."""
    on: tuple[HarmOn, ...]
    """Copying; then held-out text, where the run keeps four rows of it."""

    def place_of(self, place: Head) -> int | None:
        """Where a head stands in `heads`; None if it was not ablated."""
        return self.heads.index(place) if place in self.heads else None

    def outcome(self, name: str) -> HarmOn | None:
        """What the heads are worth to one outcome; None where that was not measured."""
        return next((each for each in self.on if each.outcome == name), None)

    @property
    def n_tests(self) -> int:
        """Heads times outcomes: what every p is corrected over."""
        return len(self.heads) * len(self.on)

    def smallest_p(self, on: HarmOn) -> float:
        """The smallest corrected p that so few sequences and so many tests allow, whatever is lost."""
        return min(1.0, self.n_tests * smallest_sign_flip_p(on.harm.n))

    def harm(self, name: str, place: Head) -> Interval | None:
        """What one head is worth to one outcome, in nats; None where either was not tried."""
        at, on = self.place_of(place), self.outcome(name)
        return None if at is None or on is None else on.harm[at]


@torch.no_grad()
def measure_head_harms(
    lab: Lab,
    heads: Sequence[Head],
    *,
    n_sequences: int,
    n_resamples: int,
    level: float,
    seed: int,
    counted: Counted | None = None,
) -> HeadHarms:
    """Ablate each of `heads` alone, on copying at the period that decides and on held-out text."""
    task = copy_task(lab, n_sequences=n_sequences, seed=seed)
    trials = (task.trial, *_on_text(lab, n_sequences, seed))
    places = [head(*each) for each in heads]
    bench = Bench.of(lab, trials, places)
    ablations = [[place] for place in places]
    harms = [bench.harms(trial, ablations, counted, outcomes=trial.outcomes[:1]) for trial in trials]
    first, second = bench.harms(trials[0], [], outcomes=trials[0].outcomes[1:]).clean[:, 0], harms[0].clean[:, 0]
    ps = holm(torch.stack([sign_flip_ps(found.harm[:, :, 0], seed) for found in harms]))
    return HeadHarms(
        heads=tuple(heads),
        period=task.period,
        copying=bootstrap_mean(first - second, n_resamples, seed, level),
        on=tuple(
            _harm_on(trial, found, p, n_resamples=n_resamples, level=level, seed=seed)
            for trial, found, p in zip(trials, harms, ps, strict=True)
        ),
    )


def _on_text(lab: Lab, n_sequences: int, seed: int) -> tuple[Trial, ...]:
    """Text, where enough rows of it are held out."""
    has_text = len(lab.eval_tokens) >= _FEWEST_ROWS and held_out_kind(lab) == HELD_OUT_TEXT
    return (text_trial(lab, n_sequences=n_sequences, seed=seed),) if has_text else ()


def _harm_on(
    trial: Trial, harms: Harms, p: Float[Tensor, " ablated"], *, n_resamples: int, level: float, seed: int
) -> HarmOn:
    """The first outcome of a trial, for every ablation."""
    outcome, harm = trial.outcomes[0], harms.harm[:, :, 0]
    return HarmOn(
        outcome=outcome.name,
        meaning=outcome.meaning,
        clean=float(harms.clean[:, 0].mean()),
        harm=bootstrap_means(harm, n_resamples, seed, level),
        p=p,
    )


_FEWEST_ROWS = 4
"""Held-out rows from which some can give means and others be measured."""
