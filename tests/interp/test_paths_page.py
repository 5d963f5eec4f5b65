"""The page about paths shows what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/paths.md"


def test_every_example_on_the_page_does_what_it_says() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert results.attempted > 20
    assert results.failed == 0
