"""What a model achieves on a sequence, as one number per sequence: the unit of every resampling.

An outcome reads something at each target (`interp.measures`) and sums it up with weights that the tokens decide
(`interp.targets`); mostly the sum is a mean over some targets. Of every outcome it is known which way is worse.

    text_loss, text_accuracy, text_kl     on all of a text
    new_token_loss                        where the current token is new in the sequence: nothing to copy from
    icl_score                             late minus early loss of a text: what more context earns
    copy_loss, copy_accuracy, copy_kl,
    copy_logit_difference                 on the second copy of a random segment, where the first determines it
    first_copy_loss                       on the first copy, where nothing can be known

Sources: Olsson et al. 2022 (repeated random tokens, in-context-learning score); Michel et al. 2019 (heads judged by
what removing them costs); Zhang and Nanda 2024 (more than one measure).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures import Measure, UserMeasure, read
from interp.targets import (
    Mask,
    Targets,
    Tokens,
    Weights,
    copy_distractors,
    copy_targets,
    every_target,
    first_copy_targets,
    late_minus_early,
    mean_over,
    new_token_targets,
)
from model.errors import InputError, UnknownNameError, closest
from model.settings import as_enum

if TYPE_CHECKING:
    from model.gpt import GPT

__all__ = [
    "COPY_OUTCOMES", "LEAST_GAP", "NEW_TOKEN", "OUTCOMES", "TEXT", "TEXT_OUTCOMES", "Measure", "Outcome", "UserMeasure",
    "copy_outcome", "copy_targets", "every_target", "first_copy_outcome", "first_copy_targets", "fitting_batch",
    "get_outcome", "mean_over", "new_token_targets", "share_of_scale", "token_losses", "unigram_loss", "unigram_losses",
    "unigram_surprise", "user_outcome",
]  # fmt: skip

Logits = Float[Tensor, "batch pos d_vocab"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A weighted sum, over the targets of a sequence, of what is read at each."""

    name: str
    """As typed after --metric."""

    meaning: str
    """What it is, in words, for labels and sentences."""

    weights: Callable[[Tokens], Weights]
    """The weight of each of tokens[:, 1:], from the tokens; `mean_over(targets)` for a mean."""

    measure: Measure | UserMeasure = Measure.LOSS
    """What is read at a target."""

    distractors: Callable[[Tokens], Targets] | None = None
    """The token that each target is held against, from the tokens; for logit differences."""

    def __post_init__(self) -> None:
        if not isinstance(self.measure, UserMeasure):
            object.__setattr__(self, "measure", as_enum(Measure, self.measure, "measure"))
        if (self.measure is Measure.LOGIT_DIFFERENCE) is (self.distractors is None):
            raise InputError(
                f"{self.name}: a logit difference is one from a distractor, and nothing else takes one; give "
                'distractors=a function of the tokens together with measure="logit_difference".'
            )

    @property
    def unit(self) -> str:
        """What its numbers are in, as in "0.2 nats"."""
        return self.measure.unit

    @property
    def lower_is_better(self) -> bool:
        """Whether a model that does worse has more of it."""
        return self.measure.lower_is_better

    @property
    def sign(self) -> int:
        """1 where more is worse, -1 where less is: a change times this is a harm."""
        return 1 if self.lower_is_better else -1

    @property
    def has_unigram(self) -> bool:
        """Whether a model that knows token frequencies only is a scale for it: for losses."""
        return self.measure is Measure.LOSS

    def targets(self, tokens: Tokens) -> Mask:
        """Which of tokens[:, 1:] have a weight."""
        return self.weights(tokens) != 0

    def of_logits(self, logits: Logits, tokens: Tokens, *, intact: Logits | None = None) -> Float[Tensor, " batch"]:
        """The outcome of each sequence; at least fp32, and differentiable. KL needs the `intact` model's logits."""
        values = self._values(logits, tokens, intact)
        return values if values.ndim == 1 else self.of_values(values, tokens)

    def by_token(
        self, logits: Logits, tokens: Tokens, *, intact: Logits | None = None
    ) -> Float[Tensor, "batch target"]:
        """What is read at every target, also where its weight is 0; InputError where a function has no such numbers."""
        values = self._values(logits, tokens, intact)
        if values.ndim == 1:
            raise self.per_sequence_only
        return values

    def of_values(self, values: Float[Tensor, "*more batch target"], tokens: Tokens) -> Float[Tensor, "*more batch"]:
        """The weighted sum of what was read at each target; values of weight 0 do not matter, not even if infinite."""
        weights = self.weights(tokens).to(values)
        return values.masked_fill(weights == 0, 0).mul(weights).sum(-1)

    @property
    def per_sequence_only(self) -> InputError:
        """The error of asking a function of whole sequences for tokens."""
        return InputError(
            f"{self.name} is one number for each sequence, so it has none for each token; give a function that "
            "returns [batch, pos - 1]."
        )

    def _values(self, logits: Logits, tokens: Tokens, intact: Logits | None) -> Tensor:
        if isinstance(self.measure, UserMeasure):
            return self.measure.read(logits, tokens)
        beside = None if self.distractors is None else self.distractors(tokens)
        before = None if intact is None else intact[:, :-1]
        return read(self.measure, logits[:, :-1], tokens[:, 1:], distractors=beside, intact=before)


