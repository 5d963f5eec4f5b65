"""What attention moves, in three bases: raw, value-weighted, and as logits (Elhage et al. 2021; Kobayashi et al. 2020).

A pattern says where a head looks, not what comes of it: a head may rest on a key whose value is nearly nothing. So for
each query i and key j,

    raw              A_ij
    value-weighted   A_ij |v_j W_O|                what key j sends, as a length in units of the stream
    signed           A_ij (v_j W_O) . d_i          what it adds to a logit (d_i as in `interp.attribution`)

v_j is what key j's own stream gives to the value, without b_V, the constant part of all values: the projection's bias
and that of the norm before it, read through W_V (`interp.folding`). Rows of a pattern sum to 1, so b_V W_O arrives
whole wherever the head looks, and b_O whether it looks or not. So nothing here depends on where a constant is written
down. The signed contributions of all keys and b_V's part sum to the head's direct logit attribution, exactly.

The value-weighted basis is of what a head hands to its sublayer's sum. Where a norm comes after that (sandwich and
reordered on what the sublayer writes, post and deepnorm on the stream), lengths at one query share that norm's scale:
keys can be compared, and queries only as far as their scales agree. The signed basis needs a stream that is a sum; an
output norm's scale is held, and `frozen` says so.

Cost: one forward pass up to the layer (to the end, for logits); memory is that of one layer's patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.folding import folded_bias
from interp.linear_norms import before_norm
from interp.requirements import require_deterministic, targets_for
from model.errors import InputError
from model.settings import as_enum
from model.sites import Tap

if TYPE_CHECKING:
    from model.attention import Attention
    from model.gpt import GPT

SIGNED = "signed attention (logits added through each key)"
"""What needs an additive stream."""


class Against(StrEnum):
    """What a logit is compared with."""

    MEAN = "mean"
    """The mean logit over the vocabulary: a number added to all logits changes no prediction."""

    NOTHING = "nothing"
    """The logit as it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedAttention:
    """One layer's attention, raw and weighted by the length of what it moves."""

    raw: Float[Tensor, "batch head query key"]
    """The pattern: rows sum to 1."""

    moved: Float[Tensor, "batch head key"]
    """|v_j W_O|: how much a head would write if it attended to this key alone, b_V left out."""

    @property
    def weighted(self) -> Float[Tensor, "batch head query key"]:
        """A_ij |v_j W_O|."""
        return self.raw * self.moved[:, :, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class SignedAttention:
    """One layer's attention as what it adds to a logit of each query."""

    contribution: Float[Tensor, "batch head query key"]
    """In logits; summed over keys, with `value_bias`, the head's direct logit attribution."""

    value_bias: Float[Tensor, "batch head query"]
    """What b_V (`value_bias`) adds, whatever is attended to; 0 in models without biases."""

    frozen: tuple[str, ...]
    """Norms whose scale is held at the run's own value, by hook name without its last part."""


@torch.no_grad()
def weighted_attention(gpt: GPT, tokens: Int[Tensor, "batch pos"], layer: int) -> WeightedAttention:
    """A layer's attention on some text, raw and value-weighted; for every placement of norms."""
    require_deterministic(gpt)
    attention = attention_at(gpt, layer)
    places = [Tap.PATTERN.at(layer), Tap.V.at(layer)]
    _, cache = gpt.run_with_cache(tokens, places, stop_at_layer=layer + 1, return_type=None)
    pattern = cache[places[0]]
    moved = lengths_written(own_values(cache[places[1]], value_bias(gpt, layer)), output_factors(attention))
    return WeightedAttention(raw=pattern, moved=moved.transpose(1, 2).to(pattern.dtype))


@torch.no_grad()
def signed_attention(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    layer: int,
    targets: Tensor | int,
    against: Against | str = Against.MEAN,
) -> SignedAttention:
    """A layer's attention as what each key adds to the logit of each query's target.

    Args:
        gpt: a model with an additive stream, its dropout off.
        tokens: what it reads.
        layer: whose heads are taken apart.
        targets: [batch, pos], a token for every position, such as `next_tokens`; or one for all.
        against: the mean logit over the vocabulary, which is taken off, or nothing.

    Raises:
        NotAdditiveError: the stream of this model is not a sum.
        InputError: dropout is on, there is no such layer, or a target is not a token.
        ConfigError: `against` is neither of the two.
    """
    against = as_enum(Against, against, "against")
    gpt.config.require_additive_stream(SIGNED)
    require_deterministic(gpt)
    attention = attention_at(gpt, layer)
    wanted = targets_for(gpt, tokens, targets)
    scales = held_scales(gpt, layer)
    pattern, value = Tap.PATTERN.at(layer), Tap.V.at(layer)
    _, cache = gpt.run_with_cache(tokens, [pattern, value, *scales], return_type=None)
    direction = stream_direction(gpt, layer, wanted, against, {name: cache[name] for name in scales})
    per_unit = torch.einsum("hem,bqm->bqhe", attention.W_O.to(direction.dtype), direction)
    constant = value_bias(gpt, layer)
    values = own_values(cache[value], constant).to(direction.dtype)
    added = torch.einsum("bkhe,bqhe->bhqk", values, per_unit)
    return SignedAttention(
        contribution=cache[pattern].to(direction.dtype) * added,
        value_bias=torch.einsum("he,bqhe->bhq", constant.to(direction.dtype), per_unit),
        frozen=tuple(name.removesuffix(".hook_scale") for name in scales),
    )


def next_tokens(tokens: Int[Tensor, "batch pos"], after: int) -> Int[Tensor, "batch pos"]:
    """The token that follows at each position; `after`, a token of your choice, behind the last.

    >>> next_tokens(torch.tensor([[4, 7, 5]]), after=0).tolist()
    [[7, 5, 0]]
    """
    return torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], after)], dim=1)


