"""How active memories are: what a control has to match, so that a rare memory is not held against a busy one.

Most memories of a layer write little and some write a lot. To take out one of the latter costs more than to take out
any, whatever it is about; so a set of memories is held against others of the same layer that write about as much:

* what a memory writes at a position is m v, of size |m| |v| (Geva et al. 2022 call it the sub-update's importance);
* memories of a layer are ordered by its mean over stated tokens and cut into *strata* of about 50 with neighbouring
  ranks; controls exchange memories within strata only.

Strata are fixed without looking at the set in question, so that within them every choice is as likely as any other and
the rank of the set among others is a valid p; the neighbours of each of its memories would not give that. Where an
output norm follows (sandwich, reordered), |v| is the size before it. Cost: one pass over the tokens, and a few numbers
for each memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model.config import FFNKind
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

STRATUM = 50
"""Memories in a stratum, about: enough for the rank of one of them to tell at 0.05."""


@dataclass(frozen=True, kw_only=True)
class MemoryActivity:
    """What every memory of a model does over some tokens; on the CPU."""

    largest: Float[Tensor, "layer memory"]
    """Its largest coefficient."""

    mean_write: Float[Tensor, "layer memory"]
    """Mean size of what it writes, |m| |v|."""

    firing: Float[Tensor, "layer memory"]
    """Share of positions where its coefficient is above zero."""

    value_norm: Float[Tensor, "layer memory"]
    """|v|."""

    n_positions: int
    """Positions seen."""


@torch.no_grad()
def memory_activity(gpt: GPT, tokens: Int[Tensor, "sequence pos"], *, batch_size: int = 32) -> MemoryActivity:
    """What each memory does over all positions of `tokens`, which have no padding."""
    if gpt.config.ffn is FFNKind.NONE:
        raise InputError("This model is attention-only (ffn=none), so it has no memories; take one with an FFN.")
    shape = (gpt.config.n_layers, gpt.config.ffn_width)
    sizes, fired = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.int64)
    largest = torch.full(shape, -torch.inf)

    def taking(layer: int) -> Callable[[Tensor, object], None]:
        def take(coefficients: Tensor, hook: object) -> None:
            del hook
            by_position = coefficients.flatten(0, 1)
            sizes[layer] += by_position.abs().sum(0, dtype=torch.float64).cpu()
            fired[layer] += (by_position > 0).sum(0).cpu()
            largest[layer] = torch.maximum(largest[layer], by_position.amax(0).float().cpu())

        return take

    hooks = [(Tap.MLP_POST.at(layer), taking(layer)) for layer in range(gpt.config.n_layers)]
    for rows in tokens.split(batch_size):
        gpt.run_with_hooks(rows.to(gpt.device), fwd_hooks=hooks, return_type=None)
    norms = torch.stack([block.mlp.W_out.double().norm(dim=-1) for block in gpt.layers if block.mlp is not None]).cpu()
    return MemoryActivity(
        largest=largest,
        mean_write=(sizes / tokens.numel() * norms).float(),
        firing=(fired / tokens.numel()).float(),
        value_norm=norms.float(),
        n_positions=tokens.numel(),
    )


def activity_strata(activity: MemoryActivity, size: int = STRATUM) -> Int[Tensor, "layer memory"]:
    """For each memory the number of its stratum in its layer, from those that write least; each of `size` or more.

    >>> writes = torch.tensor([[0.3, 0.0, 0.1, 0.9, 0.2]])
    >>> same = {"largest": writes, "firing": writes, "value_norm": writes, "n_positions": 9}
    >>> activity_strata(MemoryActivity(mean_write=writes, **same), size=2).tolist()
    [[1, 0, 0, 1, 0]]
    """
    n = activity.mean_write.shape[1]
    n_strata = max(1, n // size)
    ranks = activity.mean_write.argsort(dim=1, stable=True).argsort(dim=1)
    return ranks * n_strata // n
