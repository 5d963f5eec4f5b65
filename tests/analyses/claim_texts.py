"""Claims of tests: one whole claim, from which every test says only what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

INDUCTION = "induction >= 0.4 and induction >= 2 * reordered"
PREVIOUS = "previous_token >= 0.4 and top 1"
PATH = {"ablate": None, "sender": PREVIOUS, "receivers": INDUCTION, "input": "k", "effect": "share >= 0.5"}


def claim(**keys: Any) -> dict[str, Any]:
    """The keys of a claim about the induction heads; None leaves a key out."""
    usual = {"name": "carry", "says": "They carry copying.", "ablate": INDUCTION, "effect": "harm >= 1.0"}
    return {key: value for key, value in (usual | {"control": "none"} | keys).items() if value is not None}


def write(file: Path, *claims: dict[str, Any]) -> Path:
    """A claims file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(f"[[claim]]\n{_lines(each)}" for each in claims), encoding="utf-8")
    return file


def _lines(keys: dict[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in keys.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if not isinstance(value, str) else f"'{value}'"
