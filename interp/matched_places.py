"""Sets of places to hold an ablated set against: as many of the same kind in each layer, the same interventions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from interp.controls import matched_assignments
from interp.places import Intervention, Place, PlaceKind
from model.config import GPTConfig
from model.errors import InputError


@dataclass(frozen=True, kw_only=True)
class MatchedPlaces:
    """The sets, or why there are none."""

    sets: tuple[tuple[Place, ...], ...]

    shared: tuple[int, ...]
    """How many components each set shares with the ablated one, whatever is put there."""

    n_possible: int
    """How many such sets exist."""

    note: str
    """What the sets are, in words."""


def matched_places(places: Sequence[Place], config: GPTConfig, *, limit: int, seed: int) -> MatchedPlaces:
    """At most `limit` sets with as many heads (or memories) in each layer as `places`: all, where so few exist.

    Each has as many under each intervention as well; with two of them in a layer, the same heads the other way round
    are another set.
    """
    if limit < 0:
        raise InputError(f"n_controls={limit} is no number of matched sets; give 0 for no control, or more.")
    if limit == 0:
        return _none("no control: none was asked for (n_controls=0)")
    kinds = {place.kind for place in places}
    if kinds == {PlaceKind.HEAD}:
        return _matched(places, config.n_heads, "heads", limit, seed)
    if kinds == {PlaceKind.MEMORY}:
        return _matched(places, config.ffn_width, "memories", limit, seed)
    if kinds & {PlaceKind.ATTENTION, PlaceKind.FFN}:
        return _none("no control: a whole sublayer has no equal in its layer")
    return _none("no control: a set of heads and memories has no match")


def _matched(places: Sequence[Place], n_components: int, noun: str, limit: int, seed: int) -> MatchedPlaces:
    """Sets in which other components take these roles: layer by layer, and intervention by intervention."""
    roles: dict[int, dict[Intervention | None, list[Place]]] = {}
    for place in sorted(places, key=lambda place: (place.layer, str(place.intervention), _index(place))):
        roles.setdefault(place.layer, {}).setdefault(place.intervention, []).append(place)
    claimed = {layer: [[_index(place) for place in role] for role in each.values()] for layer, each in roles.items()}
    assigned, n_possible = matched_assignments(claimed, n_components, limit=limit, seed=seed)
    patterns = [role[0] for each in roles.values() for role in each.values()]
    sets = tuple(
        tuple(
            replace(pattern, index=index)
            for pattern, indexes in zip(patterns, itertools.chain(*each), strict=True)
            for index in indexes
        )
        for each in assigned
    )
    ablated = {place.label for place in places}
    is_mixed = any(len(each) > 1 for each in roles.values())
    return MatchedPlaces(
        sets=sets,
        shared=tuple(sum(place.label in ablated for place in each) for each in sets),
        n_possible=n_possible,
        note=_note(len(sets), n_possible, f"{noun} of each intervention" if is_mixed else noun),
    )


def _index(place: Place) -> int:
    if place.index is None:
        raise RuntimeError("heads and memories have a number")
    return place.index


def _note(n: int, n_possible: int, what: str) -> str:
    if not n:
        return f"no control: no other set has as many {what} in each layer"
    which = f"all {n}" if n == n_possible else f"{n} random ones of the {n_possible:,}"
    return f"{which} other sets with as many {what} in each layer"


def _none(note: str) -> MatchedPlaces:
    return MatchedPlaces(sets=(), shared=(), n_possible=0, note=note)
