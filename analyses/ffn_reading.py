"""One checkpoint's FFN memories: triggers, values, activity, a summary per layer (for `analyses.ffn_memories`).

Everything is indexed [layer, memory, ...]; a trigger that does not exist (the memory fired less often than triggers are
kept) has length 0, coefficient 0, and -1 for its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.agreement import Agreement, commonest_share, measured_agreement, partners, ranks
from interp.memory_stream import CoefficientStream, share_above
from interp.memory_values import fitting_memories, value_scores
from interp.prefixes import Windows, tails
from interp.topk import positions_of, values_of
from model.config import GPTConfig
from model.gpt import GPT


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """The prefixes that fire each memory most, strongest first; of equals, the one that comes first in the corpus."""

    coefficient: Float[Tensor, "layer memory trigger"]
    """What the memory's coefficient is at the prefix's last token."""

    offset: Int[Tensor, "layer memory trigger"]
    """Corpus offset of the prefix's first token."""

    length: Int[Tensor, "layer memory trigger"]
    """Tokens of the prefix, BOS not counted."""

    last_token: Int[Tensor, "layer memory trigger"]

    next_token: Int[Tensor, "layer memory trigger"]
    """The token that follows in the corpus."""

    context: Int[Tensor, "layer memory shown token"]
    """The last tokens of the first few prefixes, for showing; -1 before a prefix begins."""

    @property
    def present(self) -> Bool[Tensor, "layer memory trigger"]:
        """Which triggers exist."""
        return self.length > 0


@dataclass(frozen=True, kw_only=True)
class Values:
    """What each value does to the logits of tokens, per unit of coefficient and of final-norm scale."""

    promoted: Int[Tensor, "layer memory rank"]
    promoted_score: Float[Tensor, "layer memory rank"]
    suppressed: Int[Tensor, "layer memory rank"]
    suppressed_score: Float[Tensor, "layer memory rank"]

    confidence: Float[Tensor, "layer memory"]
    """Largest probability of softmax(v W_U). Not calibrated: only its order over memories means something."""

    next_rank: Int[Tensor, "layer memory"]
    """Place of the top trigger's next token in the order of promotion, from 0; -1 for dead memories."""


@dataclass(frozen=True, kw_only=True)
class Activity:
    """How much each memory does over the corpus."""

    firing_rate: Float[Tensor, "layer memory"]
    """Share of prefixes with a coefficient above zero."""

    strong_rate: Float[Tensor, "layer memory"]
    """Share of prefixes whose coefficient reaches a tenth of the largest (down to a bin's edge)."""

    largest: Float[Tensor, "layer memory"]
    mean: Float[Tensor, "layer memory"]
    std: Float[Tensor, "layer memory"]

    histogram: Int[Tensor, "layer memory bin"]
    """Prefixes per bin of `interp.memory_stream.histogram_edges`."""

    @property
    def alive(self) -> Bool[Tensor, "layer memory"]:
        """Memories that fired at least once."""
        return self.firing_rate > 0


