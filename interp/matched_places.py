"""Sets of places to hold an ablated set against: as many of the same kind in each layer, the same interventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from interp.controls import MatchedSets, matched_head_sets
from interp.places import Place, PlaceKind
from model.config import GPTConfig
from model.errors import InputError


@dataclass(frozen=True, kw_only=True)
class MatchedPlaces:
    """The sets, or why there are none."""

    sets: tuple[tuple[Place, ...], ...]

    shared: tuple[int, ...]
    """How many components each set shares with the ablated one."""

    n_possible: int
    """How many such sets exist."""

    note: str
    """What the sets are, in words."""


def matched_places(places: Sequence[Place], config: GPTConfig, *, limit: int, seed: int) -> MatchedPlaces:
    """At most `limit` sets with as many heads (or memories) in each layer as `places`: all, where so few exist."""
    if limit < 0:
        raise InputError(f"n_controls={limit} is no number of matched sets; give 0 for no control, or more.")
    if limit == 0:
        return _none("no control: none was asked for (n_controls=0)")
    kinds = {place.kind for place in places}
    if kinds == {PlaceKind.HEAD}:
        return _matched(places, config.n_layers, config.n_heads, "heads", limit, seed)
    if kinds == {PlaceKind.MEMORY}:
        return _matched(places, config.n_layers, config.ffn_width, "memories", limit, seed)
    if kinds & {PlaceKind.ATTENTION, PlaceKind.FFN}:
        return _none("no control: a whole sublayer has no equal in its layer")
    return _none("no control: a set of heads and memories has no match")


def _matched(
    places: Sequence[Place], n_layers: int, n_components: int, noun: str, limit: int, seed: int
) -> MatchedPlaces:
    ordered = sorted(places, key=lambda place: place.layer)
    ablated = {(place.layer, place.index) for place in places if place.index is not None}
    found = matched_head_sets(sorted(ablated), n_layers, n_components, limit=limit, seed=seed)
    return MatchedPlaces(
        sets=tuple(
            tuple(replace(place, index=index) for place, (_, index) in zip(ordered, each, strict=True))
            for each in found
        ),
        shared=tuple(len(ablated & set(each)) for each in found),
        n_possible=found.n_possible,
        note=_note(found, noun),
    )


def _note(found: MatchedSets, noun: str) -> str:
    if not len(found):
        return f"no control: no other set has as many {noun} in each layer"
    which = f"all {len(found)}" if found.enumerated else f"{len(found)} random ones of the {found.n_possible:,}"
    return f"{which} other sets with as many {noun} in each layer"


def _none(note: str) -> MatchedPlaces:
    return MatchedPlaces(sets=(), shared=(), n_possible=0, note=note)
