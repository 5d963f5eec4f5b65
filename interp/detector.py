"""Does a head attend as a stated pattern says? TransformerLens's head detector, and the same question asked better.

A *wanted* pattern D [query, key] says where attention should go: by name, for the three kinds of head that
TransformerLens knows, or as a tensor of one's own.

    detect_heads    the numbers of transformer_lens.head_detector.detect_head:
        mul         sum(A D) / sum(A), over all rows, so that rows without a target count against every head
        abs         1 - sum |A - D| / n_pos, over all rows; theirs is rounded to 3 decimals, ours is not
    match_heads     over the rows that have a target, beside what even attention would get:
        mul         attention on the row's targets
        abs         overlap sum_j min(A_ij, D_ij) with D's row made to sum to 1, which is 1 less half the sum of |A - D|

A perfect induction head gets about 0.5 by the first, since half of the rows of repeated tokens have no target, and 1 by
the second. Keys that are excluded (position 0, the token itself) are left out of A and D alike; by `match_heads` what
is left of a row is then scaled to sum to 1. Nothing that is given is written to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.patterns import pattern_scores
from interp.places import Head
from interp.scores import duplicate_targets, even_pattern
from model.errors import InputError
from model.settings import as_enum

if TYPE_CHECKING:
    from model.gpt import GPT

Attention = Float[Tensor, "*batch query key"]
Wanted = Float[Tensor, "*wanted_batch query key"]
"""Held against attention by broadcasting its first axes."""


class HeadPattern(StrEnum):
    """The kinds of head that TransformerLens names."""

    PREVIOUS = "previous_token_head"
    """To the token before."""
    DUPLICATE = "duplicate_token_head"
    """To every earlier copy of the token, a BOS included."""
    INDUCTION = "induction_head"
    """To the token after every earlier copy; that is the token itself where it stands twice in a row."""


class ErrorMeasure(StrEnum):
    """How attention is held against the wanted pattern."""

    MUL = "mul"
    """The attention that falls on it."""
    ABS = "abs"
    """How little differs from it, so that proportions count."""


@dataclass(frozen=True, kw_only=True)
class Exclude:
    """Keys that do not count."""

    bos: bool = False
    """Position 0."""
    current_token: bool = False
    """The query's own position."""

    def counted(self, n_pos: int) -> Bool[Tensor, "query key"]:
        """The visible keys that count."""
        keys = torch.ones(n_pos, n_pos, dtype=torch.bool).tril(-1 if self.current_token else 0)
        keys[:, :1] &= not self.bos
        return keys


@dataclass(frozen=True, kw_only=True)
class Match:
    """How well every head attends as wanted, on the rows that have a target."""

    score: Float[Tensor, "layer head"]
    """From 0 to 1, the mean over sequences that have a target."""
    chance: float
    """What even attention over all counted keys would get, on the same rows."""
    n_rows: int
    """Rows with a target, over all sequences."""

    @property
    def excess(self) -> Float[Tensor, "layer head"]:
        """How far the scores lie above chance."""
        return self.score - self.chance


def detect_heads(
    gpt: GPT,
    tokens: Int[Tensor, "*sequence pos"],
    pattern: HeadPattern | str | Tensor,
    *,
    heads: Sequence[Head] | None = None,
    error_measure: ErrorMeasure | str = ErrorMeasure.MUL,
    exclude_bos: bool = False,
    exclude_current_token: bool = False,
) -> Float[Tensor, "layer head"]:
    """TransformerLens's detector: its number for every head; the mean of them for several sequences.

    Args:
        gpt: a causal model, its dropout off.
        tokens: one sequence, or several of one length.
        pattern: a name of `HeadPattern`, or [pos, pos] with nothing on keys after the query.
        heads: (layer, head) of those that are asked for; the others are -1. All by default.
        error_measure: "mul" or "abs".
        exclude_bos: leave position 0 out. A head that attends to nothing else is then NaN by "mul", as theirs is.
        exclude_current_token: leave the query's own position out.
    """
    measure = as_enum(ErrorMeasure, error_measure, "error_measure")
    exclude = Exclude(bos=exclude_bos, current_token=exclude_current_token)
    wanted = _wanted_for(pattern, tokens)

    def score(attention: Tensor, batch: Tensor) -> Tensor:
        return similarity(attention, wanted(batch)[:, None], error_measure=measure, exclude=exclude)

    found = pattern_scores(gpt, torch.atleast_2d(tokens), {"similarity": score})["similarity"].mean(0)
    return found if heads is None else _only(found, heads)


