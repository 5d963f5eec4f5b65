"""The page on circuits: every example on it runs as it stands."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/circuits.md"


def test_every_example_of_the_page_is_true() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.attempted >= 40
    assert outcome.failed == 0
