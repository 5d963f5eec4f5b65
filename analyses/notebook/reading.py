"""One pin of a file, field by field: what a file says is never trusted, since anybody may have written it.

A drawing that names an address is refused: drawing it would fetch something, or offer a link nobody has seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from analyses.notebook.bounds import MOST_BYTES, MOST_LETTERS, MOST_ROWS, Rows
from analyses.views import View
from analyses.views.payload_shapes import payload_fault
from model.errors import CheckpointError

Check = Callable[[Any], bool]

_FETCHING = {"url", "href", "usermeta", "loader", "lookup"}
"""Parts of a Vega-Lite specification that fetch, link, or talk to the page around it."""
_DATA = {"datasets", "values"}


def _text(most: int) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= most


def _texts(most: int) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= 100 and all(map(_text(most), value))


def _address(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= 60 and all(map(_text(20_000), value.values()))


def _object(value: Any) -> bool:
    return isinstance(value, dict) and len(json.dumps(value)) <= MOST_BYTES


def _drawing(value: Any) -> bool:
    return value is None or (_object(value) and not fetches(value))


_CHECKS: dict[str, tuple[Check, str]] = {
    "id": (lambda value: isinstance(value, str) and re.fullmatch(r"[0-9a-f]{16}", value) is not None, "16 hex digits"),
    "page": (
        lambda value: isinstance(value, str) and re.fullmatch(r"[a-z_-]{0,40}", value) is not None,
        "a page's name",
    ),
    "query": (_address, "an object of texts"),
    "title": (_text(300), "a text of at most 300 letters"),
    "sentences": (_texts(4000), "a list of sentences"),
    "note": (_text(MOST_LETTERS), f"a text of at most {MOST_LETTERS:,} letters"),
    "about": (_object, "an object"),
    "python": (_text(MOST_LETTERS), f"a text of at most {MOST_LETTERS:,} letters"),
    "figure": (_drawing, "null, or a Vega-Lite object that names no address, of at most 1 MB"),
    "view": (lambda value: value is None or value in set(View), f"null, or one of {', '.join(View)}"),
    "payload": (lambda value: value is None or _object(value), "null, or an object of at most 1 MB"),
    "cut": (_texts(4000), "a list of sentences"),
    "created": (_text(40), "a time"),
}


def read_fields(tree: Any, where: str) -> dict[str, Any]:
    """The fields of one pin, each of its own kind; `CheckpointError` names the first that is not."""
    wanted = {*_CHECKS, "rows"}
    if not isinstance(tree, dict):
        raise CheckpointError(f"{where} is no object.")
    for name in sorted(wanted ^ tree.keys()):
        raise CheckpointError(f'{where} {"has an unknown" if name in tree else "has no"} "{name}".')
    for name, (check, said) in _CHECKS.items():
        if not check(tree[name]):
            raise CheckpointError(f'{where}: "{name}" has to be {said}.')
    view, payload = tree["view"], tree["payload"]
    fault = payload_fault(view, payload) if view is not None and payload is not None else ""
    if fault:
        raise CheckpointError(f'{where}: "payload" is nothing that the view {view} can draw: {fault}.')
    lists = {name: tuple(tree[name]) for name in ("sentences", "cut")}
    return {**tree, **lists, "rows": _rows(tree["rows"], where)}


def fetches(spec: Any) -> bool:
    """Whether a drawing would fetch something, or link to it.

    >>> fetches({"data": {"url": "https://a.b/c.csv"}}), fetches({"data": {"values": [{"url": 1}]}})
    (True, False)
    """
    match spec:
        case dict():
            return any(key in _FETCHING or (key not in _DATA and fetches(item)) for key, item in spec.items())
        case list():
            return any(map(fetches, spec))
    return False


def _rows(tree: Any, where: str) -> Rows:
    whole = isinstance(tree, dict) and tree.keys() == {"columns", "values", "n"}
    if not whole or not _texts(1000)(tree["columns"]) or not isinstance(tree["values"], list):
        raise CheckpointError(f'{where}: "rows" has to hold columns, values and n.')
    columns, values, n = tree["columns"], tree["values"], tree["n"]
    if len(set(columns)) < len(columns):
        raise CheckpointError(f"{where}: two columns have one name; each has to have its own.")
    if not all(isinstance(row, list) and len(row) == len(columns) for row in values):
        raise CheckpointError(f"{where}: every row has to have a value for each of the {len(columns)} columns.")
    if isinstance(n, bool) or not isinstance(n, int) or not len(values) <= min(n, MOST_ROWS):
        raise CheckpointError(f'{where}: "n" has to be the number of rows there were, {len(values)} or more.')
    return Rows(columns=tuple(columns), values=tuple(tuple(row) for row in values), n=n)
