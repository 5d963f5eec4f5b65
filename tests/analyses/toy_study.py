"""A study small enough to check by eye: it doubles a number. Tests register it in place of a real one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import altair as alt
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.registry import Finding

QUESTION = "What is twice the weight?"
NEEDS_RUN = False


class Colour(StrEnum):
    """Something an enum can be."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    factor: float = 2.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """A nested record."""

    name: str
    values: Float[Tensor, " n"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is found."""

    config: Config
    colour: Colour
    doubled: Float[Tensor, "row column"]
    parts: tuple[Part, ...]
    by_name: dict[str, float]
    step: int | None
    reference: Float[Tensor, " n"] | None


def run(subject: Any | None, config: Config, *, progress: Any = None, device: str = "cpu") -> Result:
    """Twice the subject's weight, or twice one."""
    weight = 1.0 if subject is None else float(subject.weight)
    return Result(
        config=config,
        colour=Colour.BLUE,
        doubled=config.factor * weight * torch.eye(2),
        parts=(Part(name="a", values=torch.arange(3.0)), Part(name="b", values=torch.zeros(0))),
        by_name={"pi": 3.25, "L0.W_Q": float("nan"), "much": float("inf")},
        step=None,
        reference=None,
    )


def table(result: Result) -> pd.DataFrame:
    """One row."""
    return pd.DataFrame({"doubled": [float(result.doubled[0, 0])]})


def figure(result: Result) -> Any:
    """One point."""
    return alt.Chart(table(result)).mark_point().encode(x="doubled:Q")


def findings(result: Result) -> list[Finding]:
    """One sentence."""
    return [Finding(sentence=f"Twice the weight is {float(result.doubled[0, 0]):g}.", found=True)]
