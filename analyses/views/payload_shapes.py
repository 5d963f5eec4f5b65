"""What each view needs of a payload out of a file: anybody may have written it, and a script would stop at it.

Builders send more than this, and always what is right; here stands what a script takes for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analyses.views.sources import View
from model.settings import as_enum

Check = Callable[[Any], bool]


def payload_fault(view: View | str, payload: Mapping[str, Any]) -> str:
    """Why `view` cannot draw `payload`, as the end of a sentence; empty where it can.

    >>> payload_fault("token_rows", {"rows": [{"tokens": ["a"], "values": [0.5]}], "digits": 2, "label": "", "hint": "",
    ...                              "scale": {"kind": "sequential", "low": 0, "high": 1}})
    ''
    >>> payload_fault("token_rows", {"rows": 3})
    'it has no "digits"'
    """
    view = as_enum(View, view, "view")
    for name, (check, said) in sorted(_FIELDS[view].items()):
        if name not in payload:
            return f'it has no "{name}"'
        if not check(payload[name]):
            return f'its "{name}" has to be {said}'
    return _FITS[view](payload)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list_of(check: Check, *, least: int = 0) -> Check:
    return lambda value: isinstance(value, list) and len(value) >= least and all(map(check, value))


def _none_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _object(**fields: Check) -> Check:
    return lambda value: (
        isinstance(value, dict) and all(name in value and check(value[name]) for name, check in fields.items())
    )


_TEXTS, _NUMBERS = _list_of(_text, least=1), _list_of(_none_or(_number))
_SCALE = _object(kind=lambda value: value in ("sequential", "diverging"), low=_number, high=_number)
_ROW = _object(tokens=_list_of(_text), values=_none_or(_NUMBERS))
_TABLE = _object(places=_TEXTS, targets=_list_of(_none_or(_whole)), top=_text, probability=_text, numbers=_text)
_WINDOW = _object(query=_whole, key=_whole, rows=_whole, columns=_whole)

_WORDS: dict[str, tuple[Check, str]] = {name: (_text, "a text") for name in ("label", "hint")}
_SCALED: dict[str, tuple[Check, str]] = {"scale": (_SCALE, "a scale with a kind, a low and a high end")}

_FIELDS: dict[View, dict[str, tuple[Check, str]]] = {
    View.ATTENTION: {
        **_WORDS, **_SCALED,
        "tokens": (_TEXTS, "a list of texts"),
        "heads": (_TEXTS, "a list of texts"),
        "held": (_list_of(_whole, least=1), "a list of whole numbers"),
        **{name: (_whole, "a whole number") for name in ("size", "focus", "n_heads", "thumb_size")},
        **{name: (_text, "packed numbers") for name in ("weights", "thumbs")},
        "window": (_WINDOW, "a window of whole numbers"),
    },
    View.HEAD_GRID: {
        **_WORDS, **_SCALED,
        "values": (_list_of(_NUMBERS, least=1), "rows of numbers"),
        "digits": (_whole, "a whole number"),
    },
    View.TOKEN_ROWS: {
        **_WORDS, **_SCALED,
        "rows": (_list_of(_ROW), "rows of tokens and values"),
        "digits": (_whole, "a whole number"),
    },
    View.LENS_TABLE: {
        "tokens": (_TEXTS, "a list of texts"),
        "tables": (_list_of(_TABLE, least=1), "tables of packed numbers"),
        "scales": (lambda value: isinstance(value, dict) and all(map(_SCALE, value.values())), "scales by name"),
        "words": (_text, "a text of words"),
        "hint": (_text, "a text"),
    },
}  # fmt: skip


def _attention_fits(payload: Mapping[str, Any]) -> str:
    n_heads = len(payload["heads"])
    if payload["size"] != len(payload["tokens"]):
        return f"its size is {payload['size']} for {len(payload['tokens'])} tokens"
    look = payload.get("look", 0)  # only where another head than that in focus is shown
    if not _whole(look):
        return "its look is no whole number"
    return "" if max(payload["focus"], look, *payload["held"]) < n_heads else f"it shows a head beyond its {n_heads}"


def _grid_fits(payload: Mapping[str, Any]) -> str:
    return "" if len({len(row) for row in payload["values"]}) == 1 else "its rows of values are of different lengths"


def _rows_fit(payload: Mapping[str, Any]) -> str:
    fit = all(row["values"] is None or len(row["values"]) == len(row["tokens"]) for row in payload["rows"])
    return "" if fit else "a row has not a value for each of its tokens"


_FITS: dict[View, Callable[[Mapping[str, Any]], str]] = {
    View.ATTENTION: _attention_fits,
    View.HEAD_GRID: _grid_fits,
    View.TOKEN_ROWS: _rows_fit,
    View.LENS_TABLE: lambda payload: "",
}
