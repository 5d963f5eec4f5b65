"""What an ablation is held against where nobody says: matched sets where enough of them exist, else text, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analyses.claims.ablating import text_counterpart
from analyses.claims.bounds import Bound, Quantity
from analyses.claims.statement import ControlKind
from interp.matched_places import matched_places
from interp.places import Intervention, Place, PlaceKind
from model.config import GPTConfig
from model.settings import as_enum

ALPHA = 0.05
"""The level of a claim that states none."""


@dataclass(frozen=True, kw_only=True)
class Usual:
    """A control, and why it is this one."""

    kind: ControlKind
    why: str
    """A sentence about the places."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_enum(ControlKind, self.kind, "kind"))


@dataclass(frozen=True, kw_only=True)
class Matchable:
    """How many other sets of the same shape a model has."""

    n_sets: int
    needed: int
    """Sets at which the costliest of all has a p of no more than alpha."""
    why: str
    """What there is, in words."""

    @property
    def is_enough(self) -> bool:
        """Whether these sets can decide at alpha."""
        return self.n_sets >= self.needed


def matchable(places: Sequence[Place], config: GPTConfig, *, alpha: float = ALPHA) -> Matchable:
    """Count the sets with as many heads and memories in each layer, without running the model.

    Memories are exchanged with those that write about as much (`interp.activity`), which only a pass tells: of these
    fewer may exist than are counted here.
    """
    found = matched_places(places, config, limit=1, seed=0)
    needed = math.ceil(1 / alpha - 1e-9) - 1
    heads = [place.layer for place in places if place.kind is PlaceKind.HEAD]
    full = sorted({layer for layer in heads if heads.count(layer) == config.n_heads})
    if found.n_possible:
        what = f"{found.n_possible:,}" if found.n_possible < 10**6 else f"10^{len(str(found.n_possible)) - 1}"
        other = "other set has" if found.n_possible == 1 else "other sets have"
        why = f"{what} {other} as many places in each layer"
    elif full:
        layers = f"layer{'s' if len(full) > 1 else ''} {' and '.join(map(str, full))}"
        why = f"all {config.n_heads} heads of {layers} are taken, so no other set has as many places in each layer"
    else:
        why = found.note.removeprefix("no control: ")
    return Matchable(n_sets=found.n_possible, needed=needed, why=why)


def usual_control(
    places: Sequence[Place], config: GPTConfig, *, bound: Bound, metric: str, has_start: bool, alpha: float = ALPHA
) -> Usual:
    """The control that says most about these places: whether others of the same shape would do the same.

    Args:
        places: with their interventions.
        config: the model's shape.
        bound: what is expected.
        metric: the outcome it is about.
        has_start: whether the run has another checkpoint at step 0.
        alpha: the claim's level.
    """
    if bound.quantity is Quantity.SIZE:
        return Usual(kind=ControlKind.NONE, why=f"{bound} has no side on which a control could lie")
    sets = matchable(places, config, alpha=alpha)
    if sets.is_enough:
        return Usual(kind=ControlKind.MATCHED, why=f"{sets.why}, enough to decide at {alpha:g}")
    few = f"{sets.why}: fewer than the {sets.needed} that can decide at {alpha:g}" if sets.n_sets else sets.why
    if not bound.at_least:
        return Usual(kind=ControlKind.NONE, why=f"{few}, and {bound} takes no other control")
    has_twin = any(place.intervention is Intervention.COUNTERFACTUAL for place in places)
    if text_counterpart(metric) is not None and not has_twin:
        return Usual(kind=ControlKind.TEXT, why=few)
    if has_start:
        return Usual(kind=ControlKind.STEP0, why=f"{few}, and {metric} has no other side on text")
    return Usual(kind=ControlKind.NONE, why=f"{few}, and there is neither text nor step 0 to hold it against")
