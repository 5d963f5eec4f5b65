"""Configs in which any two choices meet: derived from GPTConfig itself, so that a new choice is covered unasked.

Every enum field takes each of its members and every switch both of its values; grouped heads and a head width that is
not d_model / n_heads come in addition. A greedy pairwise covering keeps the list short.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from itertools import combinations
from typing import Any

from model import FFNKind, GPTConfig, Norm

Choice = tuple[str, Any]
Config = dict[str, Any]

SIZES: dict[str, tuple[int, ...]] = {"n_kv_heads": (4, 2, 1), "d_head": (4, 6)}
"""What is not an enum but changes shapes; for models of 4 heads and d_model 16."""


def choices() -> dict[str, tuple[Any, ...]]:
    """Every field of the config that is a choice, with its options, the default first."""
    found: dict[str, tuple[Any, ...]] = {}
    for field in fields(GPTConfig):
        if isinstance(field.default, Enum):
            found[field.name] = tuple(sorted(type(field.default), key=lambda member: member is not field.default))
        elif isinstance(field.default, bool):
            found[field.name] = (field.default, not field.default)
    return found | SIZES


def pairs_of(config: Mapping[str, Any]) -> set[frozenset[Choice]]:
    """The pairs of choices that meet in a config."""
    return {frozenset(pair) for pair in combinations(config.items(), 2)}


def all_pairs(options: Mapping[str, tuple[Any, ...]]) -> set[frozenset[Choice]]:
    """Every pair of choices from two different fields."""
    return {
        frozenset({(one, a), (other, b)})
        for one, other in combinations(options, 2)
        for a in options[one]
        for b in options[other]
    }


def covering(options: Mapping[str, tuple[Any, ...]], seed: int = 0) -> list[Config]:
    """The defaults, then configs that together hold every pair of choices.

    Each begins with a missing pair and adds what covers most of the others; where nothing is left to cover, chance
    (named by the seed) chooses, so that larger groups of choices meet as well.
    """
    chance = random.Random(seed)
    configs = [{name: values[0] for name, values in options.items()}]
    missing = sorted(all_pairs(options) - pairs_of(configs[0]), key=lambda pair: sorted(map(str, pair)))
    while missing:
        config, wanted = dict(missing[0]), set(missing)
        for name in sorted(options, key=lambda name: -len(options[name])):
            if name not in config:
                ranked = [(_gained(config, (name, value), wanted), chance.random(), value) for value in options[name]]
                config[name] = max(ranked, key=lambda ranked: ranked[:2])[2]
        configs.append({name: config[name] for name in options})
        missing = [pair for pair in missing if pair not in pairs_of(config)]
    return configs


def _gained(config: Config, added: Choice, wanted: set[frozenset[Choice]]) -> int:
    return sum(frozenset({choice, added}) in wanted for choice in config.items())


_DEFAULT = {name: values[0] for name, values in choices().items()}
PECULIAR: list[Config] = [
    _DEFAULT | {"norm": Norm.SANDWICH, "ffn": FFNKind.RELU},
    _DEFAULT | {"norm": Norm.DEEPNORM, "ffn": FFNKind.RELU, "skip_connections": False},
]
"""Where a divisor has no effect (tests/model/test_every_hook.py), in addition to what chance meets."""

CONFIGS = [*covering(choices()), *PECULIAR]


def id_of(config: Config) -> str:
    """What a config chooses beside the defaults, as a test id."""
    changed = [f"{name}={value}" for name, value in config.items() if value != _DEFAULT[name]]
    return "-".join(changed) or "default"
