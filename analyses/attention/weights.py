"""What the weights of every head say: does it copy what it attends to, and whose output does it read?

The OV circuit is judged twice: by its eigenvalues, and by where each token's own logit stands among all that attending
to the token raises (`interp.circuits`). Which earlier head's output a head reads with its queries, keys and values is
told by composition scores beside those of the same writer turned at random (`interp.composition`). The direction that
all embeddings share is taken out first: it would make any two heads seem to know of each other. What is not defined for
a model is left out, with the reason in words.

What it does not show: that a path is used. Weights say what a head would do with what it got.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch

from interp.circuits import DiagonalTest, EigenvalueCopying, diagonal_test, eigenvalue_copying
from interp.common_directions import embedding_mean
from interp.composition import Composition, Null, composition
from interp.stimuli import ordinary_ids
from model.errors import NotAdditiveError, UndefinedError

if TYPE_CHECKING:
    from model.lab import Lab

INPUTS = ("q", "k", "v")
"""What a head reads with: queries, keys, values."""

MOST_TOKENS = 2048
"""Attended tokens that the diagonal test tries in a large vocabulary."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Why something is not defined for a model."""

    setting: str
    """The setting of the model that forbids it, as in norm=post."""
    reason: str
    """Why, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What the weights of one checkpoint's heads say."""

    copying: EigenvalueCopying | None
    """Eigenvalue copying score of every head; None where `missing` says why."""
    diagonal: DiagonalTest | None
    """Where each token's own logit stands; None where `missing` says why."""
    composition: dict[str, Composition]
    """Composition scores by input, one of INPUTS; without those that `missing` says why."""
    missing: dict[str, Missing]
    """By "copying", "q", "k" or "v"."""


@torch.no_grad()
def read_weights(lab: Lab, *, seed: int) -> Weights:
    """Read what is defined for this model; `seed` draws the nulls, and the tokens of a large vocabulary."""
    gpt, missing, common = lab.gpt, dict[str, Missing](), embedding_mean(lab.gpt)

    def asked(name: str, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except NotAdditiveError:
            setting = f"norm={lab.config.norm.value}"
            missing[name] = Missing(setting=setting, reason=_NOT_A_SUM.format(setting=setting))
        except UndefinedError as error:
            missing[name] = Missing(setting=error.setting, reason=str(error))
        return None

    def composed(name: str) -> Composition:
        return composition(gpt, kinds=(name,), null=Null.ROTATION, without=common, seed=seed)

    found = {name: asked(name, partial(composed, name)) for name in INPUTS}
    return Weights(
        diagonal=asked("copying", lambda: diagonal_test(gpt, tokens=_attended(lab, seed))),
        copying=asked("copying", lambda: eigenvalue_copying(gpt, without=common, seed=seed)),
        composition={name: each for name, each in found.items() if each is not None},
        missing=missing,
    )


_NOT_A_SUM = "that needs a residual stream that is a sum of what was written to it, and with {setting} it is not."


def _attended(lab: Lab, seed: int) -> torch.Tensor:
    """Every token that stands for text, or as many as `MOST_TOKENS`, drawn."""
    ids = ordinary_ids(lab.tokenizer)
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))
    return ids[order[:MOST_TOKENS]].sort().values