def match_heads(
    gpt: GPT,
    tokens: Int[Tensor, "*sequence pos"],
    pattern: HeadPattern | str | Tensor,
    *,
    error_measure: ErrorMeasure | str = ErrorMeasure.MUL,
    exclude_bos: bool = False,
    exclude_current_token: bool = False,
) -> Match:
    """How well every head attends as wanted on the rows that have a target, beside even attention; as `detect_heads`.

    Raises:
        InputError: no row has a target; or a pattern of one's own holds other numbers than 0 and 1 ("mul"), or
            negative ones ("abs").
    """
    measure = as_enum(ErrorMeasure, error_measure, "error_measure")
    exclude = Exclude(bos=exclude_bos, current_token=exclude_current_token)
    wanted, sequences = _wanted_for(pattern, tokens), torch.atleast_2d(tokens).cpu()
    targets = wanted(sequences) * exclude.counted(sequences.shape[1])
    _check_proportions(targets, measure)
    n_rows = int(targets.any(-1).sum())
    if n_rows == 0:
        raise InputError("no row of these sequences has a target for this pattern; give sequences that have one.")

    def score(attention: Tensor, batch: Tensor) -> Tensor:
        return overlap(attention, wanted(batch)[:, None], error_measure=measure, exclude=exclude)

    found = pattern_scores(gpt, sequences, {"overlap": score})["overlap"]
    even = overlap(even_pattern(sequences.shape[1]), targets[:, None], error_measure=measure, exclude=exclude)
    return Match(score=found.nanmean(0), chance=float(even.nanmean()), n_rows=n_rows)


def wanted_pattern(name: HeadPattern | str, tokens: Int[Tensor, "*batch pos"]) -> Float[Tensor, "*batch pos pos"]:
    """TransformerLens's detection pattern of that name: 1 where a head of the kind attends, else 0.

    >>> wanted_pattern("induction_head", torch.tensor([7, 8, 7])).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    name, n_pos = as_enum(HeadPattern, name, "pattern"), tokens.shape[-1]
    earlier = duplicate_targets(tokens.reshape(-1, n_pos)).float().reshape(*tokens.shape, n_pos)
    match name:
        case HeadPattern.PREVIOUS:
            return torch.ones_like(earlier).tril(-1).triu(-1)
        case HeadPattern.DUPLICATE:
            return earlier
        case HeadPattern.INDUCTION:
            return torch.nn.functional.pad(earlier[..., :-1], (1, 0))


def similarity(
    attention: Attention,
    wanted: Wanted,
    *,
    error_measure: ErrorMeasure | str = ErrorMeasure.MUL,
    exclude: Exclude = Exclude(),
) -> Float[Tensor, "*broadcast"]:
    """TransformerLens's number for attention patterns that are there already (see the head of this module)."""
    counted = exclude.counted(attention.shape[-1]).to(attention)
    if as_enum(ErrorMeasure, error_measure, "error_measure") is ErrorMeasure.MUL:
        kept = attention * counted
        return (kept * wanted).sum((-1, -2)) / kept.sum((-1, -2))
    return 1 - ((attention - wanted).abs() * counted).sum((-1, -2)) / attention.shape[-1]


def overlap(
    attention: Attention,
    wanted: Wanted,
    *,
    error_measure: ErrorMeasure | str = ErrorMeasure.MUL,
    exclude: Exclude = Exclude(),
) -> Float[Tensor, "*broadcast"]:
    """What `match_heads` gives, for attention patterns that are there already; NaN where no row has a target.

    A row with no attention on counted keys counts as 0.
    """
    counted = exclude.counted(attention.shape[-1]).to(attention)
    kept, targets = attention * counted, (wanted * counted).to(attention)
    mass = kept.sum(-1, keepdim=True)
    kept = torch.where(mass > 0, kept / mass, 0)
    if as_enum(ErrorMeasure, error_measure, "error_measure") is ErrorMeasure.MUL:
        by_row = (kept * targets).sum(-1)
    else:
        proportions = targets / targets.sum(-1, keepdim=True)  # NaN in rows without a target, which are left out
        by_row = kept.minimum(proportions).sum(-1)
    rows = targets.any(-1)
    return by_row.where(rows, 0).sum(-1) / rows.sum(-1)


def _wanted_for(pattern: HeadPattern | str | Tensor, tokens: Tensor) -> Callable[[Tensor], Tensor]:
    """The wanted pattern of every sequence of a batch, [batch, query, key]."""
    if not isinstance(pattern, Tensor):
        name = as_enum(HeadPattern, pattern, "pattern")
        return lambda batch: wanted_pattern(name, batch)
    n_pos = tokens.shape[-1]
    if pattern.shape != (n_pos, n_pos) or not bool(pattern.isfinite().all()) or bool(pattern.triu(1).any()):
        raise InputError(
            f"a wanted pattern of shape {tuple(pattern.shape)} cannot be held against these sequences; give finite "
            f"numbers [query, key], ({n_pos}, {n_pos}), with zeros for keys after the query."
        )
    return lambda batch: pattern.to(batch.device, torch.float32).expand(len(batch), -1, -1)


def _check_proportions(targets: Tensor, measure: ErrorMeasure) -> None:
    if measure is ErrorMeasure.MUL and not bool(((targets == 0) | (targets == 1)).all()):
        raise InputError('"mul" counts attention on targets, so its pattern holds 0 and 1; for proportions use "abs".')
    if bool((targets < 0).any()):
        raise InputError("no attention is negative; give a wanted pattern of numbers from 0 up.")


def _only(found: Float[Tensor, "layer head"], heads: Sequence[Head]) -> Float[Tensor, "layer head"]:
    """Those heads; -1 for the rest."""
    kept = torch.full_like(found, -1)
    for layer, index in heads:
        if not (0 <= layer < found.shape[0] and 0 <= index < found.shape[1]):
            raise InputError(
                f"there is no head ({layer}, {index}); give (layer, head) below ({found.shape[0]}, {found.shape[1]})."
            )
        kept[layer, index] = found[layer, index]
    return kept
