"""Results of studies without their files of figures and tables: most of the time, for tests that read none of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from analyses import results


@contextmanager
def undrawn() -> Iterator[None]:
    """Save results as usual, but no figure and no table beside them (tests/analyses/test_study.py tries those)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "_write_drawings", lambda *_: None)
        yield
