"""What a study's config may hold, checked when it is made: long before the first pass, and in one sentence.

    require(self, n_sequences=at_least(2), level=between(0, 1), seed=SEED)

A number that is infinite or not a number passes no rule, since every comparison with it means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model.errors import ConfigError

if TYPE_CHECKING:
    from interp.head_roles import RoleRule


@dataclass(frozen=True)
class Rule:
    """Which numbers are allowed, and how that is said."""

    holds: Callable[[int | float], bool]
    said: str


def at_least(least: int | float) -> Rule:
    """Numbers from `least` up."""
    return Rule(lambda value: value >= least, f"a number of at least {least:g}")


def between(low: int | float, high: int | float) -> Rule:
    """Numbers strictly between two others."""
    return Rule(lambda value: low < value < high, f"a number between {low:g} and {high:g}, neither included")


def within(low: int | float, high: int | float) -> Rule:
    """Numbers from `low` to `high`, both included."""
    return Rule(lambda value: low <= value <= high, f"a number from {low} to {high}")


SEED = within(0, 2**31 - 1)
"""What a seed may be, so that it can be multiplied and added to before it reaches a generator."""


def require(config: Any, section: str = "", **rules: Rule) -> None:
    """Raise `ConfigError` for the first field that breaks its rule; None is left out, tuples are checked by element.

    `section` stands before the field's name, as `--set` spells it.

    >>> from types import SimpleNamespace
    >>> require(SimpleNamespace(seed=-1), seed=SEED)
    Traceback (most recent call last):
        ...
    model.errors.ConfigError: seed=-1 is not allowed; give a number from 0 to 2147483647.
    """
    for name, rule in rules.items():
        given = getattr(config, name)
        for value in given if isinstance(given, tuple) else (given,):
            if value is not None and not (math.isfinite(value) and rule.holds(value)):
                key = f"{section}.{name}" if section else name
                raise ConfigError(f"{key}={value} is not allowed; give {rule.said}.")


def require_role_rule(rule: RoleRule) -> None:
    """Raise `ConfigError` for a rule that no score could be held against; its fields are said as `rule.FIELD`."""
    require(rule, "rule", least_score=within(0, 1), margin=within(0, 1))
    require(rule, "rule", times_chance=at_least(0), times_reordered=at_least(0))
