"""Reading the values of all layers, and what chance gives beside each (for `analyses.ffn.reading`)."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from analyses.ffn.parts import Values
from interp.agreement import partners
from interp.memory_values import LayerValues, random_coverage, read_values
from interp.token_concepts import ConceptCoverage, ConceptTable, MeaningfulShare, concept_table, meaningful_share
from model.config import GPTConfig
from model.lab import Lab

N_DIRECTIONS = 256
"""Random directions per layer whose concepts stand beside those of values."""

_COMPARED, _FEWEST = 2**31, 16
"""Scores of a layer that are held against others' next tokens; each value meets at least so many of those."""

_AS_THEY_ARE = (
    "promoted", "promoted_score", "suppressed", "suppressed_score", "confidence", "skew", "kurtosis", "norm",
    "key_norm", "key_value_cosine", "linear_value_cosine",
)  # fmt: skip


def all_values(
    lab: Lab, next_tokens: Int[Tensor, "layer memory"], *, n_promoted: int, seed: int
) -> tuple[Values, tuple[Tensor, ...], tuple[MeaningfulShare, ...]]:
    """The values of all layers; the places of other memories' next tokens in their orders; concepts beside chance.

    `next_tokens` are what followed each memory's top trigger, -1 where it has none.
    """
    gpt, table = lab.gpt, concept_table(lab.tokenizer.token_bytes)
    unembed = gpt.folded_unembed()
    layers: list[LayerValues] = []
    concepts: list[ConceptCoverage] = []
    places, shares = [], []
    for layer, own in enumerate(next_tokens):
        asked = _asked(gpt.config, own, seed)
        read = read_values(gpt, layer, n_promoted=n_promoted, asked=asked, concepts=table, unembed=unembed)
        assert read.concept is not None  # a table was given
        directions = random_coverage(gpt, layer, table, n=N_DIRECTIONS, seed=seed + layer)
        layers.append(read)
        concepts.append(read.concept)
        places.append(read.asked_rank[own >= 0, 1:].clone())
        shares.append(meaningful_share(read.concept.meaningful, directions.meaningful))
    return _together(layers, concepts, table), tuple(places), tuple(shares)


def _together(layers: list[LayerValues], concepts: list[ConceptCoverage], table: ConceptTable) -> Values:
    return Values(
        **{name: torch.stack([getattr(each, name) for each in layers]) for name in _AS_THEY_ARE},
        next_rank=torch.stack([each.asked_rank[:, 0] for each in layers]),
        concept=torch.stack([each.concept for each in concepts]),
        concept_covered=torch.stack([each.covered for each in concepts]),
        concept_p=torch.stack([each.p for each in concepts]),
        concepts=tuple(str(each) for each in table.concepts),
    )


def _asked(config: GPTConfig, next_tokens: Int[Tensor, " memory"], seed: int) -> Int[Tensor, "memory asked"]:
    """Each memory's own next token, then those of other memories; -1 for the dead, which are nobody's other."""
    alive = next_tokens >= 0
    most = max(_FEWEST, _COMPARED // (config.ffn_width * config.d_vocab))
    others = partners(int(alive.sum()), most, seed)
    asked = torch.full((len(next_tokens), 1 + others.shape[1]), -1)
    asked[:, 0] = next_tokens
    asked[alive, 1:] = next_tokens[alive].long()[others]
    return asked
