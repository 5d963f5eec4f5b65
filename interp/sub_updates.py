"""What single memories write: how few of them carry a layer's update, and whether a prediction is promoted.

Geva et al. 2022 (arXiv 2203.14680): FFN(x) = sum over memories of the sub-updates m_i v_i, each of which adds its own
part to every token's logit. In a layer they are ordered by |m_i||v_i|, the largest first. Of what the memories write
together, u = sum of m_i v_i (the update without its bias), and of the k first, u_k:

* share of the norm |u_k| / |u|, their cosine, and R^2 = 1 - |u - u_k|^2 / |u|^2 (below 0 where u_k is further from u
  than nothing is: the largest sub-updates cancel against others);
* share of the effect on the final token's logit, less the vocabulary's mean, with the final norm's scale held.

All of it beside k memories at random, of those with a coefficient other than 0.

Where does an FFN make the model's prediction? At a *saturation event*: the first layer from whose output on the final
token stays first, where the stream that entered did not have it first. There the final token's logit may rise above
the vocabulary's mean (promotion), or the one that was first before it may fall (elimination).

What it does not show: what memories do through later layers, and what the scales of norms do with a larger stream.
Cost: ten products of the size of the layer's own per layer; no logits of single memories are formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ffn_composed import Composed, first_to_stay
from interp.ffn_composition import MemoryTokens
from interp.ffn_parts import LayerParts, StreamDecoder, decoder_of, written_values
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT

N_DOMINANT = 10
"""Memories of a saturation event that are looked at one by one; ten in Geva et al. 2022."""

WHOSE = ("final token", "displaced token", "another token")
"""Whose logits a saturation event changes: the prediction's, those of the token that was first before, and those of
the prediction at another prefix, as a control."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstMemories:
    """What the first k memories write together, in some order, beside what all do; on the CPU."""

    norm: Float[Tensor, "k prefix layer"]
    """|u_k|."""
    inner: Float[Tensor, "k prefix layer"]
    """u_k . u."""
    missed: Float[Tensor, "k prefix layer"]
    """|u - u_k|^2."""
    effect: Float[Tensor, "k prefix layer"]
    """On the final token's logit less the vocabulary's mean, the final norm's scale held."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SubUpdates:
    """Sub-updates at single prefixes; on the CPU."""

    norm: Float[Tensor, "prefix layer"]
    """|u|, of what all memories of a layer write."""
    effect: Float[Tensor, "prefix layer"]
    """On the final token's logit, of all of them."""
    top: FirstMemories
    """Of the largest."""
    random: FirstMemories
    """Of as many at random."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Saturations:
    """What FFNs do where they bring the final token to the top for good; one row a prefix, NaN without such an event.

    Logits less the vocabulary's mean, the final norm's scale held at that of the layer's output; of `WHOSE`.
    """

    layer: Int[Tensor, " prefix"]
    """The layer whose FFN does it; -1 where attention does, or the embedding."""
    total: Float[Tensor, "prefix whose"]
    """What the whole update adds, its bias included."""
    raised: Float[Tensor, "prefix whose"]
    """What those memories add that raise the token."""
    lowered: Float[Tensor, "prefix whose"]
    """What those add that lower it; not above 0."""
    dominant: Float[Tensor, "prefix whose"]
    """The mean over the ten largest sub-updates."""
    random: Float[Tensor, "prefix whose"]
    """The mean over ten at random."""


@torch.no_grad()
def sub_updates(
    gpt: GPT,
    parts: Sequence[LayerParts],
    memories: MemoryTokens,
    final_token: Int[Tensor, " prefix"],
    *,
    ks: Sequence[int],
    seed: int,
) -> SubUpdates:
    """What the first k memories of every layer write at some prefixes, for each of `ks`; seed draws the random ones."""
    if not ks or min(ks) < 1:
        raise InputError(f"ks={tuple(ks)} counts no memories; give numbers of at least 1.")
    decoder = decoder_of(gpt)
    output = parts[-1].stream + parts[-1].update
    towards = _direction(decoder, final_token.to(gpt.device)) / decoder.scale(output)
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for layer, each in enumerate(parts):
        values = written_values(gpt, layer)
        whole = each.summed(each.coefficients, values)
        ranks = _ranks(each.coefficients.abs() * memories.norm[layer], generator)
        first = [_first(each, values, whole, towards, rank, ks) for rank in ranks]
        layers.append((whole.norm(dim=1), (whole * towards).sum(1), *first))
    norm, effect = (torch.stack([each[place] for each in layers], dim=-1).cpu() for place in (0, 1))
    top, random = (_stacked([each[place] for each in layers]) for place in (2, 3))
    return SubUpdates(norm=norm, effect=effect, top=top, random=random)


@torch.no_grad()
def saturations(
    gpt: GPT,
    parts: Sequence[LayerParts],
    memories: MemoryTokens,
    found: Composed,
    other: Int[Tensor, " prefix"],
    seed: int,
) -> Saturations:
    """The saturation event of each prefix, where an FFN makes one; `other` gives each the token of another prefix."""
    decoder, generator = decoder_of(gpt), torch.Generator().manual_seed(seed)
    final = found.final_token
    layer = first_to_stay(found.output_token == final[:, None])
    before = found.stream_token.gather(1, layer[:, None])[:, 0]
    layer = torch.where((before != final) & (before >= 0) & (final >= 0), layer, -1)
    whose = torch.stack([final, before, final[other.cpu()]], dim=1)
    rows = torch.full((4, len(final), len(WHOSE)), torch.nan)
    totals = torch.full((len(final), len(WHOSE)), torch.nan)
    for number, each in enumerate(parts):
        (here,) = (layer == number).nonzero(as_tuple=True)
        if len(here):
            some = _at(each, here.to(gpt.device))
            scale = decoder.scale(some.stream + some.update)
            towards = [_direction(decoder, whose[here, which].to(gpt.device)) / scale for which in range(len(WHOSE))]
            totals[here] = torch.stack([(some.update * each).sum(1) for each in towards], dim=1).cpu()
            ranks = _ranks(some.coefficients.abs() * memories.norm[number], generator)
            for which, direction in enumerate(towards):
                effects = some.coefficients * (direction @ written_values(gpt, number).T) / some.scale
                rows[:, here, which] = _one_by_one(effects, ranks).cpu()
    raised, lowered, dominant, random = rows
    return Saturations(layer=layer, total=totals, raised=raised, lowered=lowered, dominant=dominant, random=random)


def joined_updates(pieces: Sequence[SubUpdates]) -> SubUpdates:
    """Several lots of prefixes as one."""
    return SubUpdates(
        norm=torch.cat([each.norm for each in pieces]),
        effect=torch.cat([each.effect for each in pieces]),
        top=_joined([each.top for each in pieces]),
        random=_joined([each.random for each in pieces]),
    )


def joined_saturations(pieces: Sequence[Saturations]) -> Saturations:
    """Several lots of prefixes as one."""
    names = [each.name for each in fields(Saturations)]
    return Saturations(**{name: torch.cat([getattr(each, name) for each in pieces]) for name in names})


def _direction(decoder: StreamDecoder, tokens: Tensor) -> Float[Tensor, "prefix d_model"]:
    """What raises a token's logit above the vocabulary's mean."""
    return decoder.unembed.T[tokens.clamp_min(0)] - decoder.unembed.mean(1)


def _at(parts: LayerParts, rows: Tensor) -> LayerParts:
    return LayerParts(**{each.name: getattr(parts, each.name)[rows] for each in fields(LayerParts)})


def _ranks(weight: Float[Tensor, "prefix memory"], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each memory's place from the largest weight down, and in a random order of those with any weight."""
    drawn = torch.rand(weight.shape, generator=generator).to(weight.device)
    largest_first = weight.argsort(dim=1, descending=True, stable=True)
    at_random = torch.where(weight > 0, drawn, 2.0).argsort(dim=1, stable=True)
    return largest_first.argsort(dim=1), at_random.argsort(dim=1)


