"""A frozen dataclass as plain JSON beside named tensors, and back, strictly.

A study's result is a tree of dataclasses, tuples, numbers, strings and CPU tensors. `encode` splits it in two: a tree
JSON can hold, in which every tensor is a reference to its name, and the tensors under those names. `decode` rebuilds
exactly the class it is given, from that class's type hints; a missing, unknown or mistyped field is an error, never a
guess. Nothing is pickled.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from jaxtyping import AbstractArray
from torch import Tensor

from model.errors import CheckpointError

TENSOR_KEY = "tensor"
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """`value` as (plain tree, tensors by dotted name); the tensors are contiguous CPU copies."""
    tensors: dict[str, Tensor] = {}
    return _encode(value, "", tensors), tensors


def decode(cls: Any, tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The instance of `cls` that `encode` took apart; raises `CheckpointError` where tree and class disagree."""
    return _decode(cls, tree, tensors, getattr(cls, "__name__", "value"))


def _encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    match value:
        case Tensor():
            return _encode_tensor(value, name, tensors)
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return _encode_plain(value)
        case tuple() | list():
            return [_encode(item, _joined(name, index), tensors) for index, item in enumerate(value)]
        case dict():
            return {key: _encode(item, _joined(name, key), tensors) for key, item in value.items()}
    if is_dataclass(value):
        return {f.name: _encode(getattr(value, f.name), _joined(name, f.name), tensors) for f in fields(value)}
    raise TypeError(f"{name or 'the result'} is a {type(value).__name__}; a result holds tensors, numbers, strings, "
                    "tuples, dicts by string and dataclasses of these")  # fmt: skip


def _encode_tensor(value: Tensor, name: str, tensors: dict[str, Tensor]) -> Any:
    if name in tensors:
        raise ValueError(f"two tensors of the result are called {name}; rename a key")
    tensors[name] = value.detach().to("cpu", copy=True).contiguous()
    return {TENSOR_KEY: name}


def _encode_plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no word for nan


def _joined(name: str, part: object) -> str:
    return f"{name}.{part}" if name else str(part)


def _decode(hint: Any, tree: Any, tensors: Mapping[str, Tensor], where: str) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(hint), tree, tensors, where)
    if _is_tensor_hint(hint):
        return _decode_tensor(tree, tensors, where)
    if is_dataclass(hint):
        return _decode_dataclass(hint, tree, tensors, where)
    if typing.get_origin(hint) is tuple and isinstance(tree, list):
        return _decode_tuple(typing.get_args(hint), tree, tensors, where)
    if typing.get_origin(hint) is dict and isinstance(tree, dict):
        item = typing.get_args(hint)[1]
        return {key: _decode(item, value, tensors, f"{where}.{key}") for key, value in tree.items()}
    return _decode_plain(hint, tree, where)


def _is_tensor_hint(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, (AbstractArray, Tensor))


def _decode_union(options: tuple[Any, ...], tree: Any, tensors: Mapping[str, Tensor], where: str) -> Any:
    if tree is None and type(None) in options:
        return None
    kept = [option for option in options if option is not type(None)]
    for option in kept[:-1]:
        try:
            return _decode(option, tree, tensors, where)
        except CheckpointError:
            continue
    return _decode(kept[-1], tree, tensors, where)


def _decode_tensor(tree: Any, tensors: Mapping[str, Tensor], where: str) -> Tensor:
    if not isinstance(tree, dict) or set(tree) != {TENSOR_KEY} or tree[TENSOR_KEY] not in tensors:
        raise CheckpointError(f"{where} should be a saved tensor and is not.")
    return tensors[tree[TENSOR_KEY]]


def _decode_dataclass(cls: Any, tree: Any, tensors: Mapping[str, Tensor], where: str) -> Any:
    names = [field.name for field in fields(cls)]
    if not isinstance(tree, dict) or set(tree) != set(names):
        found = ", ".join(sorted(tree)) if isinstance(tree, dict) else type(tree).__name__
        raise CheckpointError(f"{where} should have the fields {', '.join(sorted(names))} and has {found}.")
    hints = typing.get_type_hints(cls)
    return cls(**{name: _decode(hints[name], tree[name], tensors, f"{where}.{name}") for name in names})


def _decode_tuple(
    items: tuple[Any, ...], tree: list[Any], tensors: Mapping[str, Tensor], where: str
) -> tuple[Any, ...]:
    hints = [items[0]] * len(tree) if len(items) == 2 and items[1] is Ellipsis else list(items)
    if len(hints) != len(tree):
        raise CheckpointError(f"{where} should have {len(hints)} items and has {len(tree)}.")
    pairs = enumerate(zip(hints, tree, strict=True))
    return tuple(_decode(hint, item, tensors, f"{where}[{i}]") for i, (hint, item) in pairs)


def _decode_plain(hint: Any, tree: Any, where: str) -> Any:
    if hint is Any:
        return tree
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(tree)
        except ValueError:
            raise CheckpointError(f"{where}={tree!r} is not a value of {hint.__name__}.") from None
    if hint is float and isinstance(tree, int | float | str) and not isinstance(tree, bool):
        if not isinstance(tree, str):
            return float(tree)
        if tree in _NOT_FINITE:
            return _NOT_FINITE[tree]
    elif isinstance(hint, type) and isinstance(tree, hint) and (hint is bool or not isinstance(tree, bool)):
        return tree
    raise CheckpointError(f"{where}={tree!r} is not {getattr(hint, '__name__', hint)}.")


def same(left: Any, right: Any) -> bool:
    """Whether two records hold the same values: equal trees, and tensors equal in type, shape and every element.

    NaN is the same as NaN, and as nothing else.
    """
    (tree, tensors), (other_tree, other_tensors) = encode(left), encode(right)
    return tree == other_tree and all(_same_tensor(tensors[name], other_tensors[name]) for name in tensors)


def _same_tensor(left: Tensor, right: Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return bool(((left == right) | ((left != left) & (right != right))).all())  # only NaN differs from itself
