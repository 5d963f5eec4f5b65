"""What one head does on text, as rows: tokens that it favours, examples with its attention, its pattern on one text.

The same rows stand behind the views of a page and in a notebook; long lists are cut, and say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.attention.behaviour import Behaviour
from analyses.views.payload import visible
from interp.circuits import token_ov
from interp.example_rows import ExampleRows, example_rows
from interp.head_behaviour import HeadBehaviour
from interp.head_examples import Examples
from interp.head_tokens import TokenList
from interp.live import Basis
from interp.places import Head
from model.settings import as_enum

if TYPE_CHECKING:
    from model.lab import Lab

N_TOKENS = 8
"""Tokens of a list that are shown, at most."""


class Choice(StrEnum):
    """Which queries of the corpus are shown."""

    TOP = "top"
    DECILES = "deciles"
    RANDOM = "random"


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


def kept_examples(known: Behaviour, place: Head) -> HeadExamples | None:
    """The examples that were saved with the result; None for a head whose examples were not."""
    heads = [(int(layer), int(index)) for layer, index in known.shown[Choice.TOP].heads.tolist()]
    if place not in heads:
        return None
    return HeadExamples(row=heads.index(place), rows=known.shown, spelled=known.spelled)


def read_examples(lab: Lab, seen: HeadBehaviour, place: Head) -> HeadExamples:
    """The same read in the corpus again, which a result names but does not hold for every head."""
    bos, tokens = lab.tokenizer.bos, lab.corpus.tokens
    rows = {
        choice.value: example_rows(lab.gpt, tokens, examples, bos=bos, heads=[place])
        for choice, examples in examples_of(seen).items()
    }
    ids = torch.cat([ids.flatten() for each in rows.values() for ids in (each.tokens, each.next_token)]).unique()
    known = [token for token in ids.tolist() if token >= 0]
    return HeadExamples(
        row=0, rows=rows, spelled=dict(zip(map(str, known), lab.tokenizer.str_tokens(known), strict=True))
    )


def in_basis(rows: ExampleRows, basis: str) -> Float[Tensor, "row example key"]:
    """Attention rows in one basis."""
    wanted = as_enum(Basis, basis, "basis")
    return {Basis.RAW: rows.raw, Basis.WEIGHTED: rows.weighted, Basis.SIGNED: rows.signed}[wanted]


def example_table(found: HeadExamples, seen: HeadBehaviour, place: Head, choice: str, basis: str) -> pd.DataFrame:
    """One row for each token of each example: what the head's query at the example's last token gives to it."""
    wanted = as_enum(Choice, choice, "choice")
    rows, examples = found.rows[wanted.value], examples_of(seen)[wanted]
    values, told = in_basis(rows, basis)[found.row], []
    for at in range(rows.tokens.shape[1]):
        tokens = [token for token in rows.tokens[found.row, at].tolist() if token >= 0]
        shared = {
            "example": at,
            "writes": float(examples.value[place][at]),
            "writes less at": float(examples.rank[place][at]),
            "then": found.spelled[str(int(rows.next_token[found.row, at]))] if tokens else "",
        }
        told += [
            shared | {"position": position, "token": found.spelled[str(token)], "value": float(values[at, position])}
            for position, token in enumerate(tokens)
        ]
    return pd.DataFrame(told)


# --- tokens ----------------------------------------------------------------------------------------------------------

LISTS = ("writes most at", "attends most to", "favours")
"""What tokens are listed by."""


def token_table(known: Behaviour, place: Head, listed: str, n: int = N_TOKENS) -> pd.DataFrame:
    """The first tokens of one list of a head.

    Args:
        known: `Result.behaviour` of attention-patterns.
        place: (layer, head).
        listed: one of LISTS: where the head writes most; what receives most of its attention; what receives most over
            what even attention would give it.
        n: tokens listed, at most.
    """
    seen = known.seen
    source, columns = {
        "writes most at": (seen.query_tokens, {"writes": "mean", "times": "count"}),
        "attends most to": (seen.attended, {"share": "share", "value-weighted": "weighted_share", "lift": "lift"}),
        "favours": (seen.attended_lift, {"lift": "lift", "share": "share", "times": "count"}),
    }[listed]
    return _tokens(known, source, place, {name: getattr(source, field) for name, field in columns.items()}, n)


def _tokens(known: Behaviour, listed: TokenList, place: Head, columns: dict[str, Tensor], n: int) -> pd.DataFrame:
    n = min(n, int((listed.token[place] >= 0).sum()))
    tokens = [visible(token) for token in known.tokens(listed, place, n)]
    return pd.DataFrame({"token": tokens} | {name: column[place][:n].tolist() for name, column in columns.items()})


def raised_tokens(lab: Lab, known: Behaviour, place: Head, n: int = 5, n_raised: int = 5) -> pd.DataFrame:
    """For the tokens that a head attends to most, the tokens whose logits its OV circuit raises most for them.

    One row for each pair: attended token, raised token, what is added to its logit less the mean over the vocabulary,
    and the rank of the attended token's own logit. From weights (`interp.circuits.token_ov`); the embedding stands for
    the token. Raises `NotAdditiveError` where the stream is no sum.
    """
    listed = known.seen.attended.token[place]
    ids = listed[listed >= 0][:n]
    circuit = token_ov(lab.gpt, *place)
    logits = (circuit.A[ids.to(circuit.A.device)] @ circuit.B).cpu()
    logits = logits - logits.mean(1, keepdim=True)
    top = logits.topk(min(n_raised, logits.shape[1]), dim=1)
    spelled = lab.tokenizer.str_tokens
    rows: list[dict[str, Any]] = []
    for row, token in enumerate(ids.tolist()):
        own = 1 + int((logits[row] > logits[row, token]).sum())
        attended = visible(spelled([token])[0])
        for value, raised in zip(top.values[row].tolist(), top.indices[row].tolist(), strict=True):
            said = {"attended": attended, "raises": visible(spelled([raised])[0]), "logit": value}
            rows.append(said | {"own rank": own, "of": logits.shape[1]})
    return pd.DataFrame(rows, columns=["attended", "raises", "logit", "own rank", "of"])


# --- one pattern -----------------------------------------------------------------------------------------------------


def pattern_table(values: Float[Tensor, "layer head query key"], tokens: Sequence[str], place: Head) -> pd.DataFrame:
    """One row for each visible cell of one head's pattern: query, key, their tokens, and the value."""
    pattern = values[place]
    cells = torch.tril_indices(len(tokens), len(tokens))
    queries, keys = cells.tolist()
    return pd.DataFrame(
        {
            "query": queries,
            "key": keys,
            "query token": [tokens[query] for query in queries],
            "key token": [tokens[key] for key in keys],
            "value": pattern[cells[0], cells[1]].tolist(),
        }
    )
