"""What an intervention is: a place, what stands there instead, and where along its axes. Nothing is run here.

`zero`, `mean`, `mean_per_position` and `patch` make a `Replacement`; `interp.interventions` carries it out. What can be
refused without running the model is refused when the value is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.recordings import Means, Recording, as_recording
from interp.site_names import Where, as_site
from model.errors import InputError
from model.hooks import ActivationCache
from model.sites import Site

Which = int | Sequence[int] | slice | Tensor | None
"""One position or component, several (a slice with its end), or all of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant:
    """The same numbers at every position."""

    value: Float[Tensor, "*component"]

    def of_components(self, site: Site, components: Sequence[int]) -> Constant:
        """The numbers of these heads or memories only."""
        del site
        return self if self.value.ndim == 0 else Constant(value=_picked(self.value, 0, components))

    def sizes(self, site: Site) -> tuple[int, ...] | None:
        """How many there are along each axis but batch and positions; None if one number stands for all."""
        del site
        return tuple(self.value.shape) if self.value.ndim else None

    def to(self, device: torch.device) -> Constant:
        """The same on another device."""
        return Constant(value=self.value.to(device))


@dataclass(frozen=True, kw_only=True, eq=False)
class Held:
    """Numbers for each absolute position: of one sequence for all, or of as many sequences as the run has."""

    by_position: Float[Tensor, "sequence ..."]
    n_positions: Int[Tensor, " sequence"]
    """How many positions each sequence has numbers for."""
    longest: int
    """The largest of them."""
    source: str
    """What the numbers come from, for sentences about them."""
    advice: str
    """What to do where they do not suffice."""

    def of_components(self, site: Site, components: Sequence[int]) -> Held:
        """The numbers of these heads or memories only."""
        return replace(self, by_position=_picked(self.by_position, site.tap.component_axis or 0, components))

    def sizes(self, site: Site) -> tuple[int, ...] | None:
        """How many there are along each axis but batch and positions."""
        apart = (0, *site.tap.position_axes)
        return tuple(size for axis, size in enumerate(self.by_position.shape) if axis not in apart)

    def to(self, device: torch.device) -> Held:
        """The same on another device."""
        return replace(self, by_position=self.by_position.to(device), n_positions=self.n_positions.to(device))


@dataclass(frozen=True, kw_only=True, eq=False)
class Exchanged:
    """What the next of the chosen components holds at the same position, and for the last what the first does."""

    def of_components(self, site: Site, components: Sequence[int]) -> Exchanged:
        """The same: it has no numbers of its own."""
        del site, components
        return self

    def sizes(self, site: Site) -> tuple[int, ...] | None:
        """None, as it has no numbers of its own."""
        del site
        return None

    def to(self, device: torch.device) -> Exchanged:
        """The same."""
        del device
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class Replacement:
    """One place, and what stands there instead."""

    site: Site
    values: Constant | Held | Exchanged = field(repr=False)
    """Numbers of the chosen components only."""
    positions: tuple[int, ...] | None = None
    """Absolute positions (of queries, for scores and patterns); None: all."""
    key_positions: tuple[int, ...] | None = None
    """Absolute positions of keys, for scores and patterns; None: all."""
    components: tuple[int, ...] | None = None
    """Heads or memories, where the place has such an axis; None: all."""
    gate: float = 0.0
    """The share of what the model computes that stays: 0 puts the numbers there, 1 leaves everything as it is. Beside
    zeros, what is there is multiplied by it, whatever it is."""
    label: str
    """What this is called in sentences about it."""

    def __post_init__(self) -> None:
        tap = self.site.tap
        if self.components is not None and tap.component_axis is None:
            raise InputError(f"{self.label} has no heads or memories to choose from; leave components out.")
        if self.key_positions is not None and not self.square:
            raise InputError(f"{self.label} has no keys; only scores and patterns take key_positions.")
        if isinstance(self.values, Held):
            beyond = [position for position in self.named_positions if position >= self.values.longest]
            if beyond:
                raise self.uncovered(self.values, beyond[0], self.values.longest)

    @property
    def square(self) -> bool:
        """Whether the place goes by query and key position."""
        return "key" in self.site.tap.axes

    @property
    def named_positions(self) -> tuple[int, ...]:
        """Every position that was named, of queries and keys."""
        return (*(self.positions or ()), *(self.key_positions or ()))

    def uncovered(self, held: Held, position: int, n_positions: int) -> InputError:
        """The error of a position for which nothing is held, in a sequence with so many."""
        return InputError(
            f"{self.label} was asked at position {position}, but its {held.source} 0 to {n_positions - 1}. "
            f"{held.advice}"
        )


