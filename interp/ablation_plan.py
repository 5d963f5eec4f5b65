"""What an ablation is: which places, what stands there instead, how much of it, where, and what is held. Nothing runs.

`ablation_of` makes one from places in the grammar and refuses what the model does not have; `interp.supplies` says what
the replacements are taken from, and `interp.ablation` carries it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from interp.intervention_kinds import Intervention, parse_intervention
from interp.places import Place, PlaceKind, Places, print_places
from interp.replacements import Which, as_numbers
from interp.resolved_places import resolve_places
from model.config import GPTConfig
from model.errors import InputError
from model.settings import as_enum
from model.sites import Site, Tap

if TYPE_CHECKING:
    from interp.supplies import Supplies


class Frozen(StrEnum):
    """What an ablation keeps as it was in the intact run."""

    NOTHING = "nothing"
    """Everything after the ablated places runs on as it does. An ablated head may then change what later heads attend
    to as well as what they move."""

    PATTERNS = "patterns"
    """Every pattern of every later layer is that of the intact run (Olsson et al. 2022, "pattern-preserving ablation").
    Assumes that the question is what the places write, and not where they make others look."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Places that are replaced together, and how."""

    places: tuple[Place, ...]
    """Each with its intervention, none twice; make them with `ablation_of`."""

    gate: float | int = 0.0
    """The share of what was there that stays, 0 to 1: what stands there is gate * own + (1 - gate) * replacement."""

    positions: tuple[int, ...] | None = None
    """The absolute positions at which they are replaced, in order; None: all."""

    frozen: Frozen = Frozen.NOTHING

    def __post_init__(self) -> None:
        object.__setattr__(self, "frozen", as_enum(Frozen, self.frozen, "frozen"))
        if not self.places:
            raise InputError("an ablation of no place at all changes nothing; name at least one.")
        unsaid = [place.label for place in self.places if place.intervention is None]
        if unsaid:
            raise InputError(f"{unsaid[0]} does not say what replaces it; make ablations with ablation_of.")
        _require_partners(self.takes(Intervention.SWAP))
        gate = self.gate
        if isinstance(gate, bool) or not isinstance(gate, int | float) or not math.isfinite(gate) or not 0 <= gate <= 1:
            raise InputError(f"gate={gate!r} is no share; give 0 (all replaced) to 1 (intact).")
        object.__setattr__(self, "gate", float(gate))
        numbers = as_numbers(self.positions, "position", print_places(self.places))
        object.__setattr__(self, "positions", None if numbers is None else tuple(sorted(numbers)))

    def __str__(self) -> str:
        more = [f"gate {self.gate:g}"] if self.gate else []
        more += [] if self.positions is None else [_at(self.positions)]
        more += ["later patterns held"] if self.frozen is Frozen.PATTERNS else []
        return print_places(self.places) + (f" ({', '.join(more)})" if more else "")

    @property
    def first_layer(self) -> int:
        """The first layer that is touched: below it, the run is the intact one."""
        return min(place.layer for place in self.places)

    @property
    def interventions(self) -> frozenset[Intervention]:
        """What is put in its places."""
        return frozenset(place.intervention for place in self.places if place.intervention is not None)

    @property
    def removes(self) -> bool:
        """Whether something is taken out, rather than set, multiplied or swapped."""
        return any(intervention.removes for intervention in self.interventions)

    def draws(self, supplies: Supplies | None) -> int:
        """How many runs its outcome is averaged over: the number of donors, where it resamples, else 1."""
        return supplies.n_donors if supplies is not None and Intervention.RESAMPLE in self.interventions else 1

    def takes(self, *interventions: Intervention | str) -> list[Place]:
        """The places that one of these is put in."""
        wanted = {parse_intervention(each) for each in interventions}
        return [place for place in self.places if place.intervention in wanted]

    def held_patterns(self, config: GPTConfig) -> list[Site]:
        """The patterns that are held, where any are."""
        later = range(self.first_layer + 1, config.n_layers) if self.frozen is Frozen.PATTERNS else ()
        return [Tap.PATTERN.at(layer) for layer in later]


