"""Copying, measured on activations: does a head raise the logits of the tokens that it attends to?

Olsson et al. 2022 (appendix, head activation evaluators) show a head 25 random tokens and look at its direct
contribution to the logits, o_i = z_i W_O W_U at destination i, with its mean over the vocabulary taken off and what is
negative cut away. Their text leaves the aggregation open; here it is

    share      r_ij = relu(o_i)[token j] / sum over the sequence's distinct tokens v of relu(o_i)[v]
    share of a head    r = sum_ij A_ij r_ij / sum_ij A_ij          weighted by the attention A, BOS aside
    score      2 r - 1, from -1 (raises only others) to 1 (raises only what it attends to)

A destination at which no token of the sequence is raised counts as an even write. The BOS is no destination, no
attended token and no other token.

*Chance*: were the attended tokens any of the sequence's n distinct tokens, the mean share would be 1/n whatever the
head writes, since the shares of a destination sum to 1. A sharper question has its answer beside it: `permuted` is the
score were the attention of each row spread evenly over the tokens that the row may see. A head that raises whatever is
in the context scores as much there; one that copies what it attends to does not.

*Norms*: what a head writes reaches the logits through the final norm, and under sandwich and reordered placement first
through its sublayer's output norm. Their gains and centring are applied; their scales, one positive number for each
position, are frozen and cancel in the ratio. The constant part b_V of a head's values (`interp.attention_bases`), which
it writes wherever it looks, is left out, as are all biases after it. Where the stream is not a sum (post, deepnorm, no
skip connections) a head has no direct contribution and the score is refused. The logits are only ever formed for the
tokens of the sequence; the vocabulary takes part through its mean column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention_bases import value_bias, without_value_bias
from interp.linear_norms import before_norm
from interp.patterns import Heads, WriteFunction, pattern_scores
from interp.scores import Pattern, even_pattern

if TYPE_CHECKING:
    from model.gpt import GPT

Raised = Float[Tensor, "batch head query token"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Copying:
    """How much of what each head raises is what it attends to."""

    score: Float[Tensor, "sequence layer head"]
    """2 r - 1, from -1 to 1."""

    permuted: Float[Tensor, "sequence layer head"]
    """The same, were each row's attention spread evenly over the tokens it may see."""

    chance: Float[Tensor, " sequence"]
    """2/n - 1 for n distinct tokens: what an even write scores."""


@torch.no_grad()
def copying_scores(gpt: GPT, tokens: Int[Tensor, "sequence pos"], *, bos: int | None) -> Copying:
    """The copying score of every head on every sequence, in one forward pass.

    Args:
        gpt: a causal model with an additive stream, its dropout off.
        tokens: sequences of one length, behind a BOS if there is one.
        bos: the token that stands at position 0 and counts for nothing; None where there is none.

    Raises:
        NotAdditiveError: a head of this model makes no direct contribution to the logits.
    """
    found = pattern_scores(gpt, tokens, {}, writes={"copying": copying_function(gpt, bos=bos)})["copying"]
    return Copying(score=found[..., 0], permuted=found[..., 1], chance=copying_chance(tokens, bos=bos))


def copying_function(gpt: GPT, *, bos: int | None) -> WriteFunction:
    """For `pattern_scores(writes=...)`: two numbers for each head, the score and the one under permutation."""
    gpt.config.require_additive_stream("an activation-based copying score")
    start, vocabulary = 0 if bos is None else 1, gpt.unembed.weight
    exact = torch.promote_types(vocabulary.dtype, torch.float32)
    mean = vocabulary.detach().mean(0, dtype=exact)

    def score(pattern: Pattern, z: Heads, tokens: Tensor, layer: int) -> Float[Tensor, "batch head two"]:
        counted, block = tokens[:, start:], gpt.layers[layer]
        directions = vocabulary[counted].to(exact) - mean
        for norm in (gpt.ln_final, block.ln1_post):
            directions = directions if norm is None else before_norm(norm, 1.0, directions)
        own = without_value_bias(z[:, start:].to(exact), value_bias(gpt, layer))
        shares = token_shares(_raised(own, block.attn.W_O.to(exact), directions), counted)
        attended = pattern[:, :, start:, start:].to(exact)
        even = even_pattern(attended.shape[-1]).to(attended) * attended.sum(-1, keepdim=True)
        return torch.stack([2 * weighted_share(each, shares) - 1 for each in (attended, even)], dim=-1)

    return score


def copying_chance(tokens: Int[Tensor, "sequence pos"], *, bos: int | None) -> Float[Tensor, " sequence"]:
    """2/n - 1, with n the distinct tokens of each sequence behind the BOS."""
    counted = tokens if bos is None else tokens[:, 1:]
    return 2 / (1 / _multiplicity(counted).double()).sum(-1) - 1


def token_shares(raised: Raised, tokens: Int[Tensor, "batch token"]) -> Raised:
    """r_ij: the share of each position's token in all that is raised; even where nothing is. Sums to 1 over tokens."""
    weight = (1 / _multiplicity(tokens)).to(raised.dtype)  # a token that stands twice is one token
    total = torch.einsum("bhqv,bv->bhq", raised, weight)[..., None]
    even = 1 / weight.sum(-1)[:, None, None, None]
    return torch.where(total > 0, raised / total, even)


def weighted_share(attended: Pattern, shares: Raised) -> Float[Tensor, "batch head"]:
    """Mean of the shares over rows and keys, weighted by attention; the mean share where all of it is on the BOS."""
    mass = attended.sum((-1, -2))
    return torch.where(mass > 0, (attended * shares).sum((-1, -2)) / mass, shares.mean((-1, -2)))


def _raised(
    z: Heads, w_o: Float[Tensor, "head d_head d_model"], directions: Float[Tensor, "batch token d_model"]
) -> Raised:
    """relu(o_i) at the tokens of the sequence, up to one positive number for each destination."""
    read = torch.einsum("hem,bvm->bhev", w_o, directions)
    return torch.einsum("bqhe,bhev->bhqv", z, read).relu()


def _multiplicity(tokens: Int[Tensor, "batch token"]) -> Int[Tensor, "batch token"]:
    """How often the token of each position stands in its sequence."""
    return (tokens[:, :, None] == tokens[:, None, :]).sum(-1)
