"""What a model achieves on a sequence, as one number per sequence in nats: the unit of every resampling.

An outcome is the mean next-token loss over some of the positions of a sequence. Which ones is decided by the tokens
before the target, never by the target: to pick targets that a copy would get wrong would make every copying head look
harmful.

    text_loss        all positions of a text
    new_token_loss   those whose current token is new in the sequence: nothing to copy from
    copy_loss        the second copy of a random segment, where the first determines it
    first_copy_loss  the first copy, where nothing can be known

Sources: Olsson et al. 2022 (repeated random tokens); Michel et al. 2019 (heads judged by what removing them costs).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from model.errors import InputError, UnknownNameError, closest

if TYPE_CHECKING:
    from model.gpt import GPT

Tokens = Int[Tensor, "batch pos"]
Mask = Bool[Tensor, "batch target"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A mean next-token loss over chosen positions; lower is better."""

    name: str
    """As typed after --metric."""

    meaning: str
    """What it is, in words, for labels and sentences."""

    targets: Callable[[Tokens], Mask]
    """Which of tokens[:, 1:] count, from the tokens; every sequence has at least one."""

    def of_logits(self, logits: Float[Tensor, "batch pos d_vocab"], tokens: Tokens) -> Float[Tensor, " batch"]:
        """Mean loss of each sequence over the chosen targets, in nats."""
        return self.of_losses(token_losses(logits, tokens), tokens)

    def of_losses(self, losses: Float[Tensor, "batch target"], tokens: Tokens) -> Float[Tensor, " batch"]:
        """The mean of each sequence's losses over the chosen targets."""
        return self.mean_of(losses, self.targets(tokens))

    def mean_of(self, losses: Float[Tensor, "*more batch target"], chosen: Mask) -> Float[Tensor, "*more batch"]:
        """The mean of each sequence's losses over targets that `targets` chose before."""
        return (losses * chosen).sum(dim=-1) / chosen.sum(dim=-1)


def token_losses(logits: Float[Tensor, "batch pos d_vocab"], tokens: Tokens) -> Float[Tensor, "batch target"]:
    """Next-token cross-entropy in nats: column t is the loss of predicting token t+1. At least fp32."""
    predictions = logits[:, :-1].flatten(0, 1)
    predictions = predictions if predictions.dtype == torch.float64 else predictions.float()
    losses = functional.cross_entropy(predictions, tokens[:, 1:].flatten(), reduction="none")
    return losses.view(len(tokens), -1)


def next_losses(
    gpt: GPT, final: Float[Tensor, "row d_model"], targets: Int[Tensor, " row"], *, n_rows: int
) -> Float[Tensor, " row"]:
    """Next-token cross-entropy in nats of positions of the stream that leaves the last layer; at least fp32.

    Their logits are formed `n_rows` positions at a time and not kept, past hooks on the final norm and on the logits.
    """
    losses = []
    for rows, wanted in zip(final.split(n_rows), targets.split(n_rows), strict=True):
        logits = gpt.unembed_stream(rows)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses.append(functional.cross_entropy(logits, wanted, reduction="none"))
    return torch.cat(losses)


def every_target(tokens: Tokens) -> Mask:
    """All next tokens.

    >>> every_target(torch.tensor([[7, 1, 2]])).tolist()
    [[True, True]]
    """
    return torch.ones_like(tokens[:, 1:], dtype=torch.bool)


def new_token_targets(tokens: Tokens) -> Mask:
    """Targets whose current token occurs for the first time in its sequence.

    >>> new_token_targets(torch.tensor([[7, 1, 1, 2, 7, 3]])).tolist()
    [[True, True, False, True, False]]
    """
    current = tokens[:, :-1]
    seen = (current[:, :, None] == current[:, None, :]).tril(diagonal=-1)
    return ~seen.any(dim=2)


def first_copy_targets(tokens: Tokens, *, period: int) -> Mask:
    """The targets inside the first copy of a repeated segment.

    >>> first_copy_targets(torch.tensor([[0, 5, 6, 5, 6]]), period=2).tolist()
    [[True, True, False, False]]
    """
    start = _segment_start(tokens, period)
    return _target_range(tokens, start, start + period)