def token_losses(logits: Logits, tokens: Tokens) -> Float[Tensor, "batch target"]:
    """Next-token cross-entropy in nats: column t is the loss of predicting token t+1. At least fp32."""
    return read(Measure.LOSS, logits[:, :-1], tokens[:, 1:])


TEXT = Outcome(name="text_loss", meaning="loss on held-out text", weights=mean_over(every_target))
NEW_TOKEN = Outcome(
    name="new_token_loss",
    meaning="loss on held-out text where the current token is new",
    weights=mean_over(new_token_targets),
)
_OF_TEXT = (
    TEXT,
    NEW_TOKEN,
    Outcome(
        name="text_accuracy",
        meaning="share of held-out text that is predicted right",
        weights=TEXT.weights,
        measure=Measure.ACCURACY,
    ),
    Outcome(
        name="text_kl",
        meaning="divergence from the intact model on held-out text",
        weights=TEXT.weights,
        measure=Measure.KL,
    ),
    Outcome(name="icl_score", meaning="late minus early loss on held-out text", weights=late_minus_early),
)


def copy_outcome(period: int) -> Outcome:
    """Loss on the predictable part of the second copy of repeated random tokens."""
    return Outcome(
        name="copy_loss",
        meaning="loss on the second copy of random tokens",
        weights=mean_over(partial(copy_targets, period=period)),
    )


def first_copy_outcome(period: int) -> Outcome:
    """Loss on the first copy of repeated random tokens: what ignorance costs this model."""
    return Outcome(
        name="first_copy_loss",
        meaning="loss on the first copy of random tokens",
        weights=mean_over(partial(first_copy_targets, period=period)),
    )


def _of_copies(period: int) -> tuple[Outcome, ...]:
    on_copies = mean_over(partial(copy_targets, period=period))
    return (
        copy_outcome(period),
        first_copy_outcome(period),
        Outcome(
            name="copy_accuracy",
            meaning="share of the second copy of random tokens that is predicted right",
            weights=on_copies,
            measure=Measure.ACCURACY,
        ),
        Outcome(
            name="copy_kl",
            meaning="divergence from the intact model on the second copy of random tokens",
            weights=on_copies,
            measure=Measure.KL,
        ),
        Outcome(
            name="copy_logit_difference",
            meaning="logit of the right token above that of another of the segment, on its second copy",
            weights=on_copies,
            measure=Measure.LOGIT_DIFFERENCE,
            distractors=partial(copy_distractors, period=period),
        ),
    )


