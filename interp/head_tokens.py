"""Tokens at which a head writes most, and tokens that it attends to most, without letting rare ones win by luck.

A token met once says little, and among fifty thousand some are extreme by chance. So means and lifts are shrunk: to
each token `SHRINKAGE` occurrences are added at which the head does what it does on average. A lift is attention
received over what even attention would give the same keys; lists by mass of attention need no shrinkage, for rare
tokens receive little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.head_stream import HeadStream

SHRINKAGE = 10
"""Average occurrences that are added to each token's own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenList:
    """Tokens of each head in falling order of one of their numbers; the list ends where the token is -1."""

    token: Int[Tensor, "layer head rank"]
    count: Int[Tensor, "layer head rank"]
    """Times the token was a query, and so a key (position 0 left out)."""

    share: Float[Tensor, "layer head rank"]
    """Of all attention of the head, what keys of this token receive (at position 0 they do not count)."""

    weighted_share: Float[Tensor, "layer head rank"]
    """The same of value-weighted attention."""

    lift: Float[Tensor, "layer head rank"]
    """Attention received over what even attention would give these keys, shrunk towards the head's own average."""

    mean: Float[Tensor, "layer head rank"]
    """How much the head writes where the token is the query, on average, shrunk; in units of the stream."""


@dataclass(frozen=True)
class _Layer:
    """What is known of every token, for one layer's heads: [token, head]."""

    count: Tensor
    share: Tensor
    weighted_share: Tensor
    lift: Tensor
    mean: Tensor


def query_tokens(stream: HeadStream, n_listed: int) -> TokenList:
    """Tokens at which each head writes most, by the shrunken mean."""
    return _listed(stream, n_listed, lambda known: known.mean)


def attended_tokens(stream: HeadStream, n_listed: int) -> TokenList:
    """Tokens that receive most of each head's attention."""
    return _listed(stream, n_listed, lambda known: known.share)


def attended_tokens_weighted(stream: HeadStream, n_listed: int) -> TokenList:
    """Tokens that receive most of each head's value-weighted attention."""
    return _listed(stream, n_listed, lambda known: known.weighted_share)


def attended_tokens_by_lift(stream: HeadStream, n_listed: int) -> TokenList:
    """Tokens that receive most beyond even attention, by the shrunken lift."""
    return _listed(stream, n_listed, lambda known: known.lift)


def _listed(stream: HeadStream, n_listed: int, by: Callable[[_Layer], Tensor]) -> TokenList:
    layers = [_ranked(_known(stream, layer), n_listed, by) for layer in range(stream.written.shape[1])]
    return TokenList(**{name: torch.stack([each[name] for each in layers]) for name in layers[0]})


def _ranked(known: _Layer, n_listed: int, by: Callable[[_Layer], Tensor]) -> dict[str, Tensor]:
    """The first tokens of every head [head, rank]; those with nothing of the quantity are absent."""
    quantity = by(known).masked_fill(known.count == 0, 0)
    found = quantity.topk(min(n_listed, len(quantity)), dim=0)
    absent = found.values <= 0

    def beside(column: Tensor, empty: float | int) -> Tensor:
        return column.expand_as(quantity).gather(0, found.indices).masked_fill(absent, empty).T

    shares = {name: beside(getattr(known, name), torch.nan).float() for name in _SHARES}
    return {"token": found.indices.masked_fill(absent, -1).T, "count": beside(known.count, 0), **shares}


_SHARES = ("share", "weighted_share", "lift", "mean")


def _known(stream: HeadStream, layer: int) -> _Layer:
    count, n = stream.n_token[:, None], max(stream.n_queries, 1)
    written, received = stream.written[:, layer], stream.received[:, layer]
    weighted = stream.received_weighted[:, layer]
    even = stream.even_received[:, None]
    per_key = even.sum() / n  # what even attention gives a key on average
    average = received.sum(0) / even.sum().clamp_min(1e-300)  # the head's lift over all keys but position 0
    all_weighted = weighted.sum(0) + stream.position_zero_weighted[layer]
    return _Layer(
        count=count,
        share=received / n,
        weighted_share=weighted / all_weighted.clamp_min(1e-300),
        lift=(received + SHRINKAGE * per_key * average) / (even + SHRINKAGE * per_key).clamp_min(1e-300),
        mean=(written + SHRINKAGE * written.sum(0) / n) / (count + SHRINKAGE),
    )
