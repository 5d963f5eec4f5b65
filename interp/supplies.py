"""What replacements are taken from, and what is held of it for one batch.

`Supplies` belong to one kind of sequences: means, donors and constants come from others of that kind, never from the
sequences under study; corrupted twins from their own. `Supplies.drawn` runs a batch's donors, its twins and the intact
model as far as the ablations at hand ask for that: once for all of them, and nothing else is kept. `edits_of` makes the
hooks of one ablation out of it, at the rows of that batch and at absolute positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.ablation_plan import Ablation, ablation_of, site_of
from interp.donors import LEAST_DONORS, donor_rows
from interp.interventions import Edits, hooks_of
from interp.places import Intervention, Place
from interp.recordings import Means, Recording, past_means, record
from interp.replacements import Constant, Held, Replacement, mean, mean_per_position, patch, zero
from model.errors import InputError
from model.sites import Site, site_named

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT

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
        for place in (place for ablation in ablations for place in ablation.places):
            match place.intervention:
                case Intervention.MEAN | Intervention.MEAN_PER_POSITION:
                    self.means_for(place)
                case Intervention.RESAMPLE:
                    self._require_donors(place, tokens)
                case Intervention.COUNTERFACTUAL:
                    self._require_twins(place, tokens, rows)
                case Intervention.OPTIMAL:
                    self.optimal_for(place)
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
    ) -> Stock:
        """What `ablations` need for a batch: rows `rows` of the sequences under study, with their donors number `draw`.

        Under whatever hooks are in force here. Runs at most three passes beside the donors' one; of several draws take
        the first so, and the others from it (`Stock.redrawn`).
        """
        rows = [int(row) for row in rows]
        if len(rows) != len(tokens):
            raise InputError(f"{len(rows)} rows were named for {len(tokens)} sequences; name one for each.")
        self.require(ablations, tokens, rows)
        wanted = {kind: _sites(place for each in ablations for place in each.takes(kind)) for kind in OF_A_RUN}
        patterns = list(dict.fromkeys(str(site) for each in ablations for site in each.held_patterns(gpt.config)))
        past = patterned = twins = None
        if wanted[Intervention.MEAN_OF_PAST]:
            intact = record(gpt, tokens, wanted[Intervention.MEAN_OF_PAST], source="run", attention_mask=attention_mask)
            past = past_means(intact)
        if patterns:  # in a pass of their own: to form patterns is to take the other attention path
            patterned = record(gpt, tokens, patterns, source="run", attention_mask=attention_mask)
        if wanted[Intervention.COUNTERFACTUAL] and self.corrupted is not None:
            corrupted = self.corrupted[rows].to(gpt.device)
            names = wanted[Intervention.COUNTERFACTUAL]
            twins = record(gpt, corrupted, names, source="twin", attention_mask=attention_mask)
        drawn_for = None
        if wanted[Intervention.RESAMPLE] and self.donors is not None:
            drawn_for = donor_rows(self.donors, tokens, rows, self.n_donors, self.seed, attention_mask)
        stock = Stock(
            supplies=self,
            past=past,
            patterns=patterned,
            twins=twins,
            donors=None,
            drawn_for=drawn_for,
            resampled=tuple(wanted[Intervention.RESAMPLE]),
        )
        return stock.redrawn(gpt, draw)

    def means_for(self, place: Place) -> Means:
        """The means; InputError where there are none."""
        if self.means is None:
            raise InputError(
                f"{place} needs means. Pass means=mean_activations(gpt, tokens, source=...), or use {place.label}:zero."
            )
        return self.means

    def optimal_for(self, place: Place) -> Optimal:
        """The fitted constants; InputError where there are none."""
        if self.optimal is None:
            raise InputError(
                f"{place} needs a constant that was fitted. Fit it with interp.optimal.fit_optimal and pass it as "
                f"Supplies(optimal=...), or use {place.label}:mean."
            )
        return self.optimal

    def _require_donors(self, place: Place, tokens: Tensor) -> None:
        if self.donors is None:
            raise InputError(
                f"{place} needs other sequences to take from. Pass Supplies(donors=tokens, source=...), or use "
                f"{place.label}:mean."
            )
        if self.donors.ndim != 2 or self.donors.shape[1] < tokens.shape[1]:
            raise InputError(
                f"{place} takes what donors hold at the same position, but theirs have shape "
                f"{tuple(self.donors.shape)} and the sequences {tokens.shape[1]} positions; give donors as long."
            )

    def _require_twins(self, place: Place, tokens: Tensor, rows: Sequence[int] | None) -> None:
        if self.corrupted is None:
            raise InputError(
                f"{place} needs the corrupted twin of every sequence. Pass Supplies(corrupted=tokens, source=...), or "
                f"use {place.label}:resample."
            )
        if self.corrupted.ndim != 2 or self.corrupted.shape[1] != tokens.shape[1]:
            raise InputError(
                f"{place} takes what the corrupted twin holds at the same position, but the twins have shape "
                f"{tuple(self.corrupted.shape)} and the sequences {tokens.shape[1]} positions; give twins as long."
            )
        n_twins, last = len(self.corrupted), len(tokens) - 1 if rows is None else max(rows)
        if last >= n_twins or (rows is None and len(tokens) != n_twins):
            raise InputError(
                f"{place} needs one corrupted twin for each sequence; there are {n_twins}, and sequences 0 to {last}."
            )
        twins = self.corrupted if rows is None else self.corrupted[list(rows)]
        same = (twins.to(tokens.device) == tokens).all(dim=1).nonzero()[:, 0].tolist()
        if same:
            raise InputError(
                f"{place} would put in sequence {same[0] if rows is None else rows[same[0]]} what it holds anyway: its "
                "twin is the sequence itself; corrupt it, or leave it out."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Stock:
    """What is held for one batch; row r of it belongs to row r of the batch. Made by `Supplies.drawn`."""

    supplies: Supplies
    past: Recording | None = None
    """Running means of the intact run."""
    patterns: Recording | None = None
    """Patterns of the intact run."""
    twins: Recording | None = None
    """What the corrupted twins held."""
    donors: Recording | None = None
    """What the donors of this draw held."""
    drawn_for: Int[Tensor, "batch draw"] | None = None
    """Which donors belong to each row."""
    resampled: tuple[str, ...] = ()
    """Where they are recorded."""

    def redrawn(self, gpt: GPT, draw: int) -> Stock:
        """The same with the next donors: one pass, and nothing is kept of the donors before."""
        if self.drawn_for is None or self.supplies.donors is None:
            return self
        if not 0 <= draw < self.supplies.n_donors:
            raise InputError(f"draw={draw} is none of the {self.supplies.n_donors}; give 0 to one less than that.")
        tokens = self.supplies.donors[self.drawn_for[:, draw]].to(gpt.device)
        return replace(self, donors=record(gpt, tokens, self.resampled, source="donors"))


def edits_of(gpt: GPT, ablation: Ablation, stock: Stock) -> Edits:
    """Hooks that carry out one ablation on the batch that the stock is for; none where the gate leaves all as it is.

    Raises:
        InputError: something that the ablation takes and the stock does not hold.
    """
    ablation = ablation_of(ablation, gpt.config)
    if ablation.gate == 1:
        return []
    alike: dict[tuple[str, Intervention], list[Place]] = {}
    for place in ablation.places:
        alike.setdefault((site_of(place), place.intervention or Intervention.ZERO), []).append(place)
    made = [
        replace(
            _replacement(site, kind, places, ablation, stock),
            gate=float(ablation.gate),
            positions=ablation.positions,
            label=str(places[0]),
        )
        for (site, kind), places in alike.items()
    ]
    for site in ablation.held_patterns(gpt.config):
        held = _held(stock.patterns, f"{ablation}", "intact run")
        made.append(_from_run(site, held, None, _INTACT, label=f"{site} as in the intact run"))
    return hooks_of(gpt, made)


def stock_bytes(config: GPTConfig, ablations: Sequence[Ablation], n_pos: int, itemsize: int) -> int:
    """The bytes that a stock holds for each sequence of `n_pos` tokens, at most, while it is made and used."""
    numbers = 0
    for kind in OF_A_RUN:
        for name in _sites(place for each in ablations for place in each.takes(kind)):
            width = config.n_heads * config.head_width if name.endswith("hook_z") else config.ffn_width
            numbers += n_pos * width * (3 if kind is Intervention.MEAN_OF_PAST else 1)  # sums run in fp64
    patterns = {site for each in ablations for site in each.held_patterns(config)}
    numbers += len(patterns) * config.n_heads * n_pos**2
    return numbers * itemsize


def _replacement(
    site: str, kind: Intervention, places: Sequence[Place], ablation: Ablation, stock: Stock
) -> Replacement:
    """One replacement for all places of a site that are replaced alike."""
    first, supplies = places[0], stock.supplies
    components = None if first.index is None else [place.index for place in places if place.index is not None]
    match kind:
        case Intervention.ZERO:
            return zero(site, components=components)
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
        case Intervention.MEAN_OF_PAST:
            return _from_run(site_named(site), _held(stock.past, str(first), "intact run"), components, _INTACT)
        case Intervention.COUNTERFACTUAL:
            return _from_run(site_named(site), _held(stock.twins, str(first), "twins"), components, _TWIN)
        case Intervention.RESAMPLE:
            return _from_run(site_named(site), _held(stock.donors, str(first), "donors"), components, _DONOR)


def _from_run(
    site: Site, recording: Recording, components: Sequence[int] | None, words: tuple[str, str], label: str = ""
) -> Replacement:
    """What a run held at the same absolute positions, with sentences that say which run it was."""
    made = patch(site, recording, components=components)
    if not isinstance(made.values, Held):
        raise RuntimeError("a patch holds numbers by position")
    held = replace(made.values, source=words[0], advice=words[1])
    return replace(made, values=held, label=label or made.label)


_INTACT = (
    "intact run covers positions",
    "It is of the tokens that were given beforehand, so tokens that are generated have none: name the positions to "
    "replace, or take a mean.",
)
_TWIN = ("corrupted twin covers positions", "Give longer twins, or name the positions to replace.")
_DONOR = ("donor covers positions", "Give longer donors, or name the positions to replace.")


def _held(recording: Recording | None, what: str, run: str) -> Recording:
    if recording is None:
        raise InputError(
            f"{what} takes what the {run} held, and nothing was recorded. Make the stock with "
            "Supplies.drawn(gpt, tokens, rows, ablations) for this ablation too."
        )
    return recording


def _sites(places: Iterable[Place]) -> list[str]:
    """The hooks of these places, each once."""
    return list(dict.fromkeys(site_of(place) for place in places))
