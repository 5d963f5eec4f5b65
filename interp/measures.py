"""What is read off the logits of one position: a loss, a hit, a distance from the intact model, a difference of logits.

A loss and a probability saturate where the model is sure, and an accuracy sees nothing but the winner; a difference of
logits does not saturate, and the divergence from the intact model also counts what has nothing to do with the right
answer. So look at more than one (Zhang and Nanda 2024, 2309.16042, section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model.errors import InputError
from model.settings import as_enum

Logits = Float[Tensor, "*row d_vocab"]


class Measure(StrEnum):
    """What is read at every target."""

    LOSS = "loss"
    """Cross-entropy of the target, in nats."""

    ACCURACY = "accuracy"
    """1 where the target has the largest logit, else 0: over targets, their share."""

    KL = "kl"
    """KL(intact || this model) of the next-token distributions, in nats: 0 for the intact model itself."""

    LOGIT_DIFFERENCE = "logit_difference"
    """The target's logit minus that of a distractor, in logits."""

    @property
    def unit(self) -> str:
        """What a number of this kind is in."""
        return {"accuracy": "of the targets", "logit_difference": "logits"}.get(self.value, "nats")

    @property
    def lower_is_better(self) -> bool:
        """Whether a model that does worse has more of it."""
        return self in (Measure.LOSS, Measure.KL)


@dataclass(frozen=True, kw_only=True)
class UserMeasure:
    """A function of a batch's logits and tokens, by whoever asks: f(logits [batch, pos, d_vocab], tokens [batch, pos]).

    It gives one number for each sequence, or one for each target ([batch, pos - 1], column t about token t+1).
    """

    function: Callable[[Float[Tensor, "batch pos d_vocab"], Int[Tensor, "batch pos"]], Tensor]

    unit: str
    """What its numbers are in."""

    lower_is_better: bool

    def read(
        self, logits: Float[Tensor, "batch pos d_vocab"], tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, " batch"] | Float[Tensor, "batch target"]:
        """The function's numbers; InputError where they are not one for each sequence or target."""
        found, n_batch, n_targets = self.function(logits, tokens), len(tokens), tokens.shape[1] - 1
        shapes = ((n_batch,), (n_batch, n_targets))
        if not isinstance(found, Tensor) or found.shape not in shapes:
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"the function of an outcome gave {got}; it must give one number for each sequence, {shapes[0]}, or "
                f"for each target, {shapes[1]}."
            )
        return found


def read(
    measure: Measure | str,
    logits: Logits,
    targets: Int[Tensor, "*target"],
    *,
    distractors: Int[Tensor, "*target"] | None = None,
    intact: Float[Tensor, "*intact_row d_vocab"] | None = None,
) -> Float[Tensor, "*row"]:
    """The measure at each row of logits; at least fp32. Targets and intact logits may lack leading axes of the rows.

    A logit difference needs `distractors`, the divergence the `intact` model's logits.
    """
    logits = at_least_fp32(logits)
    match as_enum(Measure, measure, "measure"):
        case Measure.LOSS:
            return logits.logsumexp(-1) - _at(logits, targets)
        case Measure.ACCURACY:
            return (logits.argmax(-1) == targets).to(logits.dtype)
        case Measure.KL:
            if intact is None:
                raise InputError("KL is a distance from the intact model; give its logits as well.")
            expected = at_least_fp32(intact).log_softmax(-1)
            return (expected.exp() * (expected - logits.log_softmax(-1))).sum(-1)
        case Measure.LOGIT_DIFFERENCE:
            if distractors is None:
                raise InputError("a logit difference is one from a distractor; give one token for each target.")
            return _at(logits, targets) - _at(logits, distractors)


def at_least_fp32(logits: Logits) -> Logits:
    """The logits in fp32, or in fp64 where they are."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _at(logits: Logits, tokens: Int[Tensor, "*target"]) -> Float[Tensor, "*row"]:
    return logits.gather(-1, tokens.expand(logits.shape[:-1])[..., None])[..., 0]
