"""Which next tokens of a sequence count, and how much: column t of a mask or of weights is about predicting token t+1.

What counts is decided by the tokens before the target, never by the target: to pick targets that a copy would get wrong
would make every copying head look harmful. Sources: Olsson et al. 2022 (repeated random tokens, and the score of
in-context learning).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.stimuli import copy_start
from model.errors import InputError

Tokens = Int[Tensor, "batch pos"]
Targets = Int[Tensor, "batch target"]
Mask = Bool[Tensor, "batch target"]
Weights = Float[Tensor, "batch target"]


def mean_over(targets: Callable[[Tokens], Mask]) -> Callable[[Tokens], Weights]:
    """Weights that make a sum the mean over `targets`, of which every sequence must have one.

    >>> mean_over(new_token_targets)(torch.tensor([[7, 1, 1, 2]])).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def weights(tokens: Tokens) -> Weights:
        chosen = targets(tokens).double()
        counts = chosen.sum(-1, keepdim=True)
        if not bool(counts.all()):
            row = int((counts[:, 0] == 0).nonzero()[0])
            raise InputError(
                f"sequence {row} has no target that counts, so there is no mean over them; leave that sequence out, or "
                "choose targets that every sequence has."
            )
        return chosen / counts

    return weights


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
    start = copy_start(tokens.shape[1], period)
    return _target_range(tokens, start, start + period)


def copy_targets(tokens: Tokens, *, period: int) -> Mask:
    """The targets after the first copy that the segment determines; not the first one, where the repeat is still news.

    >>> copy_targets(torch.tensor([[0, 5, 6, 5, 6]]), period=2).tolist()
    [[False, False, False, True]]
    """
    start = copy_start(tokens.shape[1], period)
    return _target_range(tokens, start + period + 1, tokens.shape[1])


def copy_distractors(tokens: Tokens, *, period: int) -> Targets:
    """For each target the token of the segment that stands half a segment further on: as often seen, and not the next.

    In a segment of distinct tokens it is never the target.

    >>> copy_distractors(torch.tensor([[0, 5, 6, 7, 8, 5, 6, 7, 8]]), period=4).tolist()
    [[7, 8, 5, 6, 7, 8, 5, 6]]
    """
    start = copy_start(tokens.shape[1], period)
    position = torch.arange(1, tokens.shape[1], device=tokens.device)
    return tokens[:, start + (position - start + period // 2) % period]


def late_minus_early(tokens: Tokens) -> Weights:
    """The mean over a tenth of the targets around 0.9 of the way, minus that over a tenth around 0.1 of it.

    >>> late_minus_early(torch.zeros(1, 11, dtype=torch.long)).tolist()
    [[-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]]
    """
    n_targets = tokens.shape[1] - 1
    if n_targets < _FEWEST:
        raise InputError(
            f"{tokens.shape[1]} positions are too few to tell late from early ones; give at least {_FEWEST + 1}."
        )
    width = max(1, round(n_targets / 10))
    weights = torch.zeros(tokens.shape[0], n_targets, dtype=torch.float64, device=tokens.device)
    for centre, sign in ((0.1, -1), (0.9, 1)):
        first = round(centre * n_targets - width / 2)
        weights[:, first : first + width] += sign / width
    return weights


_FEWEST = 10


def _target_range(tokens: Tokens, start: int, stop: int) -> Mask:
    """Targets at absolute positions start to stop - 1."""
    position = torch.arange(1, tokens.shape[1], device=tokens.device)
    return ((position >= start) & (position < stop)).expand(len(tokens), -1)
