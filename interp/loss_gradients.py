"""The gradient of an outcome at the end of the stream, formed in blocks of logits.

A sequence's outcome is a weighted sum of its next-token losses. So its gradient at the stream that leaves the last
layer comes position by position, and whoever goes on from there remembers activations only, never logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.measures import Measure, at_least_fp32
from interp.outcomes import Outcome, token_losses
from model.config import GPTConfig
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from interp.interventions import Edits
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False)
class AtTheEnd:
    """An outcome of some sequences, and its gradient at the stream that leaves the last layer."""

    value: Float[Tensor, " sequence"]
    """Each sequence's own, in units of the outcome."""
    gradient: Float[Tensor, "sequence pos d_model"]
    """Of each sequence's own value: sequences do not meet."""


def final_stream(
    gpt: GPT, start: Tensor, edits: Edits, *, layer: int | None = None
) -> Float[Tensor, "row pos d_model"]:
    """The stream that leaves the last layer, with its graph; `start` are tokens, or the stream that enters `layer`."""
    found: list[Tensor] = []
    last = str(Tap.RESID_POST.at(gpt.config.n_layers - 1))
    keep = (last, lambda stream, _: found.append(stream))
    gpt.run_with_hooks(start, [*edits, keep], start_at_layer=layer, return_type=None)
    return found[0]


def at_the_end(
    gpt: GPT,
    final: Float[Tensor, "row pos d_model"],
    tokens: Int[Tensor, "sequence pos"],
    outcome: Outcome,
    *,
    n_rows: int,
) -> AtTheEnd:
    """The outcome of each row and its gradient at `final`; rows are the sequences again and again, once per ablation.

    Logits are formed `n_rows` positions at a time. Hooks that are in force here act on the final norm and the logits;
    all logits of `final` are formed then. Without gradients (`torch.no_grad`) there are values only, and NaN for them.
    """
    again = len(final) // len(tokens)
    weights, targets = (
        each.to(final.device).repeat(again, 1) for each in (loss_weights(outcome, tokens), tokens[:, 1:])
    )
    if gpt.hooked:
        return _with_hooks(gpt, final, targets, weights)
    wanted = weights != 0
    value = torch.zeros(wanted.shape, dtype=torch.float64, device=final.device)
    gradient = torch.zeros_like(final) if torch.is_grad_enabled() else torch.full_like(final, torch.nan)
    found = [
        _block(gpt, *block)
        for block in zip(
            *(each[wanted].split(n_rows) for each in (final.detach()[:, :-1], targets, weights)), strict=True
        )
    ]
    value[wanted] = torch.cat([each for each, _ in found])
    if torch.is_grad_enabled():
        gradient[:, :-1][wanted] = torch.cat([each for _, each in found])
    return AtTheEnd(value=value.sum(1), gradient=gradient)


def _block(gpt: GPT, rows: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted losses of some positions, and their gradient at the stream there (the stream itself without one)."""
    rows = rows.requires_grad_(torch.is_grad_enabled())
    logits = at_least_fp32(gpt.unembed_stream(rows))
    losses = functional.cross_entropy(logits, targets, reduction="none") * weights
    gradient = torch.autograd.grad(losses.sum(), rows)[0] if torch.is_grad_enabled() else rows
    return losses.detach().double(), gradient


def _with_hooks(gpt: GPT, final: Tensor, targets: Tensor, weights: Tensor) -> AtTheEnd:
    """The same past hooks on the final norm and on the logits."""
    with torch.enable_grad():
        leaf = final.detach().requires_grad_()
        logits = gpt.run_with_hooks(leaf, start_at_layer=gpt.config.n_layers)
        padded = torch.cat([targets[:, :1], targets], dim=1)  # losses look at tokens from the second on
        value = (token_losses(logits, padded) * weights).sum(1)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return AtTheEnd(value=value.detach().double(), gradient=gradient)


def loss_weights(outcome: Outcome, tokens: Int[Tensor, "sequence pos"]) -> Float[Tensor, "sequence target"]:
    """How much each next-token loss counts in its sequence's outcome; InputError for an outcome not of losses."""
    if outcome.measure is not Measure.LOSS:
        raise InputError(
            f"{outcome.name} is not made of next-token losses, and only those are differentiated here; take a loss, "
            "such as text_loss or copy_loss."
        )
    return outcome.weights(tokens)


@dataclass(frozen=True, kw_only=True)
class GradientRoom:
    """How much is differentiated at a time, so that what a pass remembers for its gradient fits into a memory."""

    n_rows: int
    """Sequences run together, each under one ablation."""
    n_logits: int
    """Positions whose logits are formed together."""

    @classmethod
    def within(
        cls, memory: int, config: GPTConfig, *, dtype: torch.dtype, n_pos: int, first_layer: int
    ) -> GradientRoom:
        """What fits into `memory` bytes for a pass from `first_layer` on; at least one row, and one row of logits.

        A layer remembers some sixteen streams, eight times the heads' width and six times the FFN's, for each token.
        """
        number, half = max(4, dtype.itemsize), memory // 2
        heads = config.n_heads * config.head_width
        layer = 16 * config.d_model + 8 * heads + 6 * config.ffn_width
        n_layers = config.n_layers - first_layer
        row = number * n_pos * (n_layers * layer + 4 * config.d_model)
        if memory < 1:
            raise InputError(f"memory={memory} holds nothing; give bytes, for example 2**28.")
        return cls(n_rows=max(1, half // row), n_logits=max(1, half // (5 * number * config.d_vocab)))
