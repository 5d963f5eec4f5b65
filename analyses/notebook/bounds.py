"""How much a pin may hold, and what of it is plain JSON: rows, words and drawings, cut with a sentence that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.exports import names_of, plain

if TYPE_CHECKING:
    import pandas as pd

MOST_PINS = 200
MOST_ROWS = 2000
MOST_BYTES = 1_000_000
"""Of the rows, and of the drawing, as JSON."""
MOST_LETTERS = 20_000
"""Of a note."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """A table as JSON holds it."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    """Row by row; null where there is no finite number."""
    n: int
    """How many rows there were when it was pinned."""

    def frame(self) -> pd.DataFrame:
        """The table again."""
        import pandas as pd

        return pd.DataFrame([list(row) for row in self.values], columns=list(self.columns))


def bounded_rows(frame: pd.DataFrame) -> tuple[Rows, str]:
    """The first rows of `frame`, as many as a pin may hold, and a sentence if these are not all."""
    named = names_of(frame)
    kept: list[tuple[Any, ...]] = []
    size = 0
    for row in frame.head(MOST_ROWS).itertuples(index=False, name=None):
        plain = tuple(plain_json(value) for value in row)
        size += len(json.dumps(plain))
        if size > MOST_BYTES:
            break
        kept.append(plain)
    rows = Rows(columns=tuple(named), values=tuple(kept), n=len(frame))
    if len(kept) == len(frame):
        return rows, ""
    return rows, f"The first {len(kept):,} of {len(frame):,} rows are kept; the Python beside them computes all."


def bounded_drawing(drawing: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
    """The drawing as plain JSON, or none and a sentence where it is too large to be kept."""
    if drawing is None:
        return None, ""
    plain = plain_json(drawing)
    size = len(json.dumps(plain))
    if size <= MOST_BYTES:
        return plain, ""
    return None, f"The drawing was {size / 1e6:.1f} MB and is not kept; a pin holds {MOST_BYTES / 1e6:.0f} MB at most."


def bounded_words(text: str, most: int = MOST_LETTERS) -> str:
    """`text`, cut where it is too long, with a mark where it was cut."""
    text = well_formed(text)
    return text if len(text) <= most else f"{text[: most - 2]} …"


def well_formed(text: str) -> str:
    r"""`text` with a mark in place of half a surrogate pair, which no file and no table can hold.

    >>> well_formed("a\ud800b")
    'a?b'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def plain_json(value: Any) -> Any:
    """`value` as strict JSON, as it is exported too, with texts that every file can hold.

    >>> plain_json({"a": (0.5, float("nan"))})
    {'a': [0.5, None]}
    """
    return _well_formed(plain(value))


def _well_formed(value: Any) -> Any:
    match value:
        case str():
            return well_formed(value)
        case dict():
            return {well_formed(name): _well_formed(each) for name, each in value.items()}
        case list():
            return [_well_formed(each) for each in value]
    return value
