"""The memories that memory-promotion turned on, and what the model wrote with and without them."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analyses.promotion.result import Result
from analyses.views import Scale, TokenRow, token_rows_payload
from analyses.views.payload import Payload

SAMPLES = 3
"""Prompts whose continuations are shown."""


def turned_on_rows(result: Result) -> pd.DataFrame:
    """The memories that were turned on, the one that stands out most first."""
    return pd.DataFrame(
        [
            {
                "memory": each.label,
                "stands out by": each.standout,
                "largest": each.largest,
                "fires on": each.firing,
                "promotes": " ".join(each.top),
            }
            for each in result.memories
        ]
    )


def written_payload(result: Result) -> Payload:
    """Continuations of the first prompts; tokens of the concept are coloured."""
    scale = Scale(kind="diverging", low=-1.0, high=1.0)  # orange as what is promoted
    return token_rows_payload(
        list(_texts(result)), result.concept, scale=scale, digits=0, hint="coloured: of the concept"
    )


def _texts(result: Result) -> Iterator[TokenRow]:
    for sample in result.samples[:SAMPLES]:
        yield TokenRow(tokens=sample.prompt, note="prompt")
        for note, tokens, inside in (
            ("as it is", sample.plain, sample.plain_in_concept),
            ("turned on", sample.promoted, sample.in_concept),
        ):
            values = [1.0 if each else None for each in inside]
            yield TokenRow(tokens=tokens, values=values, note=note, start=len(sample.prompt))


def written_rows(result: Result) -> pd.DataFrame:
    """What the model wrote after the same prompts, token by token, and whether the token is of the concept."""
    rows = [
        (prompt, text, position, token, bool(inside))
        for prompt, sample in enumerate(result.samples[:SAMPLES])
        for text, tokens, flags in (
            ("as it is", sample.plain, sample.plain_in_concept),
            ("turned on", sample.promoted, sample.in_concept),
        )
        for position, (token, inside) in enumerate(zip(tokens, flags, strict=True), start=len(sample.prompt))
    ]
    return pd.DataFrame(rows, columns=["prompt", "text", "position", "token", "of the concept"])
