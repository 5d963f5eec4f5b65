"""Where an ablation hurts: its harm taken apart by token, by position and by kind, over all measured sequences.

A mean says that something is lost, not what. Here the harm of every target that an outcome weighs is kept, and three
questions are asked of it: at which tokens is it largest, how does it depend on the position (for repeated tokens, on
the distance into the copy), and on which kinds of tokens does it fall. Groups are means over their targets, with
intervals over sequences (a ratio of means); the shares of a grouping add up to the whole harm.

What it does not show: a claim. The largest of thousands of harms are large by selection, and kinds go by the target,
which nothing before it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.ablation import Ablation, ablation_of
from interp.harm import Counted
from interp.outcomes import COPY_OUTCOMES, Outcome
from interp.places import Places
from interp.stats import Interval, bootstrap_ratios
from interp.targets import new_token_targets
from interp.token_kinds import TokenKind, token_kinds
from interp.trials import HELD_OUT_TEXT, Bench
from model.errors import InputError

if TYPE_CHECKING:
    from model.tokenizer import Tokenizer

Numbers = Float[Tensor, "sequence target"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """The targets of one sort, over all sequences."""

    label: str
    n_targets: int
    harm: Interval
    """Mean harm of such a target, in the measure's unit, with its interval over sequences; without ends (infinite)
    where too few sequences have such a target."""
    share: float | None
    """The part of the whole harm that falls on these targets; None where the whole is nothing."""


@dataclass(frozen=True, kw_only=True)
class HurtToken:
    """One target, in context."""

    sequence: int
    """Number of the measured sequence."""
    position: int
    """Absolute position of the token that is predicted."""
    before: tuple[str, ...]
    """The tokens before it, printable, the nearest last."""
    token: str
    clean: float
    """What the outcome's measure reads there in the intact model."""
    harm: float
    """How much worse that gets."""


@dataclass(frozen=True, kw_only=True)
class TokenHarms:
    """Where one ablation hurts one outcome."""

    ablation: Ablation
    outcome: str
    meaning: str
    unit: str
    harm: float
    """The whole: the mean over sequences, as the effect on the outcome has it."""
    n_sequences: int
    n_targets: int
    top_share: float | None
    """The part of all rises (falls left out) that falls on the tenth of the targets that lose most."""
    positions: str
    """What positions are counted from, in words."""
    by_position: tuple[Group, ...]
    by_kind: tuple[Group, ...]
    """By the kind of the token that is predicted, the most harmful kind first; empty where tokens are drawn at random,
    of which no kind means anything."""
    by_history: tuple[Group, ...]
    """By whether the current token is new in its sequence; empty for repeated tokens, where the copies say that."""
    worst: tuple[HurtToken, ...]
    """The targets that lose most."""


def token_harms(
    bench: Bench,
    places: Places | Ablation,
    *,
    metric: str,
    tokenizer: Tokenizer,
    n_worst: int = 10,
    n_bins: int = 8,
    seed: int = 0,
    counted: Counted | None = None,
) -> TokenHarms:
    """Ablate `places` on the sequences that measure `metric`, and take the harm apart.

    Raises:
        InputError: a metric that has no parts (`require_parts`), or an ablation that these sequences cannot take.
    """
    ablation = ablation_of(places, bench.gpt.config)
    require_parts(bench, metric)
    trial, row = bench.trial_of(metric)
    why = trial.why_not(ablation)
    if why is not None:
        raise InputError(f"{metric} cannot be measured with {ablation} ablated. {why}")
    outcome, tokens = trial.outcomes[row], trial.measured.cpu()
    found = bench.harms(trial, [ablation], counted, outcomes=[outcome], by_token=True)
    weights = outcome.weights(tokens).double().cpu()
    is_target = weights != 0
    harm = found.token_harm[:, 0].where(is_target, 0.0)
    if found.clean_by_token is None:
        raise RuntimeError("harms by token come with the intact model's numbers")
    parts = _Parts(harm=harm, weights=weights, is_target=is_target, seed=seed)
    edges, origin = _bins(is_target, n_bins)
    kinds, ids = list(TokenKind), torch.tensor([list(TokenKind).index(each) for each in token_kinds(tokenizer)])
    of_kind = ids[tokens[:, 1:]]
    return TokenHarms(
        ablation=ablation,
        outcome=outcome.name,
        meaning=outcome.meaning,
        unit=outcome.unit,
        harm=float((harm * weights).sum(1).mean()),
        n_sequences=len(tokens),
        n_targets=int(is_target.sum()),
        top_share=_top_share(harm[is_target]),
        positions=_counted_from(outcome),
        by_position=parts.groups(
            [_range(first - origin, last - 1 - origin) for first, last in edges],
            [_columns(is_target, first, last) for first, last in edges],
        ),
        by_kind=()
        if trial.kind != HELD_OUT_TEXT
        else tuple(
            sorted(
                parts.groups([kind.value for kind in kinds], [of_kind == number for number in range(len(kinds))]),
                key=lambda group: -group.harm.mean,
            )
        ),
        by_history=() if outcome.name in COPY_OUTCOMES else parts.groups(*_histories(tokens)),
        worst=_worst(harm, is_target, found.clean_by_token, tokens, tokenizer.str_tokens, n_worst),
    )


