"""The payload of token rows: pieces of text, each token on the colour of its value, a note in front of each piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
    """One number per token, or None where there is none: the background."""

    second: Sequence[float | None] | None = None
    """Another number per token: how thick its underline is, by size, 0 for none."""

    raw: Sequence[str] | None = None
    """What copying a token gives; by default the token as it was before its spaces were made visible."""

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
    second_label: str = "",
    pick: Literal["token"] | None = None,
    token: int | None = None,
    break_lines: bool = False,
) -> Payload:
    """Return what token rows draw; without a `scale`, one that is symmetric about 0 and holds every value.

    Args:
        rows: the pieces of text.
        label: what the values are, with their unit.
        scale: the colours of the values.
        digits: decimals read out.
        hint: the line below while nothing is pointed at.
        second_label: what the second numbers are, with their unit.
        pick: `"token"` if a click or Enter on a token is to choose its position.
        token: the position that is chosen.
        break_lines: whether the text goes to a new line after a token that ends one.

    Raises:
        InputError: if a row has another number of values than of tokens.
    """
    for row in rows:
        for name, given in (("values", row.values), ("second values", row.second), ("raw tokens", row.raw)):
            if given is not None and len(given) != len(row.tokens):
                raise InputError(f"a row of {len(row.tokens)} tokens has {len(given)} {name}; give one value per token")
    known = [value for row in rows for value in row.values or () if value is not None]
    second = [abs(value) for row in rows for value in row.second or () if value is not None]
    return checked(
        {
            "rows": [_plain(row) for row in rows],
            "label": label,
            "scale": scale_fields(scale or fitted(known, "diverging")),
            "digits": digits,
            "hint": hint,
            "second_label": second_label,
            "second_reach": max(second, default=0.0) or 1.0,
            "pick": pick,
            "token": token,
            "break_lines": break_lines,
        }
    )


def _plain(row: TokenRow) -> Payload:
    return {
        "tokens": [visible(token) for token in row.tokens],
        "raw": list(row.raw if row.raw is not None else row.tokens),
        "note": row.note,
        "values": _numbers(row.values),
        "second": _numbers(row.second),
        "boxed": row.boxed,
        "start": row.start,
    }


def _numbers(values: Sequence[float | None] | None) -> list[float | None] | None:
    return None if values is None else [None if value is None else float(value) for value in values]
