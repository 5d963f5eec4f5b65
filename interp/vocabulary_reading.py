"""Singular directions of a head's circuits, read in the vocabulary.

OV = sum of s_i u_i v_i^T: where the stream holds u_i, the head writes s_i v_i. Token t holds u_i to the extent
W_E[t] . u_i, and v_i adds v_i . W_U[:, t] to the logit of t. QK(D) = W_Q R(D) W_K^T likewise: u_i is what the query
holds and v_i what the key that it scores highly holds, both read through W_E. Norms' gains are folded in
(`interp.folding`).

A pair (u_i, v_i) is as well (-u_i, -v_i): the head that writes v for u writes -v for -u, and bottom tokens mean as much
as top ones. The sign is chosen so that the largest value on the right side (written tokens; keys), up to its sign, is
positive. Values of written tokens have their mean over the vocabulary taken off, as a softmax does.

What it does not show: norms' scales (tokens with long embeddings come first; layers after the first read a stream whose
scale other things set), what the stream holds beside the token's own embedding, and for QK whether the two meet at that
distance. With nearly equal singular values single directions are arbitrary, and only their span means something.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.circuits import token_note, token_table
from interp.folding import folded_heads, folded_unembed
from interp.offsets import resolve_offsets
from interp.places import Place
from interp.places import head as place
from interp.resolved_places import named_head
from model.errors import InputError
from model.settings import as_enum

if TYPE_CHECKING:
    from model.factored import FactoredMatrix
    from model.gpt import GPT


class Circuit(StrEnum):
    """Which matrix of a head."""

    OV = "OV"
    QK = "QK"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenEnds:
    """The tokens at both ends of each direction."""

    top: Int[Tensor, "direction token"]
    """Ids of the largest values, falling."""

    top_values: Float[Tensor, "direction token"]
    bottom: Int[Tensor, "direction token"]
    """Ids of the smallest values, rising."""

    bottom_values: Float[Tensor, "direction token"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SingularReading:
    """The strongest directions of one circuit of one head, as tokens; on the CPU."""

    head: str
    """Such as L1H3."""

    circuit: Circuit
    offset: int | None
    """Query minus key position, of QK; None for OV."""

    singular_values: Float[Tensor, " direction"]
    share: Float[Tensor, " direction"]
    """Of the circuit's squared Frobenius norm; 0 for a head whose circuit is zero."""

    left: TokenEnds
    """OV: the tokens that are read; QK: the query's. Values are W_E[t] . u."""

    right: TokenEnds
    """OV: the tokens that are written, v . W_U[:, t] minus the mean over tokens; QK: the key's, W_E[t] . v."""

    note: str
    """What is folded, in sentences."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "circuit", as_enum(Circuit, self.circuit, "circuit"))

    def __repr__(self) -> str:
        n = len(self.share)
        return f"SingularReading({self.head} {self.circuit}: {n} directions, {float(self.share.sum()):.0%} of the norm)"


@torch.no_grad()
def ov_vocabulary(
    gpt: GPT, head: str | Place, *, n_directions: int = 5, n_tokens: int = 10, embed: Tensor | None = None
) -> SingularReading:
    """Which tokens the strongest directions of a head's OV circuit read, and which they write.

    Args:
        gpt: a model with an additive stream.
        head: such as "L1H3".
        n_directions: how many, largest singular values first.
        n_tokens: how many at each end.
        embed: [d_vocab, d_model], what stands for each token in the stream that heads read; by default W_E.
    """
    gpt.config.require_additive_stream("Reading OV in the vocabulary")
    heads, table = folded_heads(gpt), token_table(gpt, embed)
    layer, index = named_head(gpt.config, head)
    written = folded_unembed(gpt).mT
    return _reading(
        heads.OV[layer, index],
        (table, written - written.mean(0)),
        (n_directions, n_tokens),
        head=place(layer, index).label,
        circuit=Circuit.OV,
        offset=None,
        note=token_note(heads, embed),
    )


@torch.no_grad()
def qk_vocabulary(
    gpt: GPT,
    head: str | Place,
    *,
    offset: int = 0,
    n_directions: int = 5,
    n_tokens: int = 10,
    embed: Tensor | None = None,
) -> SingularReading:
    """Which query tokens the strongest directions of a head's QK circuit match with which key tokens.

    Args:
        gpt: a model with an additive stream and without qk_norm or smeared keys.
        head: such as "L1H3".
        offset: query minus key position, which matters under rope.
        n_directions: how many, largest singular values first.
        n_tokens: how many at each end.
        embed: [d_vocab, d_model], what stands for each token in the stream that heads read; by default W_E.
    """
    gpt.config.require_additive_stream("Reading QK in the vocabulary")
    resolve_offsets(gpt.config, offset)
    heads, table = folded_heads(gpt), token_table(gpt, embed)
    layer, index = named_head(gpt.config, head)
    return _reading(
        heads.QK(offset)[layer, index],
        (table, table),
        (n_directions, n_tokens),
        head=place(layer, index).label,
        circuit=Circuit.QK,
        offset=offset,
        note=heads.note,
    )


def _reading(
    matrix: FactoredMatrix, tables: tuple[Tensor, Tensor], sizes: tuple[int, int], *, head: str, **said: object
) -> SingularReading:
    n_directions, n_tokens = sizes
    if not 1 <= n_directions <= matrix.mdim or not 1 <= n_tokens <= len(tables[0]):
        raise InputError(
            f"n_directions={n_directions} and n_tokens={n_tokens} cannot be had of {head}; give 1 to {matrix.mdim} "
            f"directions and 1 to {len(tables[0])} tokens."
        )
    U, S, Vh = matrix.svd()
    left, right = U.mT[:n_directions] @ tables[0].mT, Vh[:n_directions] @ tables[1].mT
    largest = right.gather(1, right.abs().argmax(1, keepdim=True))
    squares = S.square()
    whole = squares.sum()
    return SingularReading(
        head=head,
        singular_values=S[:n_directions].cpu(),
        share=(squares / whole.masked_fill(whole == 0, torch.inf))[:n_directions].cpu(),
        left=_ends(torch.where(largest < 0, -left, left), n_tokens),
        right=_ends(torch.where(largest < 0, -right, right), n_tokens),
        **said,  # type: ignore[arg-type]
    )


def _ends(values: Float[Tensor, "direction d_vocab"], n: int) -> TokenEnds:
    top, bottom = values.topk(n), values.topk(n, largest=False)
    return TokenEnds(
        **{"top": top.indices.cpu(), "top_values": top.values.cpu()},
        **{"bottom": bottom.indices.cpu(), "bottom_values": bottom.values.cpu()},
    )