@dataclass(frozen=True, kw_only=True)
class LayerSummary:
    """One layer's memories together; dead ones are left out of everything but their count."""

    layer: int
    n_memories: int
    n_dead: int

    agreement: Agreement
    """Of values' top tokens with the next tokens of top triggers."""

    precision: float
    """Share of all kept triggers whose next token is the value's top token."""

    median_rank: float
    """Median place of the top trigger's next token in the value's order of promotion."""

    chance_rank: float
    """The same over pairs of a value and another memory's next token: all, or a random sample where those are many."""

    last_token_share: float
    """Mean over memories of the share of triggers that end in the commonest last token among them."""

    firing_rate: float
    """Median over memories."""

    strong_rate: float
    """Median over memories."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is kept of a checkpoint that stands beside another."""

    step: int
    layers: tuple[LayerSummary, ...]
    last_token_share: Float[Tensor, "layer memory"]
    """Share of triggers that end in the commonest last token among them; NaN for dead memories."""
    firing_rate: Float[Tensor, "layer memory"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One checkpoint's memories, whole."""

    triggers: Triggers
    values: Values
    activity: Activity
    summary: Summary


def read_memories(
    gpt: GPT,
    step: int,
    streams: Sequence[CoefficientStream],
    tokens: np.ndarray,
    windows: Windows,
    *,
    n_shown: int,
    n_context: int,
    n_promoted: int,
    n_permutations: int,
    seed: int,
) -> Reading:
    """Everything that is said of a checkpoint, from the streams over `windows` of the corpus `tokens`."""
    triggers = _triggers(streams, tokens, windows, n_shown, n_context)
    activity = _activity(streams)
    shares = torch.stack(
        [commonest_share(last, present) for last, present in zip(triggers.last_token, triggers.present, strict=True)]
    )
    values, layers, unembed = [], [], gpt.folded_unembed()
    for layer in range(gpt.config.n_layers):
        next_tokens = triggers.next_token[layer, :, 0]
        read, dealt = _layer_values(gpt, layer, unembed, next_tokens, n_promoted, seed)
        values.append(read)
        layers.append(_summary(layer, triggers, activity, read, dealt, shares[layer], n_permutations, seed))
    return Reading(
        triggers=triggers,
        values=Values(**{name: torch.stack([each[name] for each in values]) for name in values[0]}),
        activity=activity,
        summary=Summary(step=step, layers=tuple(layers), last_token_share=shares, firing_rate=activity.firing_rate),
    )


def _triggers(
    streams: Sequence[CoefficientStream], tokens: np.ndarray, windows: Windows, n_shown: int, n_context: int
) -> Triggers:
    keys = torch.stack([stream.top.cpu() for stream in streams])
    coefficients, ends = values_of(keys), positions_of(keys)
    present = (ends >= 0) & (coefficients > 0)  # what never fires has no trigger
    offsets = torch.where(present, windows.start_of(ends), -1)
    lengths = torch.where(present, ends - offsets + 1, 0)
    return Triggers(
        coefficient=torch.where(present, coefficients, 0.0),
        offset=offsets,
        length=lengths.int(),
        last_token=_at(tokens, ends, present),
        next_token=_at(tokens, ends + 1, present),
        context=tails(tokens, offsets[..., :n_shown], lengths[..., :n_shown], n_context),
    )


def _at(tokens: np.ndarray, places: Tensor, present: Tensor) -> Tensor:
    found = torch.from_numpy(np.asarray(tokens[places.clamp(0, len(tokens) - 1).numpy()], dtype=np.int32))
    return torch.where(present, found, -1)


def _activity(streams: Sequence[CoefficientStream]) -> Activity:
    histogram = torch.stack([stream.histogram for stream in streams])
    n = streams[0].n_prefixes
    largest = torch.stack([values_of(stream.top.cpu()[:, 0]) for stream in streams])
    mean = torch.stack([stream.total for stream in streams]) / n
    variance = torch.stack([stream.total_squares for stream in streams]) / n - mean.square()
    return Activity(
        firing_rate=(torch.stack([stream.n_active for stream in streams]).double() / n).float(),
        strong_rate=torch.where(largest > 0, share_above(histogram, largest / 10), 0.0),
        largest=largest,
        mean=mean.float(),
        std=variance.clamp_min(0).sqrt().float(),
        histogram=histogram.int(),
    )


def _layer_values(
    gpt: GPT, layer: int, unembed: Tensor, next_tokens: Tensor, n_promoted: int, seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    """What is kept of a layer's values, and the places of other memories' next tokens in their orders of promotion."""
    asked = _asked(gpt.config, next_tokens, seed)
    parts, places = [], []
    for memories in fitting_memories(gpt.config.ffn_width, gpt.config.d_vocab):
        scores = value_scores(gpt, layer, memories, unembed)
        parts.append(_values(scores, n_promoted))
        places.append(ranks(scores, asked[memories]))
    place = torch.cat(places)
    kept = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return kept | {"next_rank": place[:, 0].clone()}, place[next_tokens >= 0, 1:]


def _asked(config: GPTConfig, next_tokens: Int[Tensor, " memory"], seed: int) -> Int[Tensor, "memory asked"]:
    """Each memory's own next token, then those of other memories; -1 for the dead, which are nobody's other."""
    alive = next_tokens >= 0
    most = max(_FEWEST, _COMPARED // (config.ffn_width * config.d_vocab))
    others = partners(int(alive.sum()), most, seed)
    asked = torch.full((len(next_tokens), 1 + others.shape[1]), -1)
    asked[:, 0] = next_tokens
    asked[alive, 1:] = next_tokens[alive].long()[others]
    return asked


_COMPARED, _FEWEST = 2**31, 16
"""Scores of a layer that are held against others' next tokens; each value meets at least so many of those."""


def _values(scores: Tensor, n_promoted: int) -> dict[str, Tensor]:
    few = min(n_promoted, scores.shape[1])
    up, down = scores.topk(few), scores.topk(few, largest=False)
    return {
        "promoted": up.indices.int(),
        "promoted_score": up.values,
        "suppressed": down.indices.int(),
        "suppressed_score": down.values,
        "confidence": 1 / (scores - up.values[:, :1]).exp_().sum(-1),
    }


def _summary(
    layer: int,
    triggers: Triggers,
    activity: Activity,
    values: dict[str, Tensor],
    dealt: Tensor,
    shares: Tensor,
    n_permutations: int,
    seed: int,
) -> LayerSummary:
    alive = activity.alive[layer]
    promoted, followed = values["promoted"][alive, 0], triggers.next_token[layer][alive]
    present = triggers.present[layer][alive]
    hits = (followed == promoted[:, None]) & present
    return LayerSummary(
        layer=layer,
        n_memories=len(alive),
        n_dead=int((~alive).sum()),
        agreement=measured_agreement(promoted, followed[:, 0], n_permutations=n_permutations, seed=seed),
        precision=_mean(hits.float()[present]),
        median_rank=_median(values["next_rank"][alive]),
        chance_rank=_median(dealt.flatten()),
        last_token_share=_mean(shares[alive]),
        firing_rate=_median(activity.firing_rate[layer][alive]),
        strong_rate=_median(activity.strong_rate[layer][alive]),
    )


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def _median(values: Tensor) -> float:
    """The middle value, or the mean of the two; torch's quantile would refuse more than 2^24 values."""
    if not len(values):
        return float("nan")
    ordered = np.sort(values.double().numpy())
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
