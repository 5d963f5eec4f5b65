"""What is held for one batch to replace with, and the hooks that one ablation makes of it.

`interp.supplies.Supplies.drawn` fills a stock, once for all ablations of a batch; row r of it is for row r of the
batch, and its positions are absolute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from interp.ablation_plan import Ablation, ablation_of, site_of
from interp.interventions import Edits, hooks_of
from interp.places import Intervention, Place
from interp.recordings import Recording, record
from interp.replacements import Constant, Held, Replacement, exchanged, mean, mean_per_position, patch, zero
from model.errors import InputError
from model.sites import Site, site_named

if TYPE_CHECKING:
    from interp.supplies import Supplies
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False)
class Stock:
    """What is held for one batch; row r of it belongs to row r of the batch. Made by `Supplies.drawn`."""

    supplies: Supplies

    held: Mapping[Intervention, Recording] = field(default_factory=dict)
    """Of each intervention that takes from a run, what is put there, by absolute position."""

    patterns: Recording | None = None
    """Patterns of the intact run."""

    drawn_for: Int[Tensor, "batch draw"] | None = None
    """Which donors belong to each row."""

    resampled: tuple[str, ...] = ()
    """Where donors are recorded."""

    n_pos: int = 0
    """How many of their positions."""

    def redrawn(self, gpt: GPT, draw: int) -> Stock:
        """The same with the next donors: one pass, and nothing is kept of the donors before."""
        if self.drawn_for is None or self.supplies.donors is None:
            return self
        if not 0 <= draw < self.supplies.n_donors:
            raise InputError(f"draw={draw} is none of {self.supplies.n_donors}; give 0 to one less than that.")
        tokens = self.supplies.donors[self.drawn_for[:, draw], : self.n_pos].to(gpt.device)
        found = record(gpt, tokens, self.resampled, source="donors")
        return replace(self, held={**self.held, Intervention.RESAMPLE: found})


def edits_of(gpt: GPT, ablation: Ablation, stock: Stock) -> Edits:
    """Hooks that carry out one ablation on the batch that the stock is for; none where the gate leaves all as it is.

    Raises:
        InputError: something that the ablation takes and the stock does not hold.
    """
    ablation = ablation_of(ablation, gpt.config)
    if ablation.gate == 1:
        return []
    alike: dict[tuple[str, Intervention, float | None], list[Place]] = {}
    for place in ablation.places:
        kind = place.intervention or Intervention.ZERO
        alike.setdefault((site_of(place), kind, _factor(place)), []).append(place)
    made = [
        replace(
            _replacement(site, kind, places, ablation, stock),
            gate=ablation.gate if factor is None else ablation.gate + (1 - ablation.gate) * factor,
            positions=ablation.positions,
            label=str(places[0]),
        )
        for (site, kind, factor), places in alike.items()
    ]
    for site in ablation.held_patterns(gpt.config):
        found = _from_run(site, _recorded(stock.patterns, ablation), None, _OF_INTACT_RUN)
        made.append(replace(found, label=f"{site} of the intact run"))
    return hooks_of(gpt, made)


def _factor(place: Place) -> float | None:
    """What the place's own value is multiplied by; None where something else stands there."""
    return place.amount if place.intervention is Intervention.TIMES else None


def _replacement(
    site: str, kind: Intervention, places: Sequence[Place], ablation: Ablation, stock: Stock
) -> Replacement:
    """One replacement for all places of a site that are replaced alike."""
    first, supplies = places[0], stock.supplies
    components = None if first.index is None else [place.index for place in places if place.index is not None]
    match kind:
        case Intervention.ZERO | Intervention.TIMES:  # nothing, and as much of its own as the gate says
            return zero(site, components=components)
        case Intervention.SET:
            numbers = torch.tensor([place.amount for place in places if place.amount is not None], dtype=torch.float64)
            return replace(zero(site, components=components), values=Constant(value=numbers))
        case Intervention.SWAP:
            return exchanged(site, components=components or ())
        case Intervention.MEAN:
            return mean(site, supplies.means_for(first), components=components)
        case Intervention.MEAN_PER_POSITION:
            return mean_per_position(site, supplies.means_for(first), components=components)
        case Intervention.OPTIMAL:
            together = ablation.takes(Intervention.OPTIMAL)
            constants = supplies.optimal_for(first).constants(together)
            found = [constants[place.label] for place in places]
            made = zero(site, components=components)
            return replace(made, values=Constant(value=found[0] if components is None else torch.stack(found)))
        case Intervention.MEAN_OF_PAST | Intervention.RESAMPLE | Intervention.COUNTERFACTUAL:
            words = _OF_RUNS.get(kind, _OF_INTACT_RUN)
            return _from_run(site_named(site), _recorded(stock.held.get(kind), ablation), components, words)


def _from_run(
    site: Site, recording: Recording, components: Sequence[int] | None, words: tuple[str, str]
) -> Replacement:
    """What a run held at the same absolute positions, with sentences that say which run it was."""
    made = patch(site, recording, components=components)
    if not isinstance(made.values, Held):
        raise RuntimeError("a patch holds numbers by position")
    return replace(made, values=replace(made.values, source=words[0], advice=words[1]))


_OF_INTACT_RUN = (
    "intact run covers positions",
    "It is a run of the tokens given beforehand, and tokens that are generated have none: name the positions to "
    "replace, or take another intervention.",
)
_OF_RUNS = {
    Intervention.RESAMPLE: (
        "donors cover positions",
        "Give longer donors, or name the positions to replace.",
    ),
    Intervention.COUNTERFACTUAL: (
        "corrupted twins cover positions",
        "Tokens that are generated have none: name the positions to replace.",
    ),
}


def _recorded(recording: Recording | None, ablation: Ablation) -> Recording:
    if recording is None:
        raise InputError(
            f"{ablation} takes what runs of a batch held, and these were not made. Make the stock with "
            "Supplies.drawn(gpt, tokens, rows, ablations) for this ablation too."
        )
    return recording
