"""What the literature says of FFN memories, each as a bar, and whether a measured model clears it.

Bars are those set before anything was trained here (T16 to T18); sources stand in docs/studies/ffn-memories.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bench.memory_found import (
    Found,
    Side,
    active,
    chance_ratio,
    decided,
    falls_more,
    ffn_alone,
    first_layer_lead,
    kept,
    last_lift,
    rank_trend,
    third_ratio_of,
    trend,
    undone,
    zero_agreement,
)
from bench.memory_measures import Measurement
from interp.ffn_composed import Counted


@dataclass(frozen=True, kw_only=True)
class Target:
    """One claim about a trained model's memories."""

    name: str
    claim: str
    bar: str
    """In words, as the table prints it."""
    measure: Callable[[Found, Side], Measurement | None]
    clears: Callable[[float], bool]
    chance: Callable[[Found], float | None] = lambda found: None
    """What the control gives that the claim stands beside."""
    largest_p: float | None = None
    """What p must lie below besides."""
    only_trained: bool = False
    """Whether step 0 keeps too little for this number."""

    def row(self, found: Found) -> Row:
        """What was measured of a run."""
        start = None if self.only_trained else found.at_zero
        return Row(
            target=self,
            trained=self.measure(found, found.trained),
            at_zero=None if start is None else self.measure(found, start),
            chance=self.chance(found),
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A target with what was measured of one run."""

    target: Target
    trained: Measurement | None
    """None where the study was told not to measure it."""
    at_zero: Measurement | None
    """The same at step 0."""
    chance: float | None
    """The same of the control; None where there is none."""

    @property
    def met(self) -> bool | None:
        """Whether the number clears the bar; None where it was not measured."""
        if self.trained is None:
            return None
        bar = self.target.largest_p
        sure = bar is None or (self.trained.p is not None and self.trained.p < bar)
        return self.target.clears(self.trained.value) and sure

    @property
    def verdict(self) -> str:
        """Met or missed, and whether the bar lies within the interval."""
        if self.trained is None:
            return "not measured"
        told = "met" if self.met else "missed"
        if math.isnan(self.trained.low) or self.trained.surely(self.target.clears):
            return told
        return f"{told}, bar within the interval"


def _surer(found: Found, side: Side) -> Measurement:
    told = trend(found)
    return Measurement(value=told.rho, n=told.n, unit="memories", p=told.p)


def _surer_within(found: Found, side: Side) -> Measurement:
    told = trend(found)
    return Measurement(value=told.within, n=told.n, unit="memories", p=told.within_p)


TARGETS: tuple[Target, ...] = (
    Target(
        name="T16",
        claim="agreement, last third of the layers over the first",
        bar=">= 3",
        measure=third_ratio_of,
        clears=lambda value: value >= 3,
        chance=chance_ratio,
    ),
    Target(
        name="T16",
        claim="agreement of the last layer over that of dealt next tokens",
        bar=">= 5, p < 0.01",
        measure=lambda found, side: last_lift(side),
        clears=lambda value: value >= 5,
        chance=lambda found: 1.0,
        largest_p=0.01,
    ),
    Target(
        name="T16",
        claim="rank correlation with depth of the next token's median rank",
        bar="<= -0.6",
        measure=lambda found, side: rank_trend(side.summary.layers),
        clears=lambda value: value <= -0.6,
        chance=lambda found: rank_trend(found.trained.summary.layers, by_chance=True).value,
    ),
    Target(
        name="T16",
        claim="rank correlation of agreement with the value's confidence",
        bar="> 0, p < 0.01",
        measure=_surer,
        clears=lambda value: value > 0,
        chance=lambda found: trend(found).chance,
        largest_p=0.01,
        only_trained=True,
    ),
    Target(
        name="T16",
        claim="of two memories of a layer, one of which agrees, that one is the surer",
        bar="> 50%, p < 0.01",
        measure=_surer_within,
        clears=lambda value: value > 0.5,
        chance=lambda found: 0.5,
        largest_p=0.01,
        only_trained=True,
    ),
    Target(
        name="T17",
        claim="memories active, least of any layer",
        bar=">= 5%",
        measure=lambda found, side: active(side, least=True),
        clears=lambda value: value >= 0.05,
    ),
    Target(
        name="T17",
        claim="memories active, most of any layer",
        bar="<= 50%",
        measure=lambda found, side: active(side, least=False),
        clears=lambda value: value <= 0.5,
    ),
    Target(
        name="T17",
        claim="no memory of the layer has its token, least of any layer",
        bar=">= 50%",
        measure=lambda found, side: zero_agreement(side, Counted.ALL),
        clears=lambda value: value >= 0.5,
        chance=lambda found: zero_agreement(found.trained, Counted.ALL, dealt=True).value,
    ),
    Target(
        name="T17",
        claim="no active memory of the layer has its token, least of any layer",
        bar=">= 50%",
        measure=lambda found, side: zero_agreement(side, Counted.ACTIVE),
        clears=lambda value: value >= 0.5,
        chance=lambda found: zero_agreement(found.trained, Counted.ACTIVE, dealt=True).value,
    ),
    Target(
        name="T17",
        claim="the stream has the final token: largest fall from an FFN's input to the next one's",
        bar="<= 2 points",
        measure=lambda found, side: undone(side),
        clears=lambda value: value <= 0.02,
    ),
    Target(
        name="T17",
        claim="the stream has the final token before the last FFN",
        bar="> 70%",
        measure=lambda found, side: decided(side),
        clears=lambda value: value > 0.7,
    ),
    Target(
        name="T17",
        claim="residual and agreement together, least of any layer",
        bar=">= 60%",
        measure=lambda found, side: kept(side),
        clears=lambda value: value >= 0.6,
        chance=lambda found: kept(found.trained, dealt=True).value,
    ),
    Target(
        name="T17",
        claim="the FFN's token alone, most of any layer",
        bar="< 10%",
        measure=lambda found, side: ffn_alone(side),
        clears=lambda value: value < 0.1,
        chance=lambda found: ffn_alone(found.trained, dealt=True).value,
    ),
    Target(
        name="T18",
        claim="memories that lose more without a trigger's last token than without its first",
        bar=">= 80%",
        measure=lambda found, side: falls_more(side),
        clears=lambda value: value >= 0.8,
        chance=lambda found: 0.5,
    ),
    Target(
        name="T18",
        claim="fall without the last token, layer 0 minus the largest other",
        bar="> 0",
        measure=lambda found, side: first_layer_lead(side),
        clears=lambda value: value > 0,
    ),
)
"""T16 to T18."""
