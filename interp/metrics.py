"""What a patched run is judged by: one number for each sequence, from its logits.

    metric(logits [batch, pos, d_vocab], rows [batch]) -> [batch]

`rows` says which of the sequences are in the batch, so that a metric can hold something for each. Any function will do.
Logit differences do not saturate where a model is sure, as losses and probabilities do (Zhang and Nanda 2024): prefer
them where gradients are taken, and look at more than one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.outcomes import Outcome, copy_targets
from model.errors import InputError

Logits = Float[Tensor, "batch pos d_vocab"]
Rows = Int[Tensor, " batch"]
Metric = Callable[[Logits, Rows], Float[Tensor, " batch"]]
"""metric(logits, rows) -> one number for each sequence of the batch."""

Sequences = Int[Tensor, "sequence pos"]


def outcome_metric(outcome: Outcome, tokens: Sequences) -> Metric:
    """An outcome's loss on each sequence, in nats; lower is better. Also where the run was given other tokens."""

    def loss(logits: Logits, rows: Rows) -> Float[Tensor, " batch"]:
        return outcome.of_logits(logits, tokens[rows.to(tokens.device)].to(logits.device))

    return loss


def copy_logit(tokens: Sequences, period: int) -> Metric:
    """How far the logit of the right next token lies above the vocabulary's mean, over what the second copy determines.

    In logits; higher is better. It is linear in the logits, so that no gradient dies where the model is sure.
    """

    def above_mean(logits: Logits, rows: Rows) -> Float[Tensor, " batch"]:
        here = tokens[rows.to(tokens.device)].to(logits.device)
        chosen = copy_targets(here, period=period)
        right = logits[:, :-1].gather(2, here[:, 1:, None])[..., 0] - logits[:, :-1].mean(-1)
        return (right * chosen).sum(1) / chosen.sum(1)

    return above_mean


def logit_difference(
    correct: Int[Tensor, " sequence"], wrong: Int[Tensor, " other_sequence"], *, position: int = -1
) -> Metric:
    """The logit of each sequence's correct token minus that of its wrong one, at one position; in logits.

    The metric raises InputError where the prompts are not as many, or have no such position, or a token is in no
    vocabulary.
    """
    if correct.shape != wrong.shape:
        raise InputError(
            f"{len(correct)} correct and {len(wrong)} wrong tokens make no pairs; give one of each for every sequence."
        )

    def difference(logits: Logits, rows: Rows) -> Float[Tensor, " batch"]:
        _require_in(logits, rows, correct, wrong, position)
        at = logits[:, position]
        right, other = (each[rows.to(each.device)].to(logits.device)[:, None] for each in (correct, wrong))
        return (at.gather(1, right) - at.gather(1, other))[:, 0]

    return difference


def divergence(
    intact: Float[Tensor, "sequence pos d_vocab"], chosen: Bool[Tensor, "sequence pos"] | None = None
) -> Metric:
    """How far a run's predictions are from those of the `intact` logits: KL(intact || run), in nats; 0 is the same.

    The mean over the chosen positions of each sequence (all where they are left out). At the intact run it is flat: its
    gradient there is zero, so that estimates at that run see nothing (integrate them).
    """

    def from_intact(logits: Logits, rows: Rows) -> Float[Tensor, " batch"]:
        first = intact[rows.to(intact.device)].to(logits.device).log_softmax(-1)
        apart = (first.exp() * (first - logits.log_softmax(-1))).sum(-1)
        taken = torch.ones_like(apart) if chosen is None else chosen[rows.to(chosen.device)].to(apart)
        return (apart * taken).sum(1) / taken.sum(1)

    return from_intact


def _require_in(logits: Logits, rows: Rows, correct: Tensor, wrong: Tensor, position: int) -> None:
    """Every sequence has its pair of tokens, every token a logit, and the prompts have the position."""
    _, n_pos, d_vocab = logits.shape
    if len(rows) and int(rows.max()) >= len(correct):
        raise InputError(
            f"there are {len(correct)} pairs of tokens and at least {int(rows.max()) + 1} sequences; give one pair for "
            "every sequence."
        )
    if not -n_pos <= position < n_pos:
        raise InputError(f"position {position} is none of the prompts' {n_pos}; choose from {-n_pos} to {n_pos - 1}.")
    unknown = [token for each in (correct, wrong) for token in each.tolist() if not 0 <= token < d_vocab]
    if unknown:
        raise InputError(f"{unknown[0]} is no token of this vocabulary; tokens run from 0 to {d_vocab - 1}.")


def measured(metric: Metric, logits: Logits, rows: Rows) -> Float[Tensor, " batch"]:
    """The metric's numbers; InputError where it does not give one for each sequence."""
    found = metric(logits, rows)
    if not isinstance(found, Tensor) or found.shape != rows.shape:
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise InputError(
            f"the metric gave {got}; it must give one number for each of the {len(rows)} sequences of a batch, "
            f"as a tensor of shape {tuple(rows.shape)}."
        )
    return found


def on_cpu(metric: Metric) -> Metric:
    """The metric with its numbers as float64 on the CPU: what is kept of a run."""

    def kept(logits: Logits, rows: Rows) -> Float[Tensor, " batch"]:
        return measured(metric, logits, rows).detach().double().cpu()

    return kept


def split_rows(n_sequences: int, batch_size: int) -> list[Rows]:
    """The rows of one batch after another.

    >>> [rows.tolist() for rows in split_rows(3, 2)]
    [[0, 1], [2]]
    """
    return list(torch.arange(n_sequences).split(batch_size))
