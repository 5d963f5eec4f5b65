"""Rows of numbers as files: CSV that a spreadsheet reads as data, and JSON that says what the numbers rest on."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analyses.versions import versions
from model.errors import InputError

FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""A text that begins with one of these would be a formula to a spreadsheet, or looks like one that was marked."""


def to_csv(rows: pd.DataFrame) -> str:
    r"""Return `rows` as CSV that no spreadsheet takes for formulas.

    Tokens may begin like a formula. An apostrophe is set before such a text, and before one that begins with an
    apostrophe, so that `unmarked` gives every text back as it was. Numbers stay as they are, at full precision; a cell
    that is not a number is empty; a list is written as JSON.

    >>> to_csv(pd.DataFrame({"token": ["=cmd()", "a"], "score": [-0.5, float("nan")]}))
    "token,score\r\n'=cmd(),-0.5\r\na,\r\n"
    """
    file = io.StringIO(newline="")
    lines = csv.writer(file)  # lines end as RFC 4180 has it; with \n alone a token of \r would not be quoted
    lines.writerow(map(_marked, names_of(rows)))
    lines.writerows(map(_marked, row) for row in rows.itertuples(index=False, name=None))
    return file.getvalue()


def unmarked(cell: str) -> str:
    """Return a text of such a CSV as it was before it was marked.

    >>> unmarked("'=cmd()"), unmarked("''"), unmarked("a")
    ('=cmd()', "'", 'a')
    """
    return cell[1:] if len(cell) > 1 and cell[0] == "'" and cell[1] in FORMULA else cell


def to_json(rows: pd.DataFrame, about: Mapping[str, Any], *, title: str, address: str = "", python: str = "") -> str:
    """Return `rows` as strict JSON, with what they rest on and the software that made the file.

    What is not a number, or not finite, is null. Only ASCII is written, so that no token can break a reader.

    Args:
        rows: a record for each row.
        about: where the numbers come from, in plain values: run, step, weights, n, seed and so on.
        title: what the rows show.
        address: the part of a dashboard's address that shows them.
        python: code that computes them.
    """
    names = names_of(rows)
    records = [dict(zip(names, map(plain, row), strict=True)) for row in rows.itertuples(index=False, name=None)]
    head = {
        "format": 1, "title": title, "about": plain(about), "versions": versions(), "address": address,
        "python": python, "columns": names,
    }  # fmt: skip
    lines = ",\n  ".join(json.dumps(record, allow_nan=False) for record in records)
    opening = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
    return f'{opening},\n "rows": [\n  {lines}\n ]\n}}\n'


def names_of(rows: pd.DataFrame) -> list[str]:
    """The names of the columns as text; `InputError` where two are alike, since a record can hold only one of them."""
    names = [str(name) for name in rows.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Two columns of the table are called {', '.join(twice)}; give each a name of its own.")
    return names


def file_name(about: Mapping[str, Any], panel: str, ending: str) -> str:
    """Return a file name that says run, step and panel.

    >>> file_name({"run": "demo", "step": 512}, "layers/agreement", "csv")
    'demo-512-layers-agreement.csv'
    """
    run, step = about.get("run"), about.get("step")
    words = [str(run or "no run"), *([] if step is None else [str(step)]), panel]
    return f"{'-'.join(re.sub(r'[^A-Za-z0-9._]+', '-', word).strip('-.') or 'x' for word in words)}.{ending}"


def plain(value: Any) -> Any:
    """Return `value` as strict JSON can hold it."""
    match value:
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case str():  # first: a text enumeration is a text, and a text is a sequence
            return str(value)
        case bool() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else None
        case Sequence() | set() | frozenset():
            return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # a scalar or an array of numpy or torch
        return plain(value.tolist())
    return None if value is pd.NaT or value is pd.NA else str(value)


def _marked(cell: Any) -> Any:
    held = plain(cell)
    text = json.dumps(held) if isinstance(held, list | dict) else held
    if not isinstance(text, str):
        return text
    safe = text.encode("utf-8", "backslashreplace").decode("utf-8")  # half of a surrogate pair cannot be written
    return f"'{safe}" if safe.startswith(FORMULA) else safe
