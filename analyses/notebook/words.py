"""Pins in words: what their numbers rest on, and where in the dashboard they were seen (for exports and the page)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from analyses.notebook.pins import Pin
from analyses.views.payload import visible_label


def rests_on(pin: Pin) -> tuple[str, ...]:
    """What the numbers of a pin rest on."""
    return about_words(pin.about)


def about_words(known: Mapping[str, Any]) -> tuple[str, ...]:
    """Checkpoint, n, on what text, split, seed, study, weights and what stands beside it, as far as they are known.

    >>> about_words({"run": "demo", "step": 512, "n": 64, "unit": "sequences", "seed": 0})
    ('demo@512', 'n = 64 sequences', 'seed 0')
    """
    run, step, n, unit = (known.get(name) for name in ("run", "step", "n", "unit"))
    where = None if run is None else f"{run}@{step}" if step is not None else str(run)
    number = None if n is None else f"n = {n:,} {unit or ''}".strip() if isinstance(n, int) else f"n = {n}"
    parts = [where, number, _on(known)]
    parts += [None if known.get(name) is None else f"{name} {known[name]}" for name in ("split", "seed")]
    study, config, weights = (known.get(name) for name in ("study", "config_hash", "weights_sha256"))
    parts.append(None if study is None else f"{study}, config {config}")
    parts.append(_weights(weights))
    compared = known.get("compared_with")
    if compared is not None:
        parts += [f"compared with {compared}", _weights(known.get("compared_weights_sha256"))]
    parts += [None if known.get(name) is None else f"{name} {known[name]}" for name in ("minus", "twin")]
    return tuple(visible_label(part) for part in parts if part)


def _on(known: Mapping[str, Any]) -> str | None:
    """What was read: a study's sequences, or the text of a live pass, which says "n = 1" as well."""
    text = next((known[name] for name in ("on", "text", "source") if known.get(name) is not None), None)
    return None if text is None else f"on {str(text).removeprefix('n = 1: ')}"


def _weights(sha256: object) -> str | None:
    return None if sha256 is None else f"weights {str(sha256)[:8]}"


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
