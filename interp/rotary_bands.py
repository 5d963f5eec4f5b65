"""Attention scores split by rope's frequencies, as functions of the distance between query and key.

Rope turns d_head / 2 planes of a query and a key, plane f by frequency[f] = base^(-2 f / d_head) radians per token. A
score is a sum over the planes, exactly:

    score(i, j) = sum over f of |q_f| |k_f| cos(angle_f + (i - j) frequency[f]) / sqrt(d_head)

Fast planes (frequency near 1) tell neighbouring positions apart; slow ones hardly turn within a context and carry what
does not depend on position (Barbero et al. 2024, "Round and round we go"). `band_scores` averages each plane's term
over all pairs of a text at each distance, and beside it over the same pairs weighted by the attention they get: what is
in the second and not in the first is what the head picks by content. It also gives the size of queries and keys in
every plane. `pair_bands` gives the terms of single stream vectors, from weights.

Terms are those of the run (hook_rot_q, hook_rot_k), so they hold under qk_norm, biases and smeared keys too.

What it does not show: a constant added to all scores of a query changes nothing, so that only differences between
distances mean something; and mean scores are not mean patterns. The first key is left out by default: many heads park
their attention there (a sink), and at each distance that one pair would outweigh all others.

Cost: forward passes up to the layer on the explicit attention path, and once more its score products. Memory is that of
a few sequences, whatever their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.folding import folded_heads, require_bilinear_scores
from interp.offsets import resolve_offsets, turned
from interp.places import Place
from interp.requirements import require_causal_patterns, require_deterministic
from interp.resolved_places import named_head
from model.config import GPTConfig, Positions
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model.gpt import GPT

_NUMBERS_AT_ONCE = 4_000_000


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BandScores:
    """One layer's scores at each distance, split by rope's frequencies; fp64, on the CPU."""

    layer: int

    mean: Float[Tensor, "head distance band"]
    """What a band adds to the score: mean over all pairs at a distance. Distance 0 is a token with itself."""

    attended: Float[Tensor, "head distance band"]
    """The same, each pair weighted by its attention; NaN where a distance gets none."""

    attention: Float[Tensor, "head distance"]
    """Mean attention of the pairs at a distance."""

    n_pairs: Int[Tensor, " distance"]

    query_norm: Float[Tensor, "head band"]
    """Root mean square over tokens of a query's size in the band's plane."""

    key_norm: Float[Tensor, "head band"]

    frequency: Float[Tensor, " band"]
    """Radians per token, falling from 1."""

    first_key: int
    """Keys before this position are left out."""

    n_tokens: int
    """Tokens read."""

    @property
    def score(self) -> Float[Tensor, "head distance"]:
        """The mean score at each distance: the sum over bands."""
        return self.mean.sum(-1)

    @property
    def attended_score(self) -> Float[Tensor, "head distance"]:
        """The mean score at each distance, pairs weighted by their attention."""
        return self.attended.sum(-1)

    @property
    def range_over_distances(self) -> Float[Tensor, "head band"]:
        """Largest minus smallest mean term over distances: how much a band has to say about distance."""
        return self.mean.amax(1) - self.mean.amin(1)

    @property
    def wavelength(self) -> Float[Tensor, " band"]:
        """Tokens per full turn."""
        return 2 * math.pi / self.frequency

    def __repr__(self) -> str:
        n_heads, n_distances, n_bands = self.mean.shape
        return f"BandScores(layer {self.layer}: {n_heads} heads, {n_distances} distances, {n_bands} bands)"


@torch.no_grad()
def band_scores(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    layer: int,
    *,
    first_key: int = 1,
    batch_size: int | None = None,
) -> BandScores:
    """Split the scores of every head of a layer on these tokens by frequency and distance.

    Args:
        gpt: a causal model with rope and without active dropout.
        tokens: sequences of one length, without padding.
        layer: whose heads.
        first_key: keys before this position are left out; 0 keeps the first, where attention sinks are.
        batch_size: sequences at a time; by default as many as keep a pattern below 16 MB.
    """
    _require_rope(gpt.config)
    require_deterministic(gpt)
    require_causal_patterns(gpt)
    if not 0 <= layer < gpt.config.n_layers:
        raise InputError(f"layer={layer} is not a layer of this model; layers run from 0 to {gpt.config.n_layers - 1}.")
    gpt.check_tokens(tokens)
    n_pos = tokens.shape[1]
    if not 0 <= first_key < n_pos:
        raise InputError(f"first_key={first_key} leaves no key of {n_pos} positions; give one from 0 to {n_pos - 1}.")
    sums = _Sums(gpt.config, n_pos - first_key)
    for batch in tokens.split(batch_size or max(1, _NUMBERS_AT_ONCE // (gpt.config.n_heads * n_pos * n_pos))):
        places = [Tap.ROT_Q.at(layer), Tap.ROT_K.at(layer), Tap.PATTERN.at(layer)]
        _, cache = gpt.run_with_cache(batch.to(gpt.device), places, return_type=None, stop_at_layer=layer + 1)
        q, k, pattern = (cache[place] for place in places)
        sums.add(q, k.repeat_interleave(q.shape[2] // k.shape[2], dim=2), pattern, first_key)
    counts = len(tokens) * torch.arange(n_pos - first_key, 0, -1)
    scale = math.sqrt(gpt.config.head_width)
    return BandScores(
        layer=layer,
        mean=sums.terms / counts[:, None] / scale,
        attended=sums.attended / sums.attention[..., None] / scale,
        attention=sums.attention / counts,
        n_pairs=counts,
        query_norm=(sums.queries / tokens.numel()).sqrt(),
        key_norm=(sums.keys / tokens.numel()).sqrt(),
        frequency=frequencies(gpt.config),
        first_key=first_key,
        n_tokens=tokens.numel(),
    )


class _Sums:
    """Running sums over sequences, fp64."""

    def __init__(self, config: GPTConfig, n_distances: int) -> None:
        n_heads, n_bands = config.n_heads, config.head_width // 2
        self.terms = torch.zeros(n_heads, n_distances, n_bands, dtype=torch.float64)
        self.attended = torch.zeros_like(self.terms)
        self.attention = torch.zeros(n_heads, n_distances, dtype=torch.float64)
        self.queries = torch.zeros(n_heads, n_bands, dtype=torch.float64)
        self.keys = torch.zeros_like(self.queries)

    def add(
        self,
        q: Float[Tensor, "batch pos head d_head"],
        k: Float[Tensor, "batch pos head d_head"],
        pattern: Float[Tensor, "batch head pos pos"],
        first_key: int,
    ) -> None:
        """Add a batch; one distance at a time, so that no more than its pairs exist at once."""
        exact = torch.promote_types(q.dtype, torch.float32)
        q, k, pattern = (each.to(exact) for each in (q, k, pattern))
        self.queries += _by_band(q * q).sum((0, 1)).double().cpu()
        self.keys += _by_band(k * k).sum((0, 1)).double().cpu()
        n_pos = q.shape[1]
        for distance in range(n_pos - first_key):
            terms = _by_band(q[:, first_key + distance :] * k[:, first_key : n_pos - distance])
            weights = pattern.diagonal(-distance, dim1=2, dim2=3)[..., first_key:]
            self.terms[:, distance] += terms.sum((0, 1)).double().cpu()
            self.attended[:, distance] += torch.einsum("bhp,bphf->hf", weights, terms).double().cpu()
            self.attention[:, distance] += weights.sum((0, 2)).double().cpu()


@torch.no_grad()
def pair_bands(
    gpt: GPT,
    head: str | Place,
    query: Float[Tensor, "pair d_model"],
    key: Float[Tensor, "pair d_model"],
    distances: int | Sequence[int] | None = None,
) -> Float[Tensor, "pair distance band"]:
    """What each band adds to the score of given stream vectors, were they so far apart; from weights, fp64.

    Args:
        gpt: a model with rope and without qk_norm or smeared keys.
        head: such as "L1H3".
        query: what the query reads, divided by the norm's scale (`ln1.hook_normalized`; without a norm, the stream).
        key: what the key reads, likewise.
        distances: query minus key positions; by default those of a full context, at most 64, evenly spaced.
    """
    _require_rope(gpt.config)
    require_bilinear_scores(gpt.config, "A score from weights")
    heads = folded_heads(gpt)
    layer, index = named_head(gpt.config, head)
    q = query.double().to(gpt.device) @ heads.W_Q[layer, index] + heads.b_Q[layer, index]
    k = key.double().to(gpt.device) @ heads.W_K[layer, index] + heads.b_K[layer, index]
    asked = resolve_offsets(gpt.config, distances)
    terms = torch.stack([_by_band(turned(q, distance, gpt.config) * k) for distance in asked], dim=1)
    return terms.cpu() / math.sqrt(gpt.config.head_width)


def frequencies(config: GPTConfig) -> Float[Tensor, " band"]:
    """How far rope turns each plane per token, in radians: base^(-2 f / d_head)."""
    return config.rope_base ** (-torch.arange(0, config.head_width, 2, dtype=torch.float64) / config.head_width)


def _by_band(products: Float[Tensor, "*axes d_head"]) -> Float[Tensor, "*axes band"]:
    """Dimension f and f + d_head / 2 make one plane."""
    return products.unflatten(-1, (2, -1)).sum(-2)


def _require_rope(config: GPTConfig) -> None:
    if config.positions is not Positions.ROPE:
        raise InputError(
            f"positions={config.positions.value} turns nothing, so scores have no frequency bands; take a rope model."
        )
