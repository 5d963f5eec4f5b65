"""What replacements are taken from, and what is held of it for one batch.

`Supplies` belong to one kind of sequences: means, donors and constants come from others of that kind, never from the
sequences under study; corrupted twins from their own. `Supplies.drawn` runs a batch's donors, its twins and the intact
model as far as the ablations at hand ask for that: once for all of them, and nothing else is kept. `edits_of` makes the
hooks of one ablation out of such a stock (`interp.stock`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jaxtyping import Bool, Int
from torch import Tensor

from interp.ablation_plan import Ablation, site_of
from interp.donors import LEAST_DONORS, donor_rows, require_donors, require_twins
from interp.places import Intervention, Place
from interp.recordings import Means, Recording, past_means, record
from interp.stock import Stock, edits_of
from model.errors import InputError

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT

__all__ = ["OF_A_RUN", "Optimal", "Stock", "Supplies", "edits_of", "stock_bytes"]

OF_A_RUN = (Intervention.MEAN_OF_PAST, Intervention.RESAMPLE, Intervention.COUNTERFACTUAL)
"""Interventions whose values are recorded anew for every batch."""


@runtime_checkable
class Optimal(Protocol):
    """Fitted constants (`interp.optimal`)."""

    @property
    def source(self) -> str:
        """What they were fitted on, in words."""
        ...

    def constants(self, places: Sequence[Place]) -> Mapping[str, Tensor]:
        """The constants of places that were fitted together, by label; InputError where these were not."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Supplies:
    """What there is to replace with, for sequences of one kind."""

    source: str
    """What the other sequences are, in words."""

    means: Means | None = None
    """Of the others, for mean and mean@pos."""

    donors: Int[Tensor, "donor donor_pos"] | None = None
    """The others themselves, for resample; at least as long as the sequences under study."""

    n_donors: int = LEAST_DONORS
    """How many of them are drawn for each sequence; what happens is averaged over them."""

    corrupted: Int[Tensor, "sequence pos"] | None = None
    """For counterfactual: row r is the twin of sequence r under study, token for token."""

    optimal: Optimal | None = None
    """Constants, for optimal."""

    seed: int = 0
    """Names which donors are drawn for which sequence."""

    def __post_init__(self) -> None:
        if self.n_donors < LEAST_DONORS:
            raise InputError(
                f"n_donors={self.n_donors} says more about the donors than about the place; give at least "
                f"{LEAST_DONORS}."
            )

    def require(
        self,
        ablations: Iterable[Ablation],
        tokens: Int[Tensor, "sequence pos"],
        rows: Sequence[int] | None = None,
    ) -> None:
        """Refuse, before anything runs, what these cannot supply for `tokens`: all the sequences, or those `rows`."""
        rows = range(len(tokens)) if rows is None else rows
        ablations = list(ablations)
        means = (Intervention.MEAN, Intervention.MEAN_PER_POSITION)
        for place in (place for ablation in ablations for place in ablation.takes(*means)):
            self.means_for(place).at(site_of(place))
        for fitted in (ablation.takes(Intervention.OPTIMAL) for ablation in ablations):
            if fitted:
                self.optimal_for(fitted[0]).constants(fitted)
        for place in _one_of_each(ablations):
            match place.intervention:
                case Intervention.RESAMPLE:
                    require_donors(str(place), self.donors_for(place), tokens, rows, self.n_donors)
                case Intervention.COUNTERFACTUAL:
                    require_twins(str(place), self.twins_for(place), tokens, rows)
                case _:
                    pass

    def drawn(
        self,
        gpt: GPT,
        tokens: Int[Tensor, "batch pos"],
        rows: Sequence[int] | Int[Tensor, " batch"],
        ablations: Sequence[Ablation],
        draw: int = 0,
        attention_mask: Bool[Tensor, "batch pos"] | None = None,
        *,
        n_pos: int | None = None,
    ) -> Stock:
        """What `ablations` need for a batch: sequences number `rows` of those under study, and their donors of a draw.

        Under whatever hooks are in force here. Runs at most three passes beside the donors' one; of several draws take
        the first so, and the others from it (`Stock.redrawn`). Of donors, `n_pos` positions are held, as many as the
        batch has unless told otherwise.
        """
        rows = [int(row) for row in rows]
        if len(rows) != len(tokens):
            raise InputError(f"{len(rows)} rows were named for {len(tokens)} sequences; name one for each.")
        self.require(ablations, tokens, rows)
        tokens = tokens.to(gpt.device)
        sites = {kind: _sites(place for each in ablations for place in each.takes(kind)) for kind in OF_A_RUN}
        past, donors, twins = sites.values()
        patterns = list(dict.fromkeys(site for each in ablations for site in each.held_patterns(gpt.config)))
        held: dict[Intervention, Recording] = {}
        if past:
            intact = record(gpt, tokens, past, source="intact run", attention_mask=attention_mask)
            held[Intervention.MEAN_OF_PAST] = past_means(intact)
        if twins and self.corrupted is not None:
            twin = self.corrupted[rows].to(gpt.device)
            held[Intervention.COUNTERFACTUAL] = record(gpt, twin, twins, source="twin", attention_mask=attention_mask)
        kept = None
        if patterns:  # in a pass of their own: to form patterns is to take the other attention path
            kept = record(gpt, tokens, patterns, source="intact run", attention_mask=attention_mask)
        drawn_for = None
        if donors and self.donors is not None:
            drawn_for = donor_rows(self.donors, tokens, rows, self.n_donors, self.seed, attention_mask)
        stock = Stock(
            supplies=self,
            held=held,
            patterns=kept,
            drawn_for=drawn_for,
            resampled=tuple(donors),
            n_pos=n_pos or tokens.shape[1],
        )
        return stock.redrawn(gpt, draw)

    def means_for(self, place: Place) -> Means:
        """The means; InputError where there are none."""
        if self.means is None:
            raise InputError(
                f"{place} needs means. Pass means=mean_activations(gpt, tokens, source=...), or use {place.label}:zero."
            )
        return self.means

    def donors_for(self, place: Place) -> Int[Tensor, "donor donor_pos"]:
        """The donors; InputError where there are none."""
        if self.donors is None:
            raise InputError(
                f"{place} needs other sequences to take from. Pass Supplies(donors=tokens, source=...), or use "
                f"{place.label}:mean."
            )
        return self.donors

    def twins_for(self, place: Place) -> Int[Tensor, "sequence pos"]:
        """The corrupted twins; InputError where there are none."""
        if self.corrupted is None:
            raise InputError(
                f"{place} needs the corrupted twin of every sequence. Pass Supplies(corrupted=tokens, source=...), or "
                f"use {place.label}:resample."
            )
        return self.corrupted

    def optimal_for(self, place: Place) -> Optimal:
        """The fitted constants; InputError where there are none."""
        if self.optimal is None:
            raise InputError(
                f"{place} needs a constant that was fitted. Fit it with interp.optimal.fit_optimal and pass it as "
                f"Supplies(optimal=...), or use {place.label}:mean."
            )
        return self.optimal


def stock_bytes(config: GPTConfig, ablations: Sequence[Ablation], n_pos: int, itemsize: int) -> int:
    """The bytes that a stock holds for each sequence of `n_pos` tokens, at most, while it is made and used."""
    numbers = 0
    for kind in OF_A_RUN:
        for name in _sites(place for each in ablations for place in each.takes(kind)):
            width = config.n_heads * config.head_width if name.endswith("hook_z") else config.ffn_width
            numbers += n_pos * width * (4 if kind is Intervention.MEAN_OF_PAST else 2)  # sums in fp64; picked for hooks
    patterns = {site for each in ablations for site in each.held_patterns(config)}
    numbers += len(patterns) * config.n_heads * n_pos**2
    return numbers * itemsize


def _one_of_each(ablations: Iterable[Ablation]) -> Iterable[Place]:
    """For each intervention, a place that takes it."""
    found: dict[Intervention | None, Place] = {}
    for place in (place for ablation in ablations for place in ablation.places):
        found.setdefault(place.intervention, place)
    return found.values()


def _sites(places: Iterable[Place]) -> list[str]:
    """The hooks of these places, each once."""
    return list(dict.fromkeys(site_of(place) for place in places))
