"""How much a gradient says that each head and each FFN matters: one backward pass for all of them.

Every head's output, and every FFN's, is multiplied by a gate xi that stands at 1. What the loss of a sequence gains by
opening it further is dL/dxi (Michel et al. 2019, "Are sixteen heads really better than one?", section 4.1):

    I_h = E_x |dL(x)/dxi_h|  =  E_x |Att_h(x)^T dL(x)/dAtt_h(x)|        at xi = 1

The absolute value is taken for each sequence, then the mean: over all sequences dL/dxi may cancel, and over tokens the
absolute value would count what does. It is a first-order estimate of what zeroing the head costs; how good a one is an
empirical question (`interp.approximation`). Compare layers by the numbers as they are; Michel et al. divide by each
layer's norm, which hides that a layer matters little (`Importance.layer_normalized`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.interventions import Edits
from interp.loss_gradients import GradientRoom, at_the_end, final_stream
from interp.outcomes import TEXT, Outcome
from interp.places import Head, every_head, head
from interp.requirements import require_deterministic, require_next_token
from interp.resolved_places import resolve_places
from interp.stats import Intervals, bootstrap_means
from interp.sweep import MEMORY
from model.config import FFNKind
from model.hooks import Hook, HookFunction
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False)
class Importance:
    """Gradients of each sequence's outcome at the gates; float64 on the CPU, in units of the outcome."""

    heads: Float[Tensor, "sequence layer head"]
    """dL/dxi of every head, signed: positive where the head hurts."""

    ffns: Float[Tensor, "sequence layer"] | None
    """The same of every FFN sublayer; None in an attention-only model."""

    removed: tuple[Head, ...]
    """Heads whose gates stood at 0 instead of 1."""

    @property
    def size(self) -> Float[Tensor, "layer head"]:
        """I_h: the mean over sequences of |dL/dxi|."""
        return self.heads.abs().mean(0)

    def intervals(self, seed: int = 0) -> Intervals:
        """I_h [layer, head] with its bootstrap interval over sequences."""
        return bootstrap_means(self.heads.abs(), seed=seed)

    def ffn_intervals(self, seed: int = 0) -> Intervals | None:
        """The same of the FFN sublayers, [layer]."""
        return None if self.ffns is None else bootstrap_means(self.ffns.abs(), seed=seed)

    @property
    def layer_normalized(self) -> Float[Tensor, "layer head"]:
        """I_h over its layer's l2 norm, as Michel et al. report it: for ranks within a layer, not between layers."""
        return self.size / self.size.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)

    def order(self) -> list[Head]:
        """The heads that are left, the least important first; ties in the order of layers and heads."""
        gone, size = set(self.removed), self.size
        kept = [each for each in every_head(*size.shape) if each not in gone]
        return sorted(kept, key=lambda each: float(size[each]))


def head_importance(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    outcome: Outcome = TEXT,
    *,
    removed: Collection[Head] = (),
    memory: int = MEMORY,
) -> Importance:
    """Differentiate each sequence's outcome at a gate on every head and every FFN, in one backward pass a batch.

    Args:
        gpt: a causal model, its dropout off.
        tokens: sequences of one length, without padding.
        outcome: a mean of next-token losses over some targets (`interp.outcomes`).
        removed: heads whose gate stands at 0, as (layer, head): what the others are worth once these are gone.
        memory: bytes that a pass may remember for its gradient.

    Gates act on z and on the memories' coefficients, so output biases stay, as in an ablation. Under output norms
    (`sandwich`, `reordered`, `post`) a gate acts before the norm. Costs a forward and a backward pass.
    """
    require_next_token(gpt)
    require_deterministic(gpt)
    _require_heads(gpt, removed)
    room = GradientRoom.within(memory, gpt.config, dtype=gpt.dtype, n_pos=tokens.shape[1], first_layer=0)
    of_heads, of_ffns = [], []
    for batch in tokens.split(min(room.n_rows, 64)):
        gates = _Gates.of(gpt, len(batch), removed)
        with torch.enable_grad():
            final = final_stream(gpt, batch.to(gpt.device), gates.edits(gpt))
            end = at_the_end(gpt, final, batch, outcome, n_rows=room.n_logits)
        gradients = torch.autograd.grad(final, gates.every, end.gradient)
        of_heads.append(gradients[0].double().cpu())
        of_ffns += [each.double().cpu() for each in gradients[1:]]
    return Importance(
        heads=torch.cat(of_heads),
        ffns=torch.cat(of_ffns) if of_ffns else None,
        removed=tuple(sorted(set(removed))),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Gates:
    """One gate for each sequence and head, and each sequence and FFN."""

    heads: Float[Tensor, "sequence layer head"]
    ffns: Float[Tensor, "sequence layer"] | None

    @classmethod
    def of(cls, gpt: GPT, n_sequences: int, removed: Collection[Head]) -> _Gates:
        config, like = gpt.config, {"device": gpt.device, "dtype": gpt.dtype}
        heads = torch.ones(n_sequences, config.n_layers, config.n_heads, **like)
        for layer, index in removed:
            heads[:, layer, index] = 0.0
        if config.ffn is FFNKind.NONE:
            return cls(heads=heads.requires_grad_(), ffns=None)
        return cls(heads=heads.requires_grad_(), ffns=torch.ones(n_sequences, config.n_layers, **like).requires_grad_())

    @property
    def every(self) -> list[Tensor]:
        return [self.heads] if self.ffns is None else [self.heads, self.ffns]

    def edits(self, gpt: GPT) -> Edits:
        edits: Edits = []
        for layer in range(gpt.config.n_layers):
            edits.append((str(Tap.Z.at(layer)), _times(self.heads[:, None, layer, :, None])))
            if self.ffns is not None:
                edits.append((str(Tap.MLP_POST.at(layer)), _times(self.ffns[:, layer, None, None])))
        return edits


def _times(gate: Tensor) -> HookFunction:
    def gated(activation: Tensor, hook: Hook) -> Tensor:
        del hook
        return activation * gate

    return gated


def _require_heads(gpt: GPT, heads: Collection[Head]) -> None:
    """Refuse a head that the model does not have, or that is named twice."""
    if heads:
        resolve_places([head(*each) for each in heads], gpt.config)
