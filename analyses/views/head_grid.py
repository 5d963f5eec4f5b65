"""The head grid's payload: one value per head, with its interval, its value at step 0, what is chosen, and its past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.views.payload import Payload, Scale, checked, fitted, numbers, packed_floats, scale_fields, visible_label
from model.errors import InputError

HINT = "point at a head to read it; click to choose it; shift-click or X adds it to the ablation"


@dataclass(frozen=True, kw_only=True)
class Frames:
    """The same quantity at several checkpoints, to be moved through without asking the server."""

    steps: Sequence[int]
    """Training steps, ascending."""

    values: Float[Tensor, "step layer head"]
    """One number per step and head; what is not finite is drawn as a dash."""

    low: Float[Tensor, "step layer head"] | None = None
    """Lower ends of the intervals."""

    high: Float[Tensor, "step layer head"] | None = None
    """Upper ends."""


def head_grid_payload(
    values: Float[Tensor, "layer head"] | None,
    label: str,
    *,
    scale: Scale | None = None,
    interval: tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]] | None = None,
    before: Float[Tensor, "layer head"] | None = None,
    sure: Bool[Tensor, "layer head"] | None = None,
    chosen: str | None = None,
    ablated: Sequence[str] = (),
    marks: Sequence[Sequence[str]] | None = None,
    digits: int = 2,
    hint: str = HINT,
    frames: Frames | None = None,
    step: int | None = None,
    sparklines: bool = False,
    other: Float[Tensor, "layer_b head_b"] | None = None,
    names: tuple[str, str] = ("A", "B"),
) -> Payload:
    """Return what the head grid draws.

    Args:
        values: one number per head; what is not finite is drawn as a dash. May be None where `frames` has them.
        label: what the numbers are, with their unit.
        scale: the colours; by default sequential from 0 to the largest value, or diverging if some value is negative.
            It is one scale over all frames and both grids.
        interval: the ends of each value's confidence interval, read out on hover.
        before: the same quantity at step 0, in small print in each cell.
        sure: which values are told apart from none (underlined).
        chosen: the head that is selected, as in `L1H3`.
        ablated: the heads in the set to ablate, outlined.
        marks: a short word under each value, such as a distance.
        digits: decimals shown.
        hint: the line below while nothing is pointed at.
        frames: the quantity over training: a slider and a button to play it. Interval, marks and what is told apart
            belong to `values`, and are left out at any other step.
        step: which of the frames is shown first, and `values` is, where they are given; by default the last.
        sparklines: whether each cell has a line over the frames.
        other: a second grid, to be compared with the first.
        names: what the two grids are called.

    Raises:
        InputError: if shapes disagree, steps do not ascend, `step` is none of them, or there is nothing to draw.
    """
    if frames is not None:
        step = _checked_step(frames, values, step)
        own = list(frames.steps)[-1] if values is None else step
        values = frames.values[-1] if values is None else values
    else:
        own = None
    if values is None:
        raise InputError("a head grid needs values, or frames to take them from")
    if other is not None and other.shape != values.shape:
        raise InputError(f"grids to compare must be of one shape; these are {_shape(values)} and {_shape(other)}")
    every = torch.cat(
        [each.flatten().double() for each in (values, other, frames and frames.values) if each is not None]
    )
    kind = "diverging" if bool((every < 0).any()) else "sequential"
    return checked(
        {
            "values": numbers(values),
            "label": visible_label(label),
            "scale": scale_fields(scale or fitted(every, kind)),
            "low": None if interval is None else numbers(interval[0]),
            "high": None if interval is None else numbers(interval[1]),
            "before": None if before is None else numbers(before),
            "sure": None if sure is None else sure.tolist(),
            "chosen": chosen,
            "set": list(ablated),
            "marks": None if marks is None else [list(row) for row in marks],
            "digits": digits,
            "hint": hint,
            "frames": None if frames is None else _packed(frames, own),
            "step": step,
            "sparklines": sparklines and frames is not None,
            "other": None if other is None else numbers(other),
            "difference": None
            if other is None
            else scale_fields(fitted(values.double() - other.double(), "diverging")),
            "names": list(names),
        }
    )


def _packed(frames: Frames, own: int | None) -> Payload:
    """The frames, and at which of them the grid's own values, marks and intervals stand."""
    ends = {"low": frames.low, "high": frames.high}
    packed = {name: None if end is None else packed_floats(end) for name, end in ends.items()}
    return {"steps": list(map(int, frames.steps)), "of": own, "values": packed_floats(frames.values), **packed}


def _checked_step(frames: Frames, values: Tensor | None, step: int | None) -> int:
    """Which of the frames is shown first, once they are known to fit together."""
    steps = list(frames.steps)
    if not steps or steps != sorted(set(steps)):
        raise InputError(f"frames need steps that ascend; these are {steps}")
    if frames.values.ndim != 3 or len(frames.values) != len(steps):
        raise InputError(
            f"{len(steps)} steps need values of shape step x layer x head; these are {_shape(frames.values)}"
        )
    ends = [end for end in (frames.low, frames.high) if end is not None]
    if len(ends) == 1 or any(end.shape != frames.values.shape for end in ends):
        raise InputError("frames need both ends of their intervals, of the shape of their values, or none")
    if values is not None and values.shape != frames.values.shape[1:]:
        raise InputError(f"values of shape {_shape(values)} do not fit frames of {_shape(frames.values[0])}")
    if step is not None and step not in steps:
        raise InputError(f"there is no frame at step {step}; there are {', '.join(map(str, steps))}")
    return steps[-1] if step is None else int(step)


def _shape(values: Tensor) -> str:
    return "x".join(map(str, values.shape))
