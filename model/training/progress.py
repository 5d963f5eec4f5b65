"""Who watches a run: anything with these two methods. Bars and colours belong to the apps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Who watches a run."""

    def on_step(self, step: int, steps: int, row: Mapping[str, Any] | None) -> None:
        """`step` of `steps` was reached; `row` is its row of metrics, if it has one."""

    def message(self, text: str) -> None:
        """Something worth saying happened."""


class Silent:
    """Nobody watches."""

    def on_step(self, step: int, steps: int, row: Mapping[str, Any] | None) -> None:
        """Say nothing."""

    def message(self, text: str) -> None:
        """Say nothing."""
