"""The kinds of score that heads get, and by which function each is measured on which sequences.

Kinds that need sequences of their own are measured there only: a match in the re-ordered control, prefix matching in
random tokens that come four times. What is measured by fixed distance in repeats, where a token has one earlier copy,
is measured by content in text. Copying also reads what heads write, and is added by `analyses.attention.readings`.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from jaxtyping import Int
from torch import Tensor

from analyses.attention.stimuli import Sequences, Stimulus, period_of
from interp import scores
from interp.patterns import ScoreFunction
from interp.stimuli import copy_start


class Kind(StrEnum):
    """A way to attend, or a property of how a head attends."""

    PREVIOUS = "previous"
    """To the token before."""
    CURRENT = "current"
    """To the token itself."""
    FIRST = "first"
    """To position 0: the BOS, where the tokenizer has one."""
    DUPLICATE = "duplicate"
    """To an earlier copy of the token: in repeats one period back, in text anywhere."""
    INDUCTION = "induction"
    """To the token after an earlier copy: in repeats period - 1 back, in text anywhere."""
    LATER = "later"
    """In repeats: to the token two after the earlier copy, from which a head can copy as well if it knows the token
    before."""
    MATCH = "match"
    """In the re-ordered control: to the token after the earlier copy, wherever that is now."""
    PREFIX_MATCHING = "prefix_matching"
    """In random tokens that come four times: to all the tokens after earlier copies together (Olsson et al. 2022)."""
    POSITIONAL = "positional"
    """At the head's best fixed distance: in the control, chosen on every other sequence and measured on the rest; in
    text, at the distance chosen in the control. Not in repeats, where a match lies at a fixed distance too."""
    LOCAL = "local"
    """To the last 8 keys, the token itself among them."""
    FAR = "far"
    """To the keys before the last 8, position 0 aside."""
    ENTROPY = "entropy"
    """How evenly a head attends: 0 one key, 1 all keys alike."""
    DISTANCE = "distance"
    """How far back a head attends on average, in tokens."""
    COPYING = "copying"
    """Whether a head raises the logits of the tokens it attends to: 1 only those, -1 only others
    (`interp.head_copying`)."""


SHARES = (Kind.PREVIOUS, Kind.CURRENT, Kind.FIRST, Kind.DUPLICATE, Kind.INDUCTION)
"""The kinds that are shares of attention and are measured on every kind of sequence."""

BY_CONTENT = (Kind.DUPLICATE, Kind.INDUCTION, Kind.LATER)
"""The kinds that need a match, which a learned distance can imitate: those the control is for."""


def functions_on(sequences: Sequences) -> dict[str, ScoreFunction]:
    """The scores that mean something on these sequences, by kind."""
    match sequences.stimulus:
        case Stimulus.REPEATS:
            functions = _anywhere(sequences.bos) | _by_distance(sequences)
        case Stimulus.CONTROL:
            functions = _anywhere(sequences.bos) | _by_distance(sequences) | _out_of_place(sequences)
        case Stimulus.TEXT:
            functions = _anywhere(sequences.bos) | _by_content(sequences)
        case Stimulus.FOUR:
            functions = _over_copies(sequences)
        case Stimulus.ONCE:
            functions = {}
    return {kind.value: function for kind, function in functions.items()}


def chance_levels(functions: dict[str, ScoreFunction], tokens: Int[Tensor, "sequence pos"]) -> dict[str, float]:
    """What even attention scores on the sequences, as the mean over those that have a target."""
    n_pos = tokens.shape[1]
    even = scores.even_pattern(n_pos)
    batches = tokens.cpu().split(max(1, _EVEN_NUMBERS // n_pos**2))
    found = {
        name: [function(even.expand(len(batch), -1, -1, -1), batch) for batch in batches]
        for name, function in functions.items()
    }
    return {name: float(torch.cat(parts).nanmean()) for name, parts in found.items()}


_EVEN_NUMBERS = 2_000_000
"""Largest number of entries of even patterns that are looked at together."""

Functions = dict[Kind, ScoreFunction]


def _anywhere(bos: int | None) -> Functions:
    first = 1 if bos is None else 2  # the first row whose previous token is a token and not the BOS
    return {
        Kind.PREVIOUS: lambda pattern, _: scores.previous_token(pattern, start=first),
        Kind.CURRENT: lambda pattern, _: scores.current_token(pattern),
        Kind.FIRST: lambda pattern, _: scores.first_position(pattern),
        Kind.LOCAL: lambda pattern, _: scores.local_mass(pattern),
        Kind.FAR: lambda pattern, _: scores.far_mass(pattern),
        Kind.ENTROPY: lambda pattern, _: scores.entropy(pattern),
        Kind.DISTANCE: lambda pattern, _: scores.distance(pattern),
    }


def _by_distance(sequences: Sequences) -> Functions:
    """On two copies: the second is the rows in which there is something to find."""
    period, start = _segments(sequences)
    later = start + period
    functions: Functions = {
        Kind.DUPLICATE: lambda pattern, _: scores.duplicate_stripe(pattern, period, start=later),
        Kind.INDUCTION: lambda pattern, _: scores.induction_stripe(pattern, period, start=later),
    }
    if period > 3:
        functions[Kind.LATER] = lambda pattern, _: scores.stripe(pattern, period - 2, later)
    return functions


def _by_content(sequences: Sequences) -> Functions:
    """On text, which has no period; a fixed distance is no match there."""
    bos = sequences.bos
    return {
        Kind.DUPLICATE: lambda pattern, tokens: scores.on_targets(
            pattern, scores.duplicate_targets(tokens, ignore=bos)
        ),
        Kind.INDUCTION: lambda pattern, tokens: scores.on_targets(
            pattern, scores.induction_targets(tokens, ignore=bos)
        ),
        Kind.POSITIONAL: lambda pattern, _: _profile(pattern),
    }


def _out_of_place(sequences: Sequences) -> Functions:
    """On a re-ordered copy: matches wherever they are, and distances that are no match."""
    bos = sequences.bos
    return {
        Kind.MATCH: lambda pattern, tokens: scores.on_targets(pattern, scores.induction_targets(tokens, ignore=bos)),
        Kind.POSITIONAL: lambda pattern, _: _profile(pattern),
    }


def _over_copies(sequences: Sequences) -> Functions:
    period, start = _segments(sequences)
    return {Kind.PREFIX_MATCHING: lambda pattern, _: scores.prefix_matching(pattern, period, start=start)}


def _profile(pattern: scores.Pattern) -> Tensor:
    """Distances up to half the sequence, over the rows from which none of them is position 0."""
    longest = pattern.shape[-1] // 2
    return scores.offset_profile(pattern, longest, start=longest + 1)


def _segments(sequences: Sequences) -> tuple[int, int]:
    """The period, and where the first copy begins."""
    period = period_of(sequences)
    return period, copy_start(sequences.tokens.shape[1], period)