def _first(
    parts: LayerParts, values: Tensor, whole: Tensor, towards: Tensor, rank: Tensor, ks: Sequence[int]
) -> dict[str, Tensor]:
    kept = torch.stack([parts.summed(parts.coefficients * (rank < k), values) for k in ks])
    return {
        "norm": kept.norm(dim=-1),
        "inner": (kept * whole).sum(-1),
        "missed": (whole - kept).square().sum(-1),
        "effect": (kept * towards).sum(-1),
    }


def _stacked(layers: Sequence[dict[str, Tensor]]) -> FirstMemories:
    return FirstMemories(**{name: torch.stack([each[name] for each in layers], dim=-1).cpu() for name in layers[0]})


def _joined(pieces: Sequence[FirstMemories]) -> FirstMemories:
    names = [each.name for each in fields(FirstMemories)]
    return FirstMemories(**{name: torch.cat([getattr(each, name) for each in pieces], dim=1) for name in names})


def _one_by_one(effects: Float[Tensor, "event memory"], ranks: tuple[Tensor, Tensor]) -> Float[Tensor, "part event"]:
    """What raises, what lowers, and the mean of the dominant and of random ones."""
    dominant, random = ((effects * (rank < N_DOMINANT)).sum(1) / min(N_DOMINANT, effects.shape[1]) for rank in ranks)
    return torch.stack([effects.clamp_min(0).sum(1), effects.clamp_max(0).sum(1), dominant, random])
