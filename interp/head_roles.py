"""Which heads do what: one stated rule, applied to scores on sequences that are used for nothing else.

An *induction head* attends from the second copy of a random segment to what followed the same token in the first copy;
a *previous-token head* attends to the token before (Elhage et al. 2021; Olsson et al. 2022). A score alone makes no
role: it must also lie well above what even attention would get, as in the study of attention patterns, whose numbers
these are: by a margin for the token before, and for induction by a multiple. An induction score must besides mostly go
away when the second copy is re-ordered, where a head that has merely learned a distance keeps it. On a short sequence
that multiple of chance is more attention than there is: then no head can pass, and `RoleRule.can_decide` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.patterns import pattern_scores
from interp.places import Head
from interp.scores import can_reach, chance, induction_stripe, previous_token
from interp.stimuli import copy_start, reordered

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleRule:
    """What makes a head one of its kind, on its mean score over the discovery sequences."""

    least_score: float = 0.4
    """The share of attention that must fall where the role says."""

    margin: float = 0.2
    """Previous token only: how far above chance the score must lie, which is more than `least_score` on short
    sequences. Induction has its multiple of chance, which asks for more wherever it can be reached."""

    times_chance: float = 10.0
    """Induction only: at least this many times what even attention gets."""

    times_reordered: float = 2.0
    """Induction only: at least this many times the score when the second copy is re-ordered."""

    def can_decide(self, induction_chance: float) -> bool:
        """Whether any head can be an induction head at this chance level; a perfect one fails where it cannot."""
        return can_reach(self.times_chance, induction_chance)

    def least_previous(self, chance: float) -> float:
        """The smallest score of a previous-token head, at this chance level.

        >>> RoleRule().least_previous(0.05), RoleRule().least_previous(0.3)
        (0.4, 0.5)
        """
        return max(self.least_score, chance + self.margin)

    def __str__(self) -> str:
        return (
            f"an induction score of at least {self.least_score:g} and {self.times_chance:g} times chance, "
            f"{self.times_reordered:g} times that on a re-ordered copy"
        )


@dataclass(frozen=True, kw_only=True)
class HeadRoles:
    """Scores of every head, and which heads pass the rule."""

    induction: Float[Tensor, "layer head"]
    """Mean attention from the second copy to what followed the same token in the first."""

    reordered: Float[Tensor, "layer head"]
    """The same score when the second copy is re-ordered: distance without content."""

    previous: Float[Tensor, "layer head"]
    """Mean attention to the token before."""

    induction_chance: float
    previous_chance: float

    induction_heads: tuple[Head, ...]
    """Every head that passes as an induction head, by layer and index; none where the rule cannot decide."""

    previous_head: Head | None
    """The head with the largest previous-token score, if it passes."""


@torch.no_grad()
def find_head_roles(
    gpt: GPT, tokens: Int[Tensor, "sequence pos"], *, period: int, rule: RoleRule, seed: int = 0
) -> HeadRoles:
    """Score every head on repeated `tokens` and apply the rule; `seed` draws the re-ordered control."""
    start, n_pos = copy_start(tokens.shape[1], period) + period, tokens.shape[1]

    def stripe(pattern: Tensor, _tokens: Tensor) -> Tensor:
        return induction_stripe(pattern, period, start=start)

    def before(pattern: Tensor, _tokens: Tensor) -> Tensor:
        return previous_token(pattern)

    scores = pattern_scores(gpt, tokens, {"induction": stripe, "previous": before})
    control = pattern_scores(gpt, reordered(tokens, period, seed=seed), {"induction": stripe})["induction"].mean(0)
    induction, previous = scores["induction"].mean(0), scores["previous"].mean(0)
    induction_chance, previous_chance = chance(start, n_pos), chance(2, n_pos)
    enough = (induction >= rule.least_score) & (induction >= rule.times_chance * induction_chance)
    passing = enough & (induction >= rule.times_reordered * control) & rule.can_decide(induction_chance)
    return HeadRoles(
        induction=induction,
        reordered=control,
        previous=previous,
        induction_chance=induction_chance,
        previous_chance=previous_chance,
        induction_heads=tuple((int(layer), int(head)) for layer, head in passing.nonzero()),
        previous_head=_top_head(previous, rule.least_previous(previous_chance)),
    )


def _top_head(scores: Float[Tensor, "layer head"], threshold: float) -> Head | None:
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return (layer, head) if float(scores[layer, head]) >= threshold else None