def zero(site: Where, *, positions: Which = None, key_positions: Which = None, components: Which = None) -> Replacement:
    """Zeros. Simple, but a value that the rest of the model may never have met."""
    site = as_site(site)
    if "one" in site.tap.axes:
        raise InputError(f"{site} is a divisor and cannot be zero; use a mean, or zero what it divides.")
    return _made(site, "zero", Constant(value=torch.zeros(())), positions, key_positions, components)


def mean(site: Where, means: Means, *, positions: Which = None, components: Which = None) -> Replacement:
    """The mean over sequences and positions. Scores and patterns have none: it would look at the future."""
    site = as_site(site)
    _require_means(means, site)
    return _made(site, "mean", Constant(value=means.overall(site)), positions, None, components)


def mean_per_position(
    site: Where, means: Means, *, positions: Which = None, key_positions: Which = None, components: Which = None
) -> Replacement:
    """The mean over sequences, one for each position."""
    site = as_site(site)
    _require_means(means, site)
    held = Held(
        by_position=means.at(site)[None],
        n_positions=torch.tensor([len(means.n_at)]),
        longest=len(means.n_at),
        source="means cover positions",
        advice="Take the means from longer sequences, or use the mean over all positions.",
    )
    return _made(site, "mean@pos", held, positions, key_positions, components)


def patch(
    site: Where,
    recording: Recording | ActivationCache,
    *,
    positions: Which = None,
    key_positions: Which = None,
    components: Which = None,
) -> Replacement:
    """What another run held at the same absolute positions.

    A recording of one sequence serves every sequence of a batch; otherwise both have as many, in the same order. The
    cache of a run without padding, kept whole, serves as well: its positions are 0, 1, 2, ... of every sequence.
    """
    site = as_site(site)
    recording = as_recording(recording, site)
    held = Held(
        by_position=recording.at(site),
        n_positions=recording.n_positions,
        longest=int(recording.n_positions.max()),
        source="recording covers positions",
        advice="Record longer sequences, or name the positions to replace.",
    )
    return _made(site, "patch", held, positions, key_positions, components)


def exchanged(site: Where, *, components: Sequence[int], positions: Which = None) -> Replacement:
    """What each of `components` holds goes to the one named before it, and what the first holds to the last."""
    return _made(as_site(site), "swap", Exchanged(), positions, None, components)


def require_components(components: Sequence[int] | None, size: int, label: str) -> None:
    """Refuse a head or memory beyond the last one."""
    beyond = [component for component in components or () if component >= size]
    if beyond:
        raise InputError(f"{label} has no component {beyond[0]}; choose from 0 to {size - 1}.")


def _require_means(means: Means, site: Site) -> None:
    if not isinstance(means, Means):
        raise InputError(
            f"{site} is replaced by means that say what they are of; take mean_held(gpt, tokens, site, source=...)."
        )


def _made(
    site: Site,
    kind: str,
    values: Constant | Held | Exchanged,
    positions: Which,
    key_positions: Which,
    components: Which,
) -> Replacement:
    label = f"{site}:{kind}"
    made = Replacement(
        site=site,
        values=values,
        positions=as_numbers(positions, "position", label),
        key_positions=as_numbers(key_positions, "key position", label),
        components=as_numbers(components, "component", label),
        label=label,
    )
    if made.components is None:
        return made
    sizes = values.sizes(made.site)
    if sizes is not None:
        require_components(made.components, sizes[0], label)
    return replace(made, values=values.of_components(made.site, made.components))


def as_numbers(which: Which, noun: str, label: str) -> tuple[int, ...] | None:
    """What was named, as numbers from 0 on, each once; None stands for all. Anything else is refused."""
    if which is None:
        return None
    numbers = _listed(which)
    wrong = [number for number in numbers if not isinstance(number, int) or isinstance(number, bool) or number < 0]
    if wrong or not numbers:
        what = f"{noun} {wrong[0]!r}" if wrong else f"no {noun} at all"
        raise InputError(
            f"{label} cannot take {what}; give whole numbers from 0 on (a slice with its end), or leave it out for all."
        )
    return tuple(dict.fromkeys(numbers))


def _listed(which: Any) -> tuple[Any, ...]:
    """The numbers of a slice, a tensor, an array or a sequence, or the one that was given."""
    if isinstance(which, slice) and isinstance(which.stop, int):
        return tuple(range(which.start or 0, which.stop, which.step or 1))
    if isinstance(which, torch.Tensor | np.ndarray | np.generic):
        return tuple(which.reshape(-1).tolist())
    return tuple(which) if isinstance(which, Iterable) and not isinstance(which, str) else (which,)


def _picked(numbers: Tensor, axis: int, components: Sequence[int]) -> Tensor:
    return numbers.index_select(axis, torch.tensor(components, device=numbers.device))