# --- parts that the corpus stream and its examples share --------------------------------------------------------------


def attention_at(gpt: GPT, layer: int) -> Attention:
    """The attention of a layer; refuses, in a sentence, a layer that the model does not have."""
    if not 0 <= layer < gpt.config.n_layers:
        raise InputError(f"layer={layer} is not a layer of this model; layers run from 0 to {gpt.config.n_layers - 1}.")
    return gpt.layers[layer].attn


def output_factors(attention: Attention) -> Float[Tensor, "head d_head rank"]:
    """For each head a small matrix F with |u F| = |u W_O| for every u: d_head wide at most, where W_O is d_model wide.

    W_O^T = Q R gives u W_O = u R^T Q^T, and Q keeps lengths. Unlike the square u W_O W_O^T u^T, |u R^T| cannot come
    out below zero, and loses no digits where W_O nearly cancels u.
    """
    reduced = torch.linalg.qr(attention.W_O.double().transpose(1, 2), mode="r").R
    return reduced.transpose(1, 2).to(torch.promote_types(attention.W_O.dtype, torch.float32)).contiguous()


def lengths_written(
    values: Float[Tensor, "batch pos head d_head"], factors: Float[Tensor, "head d_head rank"]
) -> Float[Tensor, "batch pos head"]:
    """|u W_O| of each head's own vector u (a value, or a z), from `output_factors`."""
    return torch.einsum("bphe,her->bphr", values.to(factors.dtype), factors).norm(dim=-1)


def value_bias(gpt: GPT, layer: int) -> Float[Tensor, "head d_head"]:
    """b_V of each query head: what is the same in all its values, from the biases of v_proj and of ln1; zeros without.

    At least fp32. A model that keeps a constant in ln1's bias and one that keeps it in v_proj's have the same b_V.
    """
    attention = gpt.layers[layer].attn
    weights = attention.W_V
    own = attention.v_proj.bias
    biases = torch.zeros_like(weights[:, 0]) if own is None else own.detach().view(len(weights), -1)
    constant = folded_bias(gpt, layer, biases, weights).to(torch.promote_types(gpt.dtype, torch.float32))
    return _for_each_head(constant, attention.n_heads)


def own_values(
    values: Float[Tensor, "batch key kv_head d_head"], bias: Float[Tensor, "head d_head"]
) -> Float[Tensor, "batch key head d_head"]:
    """Each query head's values without b_V, from those of `hook_v`; heads that share a value each get it."""
    return without_value_bias(_for_each_head(values, len(bias)), bias)


def without_value_bias(
    moved: Float[Tensor, "batch pos head d_head"], bias: Float[Tensor, "head d_head"]
) -> Float[Tensor, "batch pos head d_head"]:
    """Values, or a z, which is a mean of values, less the `value_bias` of their layer."""
    return moved - bias


def _for_each_head(values: Float[Tensor, "*any kv_head d_head"], n_heads: int) -> Float[Tensor, "*any head d_head"]:
    n_sharing = n_heads // values.shape[-2]
    return values.repeat_interleave(n_sharing, dim=-2) if n_sharing > 1 else values


def held_scales(gpt: GPT, layer: int) -> list[str]:
    """The norms' scales between what a layer's head writes and the logits, which are held at the run's own values."""
    taps = {Tap.LN1_POST_SCALE.at(layer): gpt.layers[layer].ln1_post, Tap.LN_FINAL_SCALE.at(): gpt.ln_final}
    return [str(site) for site, norm in taps.items() if norm is not None]


def stream_direction(
    gpt: GPT,
    layer: int,
    targets: Int[Tensor, "batch pos"],
    against: Against | str,
    scales: dict[str, Float[Tensor, "batch pos one"]],
) -> Float[Tensor, "batch pos d_model"]:
    """What one unit of a layer's heads' result, in each dimension, adds to the logit of each target.

    `scales` are those of `held_scales`, at the same positions.
    """
    exact = torch.promote_types(gpt.dtype, torch.float32)
    towards = gpt.unembed.weight[targets].to(exact)
    if as_enum(Against, against, "against") is Against.MEAN:
        towards = towards - gpt.unembed.weight.to(exact).mean(0)
    if gpt.ln_final is not None:
        towards = before_norm(gpt.ln_final, scales[str(Tap.LN_FINAL_SCALE.at())], towards)
    output_norm = gpt.layers[layer].ln1_post
    return (
        towards if output_norm is None else before_norm(output_norm, scales[str(Tap.LN1_POST_SCALE.at(layer))], towards)
    )