def require_parts(bench: Bench, metric: str) -> None:
    """InputError, in a sentence, where an outcome is no sum of parts that all count the same way."""
    trial, row = bench.trial_of(metric)
    outcome = trial.outcomes[row]
    if bool((outcome.weights(trial.measured[:1].cpu()) < 0).any()):
        raise InputError(
            f"{metric} is a difference between targets ({outcome.meaning}), so its harm is no sum over tokens; ask for "
            "text_loss, whose harm by position shows both sides."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    """Harms of targets, ready to be summed by group."""

    harm: Numbers
    weights: Numbers
    is_target: Bool[Tensor, "sequence target"]
    seed: int

    def groups(self, labels: Sequence[str], members: Sequence[Bool[Tensor, "sequence target"]]) -> tuple[Group, ...]:
        """The groups that have targets."""
        several = torch.stack([each & self.is_target for each in members], dim=-1)
        count, total = several.sum(1).double(), (self.harm[..., None] * several).sum(1)
        part = ((self.harm * self.weights)[..., None] * several).sum(1).mean(0)
        whole = float((self.harm * self.weights).sum(1).mean())
        kept = [number for number in range(len(labels)) if bool(count[:, number].any())]
        means = bootstrap_ratios(total[:, kept], count[:, kept], seed=self.seed)
        lone = (count[:, kept] > 0).sum(0) < _FEWEST
        means = replace(means, low=means.low.where(~lone, -torch.inf), high=means.high.where(~lone, torch.inf))
        return tuple(
            Group(
                label=labels[number],
                n_targets=int(count[:, number].sum()),
                harm=means[place],
                share=float(part[number]) / whole if abs(whole) > _NOTHING else None,
            )
            for place, number in enumerate(kept)
        )


def _bins(is_target: Bool[Tensor, "sequence target"], n_bins: int) -> tuple[list[tuple[int, int]], int]:
    """Ranges of target columns of even width, and the column that is counted as number 0."""
    columns = is_target.any(0).nonzero()[:, 0]
    first, last = int(columns[0]), int(columns[-1]) + 1
    width = -(-(last - first) // n_bins)
    return [(start, min(start + width, last)) for start in range(first, last, width)], first - 1


def _columns(is_target: Tensor, first: int, last: int) -> Bool[Tensor, "sequence target"]:
    inside = torch.zeros_like(is_target)
    inside[:, first:last] = True
    return inside


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _counted_from(outcome: Outcome) -> str:
    """What the first target is the first of: the column of targets says it, the name says which copy."""
    if outcome.name not in COPY_OUTCOMES:
        return "target in the sequence"
    return f"target in the {'first' if outcome.name == 'first_copy_loss' else 'second'} copy"


def _histories(tokens: Int[Tensor, "sequence pos"]) -> tuple[list[str], list[Bool[Tensor, "sequence target"]]]:
    new = new_token_targets(tokens)
    return ["current token is new", "current token was seen before"], [new, ~new]


def _top_share(harms: Float[Tensor, " target"]) -> float | None:
    """The part of all rises that falls on the tenth of the targets that lose most."""
    rises = harms.clamp_min(0).sort(descending=True).values
    total = float(rises.sum())
    return float(rises[: max(1, len(rises) // 10)].sum()) / total if total > _NOTHING else None


def _worst(
    harm: Numbers,
    is_target: Bool[Tensor, "sequence target"],
    clean: Numbers,
    tokens: Int[Tensor, "sequence pos"],
    spell: Callable[[list[int]], list[str]],
    n_worst: int,
) -> tuple[HurtToken, ...]:
    ranked = harm.where(is_target, -torch.inf).flatten().argsort(descending=True)[:n_worst]
    found = []
    for number in ranked.tolist():
        row, column = divmod(number, harm.shape[1])
        if not bool(is_target[row, column]) or float(harm[row, column]) <= 0:
            break
        strings = spell(tokens[row, max(0, column + 1 - _CONTEXT) : column + 2].tolist())
        found.append(
            HurtToken(
                sequence=row,
                position=column + 1,
                before=tuple(strings[:-1]),
                token=strings[-1],
                clean=float(clean[row, column]),
                harm=float(harm[row, column]),
            )
        )
    return tuple(found)


_FEWEST = 2
"""Sequences that a group must lie in for an interval over sequences."""

_CONTEXT = 40
"""Tokens kept before a target."""

_NOTHING = 1e-9
"""A harm of which no part is a share."""
