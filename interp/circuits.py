"""OV circuits from weights: does a head write the token that it attends to (Elhage et al. 2021)?

    OV_full = W_E W_V W_O W_U        [d_vocab, d_vocab]: attended token -> what is added to each token's logit

with ln1's gain folded into W_V and the final norm's into W_U (`interp.folding`). It is never formed.

* Eigenvalue copying score: Re(sum of eigenvalues) / sum of |eigenvalues| of OV_full, from the d_head x d_head matrix
  W_O W_U W_E W_V. From -1 to 1; near 1: the attended token's own logit is raised, on the whole. Beside it random
  Gaussian heads of the same shapes between the same W_E and W_U (mean 0): where embeddings share a large direction,
  their spread is wide, and the score of one head says little until it is taken out (`without=embedding_mean(gpt)`).
* Diagonal test: for each attended token the rank of its own logit among all, streamed over the vocabulary. Eigenvectors
  are not orthogonal, so positive eigenvalues alone do not prove copying of every token; the ranks do.

What they do not show: what a head attends to (every token is taken as attended), what the FFN has made of the stream by
then (the embedding stands for the token; give `embed=` another table, such as the stream after the first FFN, to read
that), the scales of the norms, value biases, and paths through later layers. A copying score does not identify
induction heads: heads of one-layer models that only copy score as high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.common_directions import orthonormal, outside, removal_note
from interp.folding import FoldedHeads, folded_heads, folded_read, folded_unembed, folded_write
from interp.places import Place
from interp.resolved_places import named_head, named_heads
from model.errors import InputError
from model.factored import FactoredMatrix

if TYPE_CHECKING:
    from model.gpt import GPT

Embed = Float[Tensor, "d_vocab d_model"]

_LOGITS_AT_ONCE = 2**20


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EigenvalueCopying:
    """Eigenvalue copying scores beside those of random heads."""

    score: Float[Tensor, "layer head"]
    """Re(sum of eigenvalues) / sum of their sizes: -1 to 1; 0 for a head that writes nothing."""

    null_mean: float
    """Measured over the random heads; 0 but for sampling."""

    null_sd: float
    """Over the random heads."""

    n_null: int
    """How many random heads, spread evenly over the layers' norms and pooled."""

    seed: int

    note: str
    """What is folded, in sentences."""

    @property
    def z(self) -> Float[Tensor, "layer head"]:
        """Score in standard deviations of random heads, whose mean is 0."""
        return self.score / self.null_sd

    def __repr__(self) -> str:
        n_layers, n_heads = self.score.shape
        return (
            f"EigenvalueCopying({n_layers} layers x {n_heads} heads; {self.n_null} random heads: sd {self.null_sd:.3f})"
        )


@torch.no_grad()
def eigenvalue_copying(
    gpt: GPT, *, embed: Tensor | None = None, without: Tensor | None = None, n_null: int = 256, seed: int = 0
) -> EigenvalueCopying:
    """The eigenvalue copying score of every head.

    Args:
        gpt: a model with an additive stream.
        embed: [d_vocab, d_model], what stands for each token in the stream that heads read; by default W_E.
        without: [direction, d_model], taken out of what is read and written, such as `embedding_mean(gpt)`.
        n_null: random heads to draw.
        seed: names the draw.

    Raises:
        NotAdditiveError: what a head writes does not reach the logits as it is.
        InputError: no random heads, or a table of another shape.
    """
    gpt.config.require_additive_stream("The copying score")
    if n_null < 2:
        raise InputError(f"n_null={n_null} random heads have no spread; draw at least 2.")
    heads = folded_heads(gpt)
    basis = orthonormal(gpt.config, without).to(gpt.device)
    back = outside(folded_unembed(gpt).mT, basis).mT @ outside(token_table(gpt, embed), basis)
    generator = torch.Generator().manual_seed(seed)
    shares = enumerate(_spread(n_null, gpt.config.n_layers))
    null = torch.cat([_copying(*_random_heads(gpt, layer, n, generator), back) for layer, n in shares])
    return EigenvalueCopying(
        score=_copying(heads.W_V, heads.W_O, back).cpu(),
        null_mean=float(null.mean()),
        null_sd=float(null.square().mean().sqrt()),
        n_null=n_null,
        seed=seed,
        note=token_note(heads, embed) + removal_note(len(basis)),
    )


