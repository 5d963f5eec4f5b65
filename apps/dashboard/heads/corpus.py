"""What one head does on a corpus: the tokens it favours, and examples coloured by its attention."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.attention_behaviour import Behaviour
from analyses.views import TokenRow, token_rows_payload, visible
from analyses.views.payload import Payload
from apps.dashboard.heads import bases
from interp.example_rows import ExampleRows
from interp.head_behaviour import HeadBehaviour
from interp.head_examples import Examples
from interp.head_tokens import TokenList
from interp.live import Basis
from interp.places import Head

LONGEST = 128
"""Tokens of an example that are shown, at most: the last ones."""

N_TOKENS = 8
"""Tokens of a list that are shown, at most."""


class Choice(StrEnum):
    """Which queries of the corpus are shown."""

    TOP = "top"
    DECILES = "deciles"
    RANDOM = "random"


TITLES = {
    Choice.TOP: "where it writes most",
    Choice.DECILES: "across its range",
    Choice.RANDOM: "anywhere",
}

EXPLAINED = {
    Choice.TOP: "the number: how much the head writes there; these are its extremes, not its habit",
    Choice.DECILES: "the number: how much the head writes there, and the share of queries at which it writes less",
    Choice.RANDOM: "the same queries for every head; the number: how much it writes there, and where it writes less",
}


@dataclass(frozen=True, kw_only=True)
class HeadExamples:
    """Queries of one head with their attention rows."""

    row: int
    """Where the head stands in each `ExampleRows`."""
    rows: dict[str, ExampleRows]
    """By `Choice`."""
    spelled: dict[str, str]
    """A printable string for the id of every token."""


def examples_of(seen: HeadBehaviour) -> dict[Choice, Examples]:
    """Which queries each choice shows."""
    return {Choice.TOP: seen.top, Choice.DECILES: seen.deciles, Choice.RANDOM: seen.random}


def kept(known: Behaviour, place: Head) -> HeadExamples | None:
    """The examples that were saved with the result; None for a head whose examples were not."""
    heads = [(int(layer), int(index)) for layer, index in known.shown[Choice.TOP].heads.tolist()]
    if place not in heads:
        return None
    return HeadExamples(row=heads.index(place), rows=known.shown, spelled=known.spelled)


def written_at(known: Behaviour, place: Head) -> pd.DataFrame:
    """The tokens at which it writes most."""
    found = known.seen.query_tokens
    return _tokens(known, found, place, {"writes": found.mean, "times": found.count})


def attended(known: Behaviour, place: Head) -> pd.DataFrame:
    """The tokens that receive most of its attention."""
    found = known.seen.attended
    return _tokens(
        known, found, place, {"share": found.share, "value-weighted": found.weighted_share, "lift": found.lift}
    )


def favoured(known: Behaviour, place: Head) -> pd.DataFrame:
    """The tokens that receive most over what even attention would give them."""
    found = known.seen.attended_lift
    return _tokens(known, found, place, {"lift": found.lift, "share": found.share, "times": found.count})


def _tokens(known: Behaviour, listed: TokenList, place: Head, columns: dict[str, Tensor]) -> pd.DataFrame:
    n = min(N_TOKENS, int((listed.token[place] >= 0).sum()))
    tokens = [visible(token) for token in known.tokens(listed, place, n)]
    return pd.DataFrame({"token": tokens} | {name: column[place][:n].tolist() for name, column in columns.items()})


def summary(seen: HeadBehaviour, place: Head) -> tuple[str, ...]:
    """What is said of the head over the corpus in numbers, beside even attention."""
    return (
        f"{float(seen.position_zero[place]):.2f} of its attention on position 0 (even: {seen.even_position_zero:.2f})",
        f"median distance {float(seen.median_distance[place]):.0f}, mean {float(seen.mean_distance[place]):.1f} tokens",
        f"entropy {float(seen.entropy[place]):.2f} nats (even: {seen.even_entropy:.2f})",
        f"writes {float(seen.written[place]):.2f} on average",
    )


def payload(found: HeadExamples, examples: Examples, place: Head, choice: Choice, basis: Basis) -> Payload:
    """The examples of one choice, coloured by attention from the boxed query, all on one scale."""
    rows = found.rows[choice]
    values = _in_basis(rows, basis)[found.row]
    shown = []
    for at in range(rows.tokens.shape[1]):
        tokens = [token for token in rows.tokens[found.row, at].tolist() if token >= 0]
        if not tokens:
            continue
        start = max(0, len(tokens) - LONGEST)
        said = [
            _rank(examples, place, at, choice),
            f"then {visible(found.spelled[str(int(rows.next_token[found.row, at]))])}",
        ]
        if basis is Basis.SIGNED:
            said.append(f"Σ {float(values[at, : len(tokens)].sum() + rows.value_bias[found.row, at]):+.2f}")
        said += [f"{start} earlier left out"] if start else []
        shown.append(
            TokenRow(
                tokens=[found.spelled[str(token)] for token in tokens[start:]],
                values=values[at, start : len(tokens)].tolist(),
                note=" ".join(said),
                boxed=len(tokens) - start - 1,
                start=start,
            )
        )
    every = [_in_basis(each, basis)[found.row, :, 1:] for each in found.rows.values()]  # many heads rest on position 0
    return token_rows_payload(
        shown,
        bases.UNITS[basis],
        scale=bases.scale_of(every, basis),
        hint="boxed: the query; point at a token to read it",
    )


def _rank(examples: Examples, place: Head, at: int, choice: Choice) -> str:
    value, rank = float(examples.value[place][at]), float(examples.rank[place][at])
    return f"{value:.2f}" if choice is Choice.TOP else f"{value:.2f} ({rank:.0%})"


def _in_basis(rows: ExampleRows, basis: Basis) -> Float[Tensor, "row example key"]:
    return {Basis.RAW: rows.raw, Basis.WEIGHTED: rows.weighted, Basis.SIGNED: rows.signed}[basis]
