"""A notebook as other files: Markdown, one Python script, and the tables of all pins in one archive."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence

from analyses.exports import to_csv
from analyses.notebook.pins import Notebook, Pin
from analyses.notebook.words import address, one_line, rests_on, when

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+|~!&-])")


def to_markdown(notebook: Notebook, title: str, said: Sequence[str] = ()) -> str:
    """The notebook as Markdown: words, numbers and how to compute them, without drawings.

    Args:
        notebook: its pins.
        title: what the page is called.
        said: sentences that stand below the pins, such as verdicts on claims.
    """
    parts = [f"# {_literal(title)}", *(_pin(pin, number) for number, pin in enumerate(notebook.pins, start=1))]
    if said:
        parts += ["## Beside the pins", "\n".join(f"* {_literal(one_line(each))}" for each in said)]
    return "\n\n".join(parts) + "\n"


def to_python(notebook: Notebook) -> str:
    """One script that computes the rows of every pin again and leaves them in `tables`, by number and title."""
    head = [
        '"""Computes the numbers of pinned findings again, with the library alone."""',
        "",
        "import pandas as pd",
        "",
        "tables: dict[str, pd.DataFrame] = {}",
    ]
    return "\n".join([*head, *(_section(pin, number) for number, pin in enumerate(notebook.pins, start=1))]) + "\n"


def to_csv_archive(notebook: Notebook) -> bytes:
    """A zip file with the rows of every pin as CSV, named by number and title."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, pin in enumerate(notebook.pins, start=1):
            archive.writestr(f"{number:03d}-{_slug(pin.title)}.csv", to_csv(pin.rows.frame()))
    return file.getvalue()


def _pin(pin: Pin, number: int) -> str:
    parts = [f"## {number}. {_literal(one_line(pin.title))}"]
    if pin.note.strip():
        parts.append("\n".join(f"> {_literal(line)}" for line in pin.note.splitlines()))
    if pin.sentences:
        parts.append("\n".join(f"* {_literal(one_line(each))}" for each in pin.sentences))
    parts.append(f"*{_literal(' · '.join(rests_on(pin)))}*")
    parts += [f"*{_literal(each)}*" for each in pin.cut]
    parts.append(f"Seen {when(pin)}; today: `{address(pin)}`")
    return "\n\n".join([*parts, _table(pin), _fenced(pin.python)])


def _table(pin: Pin, limit: int = 20) -> str:
    head = "| " + " | ".join(_literal(name) for name in pin.rows.columns) + " |"
    line = "|" + " --- |" * len(pin.rows.columns)
    rows = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in pin.rows.values[:limit]]
    more = [] if pin.rows.n <= limit else ["", f"The first {min(limit, len(pin.rows.values))} of {pin.rows.n:,} rows."]
    return "\n".join([head, line, *rows, *more])


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else _literal(one_line(str(value)))


def _fenced(code: str) -> str:
    """Code in a fence longer than any that it holds."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code.rstrip()}\n{fence}"


def _literal(text: str) -> str:
    return _MARKS.sub(r"\\\1", text)


def _section(pin: Pin, number: int) -> str:
    name = f"{number}. {one_line(pin.title)}"
    resting = one_line(" · ".join(rests_on(pin)))
    return f"\n# {name}\n# {resting}\n{pin.python.rstrip()}\ntables[{name!r}] = rows"


def _slug(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")[:60] or "pin"
