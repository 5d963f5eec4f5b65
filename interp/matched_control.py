"""The control of an ablation: other sets of the same shape ablated in the same way, on the same sequences.

Which sets those are: `interp.matched_places`. How active memories are is read off the sequences that replacements are
taken from, never off the measured ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation_plan import Ablation
from interp.activity import activity_strata, memory_activity
from interp.controls import control_p
from interp.effect_parts import Control
from interp.harm import Counted
from interp.matched_places import MatchedPlaces, Matching, Strata, matched_places
from interp.places import Intervention, PlaceKind
from interp.trials import Bench, Trial
from model.settings import as_enum

if TYPE_CHECKING:
    from model.gpt import GPT


def matched_control(
    bench: Bench,
    ablation: Ablation,
    metric: str,
    *,
    matching: Matching | str = Matching.ACTIVITY,
    n: int | None,
    seed: int,
    limit: int,
    counted: Counted | None,
) -> Control:
    """Ablate matched sets in the same way, and hold the set's harm against theirs on the first n sequences, or all."""
    fitted = bool(ablation.takes(Intervention.OPTIMAL))
    trial, row = bench.trial_of(metric)
    matched = matched_places(
        ablation.places,
        bench.gpt.config,
        limit=min(limit, _FITTED) if fitted else limit,
        seed=seed,
        strata=strata_for(bench.gpt, trial, ablation, matching) if limit else None,
    )
    if not matched.sets:
        return control_of(matched, torch.empty(0, dtype=torch.float64), own=None, n=None)
    sets = [ablation, *(replace(ablation, places=places) for places in matched.sets)]
    n_tried = min(n or len(trial.measured), len(trial.measured))
    tried = bench.harms(trial, sets, counted, outcomes=[trial.outcomes[row]], rows=(0, n_tried))
    means = tried.harm[:, :, 0].mean(0)
    return control_of(matched, means[1:], own=float(means[0]), n=n_tried)


def control_of(matched: MatchedPlaces, harm: Float[Tensor, " set"], *, own: float | None, n: int | None) -> Control:
    """The control that the mean harms of matched sets make, beside that of the ablated set on the same n sequences."""
    gains, p = own is not None and own < 0, None
    if own is not None and len(harm):
        p = control_p(-own, -harm) if gains else control_p(own, harm)
    return Control(
        harm=harm,
        shared=torch.tensor(matched.shared, dtype=torch.int64),
        n_possible=matched.n_possible,
        p=p,
        note=matched.note,
        n=n,
        own=own,
        gains=gains,
    )


def strata_for(gpt: GPT, trial: Trial, ablation: Ablation, matching: Matching | str) -> Strata | None:
    """Within which memories are exchanged; None where any of their layer serves, and where none is ablated."""
    matching = as_enum(Matching, matching, "matching")
    if matching is Matching.LAYER or not any(place.kind is PlaceKind.MEMORY for place in ablation.places):
        return None
    return activity_strata(memory_activity(gpt, trial.reference))


_FITTED = 19
"""Matched sets at most where each needs constants of its own: as many as a p of 0.05 takes."""
