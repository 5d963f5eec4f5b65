"""Every example in a docstring of the four packages is true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("model", "interp", "analyses", "apps")


def modules_with_examples() -> list[str]:
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    having = [file for file in files if ">>> " in file.read_text(encoding="utf-8")]
    return [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in having]


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_in_its_docstrings_are_true(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0
