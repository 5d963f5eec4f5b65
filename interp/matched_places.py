"""Sets of places to hold an ablated set against: as many of the same kind in each layer, the same interventions.

Memories of a layer differ many times over in how much they write, so that of them a set is held against others that
write about as much (`Matching.ACTIVITY`, `interp.activity`); heads against any of their layer. A set of heads and
memories has as many of either in each layer.

What is swapped has an order: memories that are swapped in its place are put in a random one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from jaxtyping import Int
from torch import Tensor

from interp.controls import matched_assignments
from interp.places import Intervention, Place, PlaceKind
from model.config import GPTConfig
from model.errors import InputError


class Matching(StrEnum):
    """What a matched set has in common with the ablated one, beside its interventions."""

    LAYER = "layer"
    """As many components of the same kind in each layer, whichever they are."""

    ACTIVITY = "activity"
    """Memories of the same stratum of activity as well: those that write about as much. Heads as for layer."""


Strata = Int[Tensor, "layer memory"]
"""For each memory the number of the stratum in its layer that it may be exchanged in."""


@dataclass(frozen=True, kw_only=True)
class MatchedPlaces:
    """The sets, or why there are none."""

    sets: tuple[tuple[Place, ...], ...]
    """Each in the order of `in_order`."""

    shared: tuple[int, ...]
    """How many components each set shares with the ablated one, whatever is put there."""

    n_possible: int
    """How many such sets exist."""

    note: str
    """What the sets are, in words."""


def matched_places(
    places: Sequence[Place],
    config: GPTConfig,
    *,
    limit: int,
    seed: int,
    strata: Strata | None = None,
) -> MatchedPlaces:
    """At most `limit` sets with as many heads and memories in each layer as `places`: all, where so few exist.

    Each has as many under each intervention as well; with two of them in a layer, the same heads the other way round
    are another set. With `strata`, memories are exchanged within theirs only.
    """
    if limit < 0:
        raise InputError(f"n_controls={limit} is no number of matched sets; give 0 for no control, or more.")
    if limit == 0:
        return _none("no control: none was asked for (n_controls=0)")
    kinds = {place.kind for place in places}
    if kinds & {PlaceKind.ATTENTION, PlaceKind.FFN}:
        return _none("no control: a whole sublayer has no equal in its layer")
    groups = _Groups(config, strata)
    roles = groups.roles_of(places)
    claimed = {
        group: [[groups.members(group).index(_index(place)) for place in role] for role in each.values()]
        for group, each in roles.items()
    }
    sizes = {group: len(groups.members(group)) for group in roles}
    assigned, n_possible = matched_assignments(claimed, sizes, limit=limit, seed=seed)
    chance = random.Random(seed)
    sets = tuple(_places_of(each, roles, groups, chance) for each in assigned)
    ablated = {place.label for place in places}
    is_mixed = any(len(each) > 1 for each in roles.values())
    by_activity = strata is not None and PlaceKind.MEMORY in kinds
    noun = " and ".join(_NOUNS[kind] for kind in (PlaceKind.HEAD, PlaceKind.MEMORY) if kind in kinds)
    note = (
        _note_of_one(places[0], len(sets), n_possible, by_activity)
        if len(places) == 1
        else _note(len(sets), n_possible, f"{noun} of each intervention" if is_mixed else noun, by_activity)
    )
    return MatchedPlaces(
        sets=sets,
        shared=tuple(sum(place.label in ablated for place in each) for each in sets),
        n_possible=n_possible,
        note=note + (_amounts(places) if sets else ""),
    )


def in_order(places: Sequence[Place], config: GPTConfig, strata: Strata | None = None) -> tuple[Place, ...]:
    """Places as matched sets have them, so that the first of a set stands for the first of these."""
    roles = _Groups(config, strata).roles_of(places)
    return tuple(place for each in roles.values() for role in each.values() for place in role)


_NOUNS = {PlaceKind.HEAD: "heads", PlaceKind.MEMORY: "memories"}

_Group = tuple[int, PlaceKind, int]
"""Layer, kind and stratum: within it, components are exchanged."""

_Roles = Mapping[_Group, Mapping[str, list[Place]]]
"""By group, then by what is put there."""


class _Groups:
    """Which components may stand for each other."""

    def __init__(self, config: GPTConfig, strata: Strata | None) -> None:
        self.config = config
        self.strata = None if strata is None else strata.tolist()
        self.known: dict[_Group, list[int]] = {}

    def of(self, place: Place) -> _Group:
        """The group of a head or memory."""
        in_stratum = self.strata is not None and place.kind is PlaceKind.MEMORY
        return place.layer, place.kind, self.strata[place.layer][_index(place)] if in_stratum and self.strata else 0

    def members(self, group: _Group) -> list[int]:
        """The numbers of its components."""
        if group not in self.known:
            layer, kind, stratum = group
            if kind is PlaceKind.HEAD:
                self.known[group] = list(range(self.config.n_heads))
            elif self.strata is None:
                self.known[group] = list(range(self.config.ffn_width))
            else:
                self.known[group] = [index for index, each in enumerate(self.strata[layer]) if each == stratum]
        return self.known[group]

    def roles_of(self, places: Sequence[Place]) -> _Roles:
        """Places by group and intervention, in one order; of swapped ones the order that was stated."""
        roles: dict[_Group, dict[str, list[Place]]] = {}
        swapped = [place for place in places if place.intervention is Intervention.SWAP]
        others = [place for place in places if place.intervention is not Intervention.SWAP]
        others.sort(key=lambda place: (place.stated, _index(place)))
        for place in sorted([*others, *swapped], key=self.of):
            roles.setdefault(self.of(place), {}).setdefault(place.stated, []).append(place)
        return roles


def _places_of(
    assigned: Sequence[Sequence[Sequence[int]]], roles: _Roles, groups: _Groups, chance: random.Random
) -> tuple[Place, ...]:
    """The places of one assignment, whose numbers count the members of each group."""
    found: list[Place] = []
    for (group, each), taken in zip(roles.items(), assigned, strict=True):
        members = groups.members(group)
        for role, numbers in zip(each.values(), taken, strict=True):
            is_swap = role[0].intervention is Intervention.SWAP
            drawn = chance.sample(numbers, len(numbers)) if is_swap else numbers
            found += [replace(role[0], index=members[number]) for number in drawn]
    return tuple(found)


def _index(place: Place) -> int:
    if place.index is None:
        raise RuntimeError("heads and memories have a number")
    return place.index


def _note(n: int, n_possible: int, what: str, by_activity: bool) -> str:  # noqa: FBT001  (from one place)
    like = ", each for one that writes about as much (|m| |v|)" if by_activity else ""
    if not n:
        return f"no control: no other set has as many {what} in each layer{like}"
    which = f"all {n}" if n == n_possible else f"{n} random ones of the {_count(n_possible)}"
    return f"{which} other sets with as many {what} in each layer{like}"


def _note_of_one(place: Place, n: int, n_possible: int, by_activity: bool) -> str:  # noqa: FBT001
    """The same where one component stands for one other."""
    what, like = (
        f"{_NOUNS[place.kind]} of layer {place.layer}",
        " that write about as much (|m| |v|)" if by_activity else "",
    )
    if not n:
        return f"no control: there are no other {what}{like}"
    which = f"all {n}" if n == n_possible else f"{n} random ones of the {_count(n_possible)}"
    return f"{which} other {what}{like}"


def _amounts(places: Sequence[Place]) -> str:
    """What is put in the place of every control, where that is one number."""
    stated = {place.stated for place in places}
    return f" ({places[0].stated} for each)" if len(stated) == 1 and places[0].amount is not None else ""


def _count(n: int) -> str:
    """A number of sets; one that nobody would read digit by digit as a power of ten.

    >>> _count(12_345), _count(10**30)
    ('12,345', 'about 10^30')
    """
    return f"{n:,}" if n < 10**9 else f"about 10^{len(str(n)) - 1}"


def _none(note: str) -> MatchedPlaces:
    return MatchedPlaces(sets=(), shared=(), n_possible=0, note=note)
