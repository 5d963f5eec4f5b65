"""Gradients of one checkpoint on held-out text, beside those of step 0 of the same run (for `analyses.gradient_flow`).

The rows are cut into groups, each of which has a gradient of its own; how much the groups differ says how sure a ratio
of norms is. The norms themselves are of the gradient over all rows together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.checkpoints import first_checkpoint
from interp.gradients import MATRICES, gradient_norms, stream_gradient_norms
from interp.stats import Interval, over_seeds
from model.gpt import GPT
from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class StepGradients:
    """One checkpoint's gradient on the held-out rows."""

    step: int

    loss: float
    """Mean next-token loss, in nats."""

    matrices: tuple[str, ...]
    """"L0.W_Q" and so on, layer by layer."""

    matrix_norms: Float[Tensor, " matrix"]
    """Norm of dL/dW."""

    places: tuple[str, ...]
    """Places of the residual stream, in forward order."""

    stream_norms: Float[Tensor, " place"]
    """Norm of dL/dx."""

    mean_square: Float[Tensor, " place"]
    """Mean of x^2."""

    group_ratios: Float[Tensor, " group"]
    """ln of dL/dx at the bottom of the stream over dL/dx at its top, in each group of rows."""

    @property
    def ratio(self) -> Interval:
        """The mean of `group_ratios` with Student's interval over groups."""
        return over_seeds(self.group_ratios)


@dataclass(frozen=True, kw_only=True)
class CheckpointGradients:
    """A checkpoint and, beside it, step 0 of the same run."""

    run: str
    """The run's name."""

    norm: str
    """Where the model's norms stand."""

    n_layers: int

    now: StepGradients

    initial: StepGradients | None
    """None where step 0 is not kept, and where this is step 0."""

    n_sequences: int
    n_groups: int
    n_tokens: int
    """Tokens in all rows."""

    @property
    def change(self) -> Interval | None:
        """How the ln ratio of bottom to top changed since step 0, paired by group; None without step 0."""
        return None if self.initial is None else over_seeds(self.now.group_ratios - self.initial.group_ratios)


def measured_checkpoint(lab: Lab, *, n_sequences: int, n_groups: int) -> CheckpointGradients | None:
    """Gradients at `lab`'s checkpoint; None where the run holds too little text out for the groups."""
    rows = lab.eval_tokens[:n_sequences]
    if len(rows) < n_groups:
        return None
    rows = rows[: len(rows) // n_groups * n_groups]  # groups of one size
    now, first = _measured(lab.gpt, lab.step, rows, n_groups), first_checkpoint(lab)
    return CheckpointGradients(
        run=lab.name,
        norm=lab.config.norm.value,
        n_layers=lab.config.n_layers,
        now=now,
        initial=None if first is None else _measured(first.gpt, 0, rows, n_groups),
        n_sequences=len(rows),
        n_groups=n_groups,
        n_tokens=rows.numel(),
    )


def _measured(gpt: GPT, step: int, rows: Tensor, n_groups: int) -> StepGradients:
    whole = gradient_norms(gpt, rows)
    groups = [stream_gradient_norms(gpt, group) for group in rows.chunk(n_groups)]
    names = [f"L{i}.{matrix}" for i in range(gpt.config.n_layers) for matrix in MATRICES]
    names = [name for name in names if name in whole.parameters]
    return StepGradients(
        step=step,
        loss=whole.loss,
        matrices=tuple(names),
        matrix_norms=_tensor(whole.parameters[name] for name in names),
        places=tuple(whole.stream),
        stream_norms=_tensor(whole.stream.values()),
        mean_square=_tensor(whole.mean_square.values()),
        group_ratios=_tensor(_bottom_to_top(group) for group in groups),
    )


def _bottom_to_top(norms: Mapping[str, float]) -> float:
    places = list(norms.values())
    return math.log(places[0] / places[-1]) if places[0] > 0 and places[-1] > 0 else math.nan


def _tensor(numbers: object) -> Tensor:
    return torch.tensor(list(numbers))  # type: ignore[call-overload]