def copy_targets(tokens: Tokens, *, period: int) -> Mask:
    """The targets after the first copy that the segment determines; not the first one, where the repeat is still news.

    >>> copy_targets(torch.tensor([[0, 5, 6, 5, 6]]), period=2).tolist()
    [[False, False, False, True]]
    """
    start = _segment_start(tokens, period)
    return _target_range(tokens, start + period + 1, tokens.shape[1])


def _segment_start(tokens: Tokens, period: int) -> int:
    """Where the first copy starts: 1 after a BOS, else 0."""
    start = tokens.shape[1] % period if period > 1 else -1
    if start not in (0, 1) or tokens.shape[1] < 2 * period:
        raise InputError(
            f"{tokens.shape[1]} positions are not a segment of {period} tokens repeated, with or without a BOS. "
            "Make them with interp.stimuli.repeated_tokens and pass its period, at least 2."
        )
    return start


def _target_range(tokens: Tokens, start: int, stop: int) -> Mask:
    """Targets at absolute positions start to stop - 1."""
    position = torch.arange(1, tokens.shape[1], device=tokens.device)
    return ((position >= start) & (position < stop)).expand(len(tokens), -1)


TEXT = Outcome(name="text_loss", meaning="loss on held-out text", targets=every_target)
NEW_TOKEN = Outcome(
    name="new_token_loss", meaning="loss on held-out text where the current token is new", targets=new_token_targets
)


def copy_outcome(period: int) -> Outcome:
    """Loss on the predictable part of the second copy of repeated random tokens."""
    return Outcome(
        name="copy_loss",
        meaning="loss on the second copy of random tokens",
        targets=lambda tokens: copy_targets(tokens, period=period),
    )


def first_copy_outcome(period: int) -> Outcome:
    """Loss on the first copy of repeated random tokens: what ignorance costs this model."""
    return Outcome(
        name="first_copy_loss",
        meaning="loss on the first copy of random tokens",
        targets=lambda tokens: first_copy_targets(tokens, period=period),
    )


OUTCOMES = ("copy_loss", "first_copy_loss", "text_loss", "new_token_loss")
"""Names of the outcomes, as --metric takes them."""


def get_outcome(name: str, *, period: int) -> Outcome:
    """The outcome called `name`; `period` matters to those on repeated tokens."""
    found = {"text_loss": TEXT, "new_token_loss": NEW_TOKEN} | {
        outcome.name: outcome for outcome in (copy_outcome(period), first_copy_outcome(period))
    }
    if name not in found:
        raise UnknownNameError(f'no metric "{name}".{closest(name, OUTCOMES)} Metrics: {", ".join(OUTCOMES)}.')
    return found[name]


def fitting_batch(gpt: GPT, n_pos: int) -> int:
    """How many sequences to run at once: at most 32, and fewer where their logits would pass 512 MB."""
    return max(1, min(32, _LOGITS // (n_pos * gpt.config.d_vocab)))


def unigram_loss(
    tokens: Tokens, reference: Int[Tensor, "reference_row pos"], *, d_vocab: int, outcome: Outcome = TEXT
) -> float:
    """Loss of a model that knows token frequencies only, in nats: the scale on which an effect is a share.

    Frequencies are those of the targets of `reference` (other sequences), with one added to each count.
    """
    counts = torch.bincount(reference[:, 1:].flatten().cpu(), minlength=d_vocab).double() + 1
    surprise = -(counts / counts.sum()).log()
    tokens = tokens.cpu()
    return float(outcome.of_losses(surprise[tokens[:, 1:]], tokens).mean())


def share_of_scale(effect: float, clean: float, scale: float) -> float | None:
    """`effect` as a share of (scale - clean); None where the clean model is no better than the scale.

    >>> share_of_scale(1.0, clean=2.0, scale=6.0)
    0.25
    >>> share_of_scale(1.0, clean=6.0, scale=6.0) is None
    True
    """
    gap = scale - clean
    return effect / gap if gap > _LEAST_GAP and math.isfinite(gap) else None


_LEAST_GAP = 0.05
"""Nats; a smaller advantage over the unigram is no scale to measure on."""

_LOGITS = 2**27
"""Largest number of logits formed at once."""
