"""Pins in words: what their numbers rest on, and where in the dashboard they were seen (for exports and the page)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from analyses.notebook.pins import Pin


def rests_on(pin: Pin) -> tuple[str, ...]:
    """What the numbers of a pin rest on."""
    return about_words(pin.about)


def about_words(known: Mapping[str, Any]) -> tuple[str, ...]:
    """Checkpoint, n, split, seed, study and weights, as far as they are known.

    >>> about_words({"run": "demo", "step": 512, "n": 64, "unit": "sequences", "seed": 0})
    ('demo@512', 'n = 64 sequences', 'seed 0')
    """
    run, step, n, unit = (known.get(name) for name in ("run", "step", "n", "unit"))
    where = None if run is None else f"{run}@{step}" if step is not None else str(run)
    number = None if n is None else f"n = {n:,} {unit or ''}".strip() if isinstance(n, int) else f"n = {n}"
    parts = [where, number]
    parts += [None if known.get(name) is None else f"{name} {known[name]}" for name in ("split", "seed")]
    study, config, weights = (known.get(name) for name in ("study", "config_hash", "weights_sha256"))
    parts.append(None if study is None else f"{study}, config {config}")
    parts.append(None if weights is None else f"weights {str(weights)[:8]}")
    return tuple(part for part in parts if part)


def address(pin: Pin, **more: str) -> str:
    """The part of a dashboard's address that opens the same view as it is today.

    The page and every value are quoted, so that it stays on the dashboard whatever a file says.
    """
    query = urlencode({**pin.query, **{name: value for name, value in more.items() if value}})
    return f"/{quote(pin.page, safe='')}{'?' if query else ''}{query}"


def when(pin: Pin) -> str:
    """Day and time, UTC."""
    return f"{pin.created[:16].replace('T', ' ')} UTC"


def one_line(text: str) -> str:
    r"""`text` without anything that would begin a new line.

    >>> one_line("a\n#  b\u2028c")
    'a # b c'
    """
    return " ".join(text.split())
