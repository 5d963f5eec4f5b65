"""What every config of a training run refuses, and how: the sentence of the first thing that is wrong."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from model.errors import ConfigError


def refuse(*checks: tuple[bool, str]) -> None:
    """Raise the sentence of the first check that is true."""
    for wrong, sentence in checks:
        if wrong:
            raise ConfigError(sentence)


def refuse_unless_finite(config: Any, section: str) -> None:
    """Refuse a config of which any number is infinite or not a number: comparisons let such numbers through.

    The config is named `section` in the sentence, as `--set` names it.
    """
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    refuse(
        *(
            (not math.isfinite(value), f"{section}.{name}={value} is not a finite number; give one that is.")
            for name, value in values.items()
            if isinstance(value, float)
        )
    )