def _copying(
    W_V: Float[Tensor, "*axes d_model d_head"],
    W_O: Float[Tensor, "*axes d_head d_model"],
    back: Float[Tensor, "d_model d_model"],
) -> Float[Tensor, "*axes"]:
    """Re(sum of eigenvalues) / sum of sizes, of W_E W_V W_O W_U; `back` is W_U W_E."""
    eigenvalues = torch.linalg.eigvals(W_O @ back @ W_V)
    sizes = eigenvalues.abs().sum(-1)
    return torch.where(sizes > 0, eigenvalues.real.sum(-1) / sizes, 0.0)


def _random_heads(gpt: GPT, layer: int, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Gaussian W_V and W_O of `n` heads, read and written through the norms of a layer."""
    d_model, d_head = gpt.config.d_model, gpt.config.head_width
    W_V = torch.randn(n, d_model, d_head, generator=generator, dtype=torch.float64).to(gpt.device)
    W_O = torch.randn(n, d_head, d_model, generator=generator, dtype=torch.float64).to(gpt.device)
    return folded_read(gpt, layer, W_V), folded_write(gpt, layer, W_O)


def _spread(n: int, parts: int) -> list[int]:
    """`n` in `parts` whole numbers that differ by one at most."""
    return [n // parts + (part < n % parts) for part in range(parts)]


# --- the diagonal ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DiagonalTest:
    """Where a token's own logit stands among all that attending to it raises; NaN for heads that were not asked."""

    top1: Float[Tensor, "layer head"]
    """Share of attended tokens whose own logit is raised most."""

    topk: Float[Tensor, "layer head"]
    """Share of attended tokens whose own logit is among the `k` raised most."""

    mean_rank: Float[Tensor, "layer head"]
    """Mean rank of the own logit, 1 being the highest; equal logits share their mean rank."""

    standardised: Float[Tensor, "layer head"]
    """Mean over tokens of (own logit - mean of all) / standard deviation of all; by chance 0."""

    k: int
    d_vocab: int
    n_tokens: int
    """Attended tokens that were tried."""

    note: str
    """What is folded, in sentences."""

    @property
    def chance_top1(self) -> float:
        """What `top1` would be if a row's order had nothing to do with its token."""
        return 1 / self.d_vocab

    @property
    def chance_topk(self) -> float:
        """What `topk` would be by chance."""
        return self.k / self.d_vocab

    @property
    def chance_rank(self) -> float:
        """What `mean_rank` would be by chance."""
        return (self.d_vocab + 1) / 2

    def __repr__(self) -> str:
        n_heads = int(self.top1.isfinite().sum())
        return f"DiagonalTest({n_heads} heads, {self.n_tokens} of {self.d_vocab} tokens)"


@torch.no_grad()
def diagonal_test(
    gpt: GPT,
    *,
    heads: str | Place | Sequence[str | Place] | None = None,
    tokens: Tensor | Sequence[int] | None = None,
    k: int = 10,
    embed: Tensor | None = None,
) -> DiagonalTest:
    """Rank every token's own logit in its row of OV_full; d_vocab^2 d_head multiplications per head, streamed.

    Args:
        gpt: a model with an additive stream.
        heads: such as "L1H1,L1H3" or "L1.attn"; by default all.
        tokens: ids of the attended tokens, where the whole vocabulary takes too long; by default all.
        k: how many of the most raised tokens count for `topk`.
        embed: [d_vocab, d_model], what stands for each token in the stream that heads read; by default W_E.
    """
    gpt.config.require_additive_stream("The diagonal test")
    d_vocab = gpt.config.d_vocab
    if not 1 <= k <= d_vocab:
        raise InputError(f"k={k} is no number of tokens; give one from 1 to the vocabulary's {d_vocab}.")
    ids = torch.arange(d_vocab) if tokens is None else torch.as_tensor(tokens).flatten()
    gpt.check_tokens(ids[None])
    ids = ids.to(gpt.device)
    folded, table, unembed = folded_heads(gpt), token_table(gpt, embed)[ids].float(), folded_unembed(gpt).float()
    found = torch.full((4, *folded.W_V.shape[:2]), torch.nan, dtype=torch.float64)
    for layer, index in named_heads(gpt.config, heads):
        reads, writes = (weights[layer, index].float() for weights in (folded.W_V, folded.W_O))
        found[:, layer, index] = _diagonal(table @ reads, writes @ unembed, ids, k)
    return DiagonalTest(
        **dict(zip(("top1", "topk", "mean_rank", "standardised"), found, strict=True)),
        **{"k": k, "d_vocab": d_vocab, "n_tokens": len(ids), "note": token_note(folded, embed)},
    )


def _diagonal(
    values: Float[Tensor, "token d_head"], logits: Float[Tensor, "d_head d_vocab"], ids: Int[Tensor, " token"], k: int
) -> Float[Tensor, " measure"]:
    """Share first, share among the first k, mean rank, mean standardised logit of the own token."""
    n, mean = logits.shape[1], logits.mean(1)
    covariance = torch.cov(logits.double(), correction=0).reshape(len(logits), -1)
    spread = ((values.double() @ covariance) * values.double()).sum(1).clamp_min(0).sqrt()
    own, ranks = torch.empty(len(ids), device=ids.device), torch.empty(len(ids), device=ids.device)
    for places in torch.arange(len(ids), device=ids.device).split(max(1, _LOGITS_AT_ONCE // n)):
        rows = values[places] @ logits
        own[places] = rows.gather(1, ids[places, None])[:, 0]
        higher = rows.sub_(own[places, None]).sign_().sum(1)  # those above minus those below; equal ones count neither
        ranks[places] = (n + 1 + higher) / 2
    standardised = (own - values @ mean).double() / spread.masked_fill(spread == 0, math.inf)
    return torch.stack([(ranks <= 1).double(), (ranks <= k).double(), ranks.double(), standardised]).mean(1).cpu()


# --- shared ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def token_ov(gpt: GPT, layer: int, head: int, *, embed: Tensor | None = None) -> FactoredMatrix:
    """OV_full of one head, folded, [d_vocab, d_vocab]: row = attended token, column = token whose logit it adds to."""
    gpt.config.require_additive_stream("The OV circuit between tokens")
    layer, head = named_head(gpt.config, f"L{layer}H{head}")
    heads = folded_heads(gpt)
    return FactoredMatrix(
        token_table(gpt, embed) @ heads.W_V[layer, head], heads.W_O[layer, head] @ folded_unembed(gpt)
    )


def token_note(heads: FoldedHeads, embed: Tensor | None) -> str:
    """What stands between two tokens and a head's weights, in sentences."""
    source = "W_E" if embed is None else "the given table"
    return f"Tokens are read from {source}; the final norm's gain is folded into W_U; {heads.note}"


def token_table(gpt: GPT, embed: Tensor | None) -> Embed:
    """What stands for each token in the stream."""
    if embed is None:
        return gpt.W_E.double()
    if embed.shape != gpt.embed.weight.shape:
        raise InputError(
            f"embed has shape {list(embed.shape)}; give a vector of the stream for each token, "
            f"{list(gpt.embed.weight.shape)}."
        )
    return embed.detach().double().to(gpt.device)
