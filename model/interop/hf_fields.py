"""One config.json of Hugging Face's, read strictly.

What is missing, of the wrong kind, or beyond us is a `ConfigError` that names the field. Where a field may be left out,
it stands for what transformers 5.24 takes then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.errors import ConfigError

_DEFAULT_ROPE_BASE = 10_000.0


class Fields:
    """The fields of a config.json, or of a part of it."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        self._mapping = mapping

    def get(self, name: str) -> Any:
        """What a field holds; None where it is not there."""
        return self._mapping.get(name)

    def size(self, *names: str, default: int | None = None) -> int:
        """The first of several spellings that is given."""
        value = self._first(names)
        value = default if value is None else value
        if value is None:
            raise ConfigError(f"config.json lacks {names[0]}; restore it from where the model came from.")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"config.json says {names[0]}={value!r}; a whole number of at least 1 belongs there.")
        return value

    def optional_size(self, name: str) -> int | None:
        """A size that may be left to follow from the others."""
        return None if self._mapping.get(name) is None else self.size(name)

    def number(self, name: str, *, default: float) -> float:
        """A number, or what transformers takes where none is given."""
        value = self._mapping.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"config.json says {name}={value!r}; a number belongs there.")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false, or what transformers takes where neither is given."""
        value = self._mapping.get(name, default)
        if not isinstance(value, bool):
            raise ConfigError(f"config.json says {name}={value!r}; true or false belongs there.")
        return value

    def one_of(self, name: str, allowed: tuple[str, ...], *, default: str) -> str:
        """A word out of those we can follow."""
        value = self._mapping.get(name, default)
        if value not in allowed:
            raise ConfigError(f"{name}={value!r} has no counterpart here; allowed is {' or '.join(allowed)}.")
        return value

    def refuse(self, name: str, *, unless: Any, why: str) -> None:
        """Refuse a field that changes the function, unless it holds the one value that does not."""
        value = self._mapping.get(name, unless)
        if value is not None and value != unless:
            raise ConfigError(f"{name}={value!r} has no counterpart here ({why}); only {unless!r} can be imported.")

    def rope_base(self) -> float:
        """rope_theta from where transformers 5 or 4 keeps it; frequencies that are scaled are refused."""
        where = "rope_scaling" if self._mapping.get("rope_scaling") else "rope_parameters"
        rope = self._mapping.get(where) or {}
        if not isinstance(rope, Mapping):
            raise ConfigError(f"config.json says {where}={rope!r}; an object belongs there.")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ConfigError(
                f"{where} of type {kind!r} has no counterpart here: frequencies are not scaled. Only rope_type "
                '"default" can be imported.'
            )
        if any(isinstance(part, Mapping) for part in rope.values()):
            raise ConfigError(f"{where} differs from layer to layer ({', '.join(rope)}); all layers rotate alike here.")
        for name, value in (("partial_rotary_factor", 1.0), ("attention_factor", 1.0)):
            Fields(rope).refuse(name, unless=value, why="only whole heads are rotated, by unit vectors")
            self.refuse(name, unless=value, why="only whole heads are rotated, by unit vectors")
        outside = self.number("rope_theta", default=_DEFAULT_ROPE_BASE)
        return Fields(rope).number("rope_theta", default=outside)

    def _first(self, names: tuple[str, ...]) -> Any:
        given = [self._mapping[name] for name in names if self._mapping.get(name) is not None]
        return given[0] if given else None