def ablation_of(
    places: Places | Ablation,
    config: GPTConfig,
    intervention: Intervention | str = Intervention.MEAN,
    *,
    gate: float | int | None = None,
    positions: Which = None,
    frozen: Frozen | str | None = None,
) -> Ablation:
    """The ablation of places that this model has; places without an intervention of their own take `intervention`.

    An `Ablation` comes back as it is, once it is found to fit the model; of gate, positions and frozen, what is given
    here takes the place of its own.

    Raises:
        InputError: what `resolve_places` refuses, a gate outside 0 to 1, or positions that the model does not have.
        UnknownNameError: a layer, head, memory or FFN that the model does not have.
    """
    made = places if isinstance(places, Ablation) else None
    resolved = resolve_places(places.places if isinstance(places, Ablation) else places, config, intervention)
    made = made or Ablation(places=resolved)
    numbers = as_numbers(positions, "position", print_places(resolved))
    made = replace(
        made,
        places=resolved,
        gate=made.gate if gate is None else gate,
        positions=made.positions if numbers is None else numbers,
        frozen=made.frozen if frozen is None else as_enum(Frozen, frozen, "frozen"),
    )
    beyond = [position for position in made.positions or () if position >= config.n_ctx]
    if beyond:
        raise InputError(f"{made} names position {beyond[0]}; this model has 0 to {config.n_ctx - 1}.")
    return made


def parse_positions(text: str) -> tuple[int, ...]:
    """Positions and ranges of them with both ends, separated by commas; each comes back once, in order.

    >>> parse_positions("30,10-12,11-13")
    (10, 11, 12, 13, 30)
    """
    found: list[int] = []
    for first, last in sorted(_range_of(part.strip()) for part in text.split(",")):
        after = found[-1] + 1 if found else 0
        found += range(max(first, after), last + 1)
    return tuple(found)


def print_positions(positions: Sequence[int]) -> str:
    """What `parse_positions` reads: positions in order, those that follow each other as a range.

    >>> print_positions((10, 11, 12, 30))
    '10-12,30'
    """
    return ",".join(_ranges(positions))


def _range_of(part: str) -> tuple[int, int]:
    """The first and the last of a range; of a number, itself twice."""
    ends = re.fullmatch(r"(\d+)\s*(?:-\s*(\d+))?", part, re.ASCII)
    if not ends:
        raise InputError(
            f'"{part[:60]}" is no position; write numbers from 0, or ranges such as 10-20, with commas between.'
        )
    digits = [(each or ends[1]).lstrip("0") or "0" for each in ends.groups()]
    if max(map(len, digits)) > len(str(_LARGEST)) or max(map(int, digits)) > _LARGEST:
        raise InputError(f'"{part[:60]}" goes beyond {_LARGEST:,}, the largest position; write smaller numbers.')
    first, last = map(int, digits)
    if last < first:
        raise InputError(f'"{part[:60]}" runs backwards; write {last}-{first}.')
    return first, last


def site_of(place: Place) -> str:
    """The hook where a place is replaced: z for attention, the memories' coefficients for the FFN."""
    tap = Tap.Z if place.in_attention else Tap.MLP_POST
    return str(tap.at(place.layer))


def _require_partners(swapped: Sequence[Place]) -> None:
    """Refuse a swap of one place, or of places that do not hold the same sort of thing."""
    if len(swapped) == 1:
        noun = "memory" if swapped[0].kind is PlaceKind.MEMORY else "head"
        raise InputError(
            f"{swapped[0]} has nothing to swap with; name another {noun} of layer {swapped[0].layer} beside it, as in "
            "L1M3,L1M9:swap."
        )
    apart = [place for place in swapped if (place.kind, place.layer) != (swapped[0].kind, swapped[0].layer)]
    if apart:
        raise InputError(
            f"{swapped[0].label} and {apart[0].label} cannot swap; name memories of one layer, or heads of one layer."
        )


def _at(positions: tuple[int, ...]) -> str:
    """Positions in order, with what follows each other as a range: "at positions 10-20, 30"."""
    ranges = _ranges(positions)
    if len(ranges) > _LISTED:
        return f"at {len(positions)} positions from {positions[0]} to {positions[-1]}"
    return f"at position{'s' * (len(positions) > 1)} {', '.join(ranges)}"


def _ranges(positions: Sequence[int]) -> list[str]:
    """Positions in order; those that follow each other as their first and last, "10-20"."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and position == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], position
        else:
            runs.append((position, position))
    return [f"{first}-{last}" if last > first else f"{first}" for first, last in runs]


_LARGEST = 999_999
"""Position that can be written: no context is longer, and more would fill the memory before the model refuses them."""

_LISTED = 4
"""Positions, or ranges of them, that are named one by one."""
