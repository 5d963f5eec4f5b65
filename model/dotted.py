"""Nested settings by their dotted names, as `--set` spells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def dotted(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, its keys joined with dots.

    >>> dotted({"model": {"norm": "post"}, "seed": 0})
    {'model.norm': 'post', 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        flat |= dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def as_typed(value: Any) -> str:
    """A plain value as it would be typed after `--set NAME=`.

    >>> as_typed(True), as_typed(["a", "b"]), as_typed(None), as_typed(0.5)
    ('true', 'a,b', 'none', '0.5')
    """
    if isinstance(value, bool | None):
        return str(value).lower()
    return ",".join(map(as_typed, value)) if isinstance(value, list | tuple) else str(value)
