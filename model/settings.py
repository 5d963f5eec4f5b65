"""Configurations to and from plain data, strictly.

One way in for every config of the project: a mapping (TOML, JSON, the `--set` flag) becomes a frozen dataclass, and
what the dataclass does not know is an error that names the nearest key. Nothing is dropped, nothing is guessed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from model.errors import ConfigError, Faults, closest

C = TypeVar("C")


def to_plain(value: Any) -> Any:
    """Dataclasses as dicts, enums by value, tuples as lists: what JSON and TOML can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(cls: type[C], mapping: Mapping[str, Any], where: str = "") -> C:
    """Build `cls` from a mapping; unknown keys and wrong types are `ConfigError`s that name the place.

    All of them are named at once, a line each.
    """
    faults, hints, prefix = Faults(), _hints(cls), f"{where}." if where else ""
    _note_keys(cls, mapping, where, faults)
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in hints:
            with faults.noted():
                values[key] = _coerce(hints[key], value, prefix + key)
    faults.raise_any()
    return cls(**values)


def with_settings(config: C, settings: Sequence[str]) -> C:
    """`config` with each `dotted.key=value` applied, the value read by the type of the field it sets.

    Settings apply together, so that two of them may be valid only in company (d_model and n_heads, say).
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f'"{setting}" is not a setting; write KEY=VALUE, for example train.steps=200.')
        _place(changes, type(config), key.strip().split("."), text.strip(), key.strip())
    return _changed(config, changes)


def strict_keywords(cls: type[C]) -> type[C]:
    """Let a config's constructor answer an unknown or a missing keyword as `from_plain` does: in a sentence."""
    construct = cls.__init__

    @functools.wraps(construct)
    def __init__(self: Any, **values: Any) -> None:
        faults = Faults()
        _note_keys(cls, values, "", faults)
        faults.raise_any()
        construct(self, **values)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


def config_hash(config: Any) -> str:
    """Twelve hex digits that name the content of a config."""
    text = json.dumps(to_plain(config), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _note_keys(cls: type, mapping: Mapping[str, Any], where: str, faults: Faults) -> None:
    """Note each key that is none of the config's, and those that it needs and that are missing."""
    hints, prefix = _hints(cls), f"{where}." if where else ""
    for key in mapping:
        if key not in hints:
            faults.found.append(ConfigError(_unknown_key(prefix + key, key, hints, prefix)))
    missing = [f.name for f in fields(cls) if f.init and _required(f) and f.name not in mapping]
    if missing:
        faults.found.append(ConfigError(f"{where or cls.__name__} lacks {', '.join(missing)}; give a value for each."))


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = inspect.get_annotations(cls, eval_str=True)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _unknown_key(path: str, key: str, hints: Mapping[str, Any], prefix: str) -> str:
    return f'There is no setting "{path}".{closest(key, hints)} Allowed here: {", ".join(prefix + k for k in hints)}.'


def _place(changes: dict[str, Any], cls: type, path: list[str], text: str, whole: str) -> None:
    """Put the parsed value of one setting into the nested `changes`."""
    hints, (head, *rest) = _hints(cls), path
    prefix = whole[: len(whole) - len(".".join(path))]
    if head not in hints:
        raise ConfigError(_unknown_key(prefix + head, head, hints, prefix))
    inner = hints[head]
    if rest:
        if not is_dataclass(inner):
            raise ConfigError(
                f'"{prefix + head}" has no parts, so "{whole}" sets nothing; write {prefix + head}=VALUE.'
            )
        _place(changes.setdefault(head, {}), typing.cast(type, inner), rest, text, whole)
    elif is_dataclass(inner):
        keys = ", ".join(f"{whole}.{key}" for key in _hints(typing.cast(type, inner)))
        raise ConfigError(f'"{whole}" is a group of settings; set one of {keys}.')
    else:
        changes[head] = _parse(inner, text, whole)


def _changed(config: C, changes: Mapping[str, Any]) -> C:
    values = {k: _changed(getattr(config, k), v) if isinstance(v, dict) else v for k, v in changes.items()}
    # A config may know better than field-by-field replacement (the `__replace__` protocol of Python 3.13).
    again = getattr(config, "__replace__", None) or (lambda **new: replace(typing.cast(Any, config), **new))
    return again(**values) if values else config


def _parse(hint: Any, text: str, where: str) -> Any:
    """A command-line text as a value of the hinted type."""
    options = typing.get_args(hint) if _is_union(hint) else (hint,)
    if type(None) in options and text.lower() in {"none", ""}:
        return None
    hint = next(option for option in options if option is not type(None))
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return tuple(_parse(item, part.strip(), where) for part in text.strip("[]()").split(",") if part.strip())
    if hint is bool:
        if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        raise ConfigError(f'{where}="{text}" is neither true nor false.')
    if hint in (int, float):
        try:
            return int(text) if hint is int else _finite(float(text), where)
        except ValueError:
            raise ConfigError(f'{where}="{text}" is not {_spoken(hint)}.') from None
    return _coerce(hint, text, where)


def _coerce(hint: Any, value: Any, where: str) -> Any:
    """A plain value as the hinted type, or an error that says what was expected."""
    if _is_union(hint):
        if value is None and type(None) in typing.get_args(hint):
            return None
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    if is_dataclass(hint) and isinstance(value, Mapping):
        return from_plain(typing.cast(type, hint), value, where)
    if typing.get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(_coerce(typing.get_args(hint)[0], item, where) for item in value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return as_enum(hint, value, where)
    if _fits(hint, value):
        return _finite(float(typing.cast(Any, value)), where) if hint is float else value
    raise ConfigError(f"{where}={value!r} is not {_spoken(hint)}.")


def _finite(number: float, where: str) -> float:
    """A number that JSON can hold and a comparison can decide; nan and inf are neither."""
    if not math.isfinite(number):
        raise ConfigError(f"{where}={number} is not a finite number.")
    return number


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value is of the hinted type; true is no number, and a whole number is a number."""
    if hint is Any or typing.get_origin(hint) is dict:
        return True
    if isinstance(value, bool):
        return hint is bool
    kinds = int | float if hint is float else hint
    return isinstance(value, kinds)


E = TypeVar("E", bound=Enum)


def as_enum(cls: type[E], value: Any, where: str) -> E:
    """A member of `cls` from itself or its value; anything else names the choices."""
    try:
        return cls(value)
    except ValueError:
        choices = [str(member.value) for member in cls]
        tail = closest(str(value), choices, n=1)
        raise ConfigError(f'{where}="{value}" is not one of {", ".join(choices)}.{tail}') from None


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _spoken(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(hint, f"a value of type {getattr(hint, '__name__', hint)}")
