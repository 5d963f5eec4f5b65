"""The payload of token rows: pieces of text, each token on the colour of its value, a note in front of each piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyses.views.payload import Payload, Scale, checked, fitted, scale_fields, visible
from model.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRow:
    """One piece of text."""

    tokens: Sequence[str]
    """One printable string per token."""

    note: str = ""
    """What stands in front: where the text is from, or a coefficient."""

    values: Sequence[float | None] | None = None
    """One number per token, or None where there is none."""

    boxed: int | None = None
    """Index of the token the row is about."""

    start: int = 0
    """Position of the first token in the longer text it was cut from."""


def token_rows_payload(
    rows: Sequence[TokenRow],
    label: str = "",
    *,
    scale: Scale | None = None,
    digits: int = 3,
    hint: str = "",
) -> Payload:
    """Return what token rows draw; without a `scale`, one that is symmetric about 0 and holds every value.

    Raises:
        InputError: if a row has another number of values than of tokens.
    """
    for row in rows:
        if row.values is not None and len(row.values) != len(row.tokens):
            raise InputError(
                f"a row of {len(row.tokens)} tokens has {len(row.values)} values; give one value per token"
            )
    known = [value for row in rows for value in row.values or () if value is not None]
    return checked(
        {
            "rows": [_plain(row) for row in rows],
            "label": label,
            "scale": scale_fields(scale or fitted(known, "diverging")),
            "digits": digits,
            "hint": hint,
        }
    )


def _plain(row: TokenRow) -> Payload:
    return {
        "tokens": [visible(token) for token in row.tokens],
        "note": row.note,
        "values": None if row.values is None else [None if value is None else float(value) for value in row.values],
        "boxed": row.boxed,
        "start": row.start,
    }
