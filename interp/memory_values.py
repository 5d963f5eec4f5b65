"""FFN memories, values: which tokens each one promotes (Geva et al. 2021, arXiv 2012.14913, section 4).

A memory that fires with coefficient m_i (`interp.memory_stream`) writes m_i v_i, where v_i is row i of W_out. Its
scores are v_i W_U with the final norm folded in, in logits per unit of coefficient before the final norm's scale. Only
the order of the tokens means something, and it assumes that every layer writes in the basis that the last one reads.
Where norms stand on the stream (post, deepnorm), a value passes those of all later layers: their gains and centring are
folded in too, their scales are left out, which are positive and so keep the order. Without skip connections no value
reaches the logits by itself, and the model is refused (`interp.memory_stream.require_memories`).

A value is also compared with its own key, both in the basis of the stream that the layer reads and adds to:

    key      C diag(gain) k_i     the gain and centring of the norm before the FFN, where there is one
    value    v_i C diag(gain) C   those of an output norm, where there is one; centred where all readers centre

A cosine near -1 means that the memory takes away from the stream what it was fired by (Elhage et al. 2021, footnote on
memory management: "clean-up"). SwiGLU has two keys, and the coefficient is silu(gate) times linear: the gate's key says
when the memory opens, the linear one sets its sign, so that only the first cosine is read as with other FFNs.

Confidence, the largest probability of softmax(v_i W_U), is not calibrated: a value's length and the final norm's scale
are in it. Skew and kurtosis of the scores over the vocabulary are scale-free: high kurtosis with positive skew marks
memories that promote few tokens, negative skew those that suppress few (Gurnee et al. 2024, arXiv 2401.12181).

Cost: one product [memories, d_model] x [d_model, d_vocab] per layer, in groups whose scores fit into 64 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity

from interp.agreement import ranks
from interp.folding import reads_are_centred
from interp.token_concepts import N_TOP, ConceptCoverage, ConceptTable, concept_coverage
from model.config import PRE_NORM_READS, SUM_NORMS
from model.errors import InputError

if TYPE_CHECKING:
    from model.ffn import FFN
    from model.gpt import GPT
    from model.norms import NormLayer


@dataclass(frozen=True, kw_only=True)
class LayerValues:
    """What is read of a layer's values. Scores are logits per unit of coefficient, before the final norm's scale."""

    promoted: Int[Tensor, "memory rank"]
    """The tokens with the largest scores, largest first."""
    promoted_score: Float[Tensor, "memory rank"]
    suppressed: Int[Tensor, "memory rank"]
    """The tokens with the smallest scores, smallest first."""
    suppressed_score: Float[Tensor, "memory rank"]

    confidence: Float[Tensor, " memory"]
    """Largest probability of softmax(v W_U). Not calibrated: only its order over memories means something."""

    skew: Float[Tensor, " memory"]
    """Third standardized moment of the scores over the vocabulary; NaN where all scores are equal."""

    kurtosis: Float[Tensor, " memory"]
    """Fourth standardized moment less 3, which is 0 for a normal distribution; NaN where all scores are equal."""

    asked_rank: Int[Tensor, "memory asked"]
    """Place of the asked tokens in the order of promotion, from 0; -1 where none was asked."""

    norm: Float[Tensor, " memory"]
    """|v|, of what is added to the stream per unit of coefficient (before an output norm's scale)."""

    key_norm: Float[Tensor, " memory"]
    """|k|, of the key that reads the stream (after the scale of the norm before it); for swiglu the gate's."""

    key_value_cosine: Float[Tensor, " memory"]
    """Cosine of key and value in the stream's basis; NaN where either is zero."""

    linear_value_cosine: Float[Tensor, " memory"]
    """The same for the linear key of swiglu (W_in); NaN for other FFNs."""

    concept: ConceptCoverage | None
    """What the top tokens have in common; None where no table of concepts was given."""


@torch.no_grad()
def read_values(
    gpt: GPT,
    layer: int,
    *,
    n_promoted: int,
    asked: Int[Tensor, "memory asked"],
    concepts: ConceptTable | None = None,
    unembed: Float[Tensor, "d_model d_vocab"] | None = None,
    order: Int[Tensor, " memory"] | None = None,
) -> LayerValues:
    """Everything that is read of the values of a layer.

    Args:
        gpt: the model.
        layer: whose memories.
        n_promoted: tokens kept at either end of a value's order.
        asked: tokens whose place in each value's order is wanted; -1 for none.
        concepts: the concepts of the vocabulary, where coverage is wanted.
        unembed: the model's `folded_unembed()`, which spares folding it again for each layer.
        order: whose value each memory gets, for a control in which values are dealt to other memories.
    """
    _ffn(gpt, layer)
    unembed = gpt.folded_unembed() if unembed is None else unembed
    whole = torch.arange(gpt.config.ffn_width) if order is None else order.cpu()
    parts, tops = [], []
    for group in fitting_memories(gpt.config.ffn_width, gpt.config.d_vocab):
        scores = value_scores(gpt, layer, whole[group], unembed)
        found, top = _of_scores(scores, n_promoted, 0 if concepts is None else N_TOP)
        parts.append(found | {"asked_rank": ranks(scores, asked[group])})
        tops.append(top)
    read = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    coverage = None if concepts is None else concept_coverage(torch.cat(tops), concepts)
    return LayerValues(**read, **_beside_keys(gpt, layer, whole), concept=coverage)


@torch.no_grad()
def random_coverage(gpt: GPT, layer: int, table: ConceptTable, *, n: int, seed: int) -> ConceptCoverage:
    """Concepts among the top tokens of `n` random directions, in place of values: the control of concept coverage.

    Directions are drawn evenly and read as the layer's values are, through the same norms and unembedding.
    """
    if n < 1:
        raise InputError(f"n={n} random directions are no control; take at least 1.")
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(n, gpt.config.d_model, generator=generator).to(gpt.device)
    unembed = gpt.folded_unembed()
    groups = fitting_memories(n, gpt.config.d_vocab)
    tops = [_top(_scores_of(gpt, layer, directions[group], unembed), N_TOP) for group in groups]
    return concept_coverage(torch.cat(tops), table)


@torch.no_grad()
def value_scores(
    gpt: GPT,
    layer: int,
    memories: slice | Int[Tensor, " memory"] = slice(None),
    unembed: Float[Tensor, "d_model d_vocab"] | None = None,
) -> Float[Tensor, "memory d_vocab"]:
    """What each value of a layer adds to each token's logit, per unit of coefficient and of final-norm scale.

    The norms that a value passes on its way (an output norm; all later ones on the stream) enter with their gains and
    centring, not with their scales. `memories` are some of the layer's, where all their scores are too many at once;
    `unembed`, the model's `folded_unembed()`, spares folding it again for each of them.
    """
    written = _ffn(gpt, layer).W_out[memories].contiguous()
    return _scores_of(gpt, layer, written, gpt.folded_unembed() if unembed is None else unembed)


def fitting_memories(n_memories: int, d_vocab: int) -> list[slice]:
    """A layer's memories in groups, each with no more scores than fit into 64 MB: larger blocks are slower."""
    size = max(1, _SCORES // d_vocab)
    return [slice(start, min(start + size, n_memories)) for start in range(0, n_memories, size)]


_SCORES = 2**24
"""Largest number of fp32 scores held at once."""


def folded_keys(gpt: GPT, layer: int) -> tuple[Float[Tensor, "memory d_model"], Float[Tensor, "memory d_model"] | None]:
    """A layer's keys as they read the stream over its scale, and swiglu's linear keys (None for other FFNs); fp64."""
    ffn, norm = _ffn(gpt, layer), gpt.layers[layer].ln2 if gpt.config.norm in PRE_NORM_READS else None
    if ffn.W_gate is None:
        return _read_through(norm, ffn.W_in.T), None
    return _read_through(norm, ffn.W_gate.T), _read_through(norm, ffn.W_in.T)


def _read_through(norm: NormLayer | None, keys: Float[Tensor, "memory d_model"]) -> Float[Tensor, "memory d_model"]:
    if norm is None:
        return keys.double()
    folded = norm.shrink * keys.double() * norm.w.detach().double()
    return folded - folded.mean(-1, keepdim=True) if norm.centres else folded


def _scores_of(
    gpt: GPT, layer: int, written: Float[Tensor, "memory d_model"], unembed: Float[Tensor, "d_model d_vocab"]
) -> Float[Tensor, "memory d_vocab"]:
    """What vectors that the FFN of a layer might write do to the logits."""
    for norm in _norms_passed(gpt, layer):
        written = _written_through(norm, written)
    return (written.float() @ unembed.float()).cpu()


def _written_through(norm: NormLayer, written: Float[Tensor, "memory d_model"]) -> Float[Tensor, "memory d_model"]:
    return (written - written.mean(-1, keepdim=True) if norm.centres else written) * norm.w


def _norms_passed(gpt: GPT, layer: int) -> list[NormLayer]:
    """The norms between what the FFN of a layer writes and the final norm, which the unembedding has folded in."""
    block = gpt.layers[layer]
    if gpt.config.norm not in SUM_NORMS:
        return [] if block.ln2_post is None else [block.ln2_post]
    later = [norm for after in gpt.layers[layer + 1 :] for norm in (after.ln1, after.ln2)]
    return [norm for norm in (block.ln2, *later) if norm is not None and norm is not gpt.final_norm]


def _of_scores(
    scores: Float[Tensor, "memory d_vocab"], n_promoted: int, n_top: int
) -> tuple[dict[str, Tensor], Tensor]:
    """What is kept of some values' scores, and their `n_top` most promoted tokens."""
    few = min(n_promoted, scores.shape[1])
    up, down = scores.topk(min(max(few, n_top), scores.shape[1])), scores.topk(few, largest=False)
    kept = {
        "promoted": up.indices[:, :few].int(),
        "promoted_score": up.values[:, :few].clone(),
        "suppressed": down.indices.int(),
        "suppressed_score": down.values,
        "confidence": 1 / (scores - up.values[:, :1]).exp_().sum(-1),
    }
    return kept | _shape_of(scores), up.indices[:, :n_top]


def _top(scores: Float[Tensor, "memory d_vocab"], n_top: int) -> Int[Tensor, "memory rank"]:
    return scores.topk(min(n_top, scores.shape[1])).indices


def _shape_of(scores: Float[Tensor, "memory d_vocab"]) -> dict[str, Tensor]:
    """Skew and excess kurtosis over the vocabulary."""
    centred = scores - scores.mean(-1, keepdim=True)
    squares = centred.square()
    variance = squares.mean(-1)
    variance = variance.where(variance > 0, torch.nan)
    return {
        "skew": centred.mul_(squares).mean(-1) / variance**1.5,
        "kurtosis": squares.square_().mean(-1) / variance**2 - 3,
    }


def _beside_keys(gpt: GPT, layer: int, order: Int[Tensor, " memory"]) -> dict[str, Tensor]:
    """Sizes of keys and values, and the angle between them."""
    keys, linear = folded_keys(gpt, layer)
    values = _ffn(gpt, layer).W_out[order.to(gpt.device)].double()
    norm = gpt.layers[layer].ln2_post
    values = values if norm is None else _written_through(norm, values)
    read = values - values.mean(-1, keepdim=True) if reads_are_centred(gpt.config) else values
    nothing = torch.full((len(values),), torch.nan)
    found = {
        "norm": values.norm(dim=-1),
        "key_norm": keys.norm(dim=-1),
        "key_value_cosine": _cosine(keys, read),
        "linear_value_cosine": nothing if linear is None else _cosine(linear, read),
    }
    return {name: each.float().cpu() for name, each in found.items()}


def _cosine(one: Float[Tensor, "memory d_model"], two: Float[Tensor, "memory d_model"]) -> Float[Tensor, " memory"]:
    there = (one.norm(dim=-1) > 0) & (two.norm(dim=-1) > 0)
    return cosine_similarity(one, two, dim=-1).where(there, torch.nan)


def _ffn(gpt: GPT, layer: int) -> FFN:
    ffn = gpt.layers[layer].mlp
    if ffn is None:
        raise InputError("This model is attention-only (ffn=none), so it has no FFN memories; study one with an FFN.")
    return ffn