def user_outcome(
    name: str,
    meaning: str,
    function: Callable[[Logits, Tokens], Tensor],
    *,
    unit: str,
    lower_is_better: bool,
    weights: Callable[[Tokens], Weights] = TEXT.weights,
) -> Outcome:
    """An outcome of one's own: any function of logits [batch, pos, d_vocab] and tokens [batch, pos].

    It gives one number for each sequence, or one for each target, [batch, pos - 1], which `weights` sum up (a plain
    mean unless others are given). Whole logits are formed for it, which takes more memory than the built-in measures.
    """
    measure = UserMeasure(function=function, unit=unit, lower_is_better=lower_is_better)
    return Outcome(name=name, meaning=meaning, weights=weights, measure=measure)


COPY_OUTCOMES = tuple(outcome.name for outcome in _of_copies(2))
"""Names of the outcomes on repeated random tokens."""

TEXT_OUTCOMES = tuple(outcome.name for outcome in _OF_TEXT)
"""Names of the outcomes on held-out text."""

OUTCOMES = (*COPY_OUTCOMES, *TEXT_OUTCOMES)
"""Names of the outcomes, as --metric takes them."""


def get_outcome(name: str, *, period: int) -> Outcome:
    """The outcome called `name`; `period` matters to those on repeated tokens."""
    if name not in OUTCOMES:
        raise UnknownNameError(f'no metric "{name}".{closest(name, OUTCOMES)} Metrics: {", ".join(OUTCOMES)}.')
    return next(outcome for outcome in (*_of_copies(period), *_OF_TEXT) if outcome.name == name)


def fitting_batch(gpt: GPT, n_pos: int) -> int:
    """How many sequences to run at once: at most 32, and fewer where their logits would pass 512 MB."""
    return max(1, min(32, _LOGITS // (n_pos * gpt.config.d_vocab)))


def unigram_loss(
    tokens: Tokens, reference: Int[Tensor, "reference_row pos"], *, d_vocab: int, outcome: Outcome = TEXT
) -> float:
    """What an outcome is for a model that knows token frequencies only, in nats: the scale of an effect's share.

    Frequencies are those of the targets of `reference` (other sequences), with one added to each count. Outcomes that
    are no losses have no such scale (`Outcome.has_unigram`).
    """
    return float(unigram_losses(tokens, unigram_surprise(reference, d_vocab=d_vocab), outcome=outcome).mean())


def unigram_surprise(reference: Int[Tensor, "reference_row pos"], *, d_vocab: int) -> Float[Tensor, " d_vocab"]:
    """The loss of predicting each token from the frequencies of targets of `reference`, one added to each count."""
    counts = torch.bincount(reference[:, 1:].flatten().cpu(), minlength=d_vocab).double() + 1
    return -(counts / counts.sum()).log()


def unigram_losses(
    tokens: Tokens, surprise: Float[Tensor, " token"], *, outcome: Outcome = TEXT
) -> Float[Tensor, " batch"]:
    """The outcome of each sequence for a model that loses `surprise` at each token, whatever came before it."""
    if not outcome.has_unigram:
        raise InputError(f"{outcome.name} is no loss, so token frequencies are no scale for it; take its effect alone.")
    tokens = tokens.cpu()
    return outcome.of_values(surprise[tokens[:, 1:]], tokens)


def share_of_scale(effect: float, clean: float, scale: float) -> float | None:
    """`effect` as a share of (scale - clean); None where the clean model is no better than the scale.

    >>> share_of_scale(1.0, clean=2.0, scale=6.0)
    0.25
    >>> share_of_scale(1.0, clean=6.0, scale=6.0) is None
    True
    """
    gap = scale - clean
    return effect / gap if gap > LEAST_GAP and math.isfinite(gap) else None


LEAST_GAP = 0.05
"""Nats; a smaller advantage over the unigram is no scale to measure on."""

_LOGITS = 2**27
"""Largest number of logits formed at once."""
