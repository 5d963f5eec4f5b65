"""Which memories are about a concept: those whose values raise its tokens more than others, read off the weights.

A concept is a set of tokens: one that a rule names (`interp.concept_kinds`), or the tokens of a text. A value's static
scores are v W_U with the final norm folded in (Geva et al. 2022: what it promotes wherever it is written, whatever its
coefficient). How far it stands out for the concept is the mean score of the concept's tokens less the mean of all, in
standard errors of as many tokens drawn at random without replacement. That has no unit, so that values of any size,
and concepts of any number of tokens, can be compared.

What it does not show: that the memory fires where the concept is due. Its key decides that, and no key is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.memory_values import fitting_memories, value_scores
from interp.token_concepts import ConceptTable, concept_table
from model.errors import ConfigError, closest

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.tokenizer import Tokenizer

OF_TEXT = "text:"
"""What stands before a text whose tokens are the concept."""


@dataclass(frozen=True, kw_only=True)
class TokenSet:
    """A concept: some tokens of a vocabulary."""

    name: str
    """As it is asked for: the name of a concept, or "text:" and a text."""

    tokens: Int[Tensor, " token"]
    """Its tokens, in order."""

    d_vocab: int

    @property
    def member(self) -> Bool[Tensor, " d_vocab"]:
        """Whether each token of the vocabulary is one of them."""
        found = torch.zeros(self.d_vocab, dtype=torch.bool)
        found[self.tokens] = True
        return found

    def share_of(self, tokens: Int[Tensor, "*axes"]) -> float:
        """Which share of these tokens they are."""
        return float(self.member[tokens.cpu()].double().mean())


def named_concept(name: str, tokenizer: Tokenizer) -> TokenSet:
    """The concept with this name, or the tokens of the text behind "text:".

    Raises:
        ConfigError: no such concept in this vocabulary, or one that leaves no other tokens to be told from.
    """
    if name.startswith(OF_TEXT):
        found = sorted(set(tokenizer.encode(name.removeprefix(OF_TEXT))))
        if not found:
            raise ConfigError(f'concept="{name}" has no token; write the text behind the colon, such as text:0123.')
        tokens = torch.tensor(found)
    else:
        table = concept_table(tokenizer.token_bytes)
        tokens = tokens_of(table, _place(name, table))
    if 2 * len(tokens) > tokenizer.d_vocab:
        raise ConfigError(
            f'concept="{name}" has {len(tokens)} of {tokenizer.d_vocab} tokens; name one with at most half of them.'
        )
    return TokenSet(name=name, tokens=tokens, d_vocab=tokenizer.d_vocab)


def _place(name: str, table: ConceptTable) -> int:
    known = [str(concept) for concept in table.concepts]
    if name not in known:
        raise ConfigError(
            f'concept="{name}" is none of this vocabulary.{closest(name, known)} Concepts are {_some(known)}; or write '
            "the tokens as a text, such as text:0123456789, or leave it out, so that one is chosen."
        )
    return known.index(name)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names, key=len)[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown


_LISTED = 20


def tokens_of(table: ConceptTable, place: int) -> Int[Tensor, " token"]:
    """The tokens of one concept of a table, in order."""
    return (table.member == place).any(dim=1).nonzero()[:, 0]


def standout(
    gpt: GPT, members: Bool[Tensor, "concept d_vocab"], *, unembed: Tensor | None = None
) -> Float[Tensor, "concept layer memory"]:
    """How far every value stands out for each concept, in standard errors of as many random tokens; 0 of a value of 0.

    One layer's scores of a group of memories exist at a time.
    """
    unembed = gpt.folded_unembed() if unembed is None else unembed
    layers = []
    for layer in range(gpt.config.n_layers):
        groups = fitting_memories(gpt.config.ffn_width, gpt.config.d_vocab)
        layers.append(
            torch.cat([_standing_out(value_scores(gpt, layer, each, unembed), members) for each in groups], 1)
        )
    return torch.stack(layers, dim=1)


def _standing_out(
    scores: Float[Tensor, "memory d_vocab"], members: Bool[Tensor, "concept d_vocab"]
) -> Float[Tensor, "concept memory"]:
    n, d_vocab = members.sum(1).float()[:, None], members.shape[1]
    centred = scores - scores.mean(1, keepdim=True)
    means = members.float() @ centred.T / n
    errors = centred.square().sum(1)[None] / (d_vocab - 1) * (1 - n / d_vocab) / n
    return (means / errors.sqrt()).nan_to_num(0.0, 0.0, 0.0)


USE = (0.01, 0.25)
"""Between which shares of the text a concept may be, to be chosen: rarer ones give nothing to compare with, and of
commoner ones there is nothing left to promote."""


def chosen_concept(
    gpt: GPT, tokenizer: Tokenizer, text: Int[Tensor, "sequence pos"], n_memories: int
) -> tuple[TokenSet, Float[Tensor, "layer memory"]]:
    """The concept that some values are most about, with how far each value stands out for it.

    Of the concepts that make up 1% to 25% of `text` and at most half of the vocabulary, the one whose `n_memories` best
    values stand out most, on average. Nothing that the model writes is looked at.

    Raises:
        ConfigError: no concept is that common.
    """
    table = concept_table(tokenizer.token_bytes)
    counts = torch.bincount(text.cpu().flatten(), minlength=table.d_vocab).double()
    sets = [tokens_of(table, place) for place in range(len(table.concepts))]
    shares = [float(counts[tokens].sum() / counts.sum()) for tokens in sets]
    usual = [
        place
        for place, share in enumerate(shares)
        if USE[0] <= share <= USE[1] and 2 * len(sets[place]) <= table.d_vocab
    ]
    if not usual:
        raise ConfigError(
            f"no concept makes up {USE[0]:.0%} to {USE[1]:.0%} of the held-out tokens, so none can be chosen; name "
            "one, such as concept=text:0123456789."
        )
    members = torch.zeros(len(usual), table.d_vocab, dtype=torch.bool)
    for row, place in enumerate(usual):
        members[row, sets[place]] = True
    found = standout(gpt, members)
    best = found.flatten(1).topk(min(n_memories, found[0].numel())).values.mean(1)
    row = int(best.argmax())
    concept = table.concepts[usual[row]]
    return TokenSet(name=str(concept), tokens=sets[usual[row]], d_vocab=table.d_vocab), found[row]


def best_memories(
    found: Float[Tensor, "layer memory"], alive: Bool[Tensor, "layer memory"], n: int
) -> list[tuple[int, int]]:
    """(layer, memory) of the `n` that stand out most among those alive, the first first; fewer where fewer are."""
    order = found.masked_fill(~alive, -torch.inf).flatten().argsort(descending=True, stable=True)
    return [divmod(place, found.shape[1]) for place in order[: min(n, int(alive.sum()))].tolist()]
