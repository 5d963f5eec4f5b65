"""The parts of an FFN layer's prediction at single prefixes, as a record (for `interp.ffn_composition`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum, IntEnum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Case(IntEnum):
    """Where a layer's output token comes from; r enters, y is added, o = r + y goes on."""

    RESIDUAL = 0
    """top(o) = top(r), and y says something else (or nothing)."""
    FFN = 1
    """top(o) = top(y), and r says something else (or nothing)."""
    AGREEMENT = 2
    """All three are the same."""
    COMPOSITION = 3
    """top(o) is neither top(r) nor top(y)."""
    IMPOSSIBLE = 4
    """top(r) = top(y), and top(o) is another: only by the bias of a final LayerNorm."""


class Counted(Enum):
    """Which memories are asked whether they agree, top(v) = top(y), and by which token."""

    ALL = "all"
    """Every memory of the layer by the token of its value: the formula of the paper."""
    ACTIVE = "active"
    """Those with m > 0."""
    SIGNED = "signed"
    """Those with m other than 0, by the token of m v: a negative coefficient promotes what the value suppresses."""
    STRONG = "strong"
    """Those of these with |m| above a share of the memory's largest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Composed:
    """Layers taken apart at single prefixes; on the CPU. Tokens are -1 where nothing is said."""

    active: Float[Tensor, "prefix layer"]
    """Share of the layer's memories with m > 0."""
    strong: Float[Tensor, "prefix layer"]
    """Share with |m| above a share of the memory's largest."""
    carrying: Float[Tensor, "prefix layer"]
    """Share of memories, those with the largest |m||v| first, that hold 90% of the sum of |m||v|."""
    n_agreeing: Int[Tensor, "counted prefix layer"]
    """Memories that have the layer's token, in the order of `Counted`."""
    n_agreeing_dealt: Int[Tensor, "counted prefix layer"]
    """The same with the layer's values dealt to its memories, and y made of them."""
    stream_token: Int[Tensor, "prefix layer"]
    """top(r)."""
    update_token: Int[Tensor, "prefix layer"]
    """top(y)."""
    output_token: Int[Tensor, "prefix layer"]
    """top(o)."""
    final_token: Int[Tensor, " prefix"]
    """top(o^L): the model's prediction."""
    stream_probability: Float[Tensor, "prefix layer"]
    """Of the final token, were r the last stream."""
    output_probability: Float[Tensor, "prefix layer"]
    """The same of o."""
    case: Int[Tensor, "prefix layer"]
    """A `Case`."""
    case_other: Int[Tensor, "prefix layer"]
    """Had y been the layer's at another prefix."""
    case_dealt: Int[Tensor, "prefix layer"]
    """Had the layer's values been dealt anew to its memories."""


def joined(pieces: Sequence[Composed]) -> Composed:
    """Several lots of prefixes as one."""
    axis = {"n_agreeing": 1, "n_agreeing_dealt": 1}
    names = [each.name for each in fields(Composed)]
    return Composed(
        **{name: torch.cat([getattr(each, name) for each in pieces], dim=axis.get(name, 0)) for name in names}
    )


def first_to_stay(agrees: Bool[Tensor, "prefix layer"]) -> Int[Tensor, " prefix"]:
    """The first layer from which on all agree, of agreement [prefix, layer]; the number of layers where the last fails.

    >>> first_to_stay(torch.tensor([[True, False, True, True], [True, True, True, False]])).tolist()
    [2, 4]
    """
    return agrees.shape[1] - agrees.flip(1).long().cumprod(1).sum(1)
