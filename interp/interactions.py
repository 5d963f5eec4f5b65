"""Whether parts of a model stand in for each other: what two cost together, less what each costs alone.

    I(h, h') = harm(h and h') - harm(h) - harm(h')        SA(S) = harm(S) / sum of harm(h) over S

Where two heads do the same thing and either is enough, each is cheap alone and both together are dear: I > 0, and a set
of such heads is *super-additive*, SA > 1. Where one works only through the other, whichever goes takes the effect with
it: I < 0. So single harms may understate a set, which is why sets are ablated as sets (Wang et al. 2022, on backup name
movers; super-additivity as in Gong 2026). Every ablation runs on the same sequences in one sweep (`interp.harm`), and
interactions are paired by sequence.

What it does not show: that a pair with I = 0 is independent in any other outcome, nor interactions of three and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation import Frozen, ablation_of
from interp.harm import Counted
from interp.outcomes import Outcome
from interp.places import Places, print_places
from interp.replacements import Which
from interp.resolved_places import resolve_places
from interp.stats import (
    Interval,
    Intervals,
    benjamini_hochberg,
    bootstrap_means,
    bootstrap_ratios,
    holm,
    sign_flip_ps,
)
from interp.trials import Bench, Trial
from model.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Interactions:
    """What places cost alone, by two, and all together, on one outcome; intervals over sequences."""

    outcome: str
    places: tuple[str, ...]
    """Each place or set, in the grammar."""

    alone: Intervals
    """Harm of each, [place]."""

    pairs: tuple[tuple[int, int], ...]
    """Numbers of places, the smaller first."""

    joint: Intervals
    """Harm of both, [pair]."""

    interaction: Intervals
    """Joint harm minus the two alone, [pair]: positive where each stands in for the other."""

    p: Float[Tensor, " pair"]
    """Two-sided sign-flip p that there is no interaction, uncorrected."""

    together: Interval
    """Harm of all places at once."""

    super_additivity: Interval
    """Harm of all at once over the sum of the harms alone: 1 where they add up; without ends (infinite) where the sum
    may be zero."""

    @property
    def holm(self) -> Float[Tensor, " pair"]:
        """The p of each pair for a claim about it, corrected over all pairs (Holm)."""
        return holm(self.p)

    @property
    def bh(self) -> Float[Tensor, " pair"]:
        """The p of each pair for a map of them (Benjamini and Hochberg)."""
        return benjamini_hochberg(self.p)


def interactions(
    bench: Bench,
    trial: Trial,
    places: Sequence[Places],
    *,
    outcome: Outcome,
    gate: float | None = None,
    positions: Which = None,
    frozen: Frozen | str | None = None,
    seed: int = 0,
    counted: Counted | None = None,
) -> Interactions:
    """Ablate each of `places`, every two of them and all together, on the measured sequences of `trial`.

    Each element may itself be a set, such as the heads of a layer, and states its intervention, or is replaced by its
    mean; `gate`, `positions` and `frozen` as for `interp.effects.ablate`. Raises InputError for fewer than two, and
    where two overlap.
    """
    sets = [resolve_places(each, bench.gpt.config) for each in places]
    if len(sets) < 2:
        raise InputError(f"{len(sets)} place has nothing to interact with; give at least two, such as L1H1 and L1H3.")
    every = resolve_places([place for each in sets for place in each], bench.gpt.config)
    pairs = tuple(combinations(range(len(sets)), 2))
    sets_of = [*sets, *((*sets[one], *sets[other]) for one, other in pairs), every]
    ablations = [ablation_of(each, bench.gpt.config, gate=gate, positions=positions, frozen=frozen) for each in sets_of]
    harm = bench.harms(trial, ablations, counted, outcomes=[outcome]).harm[:, :, 0]
    alone, joint, together = harm[:, : len(sets)], harm[:, len(sets) : -1], harm[:, -1]
    first, second = (torch.tensor(each) for each in zip(*pairs, strict=True))
    interaction = joint - alone[:, first] - alone[:, second]
    return Interactions(
        outcome=outcome.name,
        places=tuple(print_places(each) for each in sets),
        alone=bootstrap_means(alone, seed=seed),
        pairs=pairs,
        joint=bootstrap_means(joint, seed=seed),
        interaction=bootstrap_means(interaction, seed=seed),
        p=sign_flip_ps(interaction, seed=seed),
        together=bootstrap_means(together[:, None], seed=seed)[0],
        super_additivity=bootstrap_ratios(together[:, None], alone.sum(1, keepdim=True), seed=seed)[0],
    )
