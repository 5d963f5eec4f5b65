"""A checkpoint's FFN memories layer by layer, and what stands beside another checkpoint's (for `ffn.reading`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.ffn.parts import Activity, Triggers, Values
from interp.agreement import Agreement, measured_agreement, precision_at
from interp.agreement_trends import ConfidenceBin, ConfidenceTrend, agreement_by_confidence, confidence_trend
from interp.share_intervals import share_interval
from interp.stats import Interval
from interp.token_concepts import MeaningfulShare
from interp.trigger_deletions import TriggerDeletions
from interp.trigger_patterns import TriggerEvidence


@dataclass(frozen=True, kw_only=True)
class LayerSummary:
    """One layer's memories together. Where nothing else is said, those that never fired are left out."""

    layer: int
    n_memories: int

    n_dead: int
    """Memories whose coefficient is never anything but zero."""
    n_one_sided: int
    """Memories that are not dead but never above zero either: they have no triggers."""
    n_dense: int
    """Memories that fire on more than half of all prefixes."""

    agreement: Agreement
    """Of values' top tokens with the next tokens of top triggers."""

    precision: Agreement
    """The same over all kept triggers: mean over memories of the share whose next token is the value's top token."""

    median_rank: float
    """Median place of the top trigger's next token in the value's order of promotion."""

    chance_rank: float
    """The same over pairs of a value and another memory's next token: all, or a random sample where those are many."""

    concepts: MeaningfulShare
    """How many values, of living and dead memories, promote tokens with a concept in common, beside random vectors."""

    last_token_share: float
    """Mean over memories of the share of triggers that end in the commonest last token among them."""

    last_beats_first: Interval | None
    """Share of sampled memories whose coefficient falls further without a trigger's last token than without its first.

    With Clopper and Pearson's interval; None where none was measured.
    """

    firing_rate: float
    """Median over memories."""

    strong_rate: float
    """Median over memories."""

    negative_rate: float
    """Median over memories that are not dead: share of prefixes with a negative coefficient."""

    lowest_over_largest: float
    """Median over memories that fire of how far the most negative coefficient is from zero, by the largest one."""

    @property
    def n_never_fired(self) -> int:
        """Memories that were never above zero, and so have no triggers."""
        return self.n_dead + self.n_one_sided


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is kept of a checkpoint that stands beside another."""

    step: int
    layers: tuple[LayerSummary, ...]

    confidence: tuple[ConfidenceBin, ...]
    """Agreement in bins of equal count over all layers, from the least sure values to the surest."""
    confidence_trend: ConfidenceTrend

    evidence: TriggerEvidence
    """What each memory's triggers share."""

    deletions: TriggerDeletions | None
    """What triggers lose with a token, for a sample of memories; None where the config asks for none."""

    firing_rate: Float[Tensor, "layer memory"]

    below_zero: Float[Tensor, "layer memory"]
    """How much of the range from its lowest to its largest coefficient lies below zero; NaN for dead memories."""

    active_above: Float[Tensor, "layer fraction"]
    """Median over memories of the share of prefixes with |m| of at least each of `FRACTIONS` of its largest."""

    @property
    def last_token_share(self) -> Float[Tensor, "layer memory"]:
        """Share of triggers that end in the commonest last token among them; NaN without triggers."""
        return self.evidence.last_token_share


@dataclass(frozen=True, kw_only=True)
class Read:
    """What a summary is made of."""

    triggers: Triggers
    values: Values
    activity: Activity
    evidence: TriggerEvidence
    deletions: TriggerDeletions | None
    dealt_ranks: tuple[Tensor, ...]
    """Per layer, the places of other memories' next tokens in each value's order of promotion."""
    concepts: tuple[MeaningfulShare, ...]


def summarised(step: int, read: Read, *, n_permutations: int, n_deals: int, seed: int) -> Summary:
    """Everything that is said of layers; a layer's agreement is beside `n_permutations`, all else beside `n_deals`."""
    n_layers = len(read.triggers.length)
    activity, alive = read.activity, read.activity.alive
    of_layer = torch.arange(n_layers)[:, None].expand_as(alive)[alive]
    confidence = (
        read.values.promoted[..., 0][alive],
        read.triggers.next_token[..., 0][alive],
        read.values.confidence[alive],
        of_layer,
    )
    above = activity.active_above()
    return Summary(
        step=step,
        layers=tuple(_layer(read, layer, n_permutations, n_deals, seed) for layer in range(n_layers)),
        confidence=agreement_by_confidence(*confidence, n_permutations=n_deals, seed=seed),
        confidence_trend=confidence_trend(*confidence, n_permutations=n_deals, seed=seed),
        evidence=read.evidence,
        deletions=read.deletions,
        firing_rate=activity.firing_rate,
        below_zero=-activity.lowest / (activity.largest.clamp_min(0) - activity.lowest),
        active_above=torch.stack([_medians(above[layer][~activity.dead[layer]]) for layer in range(n_layers)]),
    )


def _layer(read: Read, layer: int, n_permutations: int, n_deals: int, seed: int) -> LayerSummary:
    activity, alive, dead = read.activity, read.activity.alive[layer], read.activity.dead[layer]
    promoted, followed = read.values.promoted[layer, alive, 0], read.triggers.next_token[layer][alive]
    largest, lowest = activity.largest[layer][alive], activity.lowest[layer][alive]
    return LayerSummary(
        layer=layer,
        n_memories=len(alive),
        n_dead=int(dead.sum()),
        n_one_sided=int((~dead & ~alive).sum()),
        n_dense=int(activity.dense[layer].sum()),
        agreement=measured_agreement(promoted, followed[:, 0], n_permutations=n_permutations, seed=seed),
        precision=precision_at(promoted, followed, followed.shape[1], n_permutations=n_deals, seed=seed),
        median_rank=median(read.values.next_rank[layer][alive]),
        chance_rank=median(read.dealt_ranks[layer].flatten()),
        concepts=read.concepts[layer],
        last_token_share=_mean(read.evidence.last_token_share[layer][alive]),
        last_beats_first=_last_beats_first(read.deletions, layer),
        firing_rate=median(activity.firing_rate[layer][alive]),
        strong_rate=median(activity.strong_rate[layer][alive]),
        negative_rate=median(activity.negative_rate[layer][~dead]),
        lowest_over_largest=median(-lowest / largest),
    )


def _last_beats_first(deletions: TriggerDeletions | None, layer: int) -> Interval | None:
    if deletions is None:
        return None
    beats = deletions.last_beats_first(layer)
    return share_interval(int(beats.sum()), len(beats)) if len(beats) else None


def _medians(values: Float[Tensor, "memory fraction"]) -> Float[Tensor, " fraction"]:
    return torch.tensor([median(column) for column in values.T])


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def median(values: Tensor) -> float:
    """The middle one of the finite values, or the mean of the two; torch's quantile would refuse more than 2^24."""
    known = values[values.isfinite()]
    if not len(known):
        return float("nan")
    ordered = np.sort(known.double().numpy())
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
